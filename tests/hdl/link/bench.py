"""Bytes into a component and bytes out of it, until it falls silent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Cat

from sim.simulator import Simulator
from sim.stalls import stalls

LIMIT_CYCLES = 100_000


@dataclass
class Talk:
    """What came out.

    Parameters
    ----------
    data: bytes.
    last_cycle: in which the last one came.
    taken: bytes that went in.
    """

    data: bytearray = field(default_factory=bytearray)
    last_cycle: int = 0
    taken: int = 0


def talk(
    component: Any,
    sent: Sequence[int],
    pattern: tuple[str, str] = ("none", "none"),
    quiet: int = 300,
    beside: Callable[[Any], Any] | None = None,
) -> Talk:
    """Send bytes, return what comes, once all are taken and nothing has come for `quiet` cycles.

    Parameters
    ----------
    component: has byte streams `i` and `o`.
    pattern: stall patterns of the source and of the sink.
    beside: a process that runs beside.

    Raises
    ------
    AssertionError: a broken stream rule, or bytes that are not taken.
    """
    result = Talk()
    i_open, o_open = stalls(pattern[0], 1), stalls(pattern[1], 2)

    async def bench(ctx: Any) -> None:
        i, o = component.i, component.o
        # Set at once, so that the component settles once in a cycle.
        driven = Cat(i.valid, o.ready, i.payload)
        offering, held = False, None
        for cycle in range(LIMIT_CYCLES):
            offering = result.taken < len(sent) and (offering or next(i_open))
            ready = next(o_open)
            sent_byte = sent[result.taken] if offering else cycle & 0xFF
            ctx.set(driven, offering | ready << 1 | sent_byte << 2)
            valid, byte = ctx.get(o.valid), ctx.get(o.payload)
            assert held is None or (valid and byte == held), f"cycle {cycle}: a waiting byte changed or went away"
            held = byte if valid and not ready else None
            if valid and ready:
                result.data.append(byte)
                result.last_cycle = cycle
            if offering and ctx.get(i.ready):
                result.taken += 1
                result.last_cycle = max(result.last_cycle, cycle)
                offering = False
            if result.taken == len(sent) and cycle - result.last_cycle > quiet:
                return
            await ctx.tick()

    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    if beside is not None:
        simulator.add_testbench(beside, background=True)
    simulator.run()
    assert result.taken == len(sent), f"{len(sent) - result.taken} bytes were never taken"
    return result
