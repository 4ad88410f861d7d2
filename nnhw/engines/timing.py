"""Cycle models: the handshakes of each engine without its data, stepped cycle by cycle.

A network of these gives the latency and the interval of an accelerator exactly, because every model makes the same
decisions in the same cycle as the hardware that is made from the same configuration.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
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

    def state(self) -> Hashable:
        """Return all on which its behaviour from this cycle on depends."""


EVER = 1 << 62
"""Cycles of a model that goes on as it does for as long as its handshakes stay as they are."""


def alike(values: Sequence[Any]) -> list[int]:
    """Return for each place how many values from it on are the same."""
    found: list[int] = []
    for value, behind in zip(reversed(values), itertools.chain([None], reversed(values)), strict=False):
        found.append(found[-1] + 1 if value == behind else 1)
    return found[::-1]


class SteadyModel(CycleModel, Protocol):
    """A model that can pass many cycles at once, as long as nothing but its counters changes.

    Models need not do this, but a network is only stepped faster while all of its models that move do.
    """

    def steady(self, i_valid: bool, o_ready: bool) -> int:
        """Return for how many cycles, from this one on, it does the same thing if its inputs stay as they are.

        In each of them `step` returns True, `ready` returns what it returns now, and `o_valid` stays as it is. It may
        be fewer than there are; 0: unknown, or none.
        """

    def skip(self, i_valid: bool, o_ready: bool, cycles: int) -> None:
        """Pass so many clock edges, no more than `steady` returns for the same inputs."""


@dataclass(frozen=True)
class Schedule:
    """When the results of frames leave that come back to back, for ever, into a network at rest.

    Parameters
    ----------
    latency_cycles: from the cycle in which the first beat of the first frame is taken to the cycle in which its last
        result is handed over, both counted.
    interval_cycles: cycles between the last results of two frames, on average in the long run, rounded up; `interval`
        is not rounded.
    lead: cycles between the last results of the first frames, until these distances repeat.
    period: the distances that then repeat for ever; empty: each is `interval_cycles`.
    joined: the period follows directly on the lead. Otherwise an unknown number of frames is between them: where
        engines in front of the slowest one are a little faster, the buffers between them fill up slowly.

    Raises
    ------
    ValueError: interval and period do not agree.
    """

    latency_cycles: int
    interval_cycles: int
    lead: tuple[int, ...] = ()
    period: tuple[int, ...] = ()
    joined: bool = True

    def __post_init__(self) -> None:
        if self.interval_cycles != math.ceil(self.interval):
            raise ValueError(f"the interval of {self.period} is {self.interval}, given {self.interval_cycles}")

    @property
    def interval(self) -> Fraction:
        """Cycles between the last results of two frames, on average in the long run."""
        return Fraction(sum(self.period), len(self.period)) if self.period else Fraction(self.interval_cycles)

    @property
    def frames(self) -> int | None:
        """Frames up to the end of the first period, so that a run of as many shows the interval; None: not known."""
        return 1 + len(self.lead) + max(1, len(self.period)) if self.joined else None

    def ends(self, frames: int) -> list[int]:
        """Return the cycle of the last result of each of `frames` frames; the first beat is taken in cycle 0.

        If the period does not follow on the lead, only the frames of the lead are known and returned.
        """
        # Without a period all distances are alike; where frames between lead and period are unknown, nothing follows.
        repeated = itertools.cycle(self.period or (self.interval_cycles,)) if self.joined else ()
        distances = itertools.islice(itertools.chain(self.lead, repeated), max(0, frames - 1))
        return list(itertools.accumulate(distances, initial=self.latency_cycles - 1))[:frames]

    def interval_in(self, ends: Sequence[int]) -> Fraction | None:
        """Return the interval that a run shows, the mean over its last period; None if it has too few frames.

        Parameters
        ----------
        ends: cycle of the last result of each frame of the run.
        """
        if self.frames is None or len(ends) < self.frames:
            return None
        period = max(1, len(self.period))
        # Over a whole period: a part of it has another mean.
        return Fraction(ends[-1] - ends[-1 - period], period)


def schedule_of(run: NetworkRun, settled: NetworkRun | None = None) -> Schedule:
    """Return the schedule of a run from rest.

    Parameters
    ----------
    run: gives the latency and the lead.
    settled: a second run that repeats itself, if the first one does not yet; it gives the period.
    """
    last = run if settled is None else settled
    period = _shortest(last.distances[len(last.distances) - last.period :])
    lead = run.distances[: len(run.distances) - run.period]
    # States of the models repeat later than the distances may: begin the period as early as these allow.
    while settled is None and lead and lead[-1] == period[-1]:
        lead, period = lead[:-1], (period[-1], *period[:-1])
    interval = math.ceil(Fraction(sum(period), len(period)))
    return Schedule(run.latency, interval, lead, period, joined=settled is None)


def _shortest(period: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shortest part of a period that gives all of it when it is repeated."""
    # Several frames may bring the network back to its state while their distances repeat sooner.
    sizes = [size for size in range(1, len(period) + 1) if len(period) % size == 0]
    return next(period[:size] for size in sizes if period[:size] * (len(period) // size) == period)


def as_number(cycles: Fraction) -> int | float:
    """Return an average number of cycles as a JSON number: an integer if it is one."""
    return cycles.numerator if cycles.denominator == 1 else float(cycles)


def estimated(run: NetworkRun) -> Schedule:
    """Return an estimate of the schedule of a run that does not repeat itself yet, from its later half of frames."""
    interval = math.ceil(_pace(run.ends))
    return Schedule(run.latency, interval, run.distances, joined=False)


class NetworkModel(Protocol):
    """The handshakes of an engine with several input or output streams.

    `o_valids` are registers: they do not depend on this cycle's inputs.
    """

    o_valids: list[bool]

    def ready(self, o_readies: Sequence[bool], i_valids: Sequence[bool]) -> list[bool]:
        """Return for each input whether a beat that is offered in this cycle is taken."""

    def step(self, i_valids: Sequence[bool], o_readies: Sequence[bool]) -> bool:
        """Pass one clock edge; return False only if nothing changed: no beat passed, and nothing is on its way."""

    def state(self) -> Hashable:
        """Return all on which its behaviour from this cycle on depends."""


Source = int | tuple[int, int]
"""Where an input of a model comes from: (index of a model, its output), or the index alone for output 0."""


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

    Raises
    ------
    StuckError: the pipeline is stuck.
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
    models: in topological order; the only output of the last one is the output of the network. Only a model's
        `late_inputs` may be fed by later models; their ready is a register.
    sources: for each model, where each of its inputs comes from: (model, its output), or the model alone for its
        output 0, or -1 for the input of the network. Each output feeds one input.
    i_beats, o_beats: beats of one frame at either end.
    frames: how many frames to run.
    limit_cycles: a bound on the cycles; passing it means that the network is stuck.
    patient: before each beat, the input pauses until nothing moves any more: then the fewest beats are on their way.

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
    while network.cycle < limit_cycles:
        cycle = network.cycle
        # The output never blocks, so a beat that is there leaves in this cycle.
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
        # Nothing moves, and the next cycle would offer nothing new: it will stay so.
        still = network.is_still
        if still and not (patient and left and not offered):
            break
        if offered == (left > 0 and not patient):
            # The last beat of a frame, and the last one that comes in, are not skipped.
            most = min(left - 1 if network.i_taken else EVER, o_beats - 1 - done % o_beats if network.o_valid else EVER)
            skipped = network.skip(min(most, limit_cycles - network.cycle))
            left -= skipped * network.i_taken
            done += skipped * network.o_valid
    raise StuckError(_stuck(f"finish {frames} frames in {limit_cycles} cycles"))


@dataclass(frozen=True)
class NetworkRun:
    """When the results of frames left a network that was at rest at first.

    Parameters
    ----------
    first: cycle in which the first beat was taken.
    ends: cycle of the last result of each frame.
    period: how many of the last frames would repeat for ever; 0: no repetition was seen.
    model_ends: for each model, the cycles in which its own last result of each frame left.
    """

    first: int
    ends: tuple[int, ...]
    period: int
    model_ends: tuple[tuple[int, ...], ...]

    @property
    def latency(self) -> int:
        """Cycles from the first beat to the last result of the first frame, both included."""
        return self.ends[0] - self.first + 1

    @property
    def distances(self) -> tuple[int, ...]:
        """Cycles between the last results of two frames."""
        return tuple(later - sooner for sooner, later in pairwise(self.ends))

    @property
    def slowest(self) -> int:
        """The first of the slowest models: all in front of it are faster, if there is any difference at all."""
        paces = [_pace(ends) for ends in self.model_ends]
        same = min(SAME_CYCLES, TURN_CYCLES / len(self.ends))
        # Everything behind it waits for it and has its pace, too: hence the first one.
        return next(index for index, pace in enumerate(paces) if pace > max(paces) - same)


SAME_CYCLES = 0.75
"""Difference, in cycles per frame, up to which two models count as equally fast: distances of frames vary in turns."""
TURN_CYCLES = 20
"""Most cycles by which such variations move the end of a frame: over many frames, a pace is known more exactly."""


def _pace(ends: Sequence[int]) -> float:
    """Return the mean cycles per frame in the later half of a run, from the ends of its frames; 0 if it has too few."""
    # The first half counts as filling up, in which engines in front are faster than in the long run.
    half = ends[len(ends) // 2 :]
    return (half[-1] - half[0]) / (len(half) - 1) if len(half) > 1 else 0.0


def run_until_periodic(
    models: Sequence[CycleModel | NetworkModel],
    sources: Sequence[Sequence[Source]],
    o_beats: Sequence[int],
    frame_cycles: int,
    most: tuple[int, int],
    held: int | None = None,
    latency: int | None = None,
) -> NetworkRun:
    """Step a network at rest, with an input that never pauses and an output that never blocks, until it repeats itself.

    What it does from a cycle on depends only on the states of its models. So if these are the same at the ends of two
    frames, everything between them repeats for ever.

    Parameters
    ----------
    models, sources: see `run_network`.
    o_beats: for each model, the beats of one frame at each of its outputs.
    frame_cycles: a bound on the cycles of a frame; passing it means that the network is stuck.
    most: (frames, cycles): stop without a repetition once both are reached.
    held: index of a model that gives nothing at first, until everything in front of it is full; None: there is none.
    latency: stop after the first frame if it takes more cycles than this.

    Raises
    ------
    StuckError: the network is stuck.
    """
    models = list(models)
    if held is not None:
        models[held] = _Held(models[held])
    network = _Network(models, sources, o_beats)
    # As at the first frame of a device: an engine may do something before it takes a beat, such as fetch its program.
    network.rest(frame_cycles)
    if held is not None:
        network.fill(held, MOST_FILLED * frame_cycles)
    # The number of frames that had ended when the network was in this state at the end of a frame.
    seen: dict[Hashable, int] = {}
    first, quiet, ends = -1, 0, network.frame_ends[-1]
    # At rest, as in the first cycle, a network is still; behind a step that offered a beat, it is stuck then.
    while quiet <= frame_cycles and not (quiet and network.is_still):
        frames = len(ends)
        cycle, quiet = network.cycle, quiet + 1
        if network.step(True) and first < 0:
            first = cycle
        if len(ends) > frames:
            quiet = 0
            # 0 for a state that is new: it was stored with this number of frames.
            period = frames - seen.setdefault(network.state(), frames)
            # A trial of a shallower FIFO ends here, behind one frame, if that was too slow.
            slower = latency is not None and ends[0] - first + 1 > latency
            if slower or period or (len(ends) >= most[0] and cycle >= most[1]):
                return NetworkRun(first, tuple(ends), period, network.model_ends)
        quiet += network.skip(frame_cycles)
    raise StuckError(_stuck(f"end frame {len(ends)} in {frame_cycles} cycles"))


def cycles_to_rest(
    models: Sequence[CycleModel | NetworkModel], sources: Sequence[Sequence[Source]], limit_cycles: int
) -> int:
    """Return the cycles from the reset on after which a network without input changes no more; see `run_network`.

    Raises
    ------
    StuckError: it still changes after so many cycles.
    """
    network = _Network(models, sources)
    # Nothing is offered, so what still moves are engines that begin by themselves, such as those that fetch a program.
    network.rest(limit_cycles)
    return network.cycle


MOST_FILLED = 100
"""Frames, in cycles of the bound for one, within which everything in front of a held model must be full."""


class _Held:
    """A model whose outputs are held back until it is released."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._held = True
        # A network tells the kinds of models apart by this attribute, so a held one has the same.
        if hasattr(model, "o_valids"):
            self.o_valids = [False] * len(model.o_valids)
            self.late_inputs = getattr(model, "late_inputs", ())
        else:
            self.o_valid = False

    def release(self) -> None:
        """Show its outputs from now on."""
        self._held = False
        self._show()

    def ready(self, o_ready: Any, *i_valids: Any) -> Any:
        """Return what the model answers at its inputs."""
        return self._model.ready(self._seen(o_ready), *i_valids)

    def step(self, i_valid: Any, o_ready: Any) -> bool:
        """Pass one clock edge."""
        changed = self._model.step(i_valid, self._seen(o_ready))
        self._show()
        return bool(changed)

    def steady(self, i_valid: Any, o_ready: Any) -> int:
        """Return for how many cycles the model does the same."""
        steady = getattr(self._model, "steady", None)
        return steady(i_valid, self._seen(o_ready)) if steady else 0

    def skip(self, i_valid: Any, o_ready: Any, cycles: int) -> None:
        """Pass so many clock edges."""
        self._model.skip(i_valid, self._seen(o_ready), cycles)

    def state(self) -> Hashable:
        """Return the state of the model."""
        state: Hashable = self._model.state()
        return state

    def _seen(self, o_ready: Any) -> Any:
        """Return the readies that the model sees at its outputs: none while it is held."""
        if not self._held:
            return o_ready
        return [False] * len(o_ready) if isinstance(o_ready, list) else False

    def _show(self) -> None:
        """Show the valids of the model's outputs, unless it is held."""
        if self._held:
            return
        if hasattr(self, "o_valids"):
            self.o_valids = self._model.o_valids
        else:
            self.o_valid = self._model.o_valid


def _stuck(missed: str) -> str:
    return (
        f"the pipeline did not {missed}: its configuration is stuck; this is a mistake of nnhw, please report the model"
    )


LEAST_SKIPPED = 3
"""Cycles that are worth being passed at once: to find them takes as long as two steps."""
MOST_PAUSED = 15
"""Most quiet cycles that pass between two looks for cycles to skip, where there were none."""


class _Network:
    """Models and the streams between them: stream 0 is the input, the last one the output.

    A model is stepped only if it changed in the cycle before, or if a valid or a ready that it sees did. While all that
    move do the same in each cycle, many cycles are passed at once.
    """

    def __init__(
        self,
        models: Sequence[CycleModel | NetworkModel],
        sources: Sequence[Sequence[Source]],
        o_beats: Sequence[int] | None = None,
    ) -> None:
        self._models = models
        self.cycle = 0
        self._inputs, self._outputs = _wire(models, sources)
        count = self._outputs[-1][0] + 1
        self._valids, self._readies = [False] * count, [True] * count
        self._readers = self._sides(self._inputs, count)
        self._writers = self._sides(self._outputs, count)
        self._beats = [0] * count
        # Without lengths of frames, none ever ends.
        for wires, beats in zip(self._outputs, o_beats or [1 << 62] * len(models), strict=True):
            for wire in wires:
                self._beats[wire] = beats
        self._left = list(self._beats)
        late = [wires[port] for model, wires in zip(models, self._inputs, strict=True) for port in late_inputs(model)]
        self._late = dict.fromkeys(late, False)
        """Valids of this cycle of streams that lead backwards: their source is stepped before their reader is."""
        self.frame_ends: list[list[int]] = [[] for _ in range(count)]
        # Bit i stands for model i, so that those that sleep take no time. The ends of the network are never stepped.
        self._bits = [*(1 << index for index in range(len(models))), 0]
        self._awake = (1 << len(models)) - 1
        self._quiet = False
        """Whether no stream changed its valid or its ready in the last cycle."""
        self._pause = self._failed = 0
        # What `step` needs of each model with a single input and output.
        self._nodes: list[tuple[Any, bool, int, int, int, int]] = [
            (model, not hasattr(model, "o_valids"), i, o, self._writers[i], self._readers[o])
            # What has no input is no single model, and is asked for none.
            for model, (i, *_), (o, *_) in zip(
                models, ([*wires, 0] for wires in self._inputs), self._outputs, strict=True
            )
        ]

    def _sides(self, rows: list[list[int]], count: int) -> list[int]:
        """Return the model at one side of each stream; the ends of the network count as one more model."""
        sides = {wire: index for index, row in enumerate(rows) for wire in row}
        return [sides.get(wire, len(rows)) for wire in range(count)]

    @property
    def model_ends(self) -> tuple[tuple[int, ...], ...]:
        """The cycles in which the last results of frames left each model."""
        return tuple(tuple(self.frame_ends[wires[0]]) for wires in self._outputs)

    def _ended(self, wire: int) -> None:
        """Note the end of a frame of a stream."""
        self._left[wire] = self._beats[wire]
        self.frame_ends[wire].append(self.cycle)

    @property
    def o_valid(self) -> bool:
        """Whether a beat leaves the network."""
        return self._valids[-1]

    @property
    def i_taken(self) -> bool:
        """Whether a beat came in in the last cycle."""
        return self._valids[0] and self._readies[0]

    @property
    def is_still(self) -> bool:
        """Whether nothing changes any more, unless the input does."""
        return not self._awake

    def state(self) -> Hashable:
        """Return all on which the network's behaviour from this cycle on depends, if neither end ever pauses."""
        return tuple(model.state() for model in self._models)

    def rest(self, limit_cycles: int) -> None:
        """Step without input until nothing changes any more.

        Raises
        ------
        StuckError: something still changes after `limit_cycles`.
        """
        limit_cycles += self.cycle
        while self.cycle < limit_cycles:
            self.step(False)
            if self.is_still:
                return
            self.skip(limit_cycles - self.cycle)
        raise StuckError(_stuck(f"come to rest in {limit_cycles} cycles"))

    def fill(self, held: int, limit_cycles: int) -> None:
        """Step with an input that never pauses until nothing moves in front of model `held`, then release that model.

        Raises
        ------
        StuckError: something still moves after `limit_cycles`.
        """
        end = self.cycle + limit_cycles
        while not (self.step(True), self.is_still)[1]:
            self.skip(end - self.cycle)
            if self.cycle >= end:
                raise StuckError(_stuck(f"fill up in {limit_cycles} cycles"))
        model: Any = self._models[held]
        model.release()
        shown = model.o_valids if hasattr(model, "o_valids") else [model.o_valid]
        # Streams remember what they saw last, and this model was not stepped: they are told.
        for wire, valid in zip(self._outputs[held], shown, strict=True):
            self._valids[wire] = valid
            self._awake |= self._bits[self._readers[wire]]
        self._awake |= self._bits[held]
        self._quiet = False

    def step(self, i_valid: bool) -> bool:  # noqa: C901 - a call for each model would take as long as its step
        """Pass one clock edge; return whether a beat came in.

        Models are stepped from output to input: then those behind a model have already said whether they are ready in
        this cycle, and those in front of it still show their valids of this cycle.
        """
        valids, readies, left, nodes, bits = self._valids, self._readies, self._left, self._nodes, self._bits
        pending, later, quiet = self._awake, 0, True
        if self._late:
            self._late = {wire: valids[wire] for wire in self._late}
        if i_valid != valids[0]:
            valids[0] = i_valid
            pending |= bits[self._readers[0]]
            quiet = False
        while pending:
            index = pending.bit_length() - 1
            bit = bits[index]
            pending ^= bit
            model, single, i_wire, o_wire, writer, reader = nodes[index]
            if not single:
                changed, woken = self._step_several(index, model)
                if changed:
                    later |= bit
                if woken:
                    # Those in front of the model have yet to be stepped in this cycle.
                    pending |= woken & (bit - 1)
                    later |= woken & -bit
                    quiet = False
                continue
            o_ready = readies[o_wire]
            if o_ready and valids[o_wire]:
                left[o_wire] -= 1
                if not left[o_wire]:
                    self._ended(o_wire)
            # Before the step, which changes what the model answers: this is its answer in this cycle.
            ready = model.ready(o_ready)
            if model.step(valids[i_wire], o_ready):
                later |= bit
            # All handshakes are plain bools, so `is not` says whether they differ.
            if ready is not readies[i_wire]:
                readies[i_wire] = ready
                pending |= bits[writer]
                quiet = False
            if model.o_valid is not valids[o_wire]:
                valids[o_wire] = model.o_valid
                # A stream that leads backwards wakes a model that has yet to be stepped in this cycle.
                if reader > index:
                    later |= bits[reader]
                else:
                    pending |= bits[reader]
                quiet = False
        self._awake, self._quiet = later, quiet
        self.cycle += 1
        return i_valid and readies[0]

    def _step_several(self, index: int, model: NetworkModel) -> tuple[bool, int]:
        """Step a model with several inputs or outputs, see `step`; return whether it changed, and whom it wakes."""
        valids, readies, bits, woken = self._valids, self._readies, self._bits, 0
        ins, outs = self._inputs[index], self._outputs[index]
        i_valids = [self._late.get(wire, valids[wire]) for wire in ins]
        o_readies = [readies[wire] for wire in outs]
        for wire in outs:
            if readies[wire] and valids[wire]:
                self._left[wire] -= 1
                if not self._left[wire]:
                    self._ended(wire)
        i_readies = model.ready(o_readies, i_valids)
        changed = model.step(i_valids, o_readies)
        if self._late and any(wire in self._late for wire in ins):
            # The source of a late input is stepped before this model: in the next cycle it must see the ready that
            # holds then, which it does because that is a register.
            later = model.ready(o_readies, i_valids)
            i_readies = [
                after if wire in self._late else now for wire, now, after in zip(ins, i_readies, later, strict=True)
            ]
            changed = changed or any(valids[wire] != seen for wire, seen in self._late.items() if wire in ins)
        for wire, ready in zip(ins, i_readies, strict=True):
            if readies[wire] is not ready:
                readies[wire] = ready
                woken |= bits[self._writers[wire]]
        for wire, valid in zip(outs, model.o_valids, strict=True):
            if valids[wire] is not valid:
                valids[wire] = valid
                woken |= bits[self._readers[wire]]
        return changed, woken

    def skip(self, most: int) -> int:
        """Pass up to `most` cycles at once in which every stream does what it did in the last one; return how many.

        The input offers what it offered. No frame of a stream ends in these cycles, and something moves in each.
        """
        if not self._quiet or self._late:
            return 0
        # Where engines take turns in each cycle, to look costs more than it saves: after each failure less often.
        if self._pause:
            self._pause -= 1
            return 0
        cycles, moving = self._steady(most)
        if not moving:
            self._failed = min(2 * self._failed + 1, MOST_PAUSED)
            self._pause = self._failed
            return 0
        self._failed = 0
        for model, i_valid, o_ready, outs in moving:
            model.skip(i_valid, o_ready, cycles)
            for wire in outs:
                if self._readies[wire] and self._valids[wire]:
                    self._left[wire] -= cycles
        self.cycle += cycles
        return cycles

    def _steady(self, most: int) -> tuple[int, list[tuple[Any, Any, Any, list[int]]]]:
        """Return for how many cycles nothing but counters changes, and the models that move, with what they see.

        There are none where it is too few cycles to be worth while, or where a model does not say it.
        """
        valids, readies, cycles, moving = self._valids, self._readies, most, []
        awake = self._awake
        while awake:
            index = awake.bit_length() - 1
            awake ^= self._bits[index]
            model, single, i_wire, o_wire, *_ = self._nodes[index]
            steady, outs = getattr(model, "steady", None), self._outputs[index]
            i_valid: Any = valids[i_wire]
            o_ready: Any = readies[o_wire]
            if single:
                same = model.ready(o_ready) is readies[i_wire]
            else:
                ins = self._inputs[index]
                i_valid, o_ready = [valids[wire] for wire in ins], [readies[wire] for wire in outs]
                same = model.ready(o_ready, i_valid) == [readies[wire] for wire in ins]
            # What it answered in the last cycle, before its step, need not be what it answers in this one.
            if steady is None or not same:
                return 0, []
            ends = [self._left[wire] - 1 for wire in outs if readies[wire] and valids[wire]]
            cycles = min(cycles, steady(i_valid, o_ready), *ends)
            if cycles < LEAST_SKIPPED:
                return 0, []
            moving.append((model, i_valid, o_ready, outs))
        return cycles, moving


def late_inputs(model: CycleModel | NetworkModel) -> tuple[int, ...]:
    """Return the numbers of the inputs of a model that later models may feed."""
    found: tuple[int, ...] = getattr(model, "late_inputs", ())
    return found


def _wire(
    models: Sequence[CycleModel | NetworkModel], sources: Sequence[Sequence[Source]]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return (numbers of the streams that enter each model, numbers of those that leave it).

    Raises
    ------
    ValueError: some stream does not feed exactly one input of a later model, or one late input of an earlier model.
    """
    # Streams are numbered in stream order, so the last output of all is the network's.
    wires: dict[tuple[int, int], int] = {(-1, 0): 0}
    outputs = [
        [wires.setdefault((index, port), len(wires)) for port in range(len(getattr(model, "o_valids", [False])))]
        for index, model in enumerate(models)
    ]
    entries = [[entry if isinstance(entry, tuple) else (entry, 0) for entry in row] for row in sources]
    # Each stream once, but for the last one, which leaves the network.
    fed = sorted(wires.get(entry, -1) for row in entries for entry in row)
    backwards = [
        source >= index and port not in late_inputs(models[index])
        for index, row in enumerate(entries)
        for port, (source, _) in enumerate(row)
    ]
    if fed != list(range(len(wires) - 1)) or any(backwards):
        raise ValueError(f"each stream of a network feeds one input of a later model; given {sources}")
    return [[wires[entry] for entry in row] for row in entries], outputs


class PipelineModel:
    """Cycle model of a pipeline that stands still while its output buffer of two beats is full.

    Parameters
    ----------
    latency: moves from a beat to its result in the output buffer, at least 1. A move is a cycle in which the pipeline
        does not stand still.
    period, silent: of each `period` beats, the first `silent` ones give no result.
    burst: results of each of the other beats, in consecutive moves; they are out before the next ones come.
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
        # A full buffer: the pipeline stands still, whether or not a result leaves in this cycle.
        if self.buffered == 2:
            self.buffered -= o_ready
            return o_ready
        changed = i_valid
        # Less than two results are there, so it is one at most.
        if o_ready and self.buffered:
            self.buffered, changed = 0, True
        self.move += 1
        due = self.due
        if i_valid:
            if self.beat >= self.silent:
                # A move has been counted for this cycle already.
                first = self.move + self.latency - 1
                if self.burst == 1:
                    due.append(first)
                else:
                    due.extend(range(first, first + self.burst))
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

    def steady(self, i_valid: bool, o_ready: bool) -> int:
        """Return for how many cycles it does the same: takes beats without results, or waits for a result."""
        if self.buffered == 2:
            return 0
        if o_ready and self.buffered:
            return EVER if i_valid and self._streams else 0
        until = self.due[0] - self.move - 1 if self.due else EVER
        if i_valid:
            return min(until, self.silent - self.beat)
        return until if self.due else 0

    @property
    def _streams(self) -> bool:
        """Whether each beat gives a result, and there is one in each move to come."""
        # Results of consecutive moves: as many as the pipeline holds are there if its last one is as late as can be.
        full = self.latency - 1
        return (
            not self.silent
            and self.burst == 1
            and len(self.due) == full
            and (not full or self.due[-1] == self.move + full)
        )

    def skip(self, i_valid: bool, o_ready: bool, cycles: int) -> None:
        """Pass so many cycles."""
        self.move += cycles
        if i_valid:
            self.beat = (self.beat + cycles) % self.period
        if o_ready and self.buffered:
            self.due = deque(due + cycles for due in self.due)

    def state(self) -> Hashable:
        """Return the beat within its period, the moves until each result on its way, and the results in the buffer."""
        return self.beat, tuple(due - self.move for due in self.due), self.buffered


class RegisterModel:
    """Cycle model of a register that takes `take` beats and then gives `give`: a FIFO of one beat, width converters."""

    def __init__(self, take: int = 1, give: int = 1) -> None:
        self.take, self.give = take, give
        self.taken = 0
        self.left = 0
        self.o_valid = False

    def ready(self, o_ready: bool) -> bool:
        """Return whether the register is empty, or is emptied in this cycle."""
        return not self.o_valid or (o_ready and self.left == 1)

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Pass one clock edge: hand out one of `give` beats, take one of `take`."""
        before = self.o_valid
        # A register that gives its last beat takes another in the same cycle: a stream of equal widths never pauses.
        take, give = i_valid and (not before or (o_ready and self.left == 1)), before and o_ready
        if give:
            self.left -= 1
        if take:
            self.taken += 1
            if self.taken == self.take:
                self.taken, self.left = 0, self.give
        self.o_valid = self.left > 0
        return take or give

    def steady(self, i_valid: bool, o_ready: bool) -> int:
        """Return for how many cycles it does the same: takes beats, gives beats, or both."""
        if not self.o_valid:
            return self.take - self.taken - 1 if i_valid else 0
        if not o_ready:
            return 0
        if self.left > 1:
            return self.left - 1
        return EVER if i_valid and self.take == self.give == 1 else 0

    def skip(self, i_valid: bool, o_ready: bool, cycles: int) -> None:
        """Pass so many cycles."""
        if not self.o_valid:
            self.taken += cycles
        elif self.left > 1:
            self.left -= cycles

    def state(self) -> Hashable:
        """Return the beats taken towards the next output, and those still to be given."""
        return self.taken, self.left
