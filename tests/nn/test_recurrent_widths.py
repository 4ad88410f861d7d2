"""Recurrent networks of every width, as `nnhw.quantize` makes them and after further training, down to integers."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nnhw
from nnhw.frontend import capture
from nnhw.ir import run
from nnhw.passes import lower
from tests.marks import covering

BITS = range(8, 1, -1)
CELLS = {"RNN": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM}
Row = tuple[str, int, int]
TABLE: list[Row] = list(itertools.product(CELLS, BITS, BITS))
COVERING: list[Row] = [("RNN", 8, 3), ("GRU", 8, 6), ("GRU", 3, 4), ("LSTM", 8, 2)]
"""Sums of unlike scales: wide ones, of the gates and of a GRU's candidate, ones of few codes, and an LSTM's cell."""
TRAINED: list[tuple[str, int, int, float]] = [
    (cell, *widths, gain)
    for cell in CELLS
    for widths in ((8, 8), (8, 6), (8, 3), (5, 5), (2, 8), (2, 2))
    for gain in (1, 3)
]
"""Cell, bits of weights and activations, and the factor by which weights are larger in front of training."""


class Network(nn.Module):
    """A recurrent layer of 16 features and 24 units, whose last output a linear layer reads."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.cell = CELLS[cell](16, 24, batch_first=True)
        self.last = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 16] --> [batch, 10]."""
        result: Tensor = self.last(self.cell(x)[0][:, -1])
        return result


@functools.cache
def sequences() -> Tensor:
    return torch.randn(64, 12, 16, generator=torch.Generator().manual_seed(0))


def quantized(cell: str, weight_bits: int, act_bits: int, gain: float = 1.0) -> nn.Module:
    torch.manual_seed(1)
    model = nnhw.quantize(Network(cell).eval(), [sequences()], weight_bits, act_bits)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(gain)
    return model


def trained(model: nn.Module) -> nn.Module:
    """Return a model after some steps of training, in which the scales of its weights and observed formats move."""
    labels = torch.randint(0, 10, (64,), generator=torch.Generator().manual_seed(3))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    model.train()
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(sequences()), labels).backward()
        optimizer.step()
    return model.eval()


def assert_lowers_exactly(model: nn.Module) -> None:
    graph = capture(model, sequences()[:4])
    (wanted,), (found,) = (run(one, [sequences().numpy()]) for one in (graph, lower(graph)))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("cell", "weight_bits", "act_bits"), covering(TABLE, COVERING))
def test_every_width_lowers(cell: str, weight_bits: int, act_bits: int) -> None:
    assert_lowers_exactly(quantized(cell, weight_bits, act_bits))


@pytest.mark.parametrize(("cell", "weight_bits", "act_bits", "gain"), covering(TRAINED, [("GRU", 8, 6, 3)]))
def test_every_width_lowers_after_training(cell: str, weight_bits: int, act_bits: int, gain: float) -> None:
    assert_lowers_exactly(trained(quantized(cell, weight_bits, act_bits, gain)))
