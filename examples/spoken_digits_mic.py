"""Spoken digits from a microphone, without a computer: log-mel features as integers, and a network of two convolutions.

`nnhw build examples/spoken_digits_mic.py --input i2s` makes the whole device. The weights are those of
`train_spoken_digits_mic.py`; the recordings that they were trained with are not in this repository.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from nnhw.nn import Int, LogMel, QuantConv2d, QuantLinear, QuantReLU, SensorModel, load_packed

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE / "checkpoints" / "spoken_digits_mic.npz"
NOTHING = 10  # the class of frames in which no digit is complete


def build_model() -> SensorModel:
    """Make the untrained model: samples [N, n] of 16 bits at 8 kHz --> [N, n // 128, 11].

    Each frame holds 32 windows of 16 bands, half a second; the results are those of 0 to 9, and of nothing.
    """
    network = nn.Sequential(
        Int(8, scale=2**-6),  # the codes of the front end
        QuantConv2d(1, 12, 3, weight_quant=Int(4, axis=0), bias=False),
        nn.BatchNorm2d(12),
        QuantReLU(4),
        nn.MaxPool2d(2),
        QuantConv2d(12, 24, 3, weight_quant=Int(4, axis=0), bias=False),
        nn.BatchNorm2d(24),
        QuantReLU(4),
        nn.MaxPool2d(2),
        nn.Flatten(),
        QuantLinear(24 * 6 * 2, 11, weight_quant=Int(4)),
        Int(8, scale=2**-3),  # so that the largest code is the largest result
    )
    return SensorModel(LogMel(steps=32, bands=16), network)


def chirps(count: int, seconds: float = 0.25) -> Tensor:
    """Return made-up sounds, rising and falling tones, float32 [count, samples] of whole numbers."""
    times = torch.arange(int(8000 * seconds)) / 8000
    first = torch.linspace(300, 2500, count)[:, None]
    return (8000 * torch.sin(2 * torch.pi * (first * times + (1500 - first) * times**2))).round()


model = load_packed(build_model(), CHECKPOINT) if CHECKPOINT.exists() else None  # train_spoken_digits_mic.py makes it
example_input = chirps(2)
