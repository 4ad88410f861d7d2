"""A harness for components with one stream in and one stream out, in Amaranth's simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Cat, Value

from nnhw.engines.network import CycleModel
from sim.simulator import Simulator
from sim.stalls import stalls

IDLE_CYCLES = 24


@dataclass
class Result:
    """What a run saw.

    Parameters
    ----------
    outputs: words in the order in which they left.
    problems: broken stream rules and differences from the cycle model, each with its cycle.
    left: input words that were never taken.
    cycles: in which each output left.
    first: cycle in which the first input was taken.
    """

    outputs: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left: int = 0
    cycles: list[int] = field(default_factory=list)
    first: int = -1


def run_stream(
    component: Any,
    inputs: list[int],
    expected_beats: int,
    pattern: tuple[str, str] = ("none", "none"),
    model: CycleModel | None = None,
    limit_cycles: int = 50_000,
    watch: Callable[[Any], str] = lambda ctx: "",
) -> Result:
    """Push words through a component until all results and `IDLE_CYCLES` more cycles have passed.

    Parameters
    ----------
    component: has `i` and `o` streams.
    inputs: words to send.
    expected_beats: results to wait for.
    pattern: stall patterns of the source and of the sink.
    model: stepped beside the hardware; ready and valid must be equal in every cycle.
    limit_cycles: where waiting ends; what is missing is then missing in the result.
    watch: called in each settled cycle; what it returns, unless empty, is a problem.
    """
    return StreamBench(component).run(inputs, expected_beats, pattern, model, limit_cycles, watch)


class StreamBench:
    """A component in a simulator, made once: that takes as long as to run it. Each run begins with a reset."""

    def __init__(self, component: Any) -> None:
        i, o = component.i, component.o
        payload = Value.cast(i.payload)
        self._payload_bits = len(payload)
        # Set at once, so that the component settles once in a cycle.
        self._driven = Cat(i.valid, o.ready, payload)
        self._seen = i.ready, o.valid, Value.cast(o.payload).as_unsigned()
        self._bench: Callable[[Any], Any] | None = None
        self._simulator = Simulator(component)
        self._simulator.add_clock(1e-6)
        self._simulator.add_testbench(self._running)

    async def _running(self, ctx: Any) -> None:
        assert self._bench is not None
        await self._bench(ctx)

    def run(
        self,
        inputs: list[int],
        expected_beats: int,
        pattern: tuple[str, str] = ("none", "none"),
        model: CycleModel | None = None,
        limit_cycles: int = 50_000,
        watch: Callable[[Any], str] = lambda ctx: "",
    ) -> Result:
        """Push words through the component; see `run_stream`."""
        result = Result()
        state = _State(list(reversed(inputs)), stalls(pattern[0], 1), stalls(pattern[1], 2))

        async def bench(ctx: Any) -> None:
            idle = 0
            for cycle in range(limit_cycles):
                self._check_cycle(ctx, state, model, result, cycle)
                if found := watch(ctx):
                    result.problems.append(f"cycle {cycle}: {found}")
                finished = not state.words and len(result.outputs) >= expected_beats
                idle = idle + 1 if finished else 0
                if idle > IDLE_CYCLES or len(result.problems) > 10:
                    break
                await ctx.tick()
            result.left = len(state.words)

        if self._bench is not None:
            self._simulator.reset()
        self._bench = bench
        self._simulator.run()
        return result

    def _check_cycle(self, ctx: Any, state: _State, model: CycleModel | None, result: Result, cycle: int) -> None:
        """Drive both ends for one cycle, note what passes, and compare with the stream rules and the model."""
        state.offering = state.offering or (bool(state.words) and next(state.source))
        o_ready = next(state.sink)
        word = state.words[-1] if state.offering else cycle * 0x9E3779B97F4A7C15
        ctx.set(self._driven, state.offering | o_ready << 1 | word % (1 << self._payload_bits) << 2)
        i_ready, o_valid, word = (ctx.get(value) for value in self._seen)
        i_ready, o_valid = bool(i_ready), bool(o_valid)

        if state.held is not None and not o_valid:
            result.problems.append(f"cycle {cycle}: valid dropped before the beat was taken")
        elif state.held is not None and word != state.held:
            result.problems.append(f"cycle {cycle}: payload changed from {state.held:#x} to {word:#x} while it waited")
        state.held = word if o_valid and not o_ready else None
        if model is not None:
            expected = (model.ready(o_ready), model.o_valid)
            if expected != (i_ready, o_valid):
                seen = (i_ready, o_valid)
                result.problems.append(f"cycle {cycle}: (ready, valid) is {seen}, the model says {expected}")
            model.step(state.offering, o_ready)
        if o_valid and o_ready:
            result.outputs.append(word)
            result.cycles.append(cycle)
        if state.offering and i_ready:
            result.first = cycle if result.first < 0 else result.first
            state.words.pop()
            state.offering = False


@dataclass
class _State:
    words: list[int]
    source: Iterator[bool]
    sink: Iterator[bool]
    offering: bool = False
    held: int | None = None


def check(result: Result, expected: list[int]) -> None:
    """Ask whether everything arrived, nothing else did, in order and by the rules; raise AssertionError if not."""
    assert not result.problems, "\n".join(result.problems)
    assert expected, "a check of nothing shows nothing"
    assert result.left == 0, f"{result.left} input words were never taken"
    for number, (got, wanted) in enumerate(zip(result.outputs, expected, strict=False)):
        assert got == wanted, f"beat {number} is {got:#x}, expected {wanted:#x}"
    assert len(result.outputs) >= len(expected), f"{len(expected) - len(result.outputs)} beats are missing"
    assert len(result.outputs) == len(expected), f"{len(result.outputs) - len(expected)} beats too many"
