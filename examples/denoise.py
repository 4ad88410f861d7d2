"""A plain float network that takes noise out of waveforms, quantized to 8 bits after training.

It ends in a residual branch, the input less the noise that it finds, and goes back to the input's length by transposed
convolutions. `python examples/denoise.py build/denoise-ulx3s_25f` runs a finished build of it on the virtual board.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import nn

import nnhw
from nnhw.nn import load_packed

CHECKPOINT = Path(__file__).resolve().parent / "checkpoints" / "denoise.npz"
SAMPLES = 64
NOISE = 0.25
CALIBRATION_WAVES = 200


class Denoiser(nn.Module):
    """Waveforms [N, 1, 64] --> the same with less noise."""

    def __init__(self) -> None:
        super().__init__()
        self.noise = nn.Sequential(
            nn.Conv1d(1, 8, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(8, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.ConvTranspose1d(16, 8, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose1d(8, 1, 4, stride=2, padding=1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the waveforms less the noise in them."""
        return x - self.noise(x)


def make_waves(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy and clean waveforms, float32 [count, 1, 64]: two sines each, and white noise."""
    rng = np.random.default_rng(seed)
    time = np.arange(SAMPLES) / SAMPLES
    waves = np.zeros((count, SAMPLES))
    for _ in range(2):
        periods, phase, amplitude = rng.uniform(0.5, 4, count), rng.uniform(0, 1, count), rng.uniform(0.1, 0.5, count)
        waves += amplitude[:, None] * np.sin(2 * np.pi * (periods[:, None] * time + phase[:, None]))
    noisy = waves + rng.normal(0, NOISE, waves.shape)
    clean, disturbed = (torch.from_numpy(each[:, None].astype(np.float32)) for each in (waves, noisy))
    return disturbed, clean


def decibels(waves: np.ndarray, clean: np.ndarray) -> float:
    """Return the ratio of signal to what is left of the noise, in dB."""
    return float(10 * np.log10((clean**2).sum() / ((waves - clean) ** 2).sum()))


example_input = make_waves(8, seed=1)[0]
float_model = load_packed(Denoiser(), CHECKPOINT) if CHECKPOINT.exists() else None  # None: train_denoise.py makes it
model = None if float_model is None else nnhw.quantize(float_model, [make_waves(CALIBRATION_WAVES, seed=1)[0]])


def main(
    folder: Annotated[Path, typer.Argument(metavar="BUILD", help="A folder that `nnhw build` made of this example.")],
    link: Annotated[str, typer.Option(help="sim, model, auto, or a serial port.")] = "sim",
) -> None:
    """Run 200 waveforms through the hardware, and compare every sample with the exact reference."""
    noisy, clean = (waves.numpy() for waves in make_waves(200, seed=0))
    with nnhw.open(folder, link=link) as device:
        better = device(noisy.astype(np.float64))  # all bits of the results: float32 would round them
    equal = int((better == nnhw.reference(model)(noisy)).all(axis=(1, 2)).sum())
    print(f"signal to noise: {decibels(noisy, clean):.2f} dB in, {decibels(better, clean):.2f} dB out")
    print(f"equality: {equal} of {len(noisy)} waveforms equal to the reference in every bit")
    if equal != len(noisy):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
