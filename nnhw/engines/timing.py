"""Cycle models: the sequencing of each engine without its data, stepped cycle by cycle.

A pipeline of these gives the latency and the interval of an accelerator exactly, because every
model makes the same decisions in the same cycle as the hardware that is made from the same configuration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from nnhw.errors import StuckError


class CycleModel(Protocol):
    """The handshakes of one engine: one input stream, one output stream.

    `o_valid` is a register: it does not depend on this cycle's inputs.
    """

    o_valid: bool

    def ready(self, o_ready: bool) -> bool:
        """Return whether a beat that is offered in this cycle is taken."""

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Pass one clock edge; return False only if nothing changed: no beat passed, and nothing is on its way."""


@dataclass(frozen=True)
class Schedule:
    """What a pipeline does with frames that come back to back.

    Parameters
    ----------
    latency_cycles: from the cycle in which the first beat of a frame is taken to the cycle in which its last
        result is handed over, both counted, in an empty pipeline.
    interval_cycles: between the last results of two frames, in the steady state; see `interval_of`.
    """

    latency_cycles: int
    interval_cycles: int


def interval_of(ends: Sequence[int]) -> int | None:
    """Return the longer of the last two distances between the ends of frames; None for a single frame.

    Distances may take turns where the FIFO of a branch holds no whole number of frames.
    """
    return max((later - sooner for sooner, later in pairwise(ends[-3:])), default=None)


class NetworkModel(Protocol):
    """The handshakes of an engine with several input or output streams.

    `o_valids` are registers: they do not depend on this cycle's inputs.
    """

    o_valids: list[bool]

    def ready(self, o_readies: Sequence[bool], i_valids: Sequence[bool]) -> list[bool]:
        """Return for each input whether a beat that is offered in this cycle is taken."""

    def step(self, i_valids: Sequence[bool], o_readies: Sequence[bool]) -> bool:
        """Pass one clock edge; return False only if nothing changed: no beat passed, and nothing is on its way."""


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
    patient: bool = False,
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
    patient: the input pauses until nothing moves any more, before each beat.

    Returns
    -------
    (cycle of the first input beat taken, cycle of the last output beat of each frame).

    Raises
    ------
    StuckError: the network is stuck.
    """
    network = _Network(models, sources)
    left, done, finish = frames * i_beats, 0, []
    first: int | None = None
    still = True
    for cycle in range(limit_cycles):
        if network.o_valid:
            done += 1
            if done % o_beats == 0:
                finish.append(cycle)
                if len(finish) == frames:
                    return first or 0, finish
        offered = left > 0 and (still or not patient)
        if network.step(offered):
            left -= 1
            first = cycle if first is None else first
        still = network.is_still
        if still and not (patient and left and not offered):
            break
    raise StuckError(
        f"the pipeline did not finish {frames} frames in {limit_cycles} cycles: its configuration is stuck; "
        "this is a mistake of nnhw, please report the model"
    )


class _Network:
    """Models and the streams between them: stream 0 is the input, the last one the output.

    A model is stepped only if it changed in the cycle before, or if a valid or a ready that it sees did.
    """

    def __init__(self, models: Sequence[CycleModel | NetworkModel], sources: Sequence[Sequence[Source]]) -> None:
        self._inputs, self._outputs = _wire(models, sources)
        count = self._outputs[-1][0] + 1
        self._valids, self._readies = [False] * count, [True] * count
        self._readers = self._sides(self._inputs, count)
        self._writers = self._sides(self._outputs, count)
        self._awake = [True] * len(models) + [True]  # the last one stands for both ends of the network
        self._nodes: list[tuple[int, Any, bool, int, int, int, int]] = [
            (index, model, not hasattr(model, "o_valids"), i, o, self._writers[i], self._readers[o])
            for index, (model, (i, *_), (o, *_)) in enumerate(zip(models, self._inputs, self._outputs, strict=True))
        ][::-1]

    def _sides(self, rows: list[list[int]], count: int) -> list[int]:
        """Return the model at one side of each stream."""
        sides = {wire: index for index, row in enumerate(rows) for wire in row}
        return [sides.get(wire, len(rows)) for wire in range(count)]

    @property
    def o_valid(self) -> bool:
        """Whether a beat leaves the network."""
        return self._valids[-1]

    @property
    def is_still(self) -> bool:
        """Whether nothing will ever change again."""
        self._awake[-1] = False
        return True not in self._awake

    def step(self, i_valid: bool) -> bool:
        """Pass one clock edge; return whether a beat came in.

        From output to input: when a model is stepped, what is behind it has its readies of this cycle, and what is in
        front of it still has its valids of this cycle.
        """
        valids, readies, awake = self._valids, self._readies, self._awake
        if i_valid != valids[0]:
            valids[0] = i_valid
            awake[self._readers[0]] = True
        for index, model, single, i_wire, o_wire, writer, reader in self._nodes:
            if not awake[index]:
                continue
            if not single:
                self._step_several(index, model)
                continue
            o_ready = readies[o_wire]
            ready = model.ready(o_ready)
            awake[index] = model.step(valids[i_wire], o_ready)
            if ready is not readies[i_wire]:
                readies[i_wire] = ready
                awake[writer] = True
            if model.o_valid is not valids[o_wire]:
                valids[o_wire] = model.o_valid
                awake[reader] = True
        return i_valid and readies[0]

    def _step_several(self, index: int, model: NetworkModel) -> None:
        """Step a model with several inputs or outputs."""
        valids, readies, awake = self._valids, self._readies, self._awake
        ins, outs = self._inputs[index], self._outputs[index]
        i_valids, o_readies = [valids[wire] for wire in ins], [readies[wire] for wire in outs]
        i_readies = model.ready(o_readies, i_valids)
        awake[index] = model.step(i_valids, o_readies)
        for wire, ready in zip(ins, i_readies, strict=True):
            if readies[wire] is not ready:
                readies[wire] = ready
                awake[self._writers[wire]] = True
        for wire, valid in zip(outs, model.o_valids, strict=True):
            if valids[wire] is not valid:
                valids[wire] = valid
                awake[self._readers[wire]] = True


def _wire(
    models: Sequence[CycleModel | NetworkModel], sources: Sequence[Sequence[Source]]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the numbers of the streams that enter and that leave each model.

    Raises
    ------
    ValueError: a stream that does not feed exactly one input of a later model.
    """
    wires: dict[tuple[int, int], int] = {(-1, 0): 0}
    outputs = [
        [wires.setdefault((index, port), len(wires)) for port in range(len(getattr(model, "o_valids", [False])))]
        for index, model in enumerate(models)
    ]
    entries = [[entry if isinstance(entry, tuple) else (entry, 0) for entry in row] for row in sources]
    fed = sorted(wires.get(entry, -1) for row in entries for entry in row)
    if fed != list(range(len(wires) - 1)) or any(
        source >= index for index, row in enumerate(entries) for source, _ in row
    ):
        raise ValueError(f"each stream of a network feeds one input of a later model; given {sources}")
    return [[wires[entry] for entry in row] for row in entries], outputs


class PipelineModel:
    """Cycle model of a pipeline that stands still while its output buffer of two beats is full.

    Parameters
    ----------
    latency: moves from a beat to its result in the output buffer, at least 1.
    period, silent: of `period` beats one after the other, the first `silent` ones give no result.
    burst: results of each other beat, in consecutive moves; they have left before the next ones come.
    """

    def __init__(self, latency: int, period: int = 1, silent: int = 0, burst: int = 1) -> None:
        self.latency, self.period, self.silent, self.burst = latency, period, silent, burst
        self.beat = 0
        self.move = 0  # moves so far, those left out in which nothing is on its way
        self.due: deque[int] = deque()  # moves in which a result reaches the buffer
        self.buffered = 0
        self.o_valid = False

    def ready(self, o_ready: bool) -> bool:
        """Return whether the pipeline moves."""
        return self.buffered < 2

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Pass one clock edge."""
        if self.buffered == 2:
            self.buffered -= o_ready
            return o_ready
        changed = i_valid
        if o_ready and self.buffered:
            self.buffered, changed = 0, True
        self.move += 1
        due = self.due
        if i_valid:
            if self.beat >= self.silent:
                due.extend(range(self.move + self.latency - 1, self.move + self.latency - 1 + self.burst))
            self.beat += 1
            if self.beat == self.period:
                self.beat = 0
        if due:
            changed = True
            if due[0] == self.move:
                due.popleft()
                self.buffered += 1
        self.o_valid = self.buffered > 0
        return changed


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

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Hand out one of `give` beats, take one of `take`."""
        take, give = i_valid and self.ready(o_ready), self.o_valid and o_ready
        self.left -= give
        if take:
            self.taken += 1
            if self.taken == self.take:
                self.taken, self.left = 0, self.give
        self.o_valid = self.left > 0
        return take or give
