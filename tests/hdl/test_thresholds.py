"""The threshold unit against its golden function: every sum that can occur, for every output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Value

from nnhw.engines.encoding import encode, pack_words
from nnhw.engines.matmul import MatmulConfig, Thresholds
from nnhw.hdl.thresholds import ThresholdUnit
from nnhw.ir.types import BIPOLAR, IntType
from sim.cases import INT2, INT4, MATMULS, UINT2, UINT4, matmul
from sim.simulator import Simulator

WITH_THRESHOLDS = [name for name, make in MATMULS.items() if make().thresholds is not None and "large" not in name]


def drain_all(config: MatmulConfig, raw: np.ndarray) -> tuple[list[int], list[int]]:
    """Send raw sums [n, outputs] in drain order, with gaps and stops; return (codes seen, codes expected) as words.

    One move passes before the first sum: in it the unit fetches the first threshold.
    """
    assert isinstance(config.thresholds, Thresholds)
    unit = ThresholdUnit(
        config.thresholds, config.arithmetic.raw_range(config.weights), config.drain, config.logic_thresholds
    )
    bits, code = unit.raw_shape.width, config.thresholds.code
    sums = pack_words((raw & ((1 << bits) - 1)).reshape(-1, config.drain), bits)
    seen: list[int] = []

    async def bench(ctx: Any) -> None:
        waiting, cycle = list(reversed(sums)), 0
        while len(seen) < len(sums) and cycle < 10 * len(sums) + 20:
            cycle += 1
            moves, offers = cycle % 3 != 0, bool(waiting) and cycle % 5 != 0 and cycle > 1
            ctx.set(unit.ce, moves)
            ctx.set(unit.i_valid, offers)
            ctx.set(Value.cast(unit.i_sums), waiting[-1] if offers else 0)
            if moves and offers:
                seen.append(int(ctx.get(Value.cast(unit.o_codes).as_unsigned())))
            if moves and offers:
                waiting.pop()
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    golden = encode(config.thresholds.golden(raw), code)
    return seen, pack_words(golden.reshape(-1, config.drain), code.bits)


MOST_SUMS = 1 << 13
"""Sums of each output that are all tried; of more, those around the steps, and some in between."""


def every_sum(config: MatmulConfig) -> np.ndarray:
    """Return each value of the raw range for each output, int64 [values, outputs]; of a large range what decides."""
    low, high = config.arithmetic.raw_range(config.weights)
    if high - low < MOST_SUMS:
        return np.arange(low, high + 1)[:, None].repeat(config.outputs, axis=1)
    assert isinstance(config.thresholds, Thresholds)
    around = np.concatenate([config.thresholds.steps.T + delta for delta in (-1, 0, 1)])
    spread = np.linspace(low, high, MOST_SUMS // 8).astype(np.int64)[:, None].repeat(config.outputs, axis=1)
    return np.concatenate([around.clip(low, high), spread])


@pytest.mark.parametrize("name", WITH_THRESHOLDS)
def test_threshold_unit_equals_golden_for_every_sum(name: str) -> None:
    config = MATMULS[name]()
    seen, expected = drain_all(config, every_sum(config))
    assert seen == expected
    assert len(set(expected)) > 1


@pytest.mark.parametrize("code", [BIPOLAR, UINT2, INT2, UINT4, IntType(0, 4), IntType(-3, 1)], ids=str)
@pytest.mark.parametrize("descending", ["none", "all", "mixed"])
@pytest.mark.parametrize("drain", [1, 3])
def test_threshold_unit_equals_golden_for_every_code(code: IntType, descending: str, drain: int) -> None:
    config = matmul(6, 36, 3, 3, formats=(INT4, INT4), code=code, hop=3, drain=drain, descending=descending)
    low, high = config.arithmetic.raw_range(config.weights)
    assert isinstance(config.thresholds, Thresholds)
    around = np.concatenate([config.thresholds.steps.T + delta for delta in (-1, 0, 1)])
    raw = np.clip(np.concatenate([around, np.full((1, 6), low), np.full((1, 6), high)]), low, high)
    seen, expected = drain_all(config, raw)
    assert seen == expected
