"""Cycle models: the sequencing of each engine without its data, stepped cycle by cycle.

A pipeline of these gives the latency and the interval of an accelerator exactly, because every
model makes the same decisions in the same cycle as the hardware that is made from the same configuration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nnhw.errors import MappingError


class CycleModel(Protocol):
    """The handshakes of one engine: one input stream, one output stream.

    `o_valid` is a register: it does not depend on this cycle's inputs.
    """

    o_valid: bool

    def ready(self, o_ready: bool) -> bool:
        """Return whether a beat that is offered in this cycle is taken."""

    def step(self, i_valid: bool, o_ready: bool) -> None:
        """Pass one clock edge."""


@dataclass(frozen=True)
class Schedule:
    """What a pipeline does with frames that come back to back.

    Parameters
    ----------
    latency_cycles: from the cycle in which the first beat of a frame is taken to the cycle in which its last
        result is handed over, both counted, in an empty pipeline.
    interval_cycles: between the last results of two frames, in the steady state.
    """

    latency_cycles: int
    interval_cycles: int


class NetworkModel(Protocol):
    """The handshakes of an engine with several input or output streams.

    `o_valids` are registers: they do not depend on this cycle's inputs.
    """

    o_valids: list[bool]

    def ready(self, o_readies: Sequence[bool], i_valids: Sequence[bool]) -> list[bool]:
        """Return for each input whether a beat that is offered in this cycle is taken."""

    def step(self, i_valids: Sequence[bool], o_readies: Sequence[bool]) -> None:
        """Pass one clock edge."""


Source = int | tuple[int, int]


def run_pipeline(
    models: Sequence[CycleModel], i_beats: int, o_beats: int, frames: int, limit_cycles: int
) -> tuple[int, list[int]]:
    """Step a chain of models with an input that never pauses and an output that never blocks.

    Parameters
    ----------
    models: from input to output.
    i_beats, o_beats: beats of one frame at either end.
    frames: how many frames to run.
    limit_cycles: a bound on the cycles; passing it means that the pipeline is stuck.

    Returns
    -------
    (cycle of the first input beat taken, cycle of the last output beat of each frame).
    """
    sources = [(index - 1,) for index in range(len(models))]
    return run_network(models, sources, i_beats, o_beats, frames, limit_cycles)


def run_network(
    models: Sequence[CycleModel | NetworkModel],
    sources: Sequence[Sequence[Source]],
    i_beats: int,
    o_beats: int,
    frames: int,
    limit_cycles: int,
) -> tuple[int, list[int]]:
    """Step a network of models with an input that never pauses and an output that never blocks.

    Parameters
    ----------
    models: in topological order; the only output of the last one is the output of the network.
    sources: for each model, where each of its inputs comes from: (model, its output), or the model alone for its
        output 0, or -1 for the input of the network. Each output feeds one input.
    i_beats, o_beats: beats of one frame at either end.
    frames: how many frames to run.
    limit_cycles: a bound on the cycles; passing it means that the network is stuck.

    Returns
    -------
    (cycle of the first input beat taken, cycle of the last output beat of each frame).
    """
    nodes, wires = _wire(models, sources)
    valids, readies = [False] * wires, [True] * wires
    last = wires - 1
    left, done, finish = frames * i_beats, 0, []
    first: int | None = None
    for cycle in range(limit_cycles):
        valids[0] = left > 0
        if valids[last]:
            done += 1
            if done % o_beats == 0:
                finish.append(cycle)
                if len(finish) == frames:
                    return first or 0, finish
        # From output to input: when a model is stepped, what is behind it has its readies of this cycle, and what is
        # in front of it still has its valids of this cycle.
        for step, model, single, i_wire, o_wire, i_wires, o_wires in nodes:
            if single:
                readies[i_wire] = model.ready(readies[o_wire])
                step(valids[i_wire], readies[o_wire])
                valids[o_wire] = model.o_valid
                continue
            i_valids, o_readies = [valids[wire] for wire in i_wires], [readies[wire] for wire in o_wires]
            for wire, value in zip(i_wires, model.ready(o_readies, i_valids), strict=True):
                readies[wire] = value
            step(i_valids, o_readies)
            for wire, value in zip(o_wires, model.o_valids, strict=True):
                valids[wire] = value
        if valids[0] and readies[0]:
            left -= 1
            first = cycle if first is None else first
    raise MappingError(
        f"the pipeline did not finish {frames} frames in {limit_cycles} cycles: its configuration is stuck; "
        "this is a mistake of nnhw, please report the model"
    )


def _wire(
    models: Sequence[CycleModel | NetworkModel], sources: Sequence[Sequence[Source]]
) -> tuple[list[tuple[Any, Any, bool, int, int, list[int], list[int]]], int]:
    """Number the streams of a network: 0 is its input, the highest is its output.

    Returns
    -------
    (for each model, from the last to the first: its step, itself, whether it has one input and one output, its first
    input and output stream, all its input and output streams), number of streams.
    """
    wires: dict[tuple[int, int], int] = {(-1, 0): 0}
    outputs = []
    for index, model in enumerate(models):
        ports = len(model.o_valids) if hasattr(model, "o_valids") else 1
        outputs.append([wires.setdefault((index, port), len(wires)) for port in range(ports)])
    inputs = [[wires[entry if isinstance(entry, tuple) else (entry, 0)] for entry in row] for row in sources]
    fed = sorted(wire for row in inputs for wire in row)
    if fed != list(range(len(wires) - 1)) or any(
        max(ins) > min(outs) for ins, outs in zip(inputs, outputs, strict=True)
    ):
        raise ValueError(f"each stream of a network feeds one input of a later model; given {sources}")
    nodes: list[tuple[Any, Any, bool, int, int, list[int], list[int]]] = [
        (model.step, model, not hasattr(model, "o_valids"), ins[0], outs[0], ins, outs)
        for model, ins, outs in zip(models, inputs, outputs, strict=True)
    ]
    return nodes[::-1], len(wires)


class PipelineModel:
    """Cycle model of a pipeline that stands still while its output buffer of two beats is full.

    Parameters
    ----------
    latency: moves from a beat to its result in the output buffer, at least 1.
    period, silent: of `period` beats one after the other, the first `silent` ones give no result.
    """

    def __init__(self, latency: int, period: int = 1, silent: int = 0) -> None:
        self.latency, self.period, self.silent = latency, period, silent
        self.beat = 0
        self.move = 0  # moves so far
        self.due: deque[int] = deque()  # moves in which a result reaches the buffer
        self.buffered = 0
        self.o_valid = False

    def ready(self, o_ready: bool) -> bool:
        """Return whether the pipeline moves."""
        return self.buffered < 2

    def step(self, i_valid: bool, o_ready: bool) -> None:
        """Pass one clock edge."""
        moves = self.buffered < 2
        if o_ready and self.buffered:
            self.buffered -= 1
        if moves:
            self.move += 1
            if i_valid:
                if self.beat >= self.silent:
                    self.due.append(self.move + self.latency - 1)
                self.beat = (self.beat + 1) % self.period
            if self.due and self.due[0] == self.move:
                self.due.popleft()
                self.buffered += 1
        self.o_valid = self.buffered > 0


class RegisterModel:
    """A pipeline register that takes `take` beats for each `give` beats: FIFO of one beat, width converters."""

    def __init__(self, take: int = 1, give: int = 1) -> None:
        self.take, self.give = take, give
        self.taken = 0
        self.left = 0
        self.o_valid = False

    def ready(self, o_ready: bool) -> bool:
        """Return whether the register is empty, or is emptied in this cycle."""
        return not self.o_valid or (o_ready and self.left == 1)

    def step(self, i_valid: bool, o_ready: bool) -> None:
        """Hand out one of `give` beats, take one of `take`."""
        take = i_valid and self.ready(o_ready)
        if self.o_valid and o_ready:
            self.left -= 1
        if take:
            self.taken += 1
            if self.taken == self.take:
                self.taken, self.left = 0, self.give
        self.o_valid = self.left > 0
