"""Elements of a stream at a sink that takes wider ones: the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal

from nnhw.accelerator import Stream
from nnhw.engines.encoding import decode
from nnhw.hdl.engine import _widened
from nnhw.ir.types import BIPOLAR, IntType
from sim.simulator import Simulator


@pytest.mark.parametrize("element", [BIPOLAR, IntType(0, 3), IntType(-2, 1)], ids=str)
def test_widened_elements_are_the_same_numbers(element: IntType) -> None:
    lanes, wide = 2, 4
    payload, widened = Signal(lanes * element.bits), Signal(lanes * wide)
    m = Module()
    m.d.comb += widened.eq(_widened(payload, Stream(lanes, 1, element), len(widened), numbers=True))

    async def bench(ctx: Any) -> None:
        for pattern in range(1 << len(payload)):
            ctx.set(payload, pattern)
            found = ctx.get(widened)
            for lane in range(lanes):
                narrow = pattern >> (lane * element.bits) & ((1 << element.bits) - 1)
                number = found >> (lane * wide) & 15
                number -= 16 * (number >= 8 and element.signed)
                assert number == decode(np.array([narrow]), element)[0]

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
