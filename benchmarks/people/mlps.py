"""Multilayer perceptrons and regressors: one for every activation that people use."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from .model import PeopleModel

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "hardswish": nn.Hardswish,
    "softplus": nn.Softplus,
    "prelu": nn.PReLU,
    "mish": nn.Mish,
}


def mlp(activation: Callable[[], nn.Module], *sizes: int) -> nn.Module:
    """Return linear layers with an activation between any two."""
    layers: list[nn.Module] = []
    for before, behind in pairwise(sizes[:-1]):
        layers += [nn.Linear(before, behind), activation()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class MnistMlp(nn.Module):
    """784-128-64-10, with dropout, and the images flattened by `view`."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc2 = nn.Linear(128, 64)
        self.fc3 = nn.Linear(64, 10)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(x.size(0), -1)
        x = self.dropout(torch.relu(self.fc1(x)))
        x = self.dropout(torch.relu(self.fc2(x)))
        return self.fc3(x)


class NormalizingRegressor(nn.Module):
    """A regressor of table data that takes mean and deviation of each feature into account itself."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.rand(13))
        self.register_buffer("std", 0.5 + torch.rand(13))
        self.net = mlp(nn.ReLU, 13, 64, 64, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.net((x - self.mean) / self.std).squeeze(1)


class BatchNormMlp(nn.Module):
    """Linear, batch norm, ReLU, twice, with a residual sum around the second."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.block = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        return self.head(x + self.block(x))


MODELS: dict[str, PeopleModel] = {
    **{f"mlp_{name}": PeopleModel(lambda a=a: mlp(a, 8, 32, 32, 1), (8,)) for name, a in ACTIVATIONS.items()},  # type: ignore[misc]
    "mlp_mnist": PeopleModel(MnistMlp, (1, 28, 28)),
    "mlp_batch_norm": PeopleModel(BatchNormMlp, (16,)),
    "regressor": PeopleModel(NormalizingRegressor, (13,)),
}
