"""The stream buffer: a beat in every cycle, two beats held, nothing lost."""

from __future__ import annotations

from typing import Any

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.lib import data
from amaranth.sim import Simulator

from nnhw.hdl.buffer import StreamBuffer
from sim.stalls import PATTERNS
from tests.hdl.streams import check, run_stream

WORDS = [(number * 37) % 256 for number in range(64)]


@pytest.mark.parametrize("sink", PATTERNS)
@pytest.mark.parametrize("source", PATTERNS)
def test_buffer_passes_everything_in_order(source: str, sink: str) -> None:
    check(run_stream(StreamBuffer(data.ArrayLayout(8, 1)), WORDS, len(WORDS), (source, sink)), WORDS)


def test_buffer_passes_a_beat_in_every_cycle() -> None:
    result = run_stream(StreamBuffer(data.ArrayLayout(8, 1)), WORDS, len(WORDS))
    assert result.cycles == list(range(result.first + 1, result.first + 1 + len(WORDS)))


def test_buffer_holds_two_beats() -> None:
    result = run_stream(StreamBuffer(data.ArrayLayout(8, 1)), WORDS, len(WORDS), ("none", "rare"), limit_cycles=5)
    assert len(WORDS) - result.left == len(result.outputs) + 2


@pytest.mark.parametrize("sink", PATTERNS)
def test_buffer_has_copies_of_its_readiness(sink: str) -> None:
    buffer = StreamBuffer(data.ArrayLayout(8, 1), copies=3)

    def watch(ctx: Any) -> str:
        ready = ctx.get(buffer.i.ready)
        return "" if all(ctx.get(copy) == ready for copy in buffer.ready_copies) else "a copy differs"

    check(run_stream(buffer, WORDS, len(WORDS), ("none", sink), watch=watch), WORDS)


def test_buffer_with_copies_is_empty_after_the_reset_of_an_engine() -> None:
    # Copies have no reset of their own; that of an engine lasts for three cycles at least.
    buffer, reset = StreamBuffer(data.ArrayLayout(8, 1), copies=2), Signal()

    async def bench(ctx: Any) -> None:
        ctx.set(buffer.i.valid, 1)
        await ctx.tick().repeat(4)
        assert not ctx.get(buffer.i.ready)
        ctx.set(buffer.i.valid, 0)
        ctx.set(reset, 1)
        await ctx.tick().repeat(3)
        ctx.set(reset, 0)
        assert not ctx.get(buffer.o.valid)
        assert all(ctx.get(ready) for ready in (buffer.i.ready, *buffer.ready_copies))

    simulator = Simulator(ResetInserter(reset)(buffer))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
