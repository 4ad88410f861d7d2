"""Images on their way into the memory: what is whole runs, what is not is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, ResetInserter, Signal

from nnhw.engines.shared import ArrayConfig, SharedConfig
from nnhw.engines.shared.golden import run_program
from nnhw.hdl.shared import SharedEngine
from nnhw.protocol import PROGRAM_HEADER, ProgramState, Refusal
from sim.simulator import Simulator
from tests.hdl.shared.bench import pack
from tests.hdl.shared.random_programs import SMALL, random_frames, random_program

FIRST, SECOND = random_program(SMALL, 1), random_program(SMALL, 3)
RESET = b""


class Server:
    """An engine in a simulator: images are loaded, frames are run.

    Parameters
    ----------
    every: a byte of an image comes each so many cycles.
    """

    def __init__(self, array: ArrayConfig, every: int) -> None:
        self.array, self.every = array, every
        self.engine, self.reset, self.module = SharedEngine(array), Signal(), Module()
        self.module.submodules.engine = ResetInserter(self.reset)(self.engine)

    async def load(self, ctx: Any, image: bytes) -> tuple[Any, Any]:
        """Return checksum and bytes of output of the program that is there then, or why there is none."""
        engine = self.engine
        for byte in image:
            ctx.set(engine.load.payload, byte)
            ctx.set(engine.load.valid, 1)
            assert ctx.get(engine.load.ready)
            await ctx.tick()
            ctx.set(engine.load.valid, 0)
            for _ in range(self.every - 1):
                await ctx.tick()
        for _ in range(2):
            await ctx.tick()
        status = (ProgramState(ctx.get(engine.state)), Refusal(ctx.get(engine.reason)))
        numbers = (ctx.get(engine.crc), ctx.get(engine.output_bytes))
        return numbers if status == (ProgramState.READY, Refusal.NONE) else status

    async def frame(self, ctx: Any, program: SharedConfig, elements: np.ndarray) -> list[int] | None:
        """Return the output of a frame, None where no input was taken."""
        engine, output = self.engine, list[int]()
        waiting = [pack(beat, self.array) for beat in elements.reshape(-1, self.array.i_lanes)][::-1]
        untouched = len(waiting)
        ctx.set(engine.o.ready, 1)
        for cycle in range(4000):
            ctx.set(engine.i.valid, bool(waiting))
            ctx.set(engine.i.payload.as_value(), waiting[-1] if waiting else 0)
            if ctx.get(engine.o.valid):
                output.append(ctx.get(engine.o.payload))
            if waiting and ctx.get(engine.i.ready):
                waiting.pop()
            await ctx.tick()
            if len(output) == program.o_beats or (cycle > 100 and len(waiting) == untouched):
                break
        ctx.set(engine.i.valid, 0)
        return output if len(waiting) < untouched else None


def serve(steps: Sequence[bytes | tuple[SharedConfig, np.ndarray]], every: int = 1) -> list[Any]:
    """Load images, reset (an empty image) and run frames, in this order; return what each gave, resets nothing."""
    server, found = Server(SMALL, every), list[Any]()

    async def bench(ctx: Any) -> None:
        for one in steps:
            if one == RESET:
                ctx.set(server.reset, 1)
                await ctx.tick()
                ctx.set(server.reset, 0)
            else:
                found.append(await (server.load(ctx, one) if isinstance(one, bytes) else server.frame(ctx, *one)))

    simulator = Simulator(server.module)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return found


def job(program: SharedConfig, seed: int = 1) -> tuple[tuple[SharedConfig, np.ndarray], list[int]]:
    """Return a frame for `serve`, and what it should give."""
    elements = random_frames(program, 1, seed)[0]
    return (program, elements), run_program(program, elements).output.tolist()


def ready(image: bytes) -> tuple[int, int]:
    """Return what the status says of an image that was taken."""
    return int.from_bytes(image[-4:], "little"), PROGRAM_HEADER.unpack(image[: PROGRAM_HEADER.size])[3]


@pytest.mark.parametrize("every", [1, 3])
def test_an_image_is_loaded_and_runs_and_another_one_behind_a_reset(every: int) -> None:
    (one, first), (two, second) = job(FIRST), job(SECOND)
    steps = [FIRST.image, one, one, RESET, one, RESET, SECOND.image, two, RESET, two]
    assert serve(steps, every=every) == [
        *(ready(FIRST.image), first, first, first),
        *(ready(SECOND.image), second, second),
    ]


def test_what_follows_an_image_is_dropped_until_a_reset() -> None:
    one, first = job(FIRST)
    assert serve([FIRST.image + SECOND.image[:-1], one]) == [ready(FIRST.image), first]


def test_a_load_ends_a_frame_that_had_begun() -> None:
    (one, _), (two, second) = job(FIRST), job(SECOND)
    cut = (one[0], one[1][:1])
    assert serve([FIRST.image, RESET, cut, SECOND.image, two])[-1] == second


@pytest.mark.parametrize(
    ("image", "state"),
    [
        (b"", None),
        (FIRST.image[:-1], (ProgramState.LOADING, Refusal.NONE)),
        (FIRST.image[:20], (ProgramState.LOADING, Refusal.NONE)),
        (FIRST.image[:7], (ProgramState.LOADING, Refusal.NONE)),
        (b"NNPX" + FIRST.image[4:], (ProgramState.REFUSED, Refusal.NO_IMAGE)),
        (b"MNPR" + FIRST.image[4:], (ProgramState.REFUSED, Refusal.NO_IMAGE)),
        (
            SharedConfig(replace(SMALL, rows=65), FIRST.records).image,
            (ProgramState.REFUSED, Refusal.OTHER_ARRAY),
        ),
        (FIRST.image[:8] + (0).to_bytes(4, "little") + FIRST.image[12:], (ProgramState.REFUSED, Refusal.LENGTH)),
        (FIRST.image[:8] + (4097).to_bytes(4, "little") + FIRST.image[12:], (ProgramState.REFUSED, Refusal.LENGTH)),
        (FIRST.image[:8] + (4100).to_bytes(4, "little") + FIRST.image[12:], (ProgramState.REFUSED, Refusal.LENGTH)),
        (
            FIRST.image[:8] + (1 << 24 | 64).to_bytes(4, "little") + FIRST.image[12:],
            (ProgramState.REFUSED, Refusal.LENGTH),
        ),
        (FIRST.image[:-1] + bytes([FIRST.image[-1] ^ 1]), (ProgramState.REFUSED, Refusal.CHECKSUM)),
        (FIRST.image[:-4] + bytes([FIRST.image[-4] ^ 1]) + FIRST.image[-3:], (ProgramState.REFUSED, Refusal.CHECKSUM)),
        (FIRST.image[:50] + bytes([FIRST.image[50] ^ 4]) + FIRST.image[51:], (ProgramState.REFUSED, Refusal.CHECKSUM)),
    ],
)
def test_an_image_that_is_not_whole_is_refused_and_nothing_is_taken(image: bytes, state: Any) -> None:
    one, first = job(FIRST)
    if state is None:
        assert serve([one]) == [None]
        return
    found = serve([image, one, RESET, one, FIRST.image, one])
    assert found[:3] == [state, None, None]
    assert found[3:] == [ready(FIRST.image), first]


def test_a_load_that_is_cut_leaves_no_program_behind_a_reset() -> None:
    one, first = job(FIRST)
    assert serve([FIRST.image, one, RESET, SECOND.image[:40], RESET, one]) == [
        ready(FIRST.image),
        first,
        (ProgramState.LOADING, Refusal.NONE),
        None,
    ]
