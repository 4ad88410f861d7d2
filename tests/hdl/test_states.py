"""The memory of a state in a loop of hardware: equal to its golden model, in the cycles of its cycle model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.network import Source
from nnhw.engines.state import StateConfig
from nnhw.engines.timing import run_network
from nnhw.errors import MappingError
from nnhw.hdl.fifo import Fifo
from nnhw.hdl.fork import Fork
from nnhw.hdl.state import StateMemory
from nnhw.ir.types import IntType
from sim.simulator import Simulator

I8 = IntType(-128, 127)
BEGINS = [1, 1, 1, 1, 1, *[int(place % 7 == 3 or place > 21) for place in range(25)]]
SHAPES = [(1, 1, 3), (4, 1, 3), (4, 2, 2), (20, 1, 8), (20, 4, 3), (300, 1, 40)]
"""Elements, elements of a beat, and beats between the state and what becomes of it."""
FRAMES = 6
"""Frames that are whole sequences."""
LIMIT_CYCLES = 100_000


class Counting:
    """A loop in which each step adds 1 to each element of the state: a memory, a fork, and a FIFO on the way back.

    Parameters
    ----------
    depth: of the FIFO, in beats.
    """

    def __init__(self, config: StateConfig, depth: int) -> None:
        bits, lanes, beats = config.element.bits, config.lanes, config.o_beats
        self.config = config
        self.fork = ForkConfig(2, lanes, bits, beats)
        self.fifos = FifoConfig(depth, lanes, bits, beats), FifoConfig(2, lanes, bits, beats)
        # Where a frame is a whole sequence, a head may be anything.
        self.heads = BEGINS[: FRAMES if config.steps else None]

    def ends(self) -> list[int]:
        """Return the cycle in which each frame ends, by the cycle models."""
        models = [part.model() for part in (self.config, self.fork, *self.fifos)]
        sources: Sequence[Sequence[Source]] = [[(-1, 0), (2, 0)], [(0, 0)], [(1, 0)], [(1, 1)]]
        return run_network(models, sources, 1, self.config.o_beats, len(self.heads), LIMIT_CYCLES)[1]

    def hardware(self) -> tuple[Module, StateMemory, Fifo]:
        """Return the loop, the memory whose heads are driven, and the FIFO whose beats are seen."""
        m = Module()
        m.submodules.memory = memory = StateMemory(self.config)
        m.submodules.fork = fork = Fork(self.fork)
        m.submodules.back = back = Fifo(self.fifos[0])
        m.submodules.out = out = Fifo(self.fifos[1])
        wiring.connect(m, memory.o, fork.i)
        wiring.connect(m, fork.o0, back.i)
        wiring.connect(m, fork.o1, out.i)
        m.d.comb += [memory.i1.valid.eq(back.o.valid), back.o.ready.eq(memory.i1.ready)]
        m.d.comb += [memory.i1.payload[lane].eq(back.o.payload[lane] + 1) for lane in range(self.config.lanes)]
        return m, memory, out

    def run(self, stalls: bool) -> tuple[list[int], list[int]]:
        """Return the beats that leave in each frame, and the cycles in which frames end."""
        m, memory, out = self.hardware()
        beats, cycles = list[int](), list[int]()
        rng = random.Random(1)

        async def bench(ctx: Any) -> None:
            step, wanted, offered = 0, len(self.heads) * self.config.o_beats, False
            for cycle in range(LIMIT_CYCLES):
                offered = step < len(self.heads) and (offered or not stalls or rng.random() < 0.5)
                ctx.set(memory.i0.valid, int(offered))
                ctx.set(memory.i0.payload, self.heads[step] if step < len(self.heads) else 0)
                ctx.set(out.o.ready, int(not stalls or rng.random() < 0.5))
                if ctx.get(out.o.valid) and ctx.get(out.o.ready):
                    beats.append(ctx.get(out.o.payload.as_value()))
                    cycles.append(cycle)
                if offered and ctx.get(memory.i0.ready):
                    step, offered = step + 1, False
                await ctx.tick()
                if len(beats) == wanted:
                    break

        simulator = Simulator(m)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()
        return beats, cycles[self.config.o_beats - 1 :: self.config.o_beats]

    def expected(self) -> list[int]:
        """Return the beats that must leave, by the golden function."""
        states = [np.zeros_like(self.config.start)] * self.config.sequences
        found = []
        if self.config.steps:
            counted = self.config.start + 1 + np.arange(self.config.steps)[:, None]
            rows = self.config.golden(np.array([0]), counted) & 255
            words = [sum(int(code) << (8 * lane) for lane, code in enumerate(row)) for row in rows]
            return words * len(self.heads)
        for begins in BEGINS:
            rows = self.config.golden(np.array([begins]), states.pop(0)) & 255
            found += [sum(int(code) << (8 * lane) for lane, code in enumerate(row)) for row in rows]
            states.append(rows.reshape(-1) + 1)
        return found


@pytest.mark.parametrize("stalls", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("sequences", [1, 2, 5])
@pytest.mark.parametrize(("elements", "lanes", "depth"), SHAPES)
def test_state_comes_back_in_each_step_and_begins_anew(
    elements: int, lanes: int, depth: int, sequences: int, constant: bool, stalls: bool
) -> None:
    start = np.full(elements, -5) if constant else np.arange(elements) % 200 - 100
    loop = Counting(StateConfig(start, I8, lanes, sequences), depth)
    beats, ends = loop.run(stalls)
    assert beats == loop.expected()
    if not stalls:
        assert ends == loop.ends()


@pytest.mark.parametrize("stalls", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize(("elements", "lanes", "depth"), SHAPES[:5])
def test_head_begins_all_steps_of_a_frame(elements: int, lanes: int, depth: int, steps: int, stalls: bool) -> None:
    loop = Counting(StateConfig(np.arange(elements) % 200 - 100, I8, lanes, steps=steps), depth)
    beats, ends = loop.run(stalls)
    assert beats == loop.expected()
    if not stalls:
        assert ends == loop.ends()


def test_first_step_of_a_frame_reads_the_start_and_the_others_what_the_step_before_left() -> None:
    config = StateConfig(np.array([3, -4]), I8, 1, steps=3)
    assert config.golden(np.array([0]), np.arange(6)).tolist() == [[3], [-4], [0], [1], [2], [3]]
    with pytest.raises(MappingError, match="frames of 3 steps are whole sequences, and 2 take no turns"):
        StateConfig(np.array([3, -4]), I8, 1, sequences=2, steps=3)


def test_first_step_reads_the_start_whatever_the_memory_holds() -> None:
    config = StateConfig(np.array([3, -4]), I8, 1)
    assert config.golden(np.array([1]), np.array([9, 9])).tolist() == [[3], [-4]]
    assert config.golden(np.array([0]), np.array([9, 8])).tolist() == [[9], [8]]
    assert config.golden(np.array([0b110]), np.array([9, 8])).tolist() == [[9], [8]]


@pytest.mark.parametrize(
    ("start", "lanes", "message"),
    [
        (np.zeros(3, int), 2, "does not come 2 at once"),
        (np.zeros((2, 2), int), 1, "does not come 1 at once"),
        (np.array([0, 128]), 1, "cannot begin as 0 to 128"),
    ],
)
def test_start_that_cannot_be_is_refused(start: np.ndarray, lanes: int, message: str) -> None:
    with pytest.raises(MappingError, match=message):
        StateConfig(start, I8, lanes)
