"""Bench of one engine: a row of `sim.cases` under one pair of stall patterns.

Environment: NNHW_CASE, the row; NNHW_STALLS, patterns of source and sink with a comma between.
"""

from __future__ import annotations

import os
from typing import Any

import cocotb

from .cases import CASES, make_frames
from .harness import Monitor, Scoreboard, Sink, Source, Stream, start, wait_for
from .stalls import stalls

FRAMES = 3
LIMIT_CYCLES = 100_000


@cocotb.test()
async def engine_equals_golden(dut: Any) -> None:
    """Frames back to back through one engine."""
    frames = make_frames(CASES[os.environ["NNHW_CASE"]](), FRAMES)
    source_stalls, sink_stalls = os.environ["NNHW_STALLS"].split(",")
    dut.i__valid.value = 0
    dut.o__ready.value = 0
    cycles = await start(dut)
    scoreboard = Scoreboard("o", frames.outputs, FRAMES)
    source = Source(Stream(dut, "i"), frames.inputs, stalls(source_stalls, 1))
    Sink(Stream(dut, "o"), stalls(sink_stalls, 2))
    Monitor(Stream(dut, "o"), scoreboard, cycles)
    await wait_for([scoreboard], source, dut, LIMIT_CYCLES)
    scoreboard.finish()
