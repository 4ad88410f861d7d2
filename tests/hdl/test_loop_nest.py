"""The loop walker gives the addresses of its nest, walk after walk."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.engines.loop_nest import LoopNest
from nnhw.hdl.loop_nest import LoopWalker
from sim.simulator import Simulator
from sim.stalls import stalls


def walk(nest: LoopNest, steps: int, pattern: str = "none") -> list[tuple[int, int, bool]]:
    """Return (address, ends, all lasts) of each step taken."""
    walker = LoopWalker(nest)
    seen: list[tuple[int, int, bool]] = []
    moves = stalls(pattern, 3)

    async def bench(ctx: Any) -> None:
        while len(seen) < steps:
            move = next(moves)
            ctx.set(walker.advance, move)
            if move:
                lasts = ctx.get(walker.lasts)
                seen.append((ctx.get(walker.address), ctx.get(walker.ends), lasts == (1 << len(nest.counts)) - 1))
            await ctx.tick()

    simulator = Simulator(walker)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return seen


def expected(nest: LoopNest, walks: int) -> list[int]:
    """Return the addresses of several walks."""
    starts = [index * nest.outer_advance for index in range(walks)]
    return [address for start in starts for address in nest.addresses(start)]


NESTS = [
    LoopNest((1,), (0,), 1),
    LoopNest((5,), (1,), 3),
    LoopNest((1, 1, 1), (1, 1, 1), 4, outer_advance=3),
    LoopNest((3, 2), (1, 8), 4),
    LoopNest((2, 3, 2), (1, 5, 0), 5, outer_advance=16),
    LoopNest((6, 3, 4, 5), (1, 14, 0, 2), 6, outer_advance=7),
    LoopNest((1, 3, 1, 2, 1), (1, 7, 0, 2, 9), 5, outer_advance=31),
]


@pytest.mark.parametrize("pattern", ["none", "alternating", "random"])
@pytest.mark.parametrize("nest", NESTS, ids=str)
def test_walker_equals_addresses(nest: LoopNest, pattern: str) -> None:
    seen = walk(nest, 3 * nest.length, pattern)
    assert [address for address, _, _ in seen] == expected(nest, 3)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    loops=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 40)), min_size=1, max_size=5),
    address_bits=st.integers(1, 7),
    outer_advance=st.integers(0, 127),
)
def test_walker_equals_addresses_of_any_nest(
    loops: list[tuple[int, int]], address_bits: int, outer_advance: int
) -> None:
    nest = LoopNest(tuple(c for c, _ in loops), tuple(s for _, s in loops), address_bits, outer_advance)
    assert [address for address, _, _ in walk(nest, 2 * nest.length)] == expected(nest, 2)


def test_walker_marks_the_ends_of_its_loops() -> None:
    nest = LoopNest((2, 3, 2), (1, 5, 0), 5)
    for step, (_, ends, finished) in enumerate(walk(nest, 2 * nest.length, "random")):
        position = step % nest.length
        inner = [1, 2, 6, 12]
        assert [bool(ends >> k & 1) for k in range(4)] == [(position + 1) % size == 0 for size in inner]
        assert finished == (position == nest.length - 1)
