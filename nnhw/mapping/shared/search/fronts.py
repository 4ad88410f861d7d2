"""Streaming engines for the layers in front of a shared engine, as fast as that one needs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from math import log

from nnhw.accelerator import Accelerator
from nnhw.errors import MappingError
from nnhw.families import Cost, Family
from nnhw.ir import Graph
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import accelerator_cost
from nnhw.mapping.least_weights import refuse_weights
from nnhw.mapping.mapper import Mapper
from nnhw.mapping.reader import read_layers
from nnhw.mapping.shared.settings import NEIGHBOURS


class Fronts:
    """Mappings of the layers in front of a shared engine; each is made once.

    Parameters
    ----------
    body: graph of these layers.
    board, family: name of the board, and its device family.
    budget: resources of the whole device.

    Raises
    ------
    DoesNotFitError: there are many of them, and their weights alone exceed the budget.
    """

    def __init__(self, body: Graph, board: str, budget: Budget, family: Family) -> None:
        self.body, self.board, self.budget, self.family = body, board, budget, family
        refuse_weights(read_layers(body), budget, family)
        # DSP blocks that the shared engine does not use would be idle, so they are free here.
        self.lavish = replace(family, dsp_lc=0, dense_dsp=family.dsp.multiplies_and_adds)
        self._made: dict[tuple[int, int, int], Accelerator | None] = {}

    @cached_property
    def _mapper(self) -> Mapper:
        """The mapper of all mappings, made once, as the candidates of each layer are the same in all of them."""
        return Mapper.of(self.body, self.board, self.lavish, {}, rough=True)

    def find(self, interval: int, left: Budget, queue_ebr: int) -> Iterator[Accelerator]:
        """Yield mappings that fit: the smallest one for an interval, then those for slightly longer intervals.

        Parameters
        ----------
        left: the resources that the shared engine leaves.
        queue_ebr: block RAMs of a queue of a whole frame, for which there should be room.
        """
        # The greatest power of the grid that is not above the interval.
        first = int(log(interval, NEIGHBOURS.grid))
        # If not even the slowest of the intervals leaves enough logic, the faster ones do not, either.
        if self.budget.spram and self._small(first + NEIGHBOURS.steps - 1, left) is None:
            return
        for step in range(first, first + NEIGHBOURS.steps):
            if (least := self._small(step, left)) is None:
                continue
            for ebr in (left.ebr - queue_ebr, left.ebr):
                if self.cost(least).ebr <= ebr:
                    yield least
                    break
                # With fewer block RAMs it takes more logic.
                front = self._at(step, left.dsp, ebr) if ebr > 0 else None
                if front is not None and left.has_logic(self.cost(front)):
                    yield front

    def _small(self, step: int, left: Budget) -> Accelerator | None:
        """Return the mapping for grid**step cycles with all block RAMs; None if its logic exceeds what is left."""
        front = self._at(step, self.budget.dsp, self.budget.ebr)
        # With fewer DSP blocks it takes more logic.
        if front is not None and left.has_logic(self.cost(front)) and self.cost(front).dsp > left.dsp:
            front = self._at(step, left.dsp, self.budget.ebr)
        return front if front is not None and left.has_logic(self.cost(front)) else None

    def cost(self, front: Accelerator) -> Cost:
        """Return the cost of a mapping."""
        return accelerator_cost(front, self.family)

    def _at(self, step: int, dsp: int, ebr: int) -> Accelerator | None:
        """Return the smallest mapping of at most grid**step cycles with these DSP blocks and block RAMs, or None."""
        key = step, dsp, ebr
        if key not in self._made:
            for (known_step, known_dsp, known_ebr), front in self._made.items():
                if known_step != step or known_dsp < dsp or known_ebr < ebr:
                    continue
                # With more of both: what did not fit then does not now, and what takes no more than these stays best.
                if front is None or (self.cost(front).dsp <= dsp and self.cost(front).ebr <= ebr):
                    self._made[key] = front
                    return front
            self._made[key] = self._mapped(step, dsp, ebr)
        return self._made[key]

    def _mapped(self, step: int, dsp: int, ebr: int) -> Accelerator | None:
        """Return a mapping as `_at` does, made anew."""
        try:
            return self._mapper.about(replace(self.budget, ebr=ebr, dsp=dsp, spram=0), int(NEIGHBOURS.grid**step))
        except MappingError:
            return None
