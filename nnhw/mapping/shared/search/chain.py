"""Chains: several shared engines in a row, each with a part of the layers; the slowest one sets the interval."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt

from nnhw.engines.shared import ArrayConfig
from nnhw.families import Cost, Family
from nnhw.ir import Graph, extract
from nnhw.mapping.budget import Budget
from nnhw.mapping.reader import read_layers
from nnhw.mapping.shared.compile import compile_network, network_of
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.search.arrays import Choice, cost_fits, weights_exceed, with_blocks
from nnhw.mapping.shared.search.partition import is_cut
from nnhw.mapping.shared.search.segments import Arrays, Option, Segment, frontier, segment_of
from nnhw.mapping.shared.search.works import Works
from nnhw.mapping.shared.settings import CHAINS

LOGGER = logging.getLogger("nnhw.mapping")


@dataclass(frozen=True)
class ChainPart:
    """A part of the layers, and the shared engine that runs them.

    Parameters
    ----------
    graph: graph of these layers.
    choice: the engine's array, program and cost.
    """

    graph: Graph
    choice: Choice


@dataclass(frozen=True)
class EngineChain:
    """A network on several shared engines in a row."""

    parts: tuple[ChainPart, ...]

    @property
    def cycles(self) -> int:
        """Cycles from frame to frame: those of the slowest engine."""
        return max(part.choice.compiled.cycles for part in self.parts)

    @property
    def title(self) -> str:
        """A description for the report."""
        counts = [len(read_layers(part.graph)) for part in self.parts]
        return f"{len(counts)} shared engines in a row, with {', '.join(map(str, counts[:-1]))} and {counts[-1]} layers"

    @property
    def cost(self) -> Cost:
        """The cost of all engines."""
        return sum((part.choice.cost for part in self.parts), Cost())


@dataclass(frozen=True)
class _Way:
    """Engines for the first layers of a network, a partial chain.

    Parameters
    ----------
    picks: for each engine, its layers and its array.
    cost: of these engines, without lanes in DSP blocks.
    """

    picks: tuple[tuple[Segment, Option], ...]
    cost: Cost


def choose_chain(
    body: Graph,
    budget: Budget,
    family: Family,
    most: int | None = None,
    engines: int = CHAINS.most_engines,
    network: TaskNetwork | None = None,
    enough: int = 0,
    works: Works | None = None,
) -> EngineChain | None:
    """Return the fastest chain of two shared engines or more that fits a budget, or None.

    Parameters
    ----------
    most: intervals at or above this are not worth keeping, in cycles per frame; None: there is no such limit.
    engines: most engines of a chain.
    network: the tasks of the graph, if they are known.
    enough: cycles per frame of which fewer are no better: the search ends with a chain that takes no more.
    works: the work of tasks that is known; more is added.

    Raises
    ------
    MappingError: no shared engine runs some layer.
    """
    return _Search(body, network or network_of(body), budget, family, engines, works).best(most, enough)


def thinned(cuts: Sequence[int]) -> list[int]:
    """Return at most `CHAINS.most_cuts` of the places at which a network may be cut, evenly spread."""
    count = min(len(cuts), CHAINS.most_cuts)
    return [cuts[place * len(cuts) // count] for place in range(count)]


class _Search:
    """Seeks a chain; see `choose_chain`."""

    def __init__(
        self,
        body: Graph,
        network: TaskNetwork,
        budget: Budget,
        family: Family,
        engines: int,
        works: Works | None,
    ) -> None:
        self.body, self.network, self.budget, self.family = body, network, budget, family
        self.layers = read_layers(body)
        self.arrays = Arrays(self.network, budget, family, works)
        nodes = {task.node for task in self.network.tasks}
        count = len(self.layers)
        cuts = [end for end in range(1, count) if is_cut(self.layers, end, body)]
        self.ends = [*thinned([end for end in cuts if self.layers[end - 1].node in nodes]), count]
        self._segments: dict[tuple[int, int], Segment] = {}
        self._shapes = self.arrays.shapes(self.network)
        self.engines = min(engines, self._most_engines())

    def best(self, most: int | None, enough: int) -> EngineChain | None:
        """Return the chain with the shortest interval, or one of at most `enough` cycles; None if none was found."""
        if self.engines < 2 or weights_exceed(self.network, self.budget, self.family):
            return None
        low, limit = self._least(), most - 1 if most is not None else CHAINS.most_cycles * self.network.products
        # Most networks have no chain at all: that is known at once at the longest interval.
        best = self._at(limit) if low <= limit else None
        # Between the longest interval without a chain and the shortest with one; what is enough is tried first.
        while best is not None and best.cycles > max(enough, CHAINS.growth * low):
            middle = max(isqrt(low * best.cycles), enough)
            if middle <= low:
                break
            chain = self._at(min(middle, best.cycles - 1))
            low, best = (middle, best) if chain is None else (low, chain)
        return best

    def _most_engines(self) -> int:
        """Return an upper bound of the engines that fit beside one another: the smallest ones."""
        costs = [self.arrays.least_cost(shape) for shape in self._shapes]
        pairs = [(min((cost.lc for cost in costs), default=0), self.budget.lc)]
        pairs += [(min((cost.ebr for cost in costs), default=0), self.budget.ebr)]
        return min((int(given // least) for least, given in pairs if least), default=0)

    def _least(self) -> int:
        """Return a lower bound of the interval: all logic in arrays with the most products per logic cell."""
        rates = [shape.products / self.arrays.least_cost(shape).lc for shape in self._shapes]
        return int(self.network.products / (max(rates, default=1) * self.budget.lc))

    def _at(self, interval: int) -> EngineChain | None:
        """Return a chain with at most this interval; None if none was found.

        The search uses estimates. Those of a chain that it finds are replaced by exact numbers, and it searches again,
        until a chain has exact numbers only.
        """
        LOGGER.info("several shared engines in a row: %s cycles a frame are tried", f"{interval:,}")
        for _ in range(CHAINS.rounds):
            found = next(self._fitting(interval), None)
            if found is None:
                return None
            way, arrays = found
            guessed = [(segment, option) for segment, option in way.picks if not option.exact]
            if not guessed:
                segments = (segment for segment, _ in way.picks)
                return EngineChain(tuple(map(self._part, segments, arrays)))
            # Exact numbers stay in the segment, so the next search sees them.
            for segment, option in guessed:
                segment.settle(option)
        return None

    def _fitting(self, interval: int) -> Iterator[tuple[_Way, list[ArrayConfig]]]:
        """Yield ways that fit, the smallest first, with their arrays, whose lanes use the DSP blocks that are left."""
        for way in sorted(self._ways(interval), key=self._part_taken):
            arrays = self._with_blocks([option.array for _, option in way.picks], way.cost.dsp)
            if cost_fits(sum(map(self.arrays.cost, arrays), Cost()), self.budget):
                yield way, arrays

    def _ways(self, interval: int) -> list[_Way]:
        """Return ways to run all layers within an interval that may fit; a beam of partial ways is extended."""
        begun: dict[int, list[_Way]] = {0: [_Way((), Cost())]}
        done: list[_Way] = []
        # In each round one engine is added; in the last one it has to take all layers that are left.
        for left in reversed(range(self.engines)):
            longer: defaultdict[int, list[_Way]] = defaultdict(list)
            for first, ways in begun.items():
                for end in self.ends if left else self.ends[-1:]:
                    # All layers on one engine are no chain.
                    if first < end and (first, end) != (0, self.ends[-1]):
                        longer[end] += self._extended(ways, self._segment(first, end), interval)
            begun = {end: self._kept(ways) for end, ways in longer.items()}
            done += begun.pop(self.ends[-1], [])
        return done

    def _extended(self, ways: list[_Way], segment: Segment, interval: int) -> Iterator[_Way]:
        """Yield the ways with one more engine for a segment, if that has products and may be fast enough."""
        if not 0 < segment.network.products <= interval * self._most_products or segment.transfers > interval:
            return
        for option in segment.within(interval):
            for way in ways:
                longer = _Way((*way.picks, (segment, option)), way.cost + option.cost)
                if self._part_taken(longer) <= 1:
                    yield longer

    def _kept(self, ways: list[_Way]) -> list[_Way]:
        """Return the beam: ways that no other one beats in all resources, those that take least of the device."""
        least = [ways[index] for index in frontier([way.cost for way in ways])]
        return sorted(least, key=self._part_taken)[: CHAINS.beam]

    def _part_taken(self, way: _Way) -> float:
        """Return the share of the scarcest resource that a way takes, if the DSP blocks that are left save logic."""
        cost, budget = way.cost, self.budget
        # As if each block saved as much as the best one does: a bound, so that no way is lost too early.
        lc = cost.lc - self._saved_lc * max(0, budget.dsp - cost.dsp)
        pairs = (lc, budget.lc), (cost.ebr, budget.ebr), (cost.dsp, budget.dsp), (cost.spram, budget.spram)
        return max(taken / given if given else 2.0 * (taken > 0) for taken, given in pairs)

    def _with_blocks(self, arrays: list[ArrayConfig], taken: int) -> list[ArrayConfig]:
        """Return arrays with lanes in the DSP blocks that are left; arrays whose lanes take most blocks come first."""
        found, left = list(arrays), self.budget.dsp - taken
        for index in sorted(range(len(arrays)), key=lambda index: -arrays[index].simd):
            own = self.arrays.cost(arrays[index]).dsp
            found[index] = with_blocks(arrays[index], own + left, self.family)
            left += own - self.arrays.cost(found[index]).dsp
        return found

    @cached_property
    def _most_products(self) -> int:
        """Products per cycle of the largest array."""
        return max((shape.products for shape in self._shapes), default=1)

    @cached_property
    def _saved_lc(self) -> float:
        """Most logic cells that a DSP block saves when it makes the products of lanes."""
        saved = [0.0]
        for shape in self._shapes:
            logic, mixed = (self.arrays.cost(one) for one in (shape, with_blocks(shape, self.budget.dsp, self.family)))
            if mixed.dsp > logic.dsp:
                saved.append((logic.lc - mixed.lc) / (mixed.dsp - logic.dsp))
        return max(saved)

    def _segment(self, first: int, end: int) -> Segment:
        """Return the segment of layers first..end - 1; each is made once."""
        if (first, end) not in self._segments:
            network = segment_of(self.network, self.layers, first, end)
            self._segments[first, end] = Segment(first, end, network, self.arrays)
        return self._segments[first, end]

    def _part(self, segment: Segment, array: ArrayConfig) -> ChainPart:
        """Return a segment's engine with its program."""
        before = (self.layers[segment.first - 1].node,) if segment.first else (self.body.inputs[0].name,)
        last = segment.end == len(self.layers)
        outputs = self.body.outputs if last else (self.layers[segment.end - 1].node,)
        graph = extract(self.body, f"{self.body.name}_{segment.first}", before, outputs)
        return ChainPart(graph, Choice(compile_network(segment.network, array), self.arrays.cost(array)))
