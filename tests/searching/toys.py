"""Files for searches that take no time: nothing in them is trained."""

from __future__ import annotations

from pathlib import Path

TOY = '''
"""A toy."""

import torch
from torch import nn

from nnhw.nn import QuantLinear, QuantReLU, Scale, Sign

LOST = torch.zeros(3)


def make_activation(name):
    return Sign() if name == "sign" else QuantReLU(2, "observed")


def model(trial):
    width = trial.suggest_int("width", 2, 12, step=2)
    activation = trial.suggest_categorical("activation", ["sign", "relu"])
    torch.manual_seed(width)
    return nn.Sequential(
        nn.Flatten(), Sign(),
        QuantLinear(16, width, bias=False), nn.BatchNorm1d(width), make_activation(activation),
        QuantLinear(width, 4, bias=False), Scale(2**-1),
    )


def train(network, trial):
    network.train()
    network(example_input)
    return trial.params["width"] / 12


def test(network):
    assert not network.training
    return 0.5


example_input = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(1)) - 0.5
'''


def write_toy(folder: Path, *changes: tuple[str, str], name: str = "toy") -> Path:
    """Write the toy, with texts replaced by others; return its path."""
    text = TOY
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return path
