"""Tasks that run by bands of rows, one behind the other in each band: what lies between them is kept for a band only.

The loops over a layer's rows go around those over its tiles then, and around the layers: a band of the first one's
source is read, the last one's band of rows is stored, and where a window reaches into the band before, the rows between
are computed again. It costs cycles and, as each band has records of its own, words of the program; it saves memory:
what lies between, and, as the source is done with band by band, much of what the last one stores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.engines.shared import ArrayConfig, Compute
from nnhw.engines.shared.cycles import fixed_cycles
from nnhw.mapping.shared.program.bands import rows_of
from nnhw.mapping.shared.program.network import TaskNetwork
from nnhw.mapping.shared.program.tasks import Task
from nnhw.mapping.shared.program.tensors import Tensor, lay_out
from nnhw.mapping.shared.program.tiles import Tiler

Span = tuple[int, int]
"""Rows (first, end)."""


@dataclass(frozen=True)
class Fusion:
    """Tasks that take turns, band by band of rows; of one task: its tiles do.

    Parameters
    ----------
    first, end: of the tasks.
    count: bands of the rows that the last one stores.
    """

    first: int
    end: int
    count: int

    def covers(self, task: int) -> bool:
        """Return whether a task is among them."""
        return self.first <= task < self.end

    def tasks(self, network: TaskNetwork) -> tuple[Task, ...]:
        """Return the tasks."""
        return network.tasks[self.first : self.end]

    def title(self, network: TaskNetwork) -> str:
        """Return it for people."""
        names = [task.name for task in self.tasks(network)]
        if len(names) == 1:
            return f"output channels of {names[0]} take turns, {self.count} bands of rows"
        return f"layers {names[0]} .. {names[-1]} take turns, {self.count} bands of rows"

    def spans(self, tasks: Sequence[Task]) -> list[list[Span]]:
        """Return for each band the rows of the source that are read, and of what each task stores."""
        height = tasks[-1].window.blocks[0]
        found = []
        for band in range(self.count):
            spans = [(height * band // self.count, height * (band + 1) // self.count)]
            for task in reversed(tasks):
                spans.append(task.window.rows_read(*spans[-1]))
            found.append(spans[::-1])
        return found


def kept_rows(network: TaskNetwork, fusions: Iterable[Fusion]) -> dict[str, int]:
    """Return the rows of the values between tasks that take turns which memory holds at once."""
    found = {}
    for fusion in fusions:
        tasks = fusion.tasks(network)
        for place, task in enumerate(tasks[:-1], 1):
            found[task.node] = max(spans[place][1] - spans[place][0] for spans in fusion.spans(tasks))
    return found


def lay_out_fused(network: TaskNetwork, array: ArrayConfig, fusions: Sequence[Fusion]) -> dict[str, Tensor]:
    """Return how each value lies in memory."""
    last = [fusion.tasks(network)[-1].node for fusion in fusions if leaves_by_pixel(network, fusion)]
    return lay_out(network, array, kept_rows(network, fusions), last)


def leaves_by_pixel(network: TaskNetwork, fusion: Fusion) -> bool:
    """Return whether the result of a fusion lies pixel by pixel, so that its bands may lie over those of the source.

    Results of the channelwise tasks behind it lie over it where it lies plane by plane.
    """
    last = network.tasks[fusion.end - 1].node
    return not any(task.channelwise for task in network.tasks if last in task.sources)


def fused(fusion: Fusion, tilers: Sequence[Tiler], places: Mapping[str, int]) -> Iterator[Compute]:
    """Yield the records of the tasks of a fusion.

    Parameters
    ----------
    tilers: of all tasks of the network.
    """
    chosen = tilers[fusion.first : fusion.end]
    records = [tiler.records(places) for tiler in chosen]
    done = [0] * len(chosen)
    for spans in fusion.spans([tiler.task for tiler in chosen]):
        for number, (tiler, whole) in enumerate(zip(chosen, records, strict=True)):
            (source, _), (first, end) = spans[number : number + 2]
            origins = source if number else 0, first if number < len(chosen) - 1 else 0
            yield from (rows_of(record, tiler, (first, end), origins, done[number]) for record in whole)
            done[number] = end


def fused_cycles(fusion: Fusion, tilers: Sequence[Tiler]) -> tuple[int, int]:
    """Return the cycles of the tasks of a fusion, and the words of their records."""
    cycles, words, fixed = 0, 0, fixed_cycles(tilers[0].array)
    chosen = tilers[fusion.first : fusion.end]
    for spans in fusion.spans([tiler.task for tiler in chosen]):
        for tiler, (first, end) in zip(chosen, spans[1:], strict=True):
            words += sum(map(tiler.record_words, tiler.tiles))
            cycles += sum(fixed + tiler.cycles(tile, end - first) for tile in tiler.tiles)
    return cycles, words


def fusable(network: TaskNetwork, tilers: Sequence[Tiler]) -> Iterator[Span]:
    """Yield runs of tasks that may take turns, the first and the end of each: chains whose values nothing else reads.

    A run ends in a task of several rows, all rows of a task are stored in one record each tile, and no window lies in
    the border alone.
    """
    readers = Counter(name for task in network.tasks for name in task.sources)
    parts = {name for layer in network.concats for name in layer.inputs}
    for first, begin in enumerate(tilers):
        if not _is_banded(begin):
            continue
        for end in range(first + 1, len(tilers) + 1):
            if end > first + 1:
                before, last = tilers[end - 2].task.node, tilers[end - 1]
                alone = readers[before] == 1 and before not in parts and before != network.output
                if not alone or not _is_banded(last) or last.task.sources != (before,):
                    break
            if tilers[end - 1].task.node not in parts:
                yield first, end


def _is_banded(tiler: Tiler) -> bool:
    """Return whether a task may run by bands of rows."""
    task, window = tiler.task, tiler.task.window
    plain = tiler.target is not None and not task.is_sum and len(task.sources) == 1
    whole = window.blocks[0] > 1 and all(tile.granules == 1 for tile in tiler.tiles)
    return plain and whole and all(low < high for low, high in map(window.rows_read, *_each_row(window.blocks[0])))


def _each_row(count: int) -> tuple[range, range]:
    return range(count), range(1, count + 1)


def band_reads(fusion: Fusion, tilers: Sequence[Tiler], size: int) -> np.ndarray:
    """Return the band that reads each word of a fusion's source for the last time, int64 [size], -1 where none does."""
    chosen = tilers[fusion.first : fusion.end]
    source = chosen[0].sources[0]
    rows = np.full(source.rows, -1)
    for band, spans in enumerate(fusion.spans([tiler.task for tiler in chosen])):
        rows[slice(*spans[0])] = band
    found = rows[source.rows_of_words(np.arange(size))]
    found[source.words(tilers[0].array) if source.is_planar else source.pixels * source.step :] = -1
    return found


def band_writes(fusion: Fusion, tilers: Sequence[Tiler], size: int) -> np.ndarray:
    """Return the band that writes each word of a fusion's result first, those that spill over included.

    A task alone reads words of a band while it writes others: the band in front then, whose words it has read.
    """
    chosen = tilers[fusion.first : fusion.end]
    target = chosen[-1].target
    assert target is not None
    bands = np.empty(target.rows, np.int64)
    for band, spans in enumerate(fusion.spans([tiler.task for tiler in chosen])):
        bands[slice(*spans[-1])] = band - (len(chosen) == 1)
    # What a granule has beyond its pixel comes with the pixel in front.
    return bands[target.rows_of_words(np.maximum(0, np.arange(size) - chosen[-1].overflow))]
