"""A GRU that recognizes spoken digits step by step: 16 mel bands every 16 ms, 32 units, 8 bits.

It runs with any number of steps: `nnhw.reference(model)(features(pcm)[None])`, and as C with a call for each step. The
weights are those of `train_spoken_digits.py`; the recordings that they were trained with are not in this repository.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from nnhw.nn import Int, QuantGRU, QuantLinear, load_packed

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE / "checkpoints" / "spoken_digits.npz"
RATE_HZ, WINDOW, HOP, BANDS, UNITS = 8000, 256, 128, 16, 32
LOWEST_HZ, HIGHEST_HZ = 100.0, 3800.0


def mel_filters() -> Tensor:
    """Return triangular filters [BANDS, WINDOW / 2 + 1], evenly spaced in mel (2595 log10(1 + f / 700))."""

    def mel(hz: float) -> float:
        return 2595 * float(torch.log10(torch.tensor(1 + hz / 700, dtype=torch.float64)))

    points = torch.linspace(mel(LOWEST_HZ), mel(HIGHEST_HZ), BANDS + 2, dtype=torch.float64)
    edges = 700 * (10 ** (points / 2595) - 1)
    hz = torch.arange(WINDOW // 2 + 1, dtype=torch.float64) * RATE_HZ / WINDOW
    rising = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0).float()


def features(pcm: Tensor) -> Tensor:
    """Return the log energy of each mel band, float32 [steps, BANDS], about -1.5 to 1.9.

    Parameters
    ----------
    pcm: samples of 16 bits [samples] at 8 kHz, one window or more.
    """
    frames = (pcm.float() / 2**15).unfold(0, WINDOW, HOP) * torch.hann_window(WINDOW)
    energy = torch.fft.rfft(frames).abs().square() @ mel_filters().T
    return torch.log2(energy + 2.0**-16) / 8 + 0.5


class SpokenDigits(nn.Module):
    """[N, steps, BANDS] --> [N, 10]: logits behind the last step.

    Parameters
    ----------
    bits: of weights, states and gates; None: a float network with the same parameters.
    """

    def __init__(self, bits: int | None = None) -> None:
        super().__init__()
        self.gru: nn.GRU
        if bits is None:
            self.codes: nn.Module = nn.Identity()
            self.gru, self.last = nn.GRU(BANDS, UNITS, batch_first=True), nn.Linear(UNITS, 10)
        else:
            self.codes = Int(8, 2.0**-6)
            formats = {"weight_quant": Int(bits, axis=0), "candidate_quant": Int(bits)}
            formats["state_quant"] = Int(bits, 2.0 ** (1 - bits))
            self.gru = QuantGRU(BANDS, UNITS, batch_first=True, **formats)
            self.last = QuantLinear(UNITS, 10, weight_quant=Int(bits))

    def forward(self, sequences: Tensor) -> Tensor:
        """Logits."""
        states, _ = self.gru(self.codes(sequences))
        logits: Tensor = self.last(states[:, -1])
        return logits

    def each(self, sequences: Tensor) -> Tensor:
        """Return the logits behind every step, [N, steps, 10]."""
        logits: Tensor = self.last(self.gru(self.codes(sequences))[0])
        return logits


def chirps(count: int, steps: int = 40) -> Tensor:
    """Return features of made-up sounds, rising and falling tones, float32 [count, steps, BANDS]."""
    seconds = torch.arange((steps - 1) * HOP + WINDOW) / RATE_HZ
    first = torch.linspace(300, 2500, count)[:, None]
    phase = 2 * torch.pi * (first * seconds + (1500 - first) * seconds**2)
    return torch.stack([features(sound) for sound in (8000 * torch.sin(phase)).round()])


model = load_packed(SpokenDigits(8), CHECKPOINT) if CHECKPOINT.exists() else None  # train_spoken_digits.py makes it
example_input = chirps(8)
