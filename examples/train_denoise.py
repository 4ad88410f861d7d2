"""Train the denoising example, a minute on one CPU core: `python examples/train_denoise.py`."""

from typing import Annotated

import torch
import typer
from denoise import CHECKPOINT, Denoiser, decibels, make_waves
from rich.progress import track
from torch.nn import functional

from nnhw.nn import save_packed

TEST_SEED = 0  # training draws its waveforms with the seeds from 1,000 on
BATCH = 64


def main(
    steps: Annotated[int, typer.Option(help="Batches of new waveforms.")] = 6000,
    seed: Annotated[int, typer.Option(help="Of the first weights.")] = 1,
) -> None:
    """Train with the mean square of what is left of the noise, and save the weights."""
    torch.manual_seed(seed)
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in track(range(steps), "training"):
        noisy, clean = make_waves(BATCH, 1000 + step)
        optimizer.zero_grad()
        functional.mse_loss(model(noisy), clean).backward()
        optimizer.step()
        schedule.step()
    noisy, clean = make_waves(1000, TEST_SEED)
    with torch.no_grad():
        better = model.eval()(noisy)
    print(f"signal to noise: {decibels(noisy.numpy(), clean.numpy()):.2f} dB in, "
          f"{decibels(better.numpy(), clean.numpy()):.2f} dB out, on 1,000 waveforms")  # fmt: skip
    save_packed(model, CHECKPOINT)


if __name__ == "__main__":
    typer.run(main)
