"""Fusion: tasks that run band by band of rows, so that values between them are in memory for one band only.

Without fusion, a task computes all rows before the next one begins. Here all tasks of a group compute one band, then
the next: the first one reads a band of its source, the last one stores a band of rows. Where a window reaches into the
band before, rows between the tasks are computed again. That costs cycles and, as each band has records of its own,
words of the program. It saves memory for the values between, and for the result, much of which may lie over the source,
as that is needed no more band by band.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.engines.shared import ArrayConfig, Compute
from nnhw.engines.shared.cycles import fixed_cycles
from nnhw.mapping.shared.program.bands import rows_of
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.program.tasks import Task
from nnhw.mapping.shared.program.tensors import Tensor, lay_out
from nnhw.mapping.shared.program.tiles import Tiler

Span = tuple[int, int]
"""Rows (first, end)."""


@dataclass(frozen=True)
class Fusion:
    """A group of tasks that run band by band; of a single task, its tiles (groups of output channels) do.

    Parameters
    ----------
    first, end: index of the first task, and of the one behind the last.
    count: number of bands of the rows that the last task stores.
    """

    first: int
    end: int
    count: int

    def covers(self, task: int) -> bool:
        """Return whether a task, by its index, belongs to the group."""
        return self.first <= task < self.end

    def tasks(self, network: TaskNetwork) -> tuple[Task, ...]:
        """Return the tasks of the group."""
        return network.tasks[self.first : self.end]

    def title(self, network: TaskNetwork) -> str:
        """Return a description of the group for the report."""
        names = [task.name for task in self.tasks(network)]
        if len(names) == 1:
            return f"output channels of {names[0]} take turns, {self.count} bands of rows"
        return f"layers {names[0]} .. {names[-1]} take turns, {self.count} bands of rows"

    def spans(self, tasks: Sequence[Task]) -> list[list[Span]]:
        """Return, for each band, the rows that are read of the source, then the rows that each task stores."""
        height = tasks[-1].window.blocks[0]
        found = []
        for band in range(self.count):
            spans = [(height * band // self.count, height * (band + 1) // self.count)]
            # From the last task backwards: each has to make what the one behind it reads.
            for task in reversed(tasks):
                spans.append(task.window.rows_read(*spans[-1]))
            found.append(spans[::-1])
        return found


def kept_rows(network: TaskNetwork, fusions: Iterable[Fusion]) -> dict[str, int]:
    """Return, for each value between tasks of a group, the number of its rows that memory holds at once."""
    found = {}
    for fusion in fusions:
        tasks = fusion.tasks(network)
        # The last one's result is read by others, and lies in memory as a whole.
        for place, task in enumerate(tasks[:-1], 1):
            found[task.node] = max(spans[place][1] - spans[place][0] for spans in fusion.spans(tasks))
    return found


def lay_out_fused(network: TaskNetwork, array: ArrayConfig, fusions: Sequence[Fusion]) -> dict[str, Tensor]:
    """Return the layout of each value in memory, given the groups of tasks."""
    last = [fusion.tasks(network)[-1].node for fusion in fusions if leaves_by_pixel(network, fusion)]
    return lay_out(network, array, kept_rows(network, fusions), last)


def leaves_by_pixel(network: TaskNetwork, fusion: Fusion) -> bool:
    """Return whether the result of a group is laid out pixel by pixel, so that its bands may lie over the source's.

    If channelwise tasks read it, it is laid out plane by plane instead, so that their results may lie over it.
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
            # Memory holds one band of the values in between, which begins at their storage; source and result are
            # whole.
            origins = source if number else 0, first if number < len(chosen) - 1 else 0
            yield from (rows_of(record, tiler, (first, end), origins, done[number]) for record in whole)
            done[number] = end


def fused_cycles(fusion: Fusion, tilers: Sequence[Tiler]) -> tuple[int, int]:
    """Return the cycles of a group's tasks per frame, and the words of their records."""
    cycles, words, fixed = 0, 0, fixed_cycles(tilers[0].array)
    chosen = tilers[fusion.first : fusion.end]
    for spans in fusion.spans([tiler.task for tiler in chosen]):
        for tiler, (first, end) in zip(chosen, spans[1:], strict=True):
            words += tiler.total(tiler.record_words)
            cycles += sum(number * (fixed + tiler.cycles(tile, end - first)) for tile, number in tiler.kinds)
    return cycles, words


def fusable(network: TaskNetwork, tilers: Sequence[Tiler]) -> Iterator[Span]:
    """Yield the groups (first, end) of tasks that can run band by band: chains whose inner values nothing else reads.

    Each task stores several rows, all rows of a tile by one record, and no window lies entirely in the border.
    """
    readers = Counter(name for task in network.tasks for name in task.sources)
    parts = {name for layer in network.concats for name in layer.inputs}
    parts |= {task.node for task in network.tasks if task.piece is not None}
    for first, begin in enumerate(tilers):
        if not _is_banded(begin):
            continue
        for end in range(first + 1, len(tilers) + 1):
            if end > first + 1:
                before, last = tilers[end - 2].task.node, tilers[end - 1]
                alone = readers[before] == 1 and before not in parts and before != network.output
                if not alone or not _is_banded(last) or last.task.sources != (before,):
                    break
            # A part of a concatenation is written in place, among the channels of others.
            if tilers[end - 1].task.node not in parts:
                yield first, end


def _is_banded(tiler: Tiler) -> bool:
    """Return whether a task can run in bands of rows; see `fusable`."""
    task, window = tiler.task, tiler.task.window
    plain = tiler.target is not None and not task.is_sum and len(task.sources) == 1
    whole = window.blocks[0] > 1 and all(tile.granules == 1 for tile, _ in tiler.kinds)
    return plain and whole and all(low < high for low, high in map(window.rows_read, *_each_row(window.blocks[0])))


def _each_row(count: int) -> tuple[range, range]:
    return range(count), range(1, count + 1)


def band_reads(fusion: Fusion, tilers: Sequence[Tiler], size: int) -> np.ndarray:
    """Return the last band that reads each word of a group's source, int64 [size]; -1 if no band reads it."""
    chosen = tilers[fusion.first : fusion.end]
    source = chosen[0].sources[0]
    rows = np.full(source.rows, -1)
    for band, spans in enumerate(fusion.spans([tiler.task for tiler in chosen])):
        # Later bands overwrite what earlier ones have set: the last one counts.
        rows[slice(*spans[0])] = band
    found = rows[source.rows_of_words(np.arange(size))]
    found[source.words(tilers[0].array) if source.is_planar else source.pixels * source.step :] = -1
    return found


def band_writes(fusion: Fusion, tilers: Sequence[Tiler], size: int) -> np.ndarray:
    """Return the first band that writes each word of a group's result, int64 [size], words that spill over included.

    A group of one task still reads a band of its source while it writes the first words of that band. So its writes
    count as those of the band before: they may lie over words that earlier bands were the last to read.
    """
    chosen = tilers[fusion.first : fusion.end]
    target = chosen[-1].target
    assert target is not None
    bands = np.empty(target.rows, np.int64)
    for band, spans in enumerate(fusion.spans([tiler.task for tiler in chosen])):
        bands[slice(*spans[-1])] = band - (len(chosen) == 1)
    # Words that a granule writes beyond its pixel are written together with that pixel.
    return bands[target.rows_of_words(np.maximum(0, np.arange(size) - chosen[-1].overflow))]
