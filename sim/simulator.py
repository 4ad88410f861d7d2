"""Amaranth's simulator with the same results in a third of the time, for benches of thousands of cycles.

Amaranth asks every process in every delta cycle whether it has to run, calls a function for every signal that a process
drives, and makes a dozen objects for each `ctx.tick()`. Here processes that have to run are in a list, the code that
Amaranth makes of each process compares its signals itself, and an edge of a clock is waited for with one object.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Generator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import amaranth.sim
from amaranth.hdl import ClockDomain, Signal
from amaranth.hdl._ast import Concat
from amaranth.hdl._ir import DriverConflict
from amaranth.sim import _pyrtl, pysim
from amaranth.sim._async import AsyncProcess, TestbenchContext, TickTrigger

__all__ = ["Simulator"]

_WRITE = re.compile(r"^( *)(slots\[\d+\]\.write\(write_addr_\d+, write_data_\d+, (write_en_\d+)\))$", re.MULTILINE)
_UPDATE = re.compile(r"^( *)slots\[(\d+)\]\.update\((next_\d+), (-?\d+)\)$", re.MULTILINE)


class Simulator(amaranth.sim.Simulator):
    """`amaranth.sim.Simulator`, without waveforms."""

    def __init__(self, toplevel: Any) -> None:
        super().__init__(toplevel, engine=_Engine)


class _Signal(pysim._PySignalState):  # type: ignore[misc]
    """A signal that knows the processes to run when it changes: any change, or to a level, as for an edge.

    Members
    -------
    processes: for any change. edges: (level, process). ticks: (level, trigger), each for one time.
    """

    __slots__ = ("edges", "processes", "ticks")

    def __init__(self, signal: Signal, pending: set[Any]) -> None:
        self.processes: list[Any] = []
        self.edges: list[tuple[int, Any]] = []
        self.ticks: list[tuple[int, _Tick]] = []
        super().__init__(signal, pending)

    def reset(self) -> None:
        super().reset()
        self.ticks.clear()


class _Wake:
    """What a signal or a memory that changes does: it lets a process run.

    Parameters
    ----------
    level: of the signal, for an edge; None: for any change.
    """

    def __init__(self, process: Any, level: int | None = None) -> None:
        self.process, self.level = process, level


class _State(pysim._PyEngineState):  # type: ignore[misc]
    """Signals and memories, and the processes that have to run."""

    def __init__(self, active: set[Any]) -> None:
        super().__init__()
        self.runnable: list[Any] = []
        self._active = active

    def get_signal(self, signal: Signal) -> int:
        try:
            return self.signals[signal]
        except KeyError:
            index: int = len(self.slots)
            self.slots.append(_Signal(signal, self.pending))
            self.signals[signal] = index
            return index

    def add_signal_waker(self, signal: Signal, waker: Any) -> None:
        slot = self.slots[self.get_signal(signal)]
        if not isinstance(waker, _Wake):
            slot.add_waker(waker)
        elif waker.level is None:
            slot.processes.append(waker.process)
        else:
            slot.edges.append((waker.level, waker.process))

    def add_memory_waker(self, memory: Any, waker: Any) -> None:
        if isinstance(waker, _Wake):
            process = waker.process

            def wake() -> bool:
                self.run(process)
                return True

            waker = wake
        super().add_memory_waker(memory, waker)

    def run(self, process: Any) -> None:
        """Let a process run in the next delta cycle."""
        if not process.runnable:
            process.runnable = True
            self.runnable.append(process)

    def commit(self, changed: Any = None) -> bool:
        converged, runnable = True, self.runnable
        for state in self.pending:
            if type(state) is not _Signal:
                converged &= not state.commit()
                continue
            before, after = state.curr, state.next
            if before == after:
                continue
            converged = False
            if state.wakers:
                pysim._run_wakers(state.wakers, before, after)
            state.curr = after
            for process in state.processes:
                if not process.runnable:
                    process.runnable = True
                    runnable.append(process)
            for level, process in state.edges:
                if after == level:
                    self.run(process)
            if state.ticks:
                self._active.update(tick for level, tick in state.ticks if level == after)
                state.ticks[:] = [one for one in state.ticks if one[0] != after]
        self.pending.clear()
        return converged


class _Compiler:
    """Compiles a design into processes, as Amaranth does, whose code finds signals in local variables."""

    def __init__(self, state: _State) -> None:
        self._state = state

    def __call__(self, fragment: Any) -> set[Any]:
        wakes = patch.multiple(_pyrtl, comb_waker=_Wake, edge_waker=_Wake, memory_waker=_Wake)
        with wakes, patch.object(_pyrtl, "compile", self._compile, create=True):
            processes: set[Any] = _pyrtl._FragmentCompiler(self._state)(fragment)
        return processes

    def _compile(self, code: str, filename: str, mode: str) -> Any:
        """Compile the code of a process."""
        code = _WRITE.sub(r"\1if \3: \2", _UPDATE.sub(self._update, code))
        used = sorted({int(index) for index in re.findall(r"\bslots\[(\d+)\]", code)})
        code = re.sub(r"\bslots\[(\d+)\]", r"slot_\1", code)
        given = "".join(f", slot_{index}=slots[{index}]" for index in used)
        pending = f"add=slots[{used[0]}].pending.add" if used else "add=None"
        return builtins.compile(code.replace("def run():", f"def run({pending}{given}):", 1), filename, mode)

    def _update(self, found: re.Match[str]) -> str:
        """Return the code that gives a signal its next value."""
        indent, index, value, mask = found[1], int(found[2]), found[3], int(found[4])
        signal = self._state.slots[index].signal
        slot = f"slots[{index}]"
        lines = [f"if {slot}.next != {value}:", f"    {slot}.next = {value}", f"    add({slot})"]
        if mask != (-1 if signal.shape().signed else (1 << len(signal)) - 1):
            lines.insert(0, f"{value} = ({slot}.next & {~mask}) | ({value} & {mask})")
        return "\n".join(indent + line for line in lines)


class _Tick(TickTrigger):  # type: ignore[misc]
    """An edge of a clock that a process waits for, again and again."""

    def __init__(self, engine: _Engine, process: AsyncProcess, domain: ClockDomain) -> None:
        super().__init__(engine, process, domain=domain)
        slots, state = engine.state.slots, engine.state
        self._clock = slots[state.get_signal(domain.clk)]
        self._reset = None if domain.rst is None else slots[state.get_signal(domain.rst)]
        self._waiting = (1 if domain.clk_edge == "pos" else 0), self
        self._result = True, False

    def run(self) -> None:
        """Let the process go on, as Amaranth's triggers do."""
        if self._process.waits_on is self:
            self._result = True, bool(self._reset is not None and self._reset.curr)
            self._process.runnable, self._process.waits_on = True, None

    def initial_eligible(self) -> bool:
        return False

    def __await__(self) -> Generator[Any, None, tuple[bool, bool]]:
        self._clock.ticks.append(self._waiting)
        yield self
        return self._result


class _Context(TestbenchContext):  # type: ignore[misc]
    """What a testbench does to signals, without a detour for whole signals and several of them side by side."""

    def __init__(self, design: Any, engine: _Engine, process: AsyncProcess) -> None:
        super().__init__(design, engine, process)
        self._ticks: dict[Any, TickTrigger] = {}
        self._slots: dict[int, _Signal] = {}

    def _slot(self, signal: Signal) -> _Signal:
        """Return a signal's state; it keeps the signal, so the number stays its own."""
        found = self._slots.get(id(signal))
        if found is None:
            state = self._engine.state
            found = self._slots[id(signal)] = state.slots[state.get_signal(signal)]
        return found

    def get(self, expr: Any) -> Any:
        return self._slot(expr).curr if type(expr) is Signal else super().get(expr)

    def set(self, expr: Any, value: Any) -> None:
        parts = (expr,) if type(expr) is Signal else expr.parts if type(expr) is Concat else ()
        if type(value) not in (int, bool) or not parts or any(type(part) is not Signal for part in parts):
            super().set(expr, value)
            return
        value = int(value)
        for part in parts:
            slot, bits = self._slot(part), len(part)
            if slot.is_comb:
                raise DriverConflict("Combinationally driven signals cannot be overriden by testbenches")
            level = value & ((1 << bits) - 1)
            if part._signed and level >> (bits - 1):
                level -= 1 << bits
            if slot.next != level:
                slot.next = level
                slot.pending.add(slot)
            value >>= bits
        self._engine.step_design()

    def tick(self, domain: Any = "sync", *, context: Any = None) -> TickTrigger:
        if context is not None:
            return super().tick(domain, context=context)
        if domain not in self._ticks:
            tick = super().tick(domain)
            simple = not (tick._domain.async_reset and tick._domain.rst is not None)
            self._ticks[domain] = _Tick(self._engine, self._process, tick._domain) if simple else tick
        return self._ticks[domain]


class _Engine(pysim.PySimEngine):  # type: ignore[misc]
    """Runs the processes that have to."""

    def __init__(self, design: Any) -> None:
        self._active_triggers: set[Any] = set()
        self._design = design
        self._state = _State(self._active_triggers)
        self._rtl: set[Any] = _Compiler(self._state)(design.fragment)
        # Clocks and processes of a bench, which are few.
        self._processes: set[Any] = set()
        self._testbenches: list[Any] = []
        self._start()

    def _start(self) -> None:
        self._active_triggers.clear()
        self._state.runnable[:] = [process for process in self._rtl if process.runnable]

    def reset(self) -> None:
        super().reset()
        for process in self._rtl:
            process.reset()
        self._start()

    def add_async_testbench(self, simulator: Any, process: Any, *, background: bool) -> None:
        def started(context: TestbenchContext) -> Any:
            return process(_Context(self._design, self, context._process))

        self._testbenches.append(AsyncProcess(self._design, self, started, testbench=True, background=background))

    def write_vcd(self, **options: Any) -> AbstractContextManager[None]:
        """Waveforms are Amaranth's own simulator's."""
        raise NotImplementedError("this simulator writes no waveforms; use amaranth.sim.Simulator")

    def step_design(self) -> None:
        state, active = self._state, self._active_triggers
        while True:
            if active:
                triggers = list(active)
                active.clear()
                for trigger in triggers:
                    trigger.run()
            for process in self._processes:
                if process.runnable:
                    process.runnable = False
                    process.run()
            if state.runnable:
                runnable, state.runnable = state.runnable, []
                for process in runnable:
                    process.runnable = False
                    process.run()
            if state.commit():
                return

    def advance(self) -> bool:
        self.step_design()
        ran = True
        while ran:
            ran = False
            for testbench in self._testbenches:
                if testbench.runnable:
                    testbench.runnable, ran = False, True
                    testbench.run()
        self._state.timeline.advance()
        # No `any`, as this is done twice a cycle.
        for runnables in (self._testbenches, self._processes):
            for one in runnables:
                if one.critical:
                    return True
        return False
