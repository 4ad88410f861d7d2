"""A harness for the shared engine, in Amaranth's simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Value

from nnhw.engines.shared import ArrayConfig, SharedConfig
from nnhw.engines.shared.counters import RecordCount
from nnhw.engines.shared.cycles import load_cycles
from nnhw.engines.shared.golden import run_program, wrap
from nnhw.hdl.shared import SharedEngine
from nnhw.hdl.shared.counters import START_CYCLES
from sim.simulator import Simulator
from sim.stalls import stalls

IDLE_CYCLES = 24


@dataclass
class Run:
    """What a run saw.

    Parameters
    ----------
    output: bytes that left.
    granules: (codes, address, slice) of each granule that was stored.
    starts: (cycle, record) of each record.
    counts: (record, what it took) of each record that ended.
    left: beats of input that were never taken.
    problems: broken stream rules.
    """

    output: list[int] = field(default_factory=list)
    granules: list[tuple[tuple[int, ...], int, int]] = field(default_factory=list)
    starts: list[tuple[int, int]] = field(default_factory=list)
    counts: list[tuple[int, RecordCount]] = field(default_factory=list)
    left: int = 0
    problems: list[str] = field(default_factory=list)


def run_engine(
    program: SharedConfig,
    frames: Sequence[np.ndarray],
    pattern: tuple[str, str] = ("none", "none"),
    limit_cycles: int = 60_000,
) -> Run:
    """Run a program that is in the memory from the start, frames back to back."""
    array = program.array
    engine = SharedEngine(array, program)
    beats = [pack(beat, array) for frame in frames for beat in frame.reshape(-1, array.i_lanes)]
    expected = program.o_beats * len(frames)
    run = Run()
    # Set at once, so that the engine settles once in a cycle.
    driven = Cat(engine.i.valid, engine.o.ready, Value.cast(engine.i.payload))

    async def bench(ctx: Any) -> None:
        source, sink = stalls(pattern[0], 1), stalls(pattern[1], 2)
        waiting, offering, idle, held = list(reversed(beats)), False, 0, None
        before, count = 0, RecordCount(cycles=-START_CYCLES - load_cycles(program))
        for cycle in range(limit_cycles):
            offering = offering or (bool(waiting) and next(source))
            ready = next(sink)
            beat = waiting[-1] if offering else cycle * 0x9E37 % (1 << array.i_lanes)
            ctx.set(driven, offering | ready << 1 | beat << 2)
            valid, byte = ctx.get(engine.o.valid), ctx.get(engine.o.payload)
            if held is not None and (not valid or byte != held):
                run.problems.append(f"cycle {cycle}: the output changed while it waited")
            held = byte if valid and not ready else None
            if valid and ready:
                run.output.append(byte)
            if ctx.get(engine.tap_valid):
                run.granules.append(split_tap(ctx.get(engine.tap_payload), array))
            record = ctx.get(engine.record)
            if record != before:
                run.starts.append((cycle, record))
                run.counts.append((before, count))
                before, count = record, RecordCount()
            waits = ctx.get(engine.input_waits), ctx.get(engine.output_waits)
            count += RecordCount(1, ctx.get(engine.busy), *waits)
            if offering and ctx.get(engine.i.ready):
                waiting.pop()
                offering = False
            idle = idle + 1 if not waiting and len(run.output) >= expected else 0
            if idle > IDLE_CYCLES:
                break
            await ctx.tick()
        run.left = len(waiting)

    simulator = Simulator(engine)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return run


def pack(elements: np.ndarray, array: ArrayConfig) -> int:
    """Return elements as one number, the first in the lowest bits."""
    bits = array.activation_bits
    return sum((int(element) & ((1 << bits) - 1)) << (bits * lane) for lane, element in enumerate(elements))


def split_tap(payload: int, array: ArrayConfig) -> tuple[tuple[int, ...], int, int]:
    """Return the codes of a granule, its address and its slice."""
    bits, place = array.activation_bits, array.granule_bits
    patterns = np.array([(payload >> (bits * lane)) & ((1 << bits) - 1) for lane in range(array.lanes)])
    address = (payload >> place) & ((1 << array.address_bits) - 1)
    return tuple(wrap(patterns, bits).tolist()), address, payload >> (place + array.address_bits)


def check(program: SharedConfig, frames: Sequence[np.ndarray], run: Run) -> None:
    """Compare a run with the golden output; raise AssertionError where they differ."""
    granules, output = [], []
    for frame in frames:
        trace = run_program(program, frame)
        output += trace.output.tolist()
        for stored in trace.stored:
            for codes, address in zip(stored.codes, stored.addresses, strict=True):
                granules.append((tuple(codes.tolist()), int(address), stored.slice))
    assert not run.problems, "\n".join(run.problems)
    assert run.left == 0, f"{run.left} beats of input were never taken"
    for number, (got, wanted) in enumerate(zip(run.granules, granules, strict=False)):
        assert got == wanted, f"granule {number} is {got}, expected {wanted}"
    assert len(run.granules) == len(granules)
    assert run.output == output, "output differs"
    assert output, "a check of nothing shows nothing"
