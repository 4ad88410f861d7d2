"""The autoencoder of MLPerf Tiny's machine sounds, 640-128-128-128-128-8-128-128-128-128-640; random weights.

Source: Banbury et al., MLPerf Tiny Benchmark, arXiv:2106.07597.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn

from benchmarks.networks.settling import observed, settled
from nnhw.nn import Int, QuantLinear

SIZES = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640)


def build_model(weight_bits: int = 2, bits: int = 8) -> nn.Module:
    """Return the network with random weights: features [N, 640] in [-4, 4) --> [N, 640].

    Parameters
    ----------
    weight_bits, bits: of the weights, and of input and activations.
    """
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers: list[nn.Module] = [Int(bits, scale=2.0 ** (3 - bits))]
        last = len(SIZES) - 2
        for number, (inputs, outputs) in enumerate(itertools.pairwise(SIZES)):
            layers.append(QuantLinear(inputs, outputs, weight_quant=Int(weight_bits, "max_abs", axis=0)))
            layers += [] if number == last else [nn.BatchNorm1d(outputs), nn.ReLU(), observed(bits)]
        return settled(nn.Sequential(*layers), torch.randn(64, SIZES[0]))


example_input = torch.randn(4, SIZES[0], generator=torch.Generator().manual_seed(1))
model = build_model()
