"""Float networks that are quantized after training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Residual(nn.Module):
    """A convolution with batch norm, an addition, an average pooling, and weights that a function reads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.stem(x)), 2)
        y = self.norm(self.conv(x))
        y += x
        y = functional.adaptive_avg_pool2d(self.relu(y), 1).view(x.size(0), -1)
        return functional.linear(y, self.weight)


class Branches(nn.Module):
    """A concatenation of a branch that is never negative and one that may be, in one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv1d(2, 3, 3, padding=1), nn.Conv1d(2, 3, 5, padding=2)
        self.last = nn.Linear(6 * 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([torch.relu(self.left(x)), functional.silu(self.right(x))], dim=1)
        return self.last(both.flatten(1))


def make(kind: type[nn.Module], *shape: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    model, images = kind(), torch.randn(40, *shape)
    with torch.no_grad():
        model.train()(images)
    return model.eval(), images


def residual() -> tuple[nn.Module, Tensor]:
    return make(Residual, 2, 8, 8)


def branches() -> tuple[nn.Module, Tensor]:
    return make(Branches, 2, 8)


class Function(nn.Module):
    """A function of an image [2, 6, 8] and of a few layers and parameters."""

    def __init__(self, function: Callable[[Function, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.conv, self.fc = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(96, 5)
        self.next = nn.Conv2d(4, 4, 1)
        self.kernel, self.square = nn.Parameter(torch.randn(3, 2, 3, 3)), nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def function(function: Callable[[Any, Tensor], Tensor]) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(5)
    return Function(function).eval(), torch.randn(20, 2, 6, 8)
