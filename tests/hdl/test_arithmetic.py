"""Lane arithmetic in hardware against NumPy, for each pair of number formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.encoding import encode
from nnhw.hdl.arithmetic import dot_product
from nnhw.ir.types import BIPOLAR, BIT, IntType
from sim.cases import INT2, INT4, INT8, TERNARY, UINT2, UINT4, random_values

FORMATS = (BIPOLAR, BIT, TERNARY, INT2, UINT2, INT4, UINT4, INT8)


@pytest.mark.parametrize("lanes", [1, 2, 5])
@pytest.mark.parametrize("weight", FORMATS, ids=str)
@pytest.mark.parametrize("activation", FORMATS, ids=str)
def test_dot_product_equals_raw_sums(activation: IntType, weight: IntType, lanes: int) -> None:
    arithmetic = LaneArithmetic(activation, weight)
    rng = np.random.default_rng(lanes)
    a, w = random_values(rng, activation, (24, lanes)), random_values(rng, weight, (24, lanes))
    a[0], w[0], a[1], w[1] = activation.low, weight.low, activation.high, weight.low
    a[2], w[2], a[3], w[3] = activation.low, weight.high, activation.high, weight.high

    m = Module()
    factors = [[Signal(dtype.bits) for _ in range(lanes)] for dtype in (activation, weight)]
    total = dot_product(m, arithmetic, list(factors[0]), list(factors[1]), Signal(init=1))
    seen: list[int] = []

    async def bench(ctx: Any) -> None:
        for cycle in range(24 + arithmetic.tree_levels(lanes)):
            if len(seen) + arithmetic.tree_levels(lanes) <= cycle:
                seen.append(int(ctx.get(total)))
            for signals, values, dtype in zip(factors, (a, w), (activation, weight), strict=True):
                for signal, pattern in zip(signals, encode(values[min(cycle, 23)], dtype), strict=True):
                    ctx.set(signal, int(pattern))
            await ctx.tick()
        seen.append(int(ctx.get(total)))

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    expected = [int(arithmetic.raw_sums(a[row : row + 1], w[row : row + 1])[0, 0]) for row in range(24)]
    assert seen[:24] == expected
    true = (a * w).sum(axis=1)
    offsets = np.array([arithmetic.offsets(w[row : row + 1])[0] for row in range(24)])
    assert (arithmetic.multiplier * np.array(expected) + offsets == true).all()
