"""Lane arithmetic in hardware against NumPy, for each pair of number formats, in logic and in DSP blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.encoding import encode
from nnhw.hdl.arithmetic import dot_product, dsp_dot_product
from nnhw.hdl.cells import CELLS, PLAIN, ecp5
from nnhw.ir.types import BIPOLAR, BIT, IntType
from sim.cases import INT2, INT4, INT8, TERNARY, UINT2, UINT4, random_values
from sim.simulator import Simulator

FORMATS = (BIPOLAR, BIT, TERNARY, INT2, UINT2, INT4, UINT4, INT8)
BEATS = 24
ANY_FORMAT = st.one_of(
    st.sampled_from((BIPOLAR, BIT, TERNARY, IntType(-1, 0), IntType(1, 1), IntType(-5, 2), IntType(3, 200))),
    st.integers(1, 8).map(lambda bits: IntType(0, (1 << bits) - 1)),
    st.integers(1, 8).map(lambda bits: IntType(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
)
NARROW = (unsigned(1), unsigned(3), signed(2), signed(3))
QUICK = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def factors(arithmetic: LaneArithmetic, lanes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return activations and weights [BEATS, lanes]: the corners, then random ones."""
    activation, weight = arithmetic.activation, arithmetic.weight
    rng = np.random.default_rng(seed)
    a, w = (random_values(rng, dtype, (BEATS, lanes)) for dtype in (activation, weight))
    a[0], w[0], a[1], w[1] = activation.low, weight.low, activation.high, weight.low
    a[2], w[2], a[3], w[3] = activation.low, weight.high, activation.high, weight.high
    return a, w


def sums(arithmetic: LaneArithmetic, a: np.ndarray, w: np.ndarray, how: str | None, stall: int = 0) -> list[int]:
    """Return the sums of a simulation; a beat enters whenever the pipeline moves.

    Parameters
    ----------
    how: 'dsp', or the family whose form of the first level is taken.
    stall: the pipeline stands still in every cycle that this divides, with other factors at its inputs; 0: never.
    """
    lanes = a.shape[1]
    m, ce = Module(), Signal(init=1)
    ports = [[Signal(dtype.bits) for _ in range(lanes)] for dtype in (arithmetic.activation, arithmetic.weight)]
    inputs: list[list[Value]] = [list(signals) for signals in ports]
    if how == "dsp":
        total, levels = dsp_dot_product(m, arithmetic, inputs[0], inputs[1], ce), arithmetic.dsp_levels(lanes)
    else:
        total, levels = (
            dot_product(m, arithmetic, inputs[0], inputs[1], ce, CELLS.get(how or "", PLAIN)),
            arithmetic.tree_levels(lanes),
        )
    seen: list[int] = []

    async def bench(ctx: Any) -> None:
        cycle = moves = 0
        while moves < BEATS + levels:
            stands = bool(stall) and cycle % stall == 0
            beat = (7 * cycle) % BEATS if stands else min(moves, BEATS - 1)
            ctx.set(ce, not stands)
            for signals, values, dtype in zip(ports, (a, w), (arithmetic.activation, arithmetic.weight), strict=True):
                for signal, pattern in zip(signals, encode(values[beat], dtype), strict=True):
                    ctx.set(signal, int(pattern))
            await ctx.tick()
            cycle, moves = cycle + 1, moves + (not stands)
            if moves >= levels and not stands:
                seen.append(int(ctx.get(total)))

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return seen[:BEATS]


def golden(arithmetic: LaneArithmetic, a: np.ndarray, w: np.ndarray) -> list[int]:
    """Return the raw sum of each beat."""
    return [int(arithmetic.raw_sums(a[row : row + 1], w[row : row + 1])[0, 0]) for row in range(BEATS)]


@pytest.mark.parametrize("lanes", [1, 2, 5])
@pytest.mark.parametrize("weight", FORMATS, ids=str)
@pytest.mark.parametrize("activation", FORMATS, ids=str)
def test_dot_product_equals_raw_sums(activation: IntType, weight: IntType, lanes: int) -> None:
    arithmetic = LaneArithmetic(activation, weight)
    a, w = factors(arithmetic, lanes, lanes)
    assert sums(arithmetic, a, w, None) == golden(arithmetic, a, w)


@QUICK
@given(ANY_FORMAT, ANY_FORMAT, st.integers(1, 9), st.sampled_from([None, "ice40"]), st.sampled_from([0, 2, 3]))
def test_dot_product_of_any_formats_equals_raw_sums(
    activation: IntType, weight: IntType, lanes: int, family: str | None, stall: int
) -> None:
    arithmetic = LaneArithmetic(activation, weight)
    a, w = factors(arithmetic, lanes, 1)
    assert sums(arithmetic, a, w, family, stall) == golden(arithmetic, a, w)


@pytest.mark.parametrize("weight", FORMATS, ids=str)
@pytest.mark.parametrize("activation", FORMATS, ids=str)
def test_dot_product_of_ice40_cells_equals_raw_sums(activation: IntType, weight: IntType) -> None:
    arithmetic = LaneArithmetic(activation, weight)
    a, w = factors(arithmetic, 3, 2)
    assert sums(arithmetic, a, w, "ice40") == golden(arithmetic, a, w)


@QUICK
@given(ANY_FORMAT, ANY_FORMAT, st.integers(1, 5), st.sampled_from([0, 2, 3]))
def test_dsp_dot_product_equals_raw_sums(activation: IntType, weight: IntType, lanes: int, stall: int) -> None:
    arithmetic = LaneArithmetic(activation, weight)
    if not arithmetic.can_use_dsp:
        return
    a, w = factors(arithmetic, lanes, 3)
    assert sums(arithmetic, a, w, "dsp", stall) == golden(arithmetic, a, w)


def plain_columns(
    m: Module, columns: list[tuple[Value, ...]], propagate: Callable[[int, int, int, int], int], o: Shape
) -> Value:
    """Return what a chain of CCU2C computes, which is proved in `test_cells`."""
    table = sum(propagate(*(index >> bit & 1 for bit in range(4))) << index for index in range(16))
    carry: Value = Const(0, 1)
    total = []
    for column in columns:
        passes, made = (
            Const(table, 16).bit_select(Cat(*column), 1),
            Const(table & 15, 4).bit_select(Cat(*column[:2]), 1),
        )
        total.append(passes ^ carry)
        carry = Mux(passes, carry, made)
    result = Signal(o)
    m.d.comb += result.eq(Cat(*total))
    return result


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 7, 9, 12, 16])
@pytest.mark.parametrize("formats", [(INT2, INT2), (INT8, INT2), (UINT2, INT2), (BIPOLAR, BIPOLAR), (INT4, TERNARY)])
def test_dot_product_of_ecp5_cells_equals_raw_sums(
    formats: tuple[IntType, IntType], lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ecp5, "_columns", plain_columns)
    arithmetic = LaneArithmetic(*formats)
    a, w = factors(arithmetic, lanes, seed=lanes)
    assert sums(arithmetic, a, w, "ecp5") == golden(arithmetic, a, w)


def test_dot_product_check_notices_a_late_sum() -> None:
    arithmetic = LaneArithmetic(INT4, INT4)
    a, w = factors(arithmetic, 2, 4)
    assert sums(arithmetic, a, w, None)[1:] != golden(arithmetic, a, w)[:-1]


@pytest.mark.parametrize("minus", [False, True])
@pytest.mark.parametrize(
    "shapes", itertools.product([unsigned(1), unsigned(3), signed(2), signed(3)], repeat=2), ids=str
)
def test_sums_made_of_gates_are_sums(shapes: tuple[Shape, Shape], minus: bool) -> None:
    m = Module()
    x, y = (Signal(shape) for shape in shapes)
    plain = x - y if minus else x + y
    total = CELLS["ice40"].add_few(x, y, minus)
    made = Signal(total.shape())
    m.d.comb += made.eq(total)

    async def bench(ctx: Any) -> None:
        for a, b in itertools.product(*(range(1 << shape.width) for shape in shapes)):
            ctx.set(x, a)
            ctx.set(y, b)
            assert ctx.get(made) == ctx.get(plain)

    assert total.shape() == plain.shape()
    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
