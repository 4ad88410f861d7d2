"""Parts of tensors: reference == IR == golden == RTL."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from benchmarks.random_networks import extreme_codes, rtl_difference
from nnhw.engines.slice import SliceConfig
from nnhw.errors import MappingError
from nnhw.ir import Graph
from nnhw.mapping.mapper import map_body
from nnhw.mapping.shared import compile_body
from tests.flow.test_orders import IMAGE, ROWS, Forward, Net, hidden, of_rows
from tests.flow.test_rows import lowered
from tests.mapping.shared.programs import array_of, check_program
from tests.mapping.test_mapper import LARGE, check_equal
from tests.marks import covering
from tests.sim.test_benches import pytestmark as needs_simulator


def exchanged(x: Tensor, sizes: int | list[int] = 4) -> Tensor:
    first, second = x.split(sizes, 1)
    return torch.cat([second, first], 1)


def gates(m: Any, x: Tensor) -> Tensor:
    """Return two functions, each of half of the sums of a layer."""
    left, right = m.first(x).chunk(2, 1)
    result: Tensor = m.eight(torch.cat([m.act(torch.relu(left)), m.act(-right)], 1))
    return result


def ends(m: Any, x: Tensor) -> Tensor:
    """Return a layer of the sum of the first and the last row."""
    rows = of_rows(m, x).unbind(1)
    result: Tensor = m.rows(m.act(rows[0] + rows[-1]))
    return result


NETWORKS: dict[str, tuple[Forward, tuple[int, ...]]] = {
    "channels": (lambda m, x: m.eight(exchanged(hidden(m, x))), IMAGE),
    "uneven": (lambda m, x: m.eight(exchanged(hidden(m, x), [3, 5])), IMAGE),
    "rows_and_columns": (lambda m, x: m.eight(hidden(m, x)[:, :, 1:3, 2:]), IMAGE),
    "every_second": (lambda m, x: m.eight(hidden(m, x)[:, :, ::2, 1::2]), IMAGE),
    "every_third": (lambda m, x: m.eight(hidden(m, x)[:, :, ::3, 2::3]), IMAGE),
    "one_column": (lambda m, x: m.rows(hidden(m, x)[:, :, :, 4].transpose(1, 2)), IMAGE),
    "features": (lambda m, x: m.last(of_rows(m, x)[..., 2:6]), ROWS),
    "last_row": (lambda m, x: m.rows(of_rows(m, x)[:, -1]), ROWS),
    "sums": (lambda m, x: m.sums(m.first(x)[:, 1:5]), IMAGE),
    "gates": (gates, IMAGE),
    "ends": (ends, ROWS),
    "input": (lambda m, x: m.eight(m.act(m.first(x[:, 1:7]))), (8, 4, 6)),
    "flat": (lambda m, x: m.last(hidden(m, x).flatten(1)[:, 10:14]), IMAGE),
    "bipolar": (lambda m, x: m.sums(m.wide_signs(m.sign(x)[:, :, 5:].flatten(1))), (6, 10)),
    "rows_of_the_input": (lambda m, x: m.rows(m.act(m.wide(x[:, 1:3]))), ROWS),
    "input_in_two_orders": (
        lambda m, x: torch.cat([m.act(m.wide(x)), m.act(m.wide(x[:, 1:3]))], 1),
        ROWS,
    ),
    "narrow": (lambda m, x: m.eight(hidden(m, x).narrow(3, 1, 4)), IMAGE),
    "at_the_end": (lambda m, x: m.first(x)[:, 1:4, 1], IMAGE),
}


IN_RTL = ("uneven", "every_second", "gates", "input", "bipolar")


@functools.cache
def body_of(name: str) -> Graph:
    """Return the integers of a network's body."""
    function, shape = NETWORKS[name]
    return lowered(Net(function), shape).body


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", NETWORKS)
def test_slices_equal_reference_from_ir_to_golden_stages(name: str) -> None:
    body = body_of(name)
    for interval in (6000, 800):
        check_equal(body, map_body(body, "test", LARGE, target_interval=interval))


@needs_simulator
@pytest.mark.parametrize("name", covering(IN_RTL, ("every_second", "bipolar")))
def test_slices_equal_reference_in_rtl(name: str) -> None:
    body = body_of(name)
    accelerator = map_body(body, "test", LARGE, target_interval=6000)
    assert any(isinstance(stage.config, SliceConfig) for stage in accelerator.stages)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""


class ShuffleUnit(nn.Module):
    """A unit of ShuffleNet V2: half of the channels go through a branch, then all are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 8, 3, 2)
        self.branch = nn.Sequential(
            *(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, 1, 1, groups=4)),
            *(nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.ReLU()),
        )
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = torch.relu(self.stem(x)).chunk(2, 1)
        x = functional.channel_shuffle(torch.cat([kept, self.branch(changed)], 1), 2)
        result: Tensor = self.last(x.mean((2, 3)))
        return result


@pytest.mark.usefixtures("deep_fifos")
def test_shuffle_unit_of_a_float_model_is_quantized_and_equal_to_golden_stages() -> None:
    torch.manual_seed(0)
    model = nnhw.quantize(ShuffleUnit().eval(), torch.randn(40, 2, 7, 7), 8, 8)
    body = lowered(model, (2, 7, 7)).body
    check_equal(body, map_body(body, "test", LARGE, target_interval=4000))


def test_shared_engine_takes_parts_of_rows_and_columns() -> None:
    body = body_of("rows_and_columns")
    check_program(body, compile_body(body, array_of(8, 2, 8)))


def test_shared_engine_refuses_parts_that_turn_rows_into_columns() -> None:
    with pytest.raises(MappingError, match="which has another place in a shared engine's memory; use "):
        compile_body(body_of("one_column"), array_of(8, 2, 8))
