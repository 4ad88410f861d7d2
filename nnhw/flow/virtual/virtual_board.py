"""Hardware without a board: compiled RTL with byte streams, or Amaranth's simulator where there is no compiler."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nnhw.driver.links.hardware import Hardware
from nnhw.errors import ToolError
from nnhw.flow.tools.storage import reported
from nnhw.flow.virtual.compiled import Compiler, compile_library

QUIET_CYCLES = 128
"""Cycles without a byte after which an answer counts as complete; two bytes of one answer are closer together."""
PATTERNS = ("none", "alternating", "random", "bursts", "rare")
"""Stall patterns in the order of their numbers in the C++ harness; see `sim/stalls.py`."""


class VirtualHardware(Hardware, Protocol):
    """Running hardware that is not a board.

    Members
    -------
    kind: name of the simulator, for people.
    """

    kind: str


class CompiledHardware:
    """Compiled hardware, loaded into this process; at first in its state after power-up.

    Parameters
    ----------
    library: path that `compile_library` returned; what its memories hold is in files beside it.
    tap_bits: bits of each tap.
    quiet_cycles: cycles without a byte after which an answer counts as complete.
    """

    kind = "Verilator"

    def __init__(self, library: Path, tap_bits: Sequence[int] = (), quiet_cycles: int = QUIET_CYCLES) -> None:
        self._quiet_cycles = quiet_cycles
        self._tap_words = [-(-bits // 32) for bits in tap_bits]
        remedy = "name with NNHW_CACHE a folder from which programs may be started"
        with reported(f"compiled hardware '{library}' cannot be loaded", remedy):
            self._library = ctypes.CDLL(str(library))
        # ctypes takes arguments and results for C ints unless it is told otherwise, and would cut pointers and
        # counts.
        self._library.nnhw_create.restype = ctypes.c_void_p
        self._library.nnhw_cycles.restype = self._library.nnhw_transfer.restype = ctypes.c_uint64
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p(self._library.nnhw_create(os.fsencode(library.parent)))

    @property
    def cycles(self) -> int:
        """Clock cycles since power-up."""
        return int(self._library.nnhw_cycles(self._running()))

    def transfer(self, data: bytes, budget_cycles: int) -> bytes:
        """Send bytes and return those that came; see `Hardware`."""
        handle, taken, capacity = self._running(), ctypes.c_uint64(), 1 << 16
        pieces, start = [], self.cycles
        while True:
            out = ctypes.create_string_buffer(capacity)
            left = max(0, budget_cycles - (self.cycles - start))
            count = self._library.nnhw_transfer(
                handle,
                data,
                ctypes.c_uint64(len(data)),
                ctypes.byref(taken),
                out,
                ctypes.c_uint64(capacity),
                ctypes.c_uint64(left),
                ctypes.c_uint64(self._quiet_cycles),
            )
            pieces.append(out.raw[:count])
            data = data[taken.value :]
            # A full buffer may not be all of the answer: the next round goes on where this one stopped.
            if count < capacity or not left:
                break
        _check_taken(len(data), budget_cycles)
        return b"".join(pieces)

    def stream(
        self, frames: np.ndarray, plan: StreamPlan, watch: Callable[[int], None] = lambda o_bytes: None
    ) -> StreamRun:
        """Send frames back to back, with stalls on both sides, and record everything that passes.

        Parameters
        ----------
        frames: uint8 [N, bytes].
        watch: called every now and then with the number of output bytes that have come; what it raises ends the run.
        """
        self.transfer(b"", plan.rest_cycles)
        frames = np.ascontiguousarray(frames, dtype=np.uint8)
        count = len(frames)
        outputs = np.zeros((count, plan.o_bytes), np.uint8)
        cycles = np.zeros(count, np.uint64)
        beats = [np.zeros((count * number, words), np.uint32) for number, words in _pair(plan, self._tap_words)]
        taps = (_Tap * max(1, len(beats)))(*(_Tap(tap.ctypes.data, len(tap), 0) for tap in beats))
        raised = list[BaseException]()

        def watched(o_bytes: int) -> int:
            # ctypes prints an exception of a callback and goes on; Ctrl-C arrives here as well.
            try:
                watch(o_bytes)
            except BaseException as error:
                raised.append(error)
            return len(raised)

        run = _Run(
            i_bytes=frames.ctypes.data,
            i_count=frames.size // plan.i_beat_bytes,
            i_beat_bytes=plan.i_beat_bytes,
            o_bytes=outputs.ctypes.data,
            o_capacity=outputs.size,
            frame_bytes=plan.o_bytes,
            frame_cycles=cycles.ctypes.data,
            limit_cycles=plan.limit_cycles,
            idle_cycles=plan.idle_cycles,
            i_pattern=PATTERNS.index(plan.i_pattern),
            o_pattern=PATTERNS.index(plan.o_pattern),
            i_seed=plan.seed,
            # With the same seed, source and sink would stall in the same cycles.
            o_seed=plan.seed + 1,
            taps=taps,
            watch=_Watch(watched),
        )
        self._library.nnhw_stream(self._running(), ctypes.byref(run))
        if raised:
            raise raised[0]
        return StreamRun(
            outputs=outputs,
            o_count=run.o_count,
            i_left=frames.size - run.i_taken * plan.i_beat_bytes,
            taps=tuple(beats),
            tap_beats=tuple(tap.beats for tap in taps[: len(beats)]),
            broken_rules=run.broken_rules,
            first_cycle=run.first_cycle,
            frame_cycles=cycles,
            cycles=run.cycles,
        )

    def _running(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ToolError("the simulated device is closed, and its hardware is freed; load its library again")
        return self._handle

    def close(self) -> None:
        """Free the hardware; the library stays loaded."""
        if self._handle is not None:
            self._library.nnhw_destroy(self._handle)
            self._handle = None


@dataclass(frozen=True)
class StreamPlan:
    """The settings of a run of `CompiledHardware.stream`.

    Parameters
    ----------
    o_bytes: bytes of one output frame.
    tap_beats: beats of one frame at each tap.
    limit_cycles: cycles after which the run gives up.
    i_pattern, o_pattern: stall patterns of the source and the sink.
    seed: of the random patterns.
    idle_cycles: cycles that the run goes on after the last byte, to see bytes that should not come.
    i_beat_bytes: bytes of an input beat.
    rest_cycles: cycles before the first frame, until the hardware is at rest; see
        `nnhw.flow.verification.simulate.rest_cycles`.
    """

    o_bytes: int
    tap_beats: tuple[int, ...]
    limit_cycles: int
    i_pattern: str = "none"
    o_pattern: str = "none"
    seed: int = 1
    idle_cycles: int = 1000
    i_beat_bytes: int = 1
    rest_cycles: int = 0


@dataclass(frozen=True)
class StreamRun:
    """The record of a run of `CompiledHardware.stream`.

    Parameters
    ----------
    outputs: uint8 [N, o_bytes], zero where nothing came.
    o_count: number of bytes that came, also those beyond the expected ones.
    i_left: number of input bytes that were not taken.
    taps: uint32 [N * beats, words] of each tap, the lowest bits first.
    tap_beats: number of beats that passed each tap, also those beyond the expected ones.
    broken_rules: number of cycles in which a waiting output byte changed or went away.
    first_cycle: cycle in which the first byte was taken.
    frame_cycles: uint64 [N], cycle in which the last byte of each frame left.
    cycles: of the whole run.
    """

    outputs: np.ndarray
    o_count: int
    i_left: int
    taps: tuple[np.ndarray, ...]
    tap_beats: tuple[int, ...]
    broken_rules: int
    first_cycle: int
    frame_cycles: np.ndarray
    cycles: int

    @property
    def latency_cycles(self) -> int:
        """Cycles from the first byte taken to the last byte of the first frame, both included."""
        return int(self.frame_cycles[0]) - self.first_cycle + 1

    @property
    def ends(self) -> list[int]:
        """The cycle of the last byte of each frame; the first byte of the first frame is taken in cycle 0."""
        return [int(cycle) - self.first_cycle for cycle in self.frame_cycles]


class SimulatedHardware:
    """A component in Amaranth's simulator, which needs no compiler and is about a thousand times slower.

    Parameters
    ----------
    component: has byte streams `i` and `o`.
    """

    kind = "Amaranth's simulator"

    def __init__(self, component: Any) -> None:
        from amaranth.sim import Simulator

        self.cycles = 0
        self._waiting = bytearray()
        self._came = bytearray()
        self._component = component
        self._simulator = Simulator(component)
        self._simulator.add_clock(1e-6)
        self._simulator.add_testbench(self._bench, background=True)

    async def _bench(self, ctx: Any) -> None:
        i, o = self._component.i, self._component.o
        ctx.set(o.ready, 1)
        while True:
            ctx.set(i.valid, bool(self._waiting))
            ctx.set(i.payload, self._waiting[0] if self._waiting else 0)
            # Valid and ready in this cycle: the byte is taken at the next edge.
            if self._waiting and ctx.get(i.ready):
                del self._waiting[0]
            if ctx.get(o.valid):
                self._came.append(ctx.get(o.payload))
            await ctx.tick()
            self.cycles += 1

    def transfer(self, data: bytes, budget_cycles: int) -> bytes:
        """Send bytes and return those that came; see `Hardware`."""
        self._waiting += data
        end, last, count = self.cycles + budget_cycles, self.cycles, 0
        while self.cycles < end and (self._waiting or not self._came or self.cycles - last < QUIET_CYCLES):
            self._simulator.advance()
            if len(self._came) != count:
                count, last = len(self._came), self.cycles
        left, came = len(self._waiting), bytes(self._came)
        self._waiting.clear()
        self._came.clear()
        _check_taken(left, budget_cycles)
        return came

    def close(self) -> None:
        """Do nothing: the simulator is freed with this object."""


def compile_component(component: Any, tap_bits: Sequence[int], cache: Path, compiler: Compiler | None = None) -> Path:
    """Return the library of a component with byte streams `i` and `o`; see `compile_library`."""
    from nnhw.flow.tools.toolchain import run_yosys
    from nnhw.hdl.verilog import to_verilog

    return compile_library(to_verilog(component, run_yosys), tap_bits, cache, compiler)


def _check_taken(left: int, budget_cycles: int) -> None:
    if left:
        raise ToolError(
            f"the simulated device left {left} bytes untaken after {budget_cycles} cycles; "
            "it is stuck, or the budget is too small"
        )


def _pair(plan: StreamPlan, tap_words: Sequence[int]) -> list[tuple[int, int]]:
    if len(plan.tap_beats) != len(tap_words):
        raise ValueError(f"the hardware has {len(tap_words)} taps, the plan {len(plan.tap_beats)}")
    return list(zip(plan.tap_beats, tap_words, strict=True))


_Watch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64)


class _Tap(ctypes.Structure):
    _fields_ = (("words", ctypes.c_void_p), ("capacity", ctypes.c_uint64), ("beats", ctypes.c_uint64))


class _Run(ctypes.Structure):
    _fields_ = (
        ("i_bytes", ctypes.c_void_p),
        ("i_count", ctypes.c_uint64),
        ("i_taken", ctypes.c_uint64),
        ("i_beat_bytes", ctypes.c_uint64),
        ("o_bytes", ctypes.c_void_p),
        ("o_capacity", ctypes.c_uint64),
        ("o_count", ctypes.c_uint64),
        ("frame_bytes", ctypes.c_uint64),
        ("frame_cycles", ctypes.c_void_p),
        ("first_cycle", ctypes.c_uint64),
        ("broken_rules", ctypes.c_uint64),
        ("cycles", ctypes.c_uint64),
        ("limit_cycles", ctypes.c_uint64),
        ("idle_cycles", ctypes.c_uint64),
        ("i_pattern", ctypes.c_int32),
        ("o_pattern", ctypes.c_int32),
        ("i_seed", ctypes.c_uint32),
        ("o_seed", ctypes.c_uint32),
        ("taps", ctypes.POINTER(_Tap)),
        ("watch", _Watch),
    )
