"""A small dense autoencoder of heartbeats, 140-32-8-32-140: what it cannot repeat is not normal.

Trained by `train.py`; without its checkpoint, weights are random.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from benchmarks.networks.settling import observed, weighted
from nnhw.nn import Int, QuantLinear, UInt

SAMPLES = 140
SIZES = (SAMPLES, 32, 8, 32, SAMPLES)
BITS = 8


class EcgAutoencoder(nn.Module):
    """[N, 140] in [0, 1) --> [N, 140]."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = UInt(BITS, scale=2**-8)
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(SIZES):
            layers.append(QuantLinear(inputs, outputs, weight_quant=Int(BITS, "max_abs", axis=0)))
            layers += [nn.ReLU(), observed(BITS)]
        self.layers = nn.Sequential(*layers[:-2])  # the last layer's sums leave as they are

    def forward(self, x: Tensor) -> Tensor:
        """Repeat a heartbeat."""
        result: Tensor = self.layers(self.samples(x))
        return result


def build_model() -> nn.Module:
    """Return the network."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return weighted(EcgAutoencoder(), "ecg_autoencoder", torch.rand(16, SAMPLES))


example_input = torch.rand(4, SAMPLES, generator=torch.Generator().manual_seed(1))
model = build_model()
