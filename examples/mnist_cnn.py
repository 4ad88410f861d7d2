"""A binary convolutional network for MNIST: one bit per weight and activation, 4 bits per pixel."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from nnhw.nn import QuantConv2d, QuantLinear, Scale, Sign, UInt, load_packed

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE / "checkpoints" / "mnist_cnn.npz"
CHANNELS = (1, 16, 32, 112)
CLASSES = 10


def _block(channels_in: int, channels_out: int, *, pool: bool) -> list[nn.Module]:
    conv = QuantConv2d(channels_in, channels_out, 3, bias=False)
    # Pooling signs is one OR gate per pixel, which is why it stands behind the Sign.
    return [conv, nn.BatchNorm2d(channels_out), Sign(), *([nn.MaxPool2d(2)] if pool else [])]


def build_model() -> nn.Sequential:
    """Make the untrained model: [N, 1, 28, 28] float32 in [0, 1] --> [N, 10] float32.

    Sizes: 28 -> 26 -> 13 -> 11 -> 5 -> 3 pixels a side. The outputs are sums of 1008 products of +-1, times
    2**-5: integers times a power of two.
    """
    return nn.Sequential(
        UInt(4, scale=2**-4),
        *_block(CHANNELS[0], CHANNELS[1], pool=True),
        *_block(CHANNELS[1], CHANNELS[2], pool=True),
        *_block(CHANNELS[2], CHANNELS[3], pool=False),
        nn.Flatten(),
        QuantLinear(9 * CHANNELS[3], CLASSES, bias=False),
        Scale(2**-5),
    )


def _first_digits(count: int = 8) -> torch.Tensor:
    with np.load(HERE / "data" / "mnist_300.npz", allow_pickle=False) as samples:
        pixels = samples["images"][:count, np.newaxis].astype(np.float32)
    return torch.from_numpy(pixels / np.float32(255))


model = load_packed(build_model(), CHECKPOINT) if CHECKPOINT.exists() else None  # None: train_mnist.py makes it
example_input = _first_digits()
