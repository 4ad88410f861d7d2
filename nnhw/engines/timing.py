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

from nnhw.engines.network import CycleModel, NetworkModel, Source, make_network
from nnhw.errors import StuckError


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
        """Return the interval that a run shows; None if it has less than two frames.

        It is the mean over the last period. A run that is too short for a whole one gives the mean over the later half
        of its distances, which need not be that of the long run: buffers may still fill up.

        Parameters
        ----------
        ends: cycle of the last result of each frame of the run.
        """
        is_whole = self.frames is not None and len(ends) >= self.frames
        # Over a whole period: a part of it has another mean.
        count = max(1, len(self.period)) if is_whole else len(ends) // 2
        return Fraction(ends[-1] - ends[-1 - count], count) if count else None


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
    network = make_network(models, sources)
    finish = network.run(frames * i_beats, o_beats, frames, limit_cycles, patient)
    network.settle()
    if len(finish) == frames:
        return max(network.first, 0), finish
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
    network = make_network(models, sources, o_beats, held)
    # As at the first frame of a device: an engine may do something before it takes a beat, such as fetch its program.
    if not network.rest(frame_cycles):
        raise StuckError(_stuck(f"come to rest in {frame_cycles} cycles"))
    if held is not None and not network.fill(MOST_FILLED * frame_cycles):
        raise StuckError(_stuck(f"fill up in {MOST_FILLED * frame_cycles} cycles"))
    # The number of frames that had ended when the network was in this state at the end of a frame.
    seen: dict[Hashable, int] = {}
    while network.frame(frame_cycles):
        frames, first, latest = len(network.ends), network.ends[0], network.ends[-1]
        # 0 for a state that is new: it was stored with this number of frames.
        period = frames - seen.setdefault(network.state(), frames)
        # A trial of a shallower FIFO ends here, behind one frame, if that was too slow.
        slower = latency is not None and first - network.first + 1 > latency
        if slower or period or (frames >= most[0] and latest >= most[1]):
            network.settle()
            return NetworkRun(network.first, tuple(network.ends), period, network.model_ends)
    network.settle()
    raise StuckError(_stuck(f"end frame {len(network.ends)} in {frame_cycles} cycles"))


def cycles_to_rest(
    models: Sequence[CycleModel | NetworkModel], sources: Sequence[Sequence[Source]], limit_cycles: int
) -> int:
    """Return the cycles from the reset on after which a network without input changes no more; see `run_network`.

    Raises
    ------
    StuckError: it still changes after so many cycles.
    """
    network = make_network(models, sources)
    # Nothing is offered, so what still moves are engines that begin by themselves, such as those that fetch a program.
    if not network.rest(limit_cycles):
        raise StuckError(_stuck(f"come to rest in {limit_cycles} cycles"))
    return network.cycle


MOST_FILLED = 100
"""Frames, in cycles of the bound for one, within which everything in front of a held model must be full."""


def _stuck(missed: str) -> str:
    return (
        f"the pipeline did not {missed}: its configuration is stuck; this is a mistake of nnhw, please report the model"
    )


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

    def state(self) -> Hashable:
        """Return the beats taken towards the next output, and those still to be given."""
        return self.taken, self.left
