"""A network that is small enough to build in a test."""

from __future__ import annotations

from pathlib import Path

import pytest

SMALL_NET = """
import torch
from torch import nn
from nnhw.nn import QuantLinear, Scale, Sign

torch.manual_seed({seed})
model = nn.Sequential(
    nn.Flatten(), Sign(),
    QuantLinear(16, 8, bias=False), nn.BatchNorm1d(8), Sign(),
    QuantLinear(8, 4, bias=False), Scale(2**-1),
)
example_input = torch.rand(4, 1, 4, 4) - 0.5
"""


def write_small_net(folder: Path, seed: int = 1) -> str:
    """Write the network's file; return its path."""
    path = folder / "small.py"
    path.write_text(SMALL_NET.format(seed=seed), encoding="utf-8")
    return str(path)


@pytest.fixture()
def small_net(tmp_path: Path) -> str:
    return write_small_net(tmp_path)
