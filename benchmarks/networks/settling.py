"""Weights for topologies: of a checkpoint, or seeded and random with statistics that keep every layer busy."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from nnhw.nn import Quantizer, load_packed
from nnhw.nn.calibration import rounded

CHECKPOINTS = Path(__file__).parent / "checkpoints"
FALLING = 8  # one in so many channels has a negative gamma


def weighted(model: nn.Module, name: str, images: torch.Tensor) -> nn.Module:
    """Return the model with the weights of its checkpoint; without one, `settled`. In eval mode."""
    checkpoint = CHECKPOINTS / f"{name}.npz"
    return load_packed(model, checkpoint) if checkpoint.exists() else settled(model, images)


def settled(model: nn.Module, images: torch.Tensor, seed: int = 1) -> nn.Module:
    """Make random batch norms, and let these and observed scales settle on images. In eval mode.

    Parameters
    ----------
    images: [N, ..]; the statistics of the batch norms, and the ranges of the quantizers, are those of this batch.
    """
    generator = torch.Generator().manual_seed(seed)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0  # the running statistics become those of the one batch
        if norm.affine:
            with torch.no_grad():
                norm.weight.copy_(torch.rand(norm.num_features, generator=generator) + 0.5)
                norm.weight[::FALLING] *= -1
                norm.bias.copy_(torch.randn(norm.num_features, generator=generator) * 0.2)
    model.train()
    with torch.no_grad():
        model(images)
    for norm in norms:
        norm.momentum = 0.1
        for statistic in (norm.running_mean, norm.running_var):
            assert statistic is not None
            statistic.copy_(rounded(statistic))  # what differs from machine to machine are the last bits of sums
    return model.eval()


def observed(bits: int, *, signed: bool = False) -> Quantizer:
    """Return an activation's quantizer whose scale, a power of two, follows from the data that it sees in training."""
    if signed:
        return Quantizer(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, "observed")
    return Quantizer(0, (1 << bits) - 1, "observed")
