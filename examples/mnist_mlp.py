"""A binary multilayer perceptron for MNIST: one bit per weight, per activation and per pixel."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

from nnhw.nn import QuantLinear, Scale, Sign, load_packed

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE / "checkpoints" / "mnist_mlp.npz"
WIDTHS = (784, 64, 64, 64)
CLASSES = 10


class Centre(nn.Module):
    """[0, 1] --> [-0.5, 0.5], so that the sign of a pixel says whether it is bright."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape; shape and dtype stay."""
        return x - 0.5


def build_model() -> nn.Sequential:
    """Make the untrained model: [N, 1, 28, 28] float32 in [0, 1] --> [N, 10] float32.

    The outputs are sums of 64 products of +-1, times 2**-3: integers times a power of two.
    """
    layers: list[nn.Module] = [nn.Flatten(), Centre(), Sign()]
    for width_in, width_out in pairwise(WIDTHS):
        layers += [QuantLinear(width_in, width_out, bias=False), nn.BatchNorm1d(width_out), Sign()]
    layers += [QuantLinear(WIDTHS[-1], CLASSES, bias=False), Scale(2**-3)]
    return nn.Sequential(*layers)


def _first_digits(count: int = 8) -> torch.Tensor:
    with np.load(HERE / "data" / "mnist_300.npz", allow_pickle=False) as samples:
        pixels = samples["images"][:count, np.newaxis].astype(np.float32)
    return torch.from_numpy(pixels / np.float32(255))


model = load_packed(build_model(), CHECKPOINT) if CHECKPOINT.exists() else None  # None: train_mnist.py makes it
example_input = _first_digits()
