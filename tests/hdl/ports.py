"""A harness for components with several streams in or out, in Amaranth's simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Value

from nnhw.engines.network import NetworkModel
from sim.simulator import Simulator
from sim.stalls import stalls

IDLE_CYCLES = 24


@dataclass
class Port:
    """One stream of the component, with its stalls.

    Parameters
    ----------
    stream: of the component.
    stalls: in which cycles it may move.
    words: left to send, the next one last; or what came, in order.
    cycles: in which beats passed.
    """

    stream: Any
    stalls: Iterator[bool]
    words: list[int] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)
    offering: bool = False
    held: int | None = None

    def drive(self, ctx: Any, cycle: int) -> None:
        """Offer a word, or garbage that is not valid."""
        payload = Value.cast(self.stream.payload)
        self.offering = self.offering or (bool(self.words) and next(self.stalls))
        ctx.set(self.stream.valid, self.offering)
        garbage = (cycle * 0x9E3779B97F4A7C15) % (1 << len(payload))
        ctx.set(payload, self.words[-1] if self.offering else garbage)

    def watch(self, ctx: Any, cycle: int, ready: bool, problems: list[str]) -> None:
        """Note a beat that leaves; look after the rules of a stream."""
        valid, word = bool(ctx.get(self.stream.valid)), int(ctx.get(Value.cast(self.stream.payload).as_unsigned()))
        if self.held is not None and (not valid or word != self.held):
            problems.append(f"cycle {cycle}: valid dropped or the payload changed while it waited")
        self.held = word if valid and not ready else None
        if valid and ready:
            self.words.append(word)
            self.cycles.append(cycle)


def run_ports(
    component: Any,
    i_names: Sequence[str],
    o_names: Sequence[str],
    inputs: Sequence[list[int]],
    expected: Sequence[list[int]],
    pattern: tuple[str, str],
    model: NetworkModel | None = None,
    limit_cycles: int = 20_000,
    endless: bool = False,
) -> tuple[list[Port], list[Port]]:
    """Push words through a component; check the results, the stream rules and, beside it, its cycle model.

    Parameters
    ----------
    endless: more may come than is expected.

    Returns
    -------
    The input and output ports, with the cycles in which beats passed.
    """
    sources = [
        Port(getattr(component, name), stalls(pattern[0], index + 1), inputs[index][::-1])
        for index, name in enumerate(i_names)
    ]
    sinks = [Port(getattr(component, name), stalls(pattern[1], index + 11)) for index, name in enumerate(o_names)]
    problems: list[str] = []

    async def bench(ctx: Any) -> None:
        idle = 0
        for cycle in range(limit_cycles):
            _cycle(ctx, sources, sinks, model, problems, cycle)
            done = all(len(port.words) >= len(words) for port, words in zip(sinks, expected, strict=True))
            idle = idle + 1 if done and not any(port.words for port in sources) else 0
            if idle > IDLE_CYCLES or len(problems) > 10:
                break
            await ctx.tick()

    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert not problems, "\n".join(problems)
    assert all(expected), "a check of nothing shows nothing"
    assert [port.words for port in sources] == [[] for _ in sources], "words were never taken"
    came = [port.words[: len(words)] if endless else port.words for port, words in zip(sinks, expected, strict=True)]
    assert came == list(expected)
    return sources, sinks


def _cycle(
    ctx: Any, sources: list[Port], sinks: list[Port], model: NetworkModel | None, problems: list[str], cycle: int
) -> None:
    """Drive all ends for one cycle, note what passes, and compare with the model."""
    o_readies = [next(port.stalls) for port in sinks]
    for port, ready in zip(sinks, o_readies, strict=True):
        ctx.set(port.stream.ready, ready)
    for port in sources:
        port.drive(ctx, cycle)
    for port, ready in zip(sinks, o_readies, strict=True):
        port.watch(ctx, cycle, ready, problems)
    i_valids, i_readies = [port.offering for port in sources], [bool(ctx.get(port.stream.ready)) for port in sources]
    if model is not None:
        seen = (i_readies, [bool(ctx.get(port.stream.valid)) for port in sinks])
        said = (model.ready(o_readies, i_valids), list(model.o_valids))
        if seen != said:
            problems.append(f"cycle {cycle}: (readies, valids) are {seen}, the model says {said}")
        model.step(i_valids, o_readies)
    for port, ready in zip(sources, i_readies, strict=True):
        if port.offering and ready:
            port.words.pop()
            port.cycles.append(cycle)
            port.offering = False
