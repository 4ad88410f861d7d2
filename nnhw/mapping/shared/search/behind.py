"""Streaming engines for the layers behind a shared engine, about as fast as that one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nnhw.accelerator import Accelerator, Stage, Stream
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.errors import MappingError
from nnhw.families import Cost, Family
from nnhw.ir import Graph
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import cost
from nnhw.mapping.least_weights import refuse_weights
from nnhw.mapping.mapper import Mapper
from nnhw.mapping.reader import read_layers
from nnhw.mapping.schedule import FIFO_MIN_DEPTH
from nnhw.mapping.shared.settings import NEIGHBOURS


@dataclass(frozen=True)
class Behind:
    """The engines behind a shared engine.

    Parameters
    ----------
    accelerator: the engines.
    depth: codes that the queue in front of them holds: the shared engine sends its result at once, they take it slowly.
    """

    accelerator: Accelerator
    depth: int

    @property
    def source(self) -> Stream:
        """The stream from the shared engine, with one code in a beat."""
        form = self.accelerator.input_format
        return Stream(1, form.elements, form.element)

    def stages(self, first: int) -> tuple[Stage, ...]:
        """Return the stages behind a shared engine, which is stage `first`."""
        source, lanes = self.source, self.accelerator.input_format.stream.lanes
        queue = FifoConfig(self.depth, 1, source.element.bits, source.elements)
        # One code in a beat, as the engine sends them: wider queues would need a converter in front.
        found = [Stage("behind.queue", "program", "", queue, ((first, 0),), source)]
        if lanes > 1:
            convert = ConvertConfig(1, lanes, source.element.bits, source.elements)
            output = replace(source, lanes=lanes)
            found.append(Stage("behind.convert", "program", "", convert, ((first + 1, 0),), output))
        last = first + len(found)
        for stage in self.accelerator.stages:
            # Their input is now the queue, or the converter behind it; all other stages move up by the stages in front.
            sources = tuple((last, 0) if index < 0 else (last + 1 + index, port) for index, port in stage.sources)
            found.append(replace(stage, sources=sources))
        return tuple(found)

    def cost(self, family: Family) -> Cost:
        """Return the cost of these stages, and of packing their results into the bytes of the link."""
        packing = self.accelerator.output_format.packing
        packed = Cost() if packing is None else cost(packing, family)
        return sum((cost(stage.config, family) for stage in self.stages(0)), packed)


class Behinds:
    """Mappings of the layers behind a shared engine; each is made once.

    Parameters
    ----------
    body: graph of these layers.
    board, family: name of the board, and its device family.
    budget: resources of the whole device; its large RAMs are left to the shared engine.

    Raises
    ------
    MappingError: they do not fit, however slow they are.
    """

    def __init__(self, body: Graph, board: str, budget: Budget, family: Family) -> None:
        self.family, self.budget = family, replace(budget, spram=0)
        refuse_weights(read_layers(body), self.budget, family)
        # Made once, as the candidates of each layer are the same in all mappings.
        self._mapper = Mapper.of(body, board, family, {}, budget=self.budget)
        self._made: dict[int, Accelerator | MappingError] = {}

    def find(self, interval: int) -> Behind:
        """Return the smallest engines that are about as fast as the shared engine.

        Parameters
        ----------
        interval: least cycles per frame of the shared engine.

        Raises
        ------
        MappingError: they do not fit.
        """
        # Slower engines are smaller; the shared engine may have to wait for them, which the schedule shows.
        refused = MappingError("no interval is tried")
        for multiple in NEIGHBOURS.slower_behind:
            found = self._at(multiple * interval)
            if isinstance(found, MappingError):
                refused = found
                continue
            form = found.input_format
            # A queue need not hold more than a result, nor take more than one block RAM.
            most = max(depth for depth, bits in self.family.block_ram.modes if bits >= form.element.bits)
            return Behind(found, max(FIFO_MIN_DEPTH, min(form.elements, most)))
        raise refused.with_traceback(None)

    def _at(self, interval: int) -> Accelerator | MappingError:
        """Return the smallest engines that take no more than an interval, or why there are none."""
        if interval not in self._made:
            try:
                self._made[interval] = self._mapper.best(self.budget, interval)
            except MappingError as error:
                self._made[interval] = error
        return self._made[interval]
