"""The choice of a shared engine together with streaming engines in front of it that keep up with it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import starmap
from math import prod

from nnhw.accelerator import Accelerator, Stage
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.shared import ArrayConfig
from nnhw.engines.shared.array import Requantizing
from nnhw.engines.shared.cycle_model import actions
from nnhw.errors import MappingError
from nnhw.families import Cost, Family
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import cost
from nnhw.mapping.shared.compile import Compiled, compile_network
from nnhw.mapping.shared.program.bands import Bands
from nnhw.mapping.shared.program.memory_plan import ProgramTooLarge
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.search.arrays import (
    Choice,
    by_speed,
    compiled_choice,
    cost_fits,
    least_cost,
    with_blocks,
)
from nnhw.mapping.shared.search.fronts import Fronts
from nnhw.mapping.shared.search.works import Works
from nnhw.mapping.shared.settings import ARRAYS, NEIGHBOURS


@dataclass(frozen=True)
class Pair:
    """A shared engine with engines in front of it.

    Parameters
    ----------
    front: the engines in front.
    stages: their stages, with the converter and the queue between them and the shared engine.
    compiled: the program of the shared engine.
    cost: of all engines.
    """

    front: Accelerator
    stages: tuple[Stage, ...]
    compiled: Compiled
    cost: Cost

    @cached_property
    def interval(self) -> int:
        """An estimate of the cycles from frame to frame, for beats that come evenly while the queue has room."""
        # A program alternates between taking input and computing. `level` is how full the queue is; after a few frames
        # it repeats itself from frame to frame.
        beats = self.compiled.config.i_beats
        queue = [fifo.depth for stage in self.stages[-2:] if (fifo := stage.config.fifo) is not None]
        depth = sum(queue) or 1
        rate, level, cycles = min(1.0, beats / self.front.schedule.interval_cycles), 0.0, 0.0
        for _ in range(NEIGHBOURS.frames):
            cycles = 0.0
            for action in actions(self.compiled.config):
                count = action.cycles
                taken = count * (action.kind == "take")
                # Beats that are not in the queue yet come at the rate of the engines in front.
                passed = max(count, (taken - level) / rate)
                level = min(depth, level + passed * rate - taken)
                cycles += passed
        return round(cycles)


@dataclass(frozen=True)
class Pairing:
    """The search for a shared engine and engines in front of it.

    Parameters
    ----------
    fronts: mappings of the layers in front, with the board and its resources.
    network: tasks of the shared engine.
    i_lanes: elements of a beat between the two.
    works: the work of tasks on arrays, which other ways of cutting the network share.
    """

    fronts: Fronts
    network: TaskNetwork
    i_lanes: int
    works: Works = field(default_factory=Works)

    @property
    def budget(self) -> Budget:
        """The resources for both."""
        return self.fronts.budget

    @property
    def family(self) -> Family:
        """The board's device family."""
        return self.fronts.family

    def best(self, most: int | None) -> Pair | None:
        """Return the smallest of the pairs that are about as fast as the fastest; None if none fits.

        Parameters
        ----------
        most: intervals at or above this are not worth keeping, in cycles per frame; None: there is no such limit.
        """
        found = list[Pair]()
        for pair in self._pairs(most):
            found.append(pair)
            if len(found) == ARRAYS.exact or self.budget.lc > NEIGHBOURS.roomy_lc:
                break
        about = ARRAYS.slower * min((pair.interval for pair in found), default=0)
        fast = (pair for pair in found if pair.interval <= about)
        return min(fast, key=lambda pair: (pair.cost.lc, pair.interval), default=None)

    def _pairs(self, most: int | None) -> Iterator[Pair]:
        """Yield pairs until no further one can be faster, which the estimates of the arrays, in their order, tell."""
        arrays = by_speed(self.network, self.budget, self.family, self.i_lanes, works=self.works)
        best = most
        if self.budget.lc > NEIGHBOURS.roomy_lc:
            arrays = _small_first(arrays, self.budget, self.family)
        for cycles, array in arrays:
            if best is not None and cycles > ARRAYS.slower * best:
                return
            pair = self._fastest(array, cycles, None if best is None else ARRAYS.slower * best)
            if pair is not None:
                best = pair.interval if best is None else min(best, pair.interval)
                yield pair

    def _fastest(self, array: ArrayConfig, cycles: int, most: float | None) -> Pair | None:
        """Return an array with engines in front that keep up with it; None if they do not fit.

        If the array would wait for its first rows, faster engines in front are tried.

        Parameters
        ----------
        cycles: estimate of the cycles that the array takes for a frame.
        most: greatest interval of engines in front, in cycles; None: no limit.
        """
        best: Pair | None = None
        for faster in NEIGHBOURS.faster if self.budget.spram else NEIGHBOURS.faster[:1]:
            pair = self._beside(array, cycles // faster, most)
            if pair is None:
                break
            if self.budget.spram:
                pair = _banded(pair, self.network)
            best = min(best or pair, pair, key=lambda pair: pair.interval)
            if best.interval <= NEIGHBOURS.much_slower * cycles:
                break
        return best

    def _beside(self, array: ArrayConfig, cycles: int, most: float | None) -> Pair | None:
        """Return an array with the smallest engines in front of about so many cycles, or None; see `_fastest`.

        Lanes of the array use the DSP blocks that the engines in front leave.
        """
        budget, family, fronts = self.budget, self.family, self.fronts
        own = array.drains * (array.requantizing == Requantizing.DSP)
        source = self.network.values[self.network.source].shape
        queue_ebr = family.block_rams(prod(source) // self.i_lanes, self._beat_bits(array))
        least = least_cost(array, budget, family)
        if not budget.spram and cost_fits(least, budget):
            # In block RAM the size of the memory follows from the program, so that is made now.
            choice = self._choice(array)
            if choice is None:
                return None
            least = choice.cost
        # The logic that lanes in DSP blocks would save, as an upper bound: engines in front take these blocks first.
        saved = max(0.0, least.lc - least_cost(with_blocks(array, budget.dsp, family), budget, family).lc)
        left = _left(replace(budget, lc=budget.lc + saved), least, self._beat_bits(array))
        if left is None:
            return None
        for front in fronts.find(cycles, left, queue_ebr):
            if most is not None and front.schedule.interval_cycles > most:
                return None
            blocks = own + left.dsp - fronts.cost(front).dsp
            if (pair := self._joined(front, with_blocks(array, blocks, family))) is not None:
                return pair
        return None

    def _joined(self, front: Accelerator, array: ArrayConfig) -> Pair | None:
        """Return the pair of an array and engines in front; None if it does not fit, or the memory is too small."""
        taken = self.fronts.cost(front)
        left = _left(self.budget, least_cost(array, self.budget, self.family) + taken, self._beat_bits(array))
        choice = self._choice(array) if left is not None else None
        left = _left(self.budget, choice.cost, 0) if choice is not None else None
        if choice is None or left is None:
            return None
        return Pair(front, _joined(front, self.i_lanes, left, self.family), choice.compiled, choice.cost + taken)

    def _choice(self, array: ArrayConfig) -> Choice | None:
        """Return an array with its program; None if its memory is too small."""
        try:
            return compiled_choice(self.network, array, self.budget, self.family)
        except ProgramTooLarge:
            return None

    def _beat_bits(self, array: ArrayConfig) -> int:
        """Return the bits of a beat from the engines in front."""
        return self.i_lanes * array.activation_bits


def _banded(pair: Pair, network: TaskNetwork) -> Pair:
    """Return a pair whose program begins with the best of some ways to cut its first tasks into bands."""
    least = max(pair.front.schedule.interval_cycles, pair.compiled.cycles)
    for bands in starmap(Bands, NEIGHBOURS.bands):
        if pair.interval <= NEIGHBOURS.waits * least:
            break
        own = pair.compiled
        try:
            other = replace(pair, compiled=compile_network(network, own.config.array, bands, own.fusions))
        except MappingError:
            continue
        pair = min(pair, other, key=lambda pair: pair.interval)
    return pair


def _small_first(
    arrays: Iterable[tuple[int, ArrayConfig]], budget: Budget, family: Family
) -> Iterator[tuple[int, ArrayConfig]]:
    """Yield arrays by their cycles; of those that are about equally fast, the smallest comes first."""
    left = list(arrays)
    while left:
        count = sum(cycles <= ARRAYS.slower * left[0][0] for cycles, _ in left)
        yield from sorted(left[:count], key=lambda pair: (least_cost(pair[1], budget, family).lc, pair[0]))
        left = left[count:]


def _left(budget: Budget, cost: Cost, beat_bits: int) -> Budget | None:
    """Return the resources that a shared engine leaves, with its converter and queue; None if there are too few.

    Parameters
    ----------
    beat_bits: bits of a beat in the queue; 0: converter and queue are not counted.
    """
    # Registers of converter, queue and the register behind it.
    joining = 3 * beat_bits + NEIGHBOURS.queue_lc if beat_bits else 0
    taken = cost + Cost(joining, ff=joining)
    return replace(budget.without(taken), spram=0) if cost_fits(taken, budget) else None


def _joined(front: Accelerator, lanes: int, left: Budget, family: Family) -> tuple[Stage, ...]:
    """Return the stages in front, the converter to beats of the shared engine, and the queue of these beats.

    A register behind the queue ends the path through the multiplexer of its block RAMs: else that is the slowest path.
    """
    # The stages at the end of the engines in front are no output of the device here, but lead to the program.
    stages = tuple(
        replace(stage, name=f"program.{stage.name}", layer="program") if stage.layer == "output" else stage
        for stage in front.stages
    )
    output = stages[-1].output
    if lanes > 1:
        config = ConvertConfig(1, lanes, output.element.bits, output.beats)
        output = replace(output, lanes=lanes)
        stages = (*stages, Stage("program.convert", "program", "", config, ((len(stages) - 1, 0),), output))
    queue = _queue(stages, left, family)
    if queue is None:
        return stages
    register = FifoConfig(1, queue.lanes, queue.bits, queue.beats)
    for name, fifo in (("queue", queue), ("queue.register", register)):
        stages = (*stages, Stage(name, "program", "", fifo, ((len(stages) - 1, 0),), output))
    return stages


def _queue(stages: tuple[Stage, ...], left: Budget, family: Family) -> FifoConfig | None:
    """Return a FIFO for as much of a frame as the block RAMs that are left can hold; None if that is too little."""
    output = stages[-1].output
    bits, spare = (
        output.lanes * output.element.bits,
        left.ebr - sum(cost(stage.config, family).ebr for stage in stages),
    )
    depth = bisect_right(range(output.beats), spare, lo=1, key=lambda depth: family.block_rams(depth, bits))
    if depth <= NEIGHBOURS.least_queue // output.lanes:
        return None
    return FifoConfig(min(depth, output.beats), output.lanes, output.element.bits, output.beats)
