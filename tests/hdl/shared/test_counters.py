"""What records take, waits included, and the counters that simulators have of it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from nnhw.engines.shared import Compute
from nnhw.engines.shared.counters import (
    COUNTER_BITS,
    COUNTER_WORDS,
    RecordCount,
    as_predicted,
    least_cycles,
    program_parts,
)
from nnhw.engines.shared.cycles import program_cycles
from nnhw.hdl.shared.counters import START_CYCLES, RecordCounters
from sim.simulator import Simulator
from tests.hdl.shared.bench import run_engine
from tests.hdl.shared.random_programs import ARRAYS, STREAMING, random_frames, random_program

FRAMES = 2
PATTERNS = [("none", "none"), ("random", "none"), ("none", "random"), ("bursts", "rare")]


@pytest.mark.parametrize("pattern", PATTERNS, ids="-".join)
@pytest.mark.parametrize("name", ["dsp", "slices", "pairs, streaming"])
def test_records_take_what_is_predicted_and_their_waits(name: str, pattern: tuple[str, str]) -> None:
    total = RecordCount()
    for seed in (1, 11):
        program = random_program((ARRAYS | STREAMING)[name], seed)
        run = run_engine(program, random_frames(program, FRAMES, seed), pattern)
        assert [record for record, _ in run.counts] == [*range(len(program.records))] * FRAMES
        cycles = program_cycles(program)
        for index, count in run.counts:
            assert as_predicted(program.records[index], count, program.array), (index, count)
            if pattern == ("none", "none"):
                assert count == RecordCount(cycles[index].total, cycles[index].busy), index
        total = sum((count for _, count in run.counts), total)
    assert [total.input_wait > 0, total.output_wait > 0] == [side != "none" for side in pattern]


def test_prediction_is_missed_by_a_cycle_more_or_less() -> None:
    program = random_program(ARRAYS["dsp"], 11)
    for record, cycles in zip(program.records, program_cycles(program), strict=True):
        right = RecordCount(cycles.total + 7, cycles.busy, 7, 0)
        assert as_predicted(record, right, program.array)
        for wrong in (RecordCount(1), RecordCount(-1), RecordCount(busy=1), RecordCount(input_wait=1)):
            assert not as_predicted(record, right + wrong, program.array)


def test_parts_have_every_record_once() -> None:
    for name in ARRAYS:
        program = random_program(ARRAYS[name], 3)
        parts = program_parts(program)
        assert sorted(index for part in parts for index in part.records) == [*range(len(program.records))]
        assert sum(part.cycles for part in parts) == sum(one.total for one in program_cycles(program))
        layers = [part for part in parts if part.kind == "layer"]
        assert all(isinstance(program.records[index], Compute) for part in layers for index in part.records)
        assert 0 < least_cycles(program) <= sum(part.cycles for part in parts)


def test_counters_tell_what_each_record_took() -> None:
    """The first cycles are those in which an engine gets ready."""
    counters = RecordCounters()
    events = [(0, 0, 0, 0)] * START_CYCLES
    events += [(0, 1, 0, 0)] * 3 + [(0, 0, 1, 0)] * 2 + [(1, 1, 0, 1)] + [(0, 0, 0, 0)] * 4 + [(1, 0, 0, 0)]
    found = []

    async def bench(ctx: Any) -> None:
        for record, *flags in events:
            ctx.set(counters.record, record)
            for name, flag in zip(counters.COUNTED, flags, strict=True):
                ctx.set(getattr(counters, name), flag)
            if ctx.get(counters.valid):
                payload = ctx.get(counters.payload)
                found.append([payload >> (COUNTER_BITS * place) & 0xFFFFFFFF for place in range(COUNTER_WORDS)])
            await ctx.tick()

    simulator = Simulator(counters)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == [[0, 5, 3, 2, 0], [1, 1, 1, 0, 1], [0, 4, 0, 0, 0]]


def test_counters_tell_the_fields_of_a_count_in_their_order() -> None:
    names = [field.name for field in fields(RecordCount)]
    assert [name.removesuffix("s") if "wait" in name else name for name in ("cycles", *RecordCounters.COUNTED)] == names
    assert RecordCounters.BITS == COUNTER_BITS * COUNTER_WORDS == COUNTER_BITS * (1 + len(names))
