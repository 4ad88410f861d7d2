"""A small MNIST network: two strided convolutions and a linear layer, 8 bit.

Trained by `train.py`; without its checkpoint, weights are random.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn

from benchmarks.networks.settling import observed, weighted
from nnhw.nn import Int, QuantConv2d, QuantLinear, UInt

BITS = 8
CHANNELS = (1, 8, 16)
SIDE = 6  # 28 -> 13 -> 6 pixels


def build_model() -> nn.Module:
    """Return the network: [N, 1, 28, 28] in [0, 1] --> logits [N, 10]."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers: list[nn.Module] = [UInt(BITS, scale=2**-8)]
        for channels_in, channels_out in itertools.pairwise(CHANNELS):
            quantizer = Int(BITS, "max_abs", axis=0)
            layers += [
                QuantConv2d(channels_in, channels_out, 3, stride=2, bias=False, weight_quant=quantizer),
                *(nn.BatchNorm2d(channels_out), nn.ReLU(), observed(BITS)),
            ]
        last = QuantLinear(CHANNELS[-1] * SIDE * SIDE, 10, weight_quant=Int(BITS, "max_abs", axis=0))
        return weighted(nn.Sequential(*layers, nn.Flatten(), last), "cnn_small", torch.rand(16, 1, 28, 28))


example_input = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(1))
model = build_model()
