"""The status counters alone: exact after their delay, over every byte."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nnhw.hdl.link.framing.status_counters import PERIOD, StatusCounters
from sim.simulator import Simulator


def count(events: dict[str, Any], cycles: int) -> dict[str, int]:
    """Let the counters see `events` (name --> function of the cycle) for some cycles; return what they show then."""
    counters, shown = StatusCounters(), {}

    async def bench(ctx: Any) -> None:
        for cycle in range(cycles):
            for name, happens in events.items():
                ctx.set(getattr(counters, name), happens(cycle))
            await ctx.tick()
        for name in events:
            ctx.set(getattr(counters, name), 0)
        for _ in range(2 * PERIOD):
            await ctx.tick()
        while not ctx.get(counters.ready):
            await ctx.tick()
        await ctx.tick().repeat(3)
        ring = bytearray()
        for _ in range(PERIOD):
            ring.append(ctx.get(counters.ring))
            await ctx.tick()
        for place, name in enumerate(("cycles", "input_waits", "output_waits")):
            shown[name] = int.from_bytes(ring[4 * place : 4 * place + 4], "little")
        shown["result"], shown["bad_frame"] = ctx.get(counters.results), ctx.get(counters.bad_frames)

    simulator = Simulator(counters)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return shown


@pytest.mark.parametrize("seed", range(3))
def test_counters_count_random_events(seed: int) -> None:
    rng = random.Random(seed)
    plan = {
        name: [rng.random() < chance for _ in range(900)]
        for name, chance in (("input_waits", 0.9), ("output_waits", 0.3), ("result", 0.5), ("bad_frame", 0.5))
    }
    shown = count({name: events.__getitem__ for name, events in plan.items()}, 900)
    assert shown["bad_frame"] == sum(plan.pop("bad_frame")) % 256
    assert {name: shown[name] for name in plan} == {name: sum(events) for name, events in plan.items()}
    assert shown["cycles"] % PERIOD == 0
    assert 900 <= shown["cycles"] <= 900 + 6 * PERIOD


def test_counters_carry_into_the_third_byte() -> None:
    cycles = 66_000
    shown = count({"input_waits": lambda cycle: True, "output_waits": lambda cycle: False}, cycles)
    assert shown["input_waits"] == cycles
    assert shown["output_waits"] == 0
    assert cycles <= shown["cycles"] <= cycles + 6 * PERIOD


def test_counters_clear_keeps_bad_frames() -> None:
    events = {name: (lambda cycle: cycle < 100) for name in ("input_waits", "output_waits", "result", "bad_frame")}
    shown = count({**events, "clear": lambda cycle: cycle >= 100}, 110)
    assert (shown["input_waits"], shown["output_waits"], shown["result"], shown["bad_frame"]) == (0, 0, 0, 100)
