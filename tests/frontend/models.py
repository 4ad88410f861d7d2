"""Small models for tests: seeded, with batch norms whose statistics are not the trivial ones."""

from __future__ import annotations

import torch
from torch import nn

from nnhw.nn import QuantConv2d, QuantLinear, QuantReLU, Scale, Sign, UInt


def images(count: int = 4, shape: tuple[int, ...] = (1, 8, 8), seed: int = 0) -> torch.Tensor:
    """Return float32 numbers in [0, 1)."""
    return torch.rand((count, *shape), generator=torch.Generator().manual_seed(seed))


def settled(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter and statistic a random value, and return the model in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_(0, 4, generator=generator)
            module.running_var.uniform_(0.5, 20, generator=generator)
    return model.eval()


def binary_mlp() -> nn.Module:
    """[N, 1, 8, 8] --> [N, 5]."""
    layers = [nn.Flatten(), Sign(), QuantLinear(64, 12), nn.BatchNorm1d(12), Sign(), QuantLinear(12, 5, bias=False)]
    return settled(nn.Sequential(*layers, Scale(0.25)))


def mixed_cnn() -> nn.Module:
    """[N, 1, 8, 8] --> [N, 5], with 4-bit inputs, 2-bit activations, pooling and a bias."""
    first = [UInt(4, scale=2**-4), QuantConv2d(1, 6, 3), nn.BatchNorm2d(6), nn.MaxPool2d(2), QuantReLU(2, 0.5)]
    return settled(nn.Sequential(*first, nn.Flatten(), QuantLinear(54, 5), nn.LogSoftmax(1)))
