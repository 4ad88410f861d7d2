"""An MNIST network of three linear layers, 784-32-16-10.

Trained by `train.py`; without its checkpoints, weights are random.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn

from benchmarks.networks.settling import observed, weighted
from nnhw.nn import Int, QuantLinear, UInt

SIZES = (784, 32, 16, 10)


def build_model(bits: int = 8) -> nn.Module:
    """Return the network: [N, 1, 28, 28] in [0, 1] --> logits [N, 10]; everything has `bits` bits, the pixels too."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers: list[nn.Module] = [nn.Flatten(), UInt(bits, scale=2**-bits)]
        for inputs, outputs in itertools.pairwise(SIZES):
            layers.append(QuantLinear(inputs, outputs, weight_quant=Int(bits, "max_abs", axis=0)))
            layers += [nn.ReLU(), observed(bits)] if outputs != SIZES[-1] else []
        return weighted(nn.Sequential(*layers), f"mlp784_w{bits}a{bits}", torch.rand(16, 1, 28, 28))


example_input = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(1))
model = build_model()
model_4bit = build_model(4)
