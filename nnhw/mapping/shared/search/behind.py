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
from nnhw.mapping.mapper import map_body
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


def map_behind(body: Graph, board: str, budget: Budget, family: Family, interval: int) -> Behind:
    """Map the layers behind a shared engine on the smallest engines that are about as fast as it.

    Parameters
    ----------
    budget: resources of the whole device; its large RAMs are left to the shared engine.
    interval: least cycles per frame of the shared engine.

    Raises
    ------
    MappingError: they do not fit.
    """
    refused: list[MappingError] = []
    # Slower engines are smaller; the shared engine may have to wait for them, which the schedule shows.
    for multiple in NEIGHBOURS.slower_behind:
        try:
            return _at(body, board, replace(budget, spram=0), family, multiple * interval)
        except MappingError as error:
            refused.append(error)
    raise refused[-1]


def _at(body: Graph, board: str, budget: Budget, family: Family, interval: int) -> Behind:
    """Map the layers behind on the smallest engines that take no more than an interval. Raises: MappingError."""
    accelerator = map_body(body, board, budget, family=family, target_interval=interval)
    form = accelerator.input_format
    # A queue need not hold more than a result, nor take more than one block RAM.
    most = max(depth for depth, bits in family.block_ram.modes if bits >= form.element.bits)
    return Behind(accelerator, max(FIFO_MIN_DEPTH, min(form.elements, most)))
