"""The choice of the tasks that run band by band (see `Fusion`), so that a network fits the memory of an array."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from nnhw.engines.shared import ArrayConfig
from nnhw.ir import Graph
from nnhw.mapping.shared.compile import Compiled, compile_network, network_of, program_words, tilers_of
from nnhw.mapping.shared.program.fusion import Fusion, fusable, fused_cycles, kept_rows, lay_out_fused, leaves_by_pixel
from nnhw.mapping.shared.program.memory_plan import MemoryPlan, ProgramTooLarge, find_lives, plan_memory
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.program.tensors import Tensor, lay_out
from nnhw.mapping.shared.settings import MEMORY

Fusions = tuple[Fusion, ...]


def compile_body(body: Graph, array: ArrayConfig) -> Compiled:
    """Return an integer graph as a program; see `compile_fitting`."""
    return compile_fitting(network_of(body), array)


def compile_fitting(network: TaskNetwork, array: ArrayConfig) -> Compiled:
    """Return a network as a program; if it does not fit the memory otherwise, some tasks run band by band.

    Raises
    ------
    ProgramTooLarge: no program that was tried fits.
    MappingError: the network exceeds another limit of the array.
    """
    try:
        return compile_network(network, array)
    except ProgramTooLarge as error:
        search = _Search(network, array, error.plan)
        fusions = search.best()
        if fusions is None:
            raise
        return compile_network(network, array, fusions=fusions, plan=search.plan(fusions))


class _Search:
    """Searches for groups of tasks that run band by band; see `compile_fitting`.

    Parameters
    ----------
    plan: the memory plan with no task band by band, if it is known.
    """

    def __init__(self, network: TaskNetwork, array: ArrayConfig, plan: MemoryPlan | None) -> None:
        self.network, self.array = network, array
        self.tensors = lay_out(network, array)
        self.tilers = tilers_of(network, self.tensors, array)
        self.spans = [span for span in fusable(network, self.tilers) if span[1] - span[0] <= MEMORY.longest]
        self._turns: dict[Fusion, tuple[int, int]] = {}
        self._planned: tuple[Fusions, MemoryPlan] | None = None if plan is None else ((), plan)

    def best(self) -> Fusions | None:
        """Return groups of tasks with which the program fits; None if none were found.

        A single group is the fastest one that fits. If none fits, a further group is added to the fastest one whose own
        tasks have enough room.
        """
        begun: Fusions = ()
        source = self.tensors[self.network.source]
        # The whole input is in memory in any case.
        if self._program(begun) + source.words(self.array) > self.array.words:
            return None
        for _ in range(MEMORY.rounds):
            # The first task without room, in the order of the program: later ones may fit once it does.
            first, following = min(self._tight(begun), default=None), None
            if first is None:
                return None
            for fusions in islice(self._roomy(begun, first), MEMORY.plans):
                if self._program(fusions) + self.plan(fusions).words <= self.array.words:
                    return fusions
                if following is None and not any(map(self._group(fusions, first).covers, self._tight(fusions))):
                    following = fusions
            if following is None:
                return None
            begun = following
        return None

    def _roomy(self, begun: Fusions, task: int) -> Iterator[Fusions]:
        """Yield groups with a further one that contains `task`, if its tasks have about enough room; fastest first."""
        ways = [fusions for fusions in self._ways(begun) if any(one.covers(task) for one in fusions)]
        for fusions in sorted(ways, key=self._cycles):
            if not any(map(self._group(fusions, task).covers, self._about_tight(fusions))):
                yield fusions

    @staticmethod
    def _group(fusions: Fusions, task: int) -> Fusion:
        """Return the group that contains a task."""
        return next(one for one in fusions if one.covers(task))

    def _ways(self, begun: Fusions) -> Iterator[Fusions]:
        """Yield the given groups with one more that is apart from them, in all possible ways."""
        for first, end in self.spans:
            if all(end <= other.first or other.end <= first for other in begun):
                rows = self.tilers[end - 1].task.window.blocks[0]
                for count in (count for count in MEMORY.bands if count <= rows):
                    yield tuple(sorted((*begun, Fusion(first, end, count)), key=lambda fusion: fusion.first))

    def _cycles(self, fusions: Fusions) -> int:
        """Return the cycles per frame that groups add, compared with tasks one after the other."""
        return sum(self._added(fusion)[0] for fusion in fusions)

    def _added(self, fusion: Fusion) -> tuple[int, int]:
        """Return the cycles and the words of the program that a group adds, compared with tasks one after the other."""
        if fusion not in self._turns:
            alone = [fused_cycles(Fusion(task, task + 1, 1), self.tilers) for task in range(fusion.first, fusion.end)]
            cycles, words = fused_cycles(fusion, self.tilers)
            self._turns[fusion] = cycles - sum(one[0] for one in alone), words - sum(one[1] for one in alone)
        return self._turns[fusion]

    def _about_tight(self, fusions: Fusions) -> list[int]:
        """Return an estimate of the tasks during which there is too little room; a memory plan takes much longer.

        Results are taken to lie over words of their source as far as they may; see `_over`.
        """
        kept, words, over = kept_rows(self.network, fusions), dict[str, int](), [0] * len(self.tilers)
        lives = find_lives(self.network, self.tensors, self.tilers, fusions=fusions)
        last = {life.name: life.dies for life in lives}
        for life in lives:
            rows = self.tensors[life.name].rows
            # As many of the words as rows are kept, rounded up.
            words[life.name] = -(-life.words * kept.get(life.name, rows) // rows)
        single = (Fusion(index, index + 1, 1) for index in range(len(self.tilers)))
        for one in (*single, *fusions):
            target = self.tilers[one.end - 1].target
            if target is not None:
                sources = {source.storage for source in self.tilers[one.first].sources}
                read = sum(words[name] for name in sources if last[name] == one.end - 1)
                over[one.first : one.end] = [self._over(one, target, read, words[target.storage])] * (
                    one.end - one.first
                )
        room = self.array.words - self._program(fusions)
        live = ([words[life.name] for life in lives if life.born <= task <= life.dies] for task in range(len(over)))
        return [task for task, own in enumerate(live) if sum(own) - over[task] > room]

    def _over(self, one: Fusion, target: Tensor, read: int, stored: int) -> int:
        """Return an estimate of the words of a result that may lie over words of its source.

        Parameters
        ----------
        one: the group, or a single task as a group of one band.
        target: layout of its result. stored: words of the result.
        read: words of its source that it is the last to read.
        """
        first = self.tilers[one.first]
        if one.count == 1:
            if first.task.channelwise or len(first.tiles) == 1:
                return min(read, stored)
            # Each tile reads the source again, so only the last one's result may lie over it: its last plane.
            return min(read, target.pixels) if target.is_planar else 0
        if target.is_planar and not leaves_by_pixel(self.network, one):
            return 0
        return min(read, stored) * (one.count - (one.end - one.first == 1)) // one.count

    def _program(self, fusions: Fusions) -> int:
        return program_words(self.network, self.tilers) + sum(self._added(fusion)[1] for fusion in fusions)

    def plan(self, fusions: Fusions) -> MemoryPlan:
        """Return the memory plan with some groups; the last one is cached, as it is asked for several times."""
        if self._planned is None or self._planned[0] != fusions:
            tensors = lay_out_fused(self.network, self.array, fusions)
            tilers = tilers_of(self.network, tensors, self.array)
            self._planned = fusions, plan_memory(self.network, tensors, tilers, fusions=fusions)
        return self._planned[1]

    def _tight(self, fusions: Fusions) -> list[int]:
        """Return the tasks during which the values in memory take more words than there are."""
        plan, room = self.plan(fusions), self.array.words - self._program(fusions)
        found = []
        for task in range(len(self.tilers)):
            # Words are marked rather than added up, as values may overlap.
            taken = np.zeros(plan.words, bool)
            for life in plan.lives:
                if life.born <= task <= life.dies:
                    taken[plan.places[life.name] :][: life.words] = True
            if taken.sum() > room:
                found.append(task)
        return found
