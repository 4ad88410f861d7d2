"""Choices between two values, each of which the model computes: PyTorch == IR == golden == RTL."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.random_networks import extreme_codes, rtl_difference
from nnhw.ir import Graph
from nnhw.mapping.mapper import map_body
from nnhw.nn import Int, QuantLinear
from tests.flow.test_rows import lowered
from tests.mapping.test_mapper import LARGE, check_equal
from tests.sim.test_benches import pytestmark as needs_simulator

CHOICES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "where": lambda a, b: torch.where(a > 0, b, a),
    "gate": lambda a, b: torch.where(a > 0, b, torch.zeros(())),
    "compared": lambda a, b: torch.where(a > b, a, b * 0.5),
    "masked_fill": lambda a, b: b.masked_fill(a < -0.5, -1.0),
    "both": lambda a, b: torch.where((a > 0) & (b > 0), a + b, a),
}


class Chooser(nn.Module):
    """Codes of the input, and of a layer of them, of which each element is one."""

    def __init__(self, choice: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.choice = choice
        self.codes, self.hidden, self.finer = Int(4, 0.25), Int(4, 0.25), Int(6, 0.125)
        self.first = QuantLinear(6, 6, weight_quant=Int(4, 0.125))
        self.last = QuantLinear(6, 3, weight_quant=Int(4, 0.125))

    def forward(self, x: Tensor) -> Tensor:
        codes = self.codes(x)
        chosen = self.choice(self.hidden(self.first(codes)), codes)
        result: Tensor = self.last(self.finer(chosen))
        return result


@functools.cache
def body_of(name: str) -> Graph:
    """Return the integers of a network's body."""
    torch.manual_seed(0)
    return lowered(Chooser(CHOICES[name]), (6,)).body


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", CHOICES)
def test_choices_equal_reference_from_ir_to_golden_stages(name: str) -> None:
    body = body_of(name)
    check_equal(body, map_body(body, "test", LARGE))


@needs_simulator
@pytest.mark.usefixtures("deep_fifos")
def test_choices_equal_reference_in_rtl() -> None:
    body = body_of("compared")
    accelerator = map_body(body, "test", LARGE)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""
