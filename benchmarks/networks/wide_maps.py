"""Depthwise-separable layers on large feature maps, which have more values than weights; random weights."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.networks.mobilenet import MobileNet
from benchmarks.networks.settling import settled

STEM = (16, 1)
PAIRS = ((32, 1), (32, 2), (48, 2), (64, 2))
CLASSES = 10
SIDE = 64


def build_model(bits: int = 8) -> nn.Module:
    """Return the network with random weights; weights and activations have `bits` bits, the image 8."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return settled(MobileNet((bits, bits), STEM, PAIRS, CLASSES), torch.rand(8, 3, SIDE, SIDE))


example_input = torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
model = build_model()
