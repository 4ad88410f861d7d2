"""The first tasks of a program in bands of rows, so that the array works on a band while the next rows come in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nnhw.engines.shared import Compute, Fill
from nnhw.engines.shared.records import Record
from nnhw.mapping.shared.program.tasks import Window
from nnhw.mapping.shared.program.tiles import Tiler


@dataclass(frozen=True)
class Bands:
    """How the first tasks of a program are cut into bands.

    Parameters
    ----------
    tasks: number of tasks; for each band of the input, each of them runs as far as the one before it has come.
    count: number of bands of the input's rows.
    """

    tasks: int = 0
    count: int = 1


def most_tasks(tilers: Sequence[Tiler], source: str) -> int:
    """Return how many of the first tasks can run in bands: they must be a chain, and store their results row by row."""
    for number, tiler in enumerate(tilers):
        window, target = tiler.task.window, tiler.target
        single = tiler.task.sources == (source,) and not tiler.task.is_sum
        if not single or target is None or target.storage != tiler.task.node or window.blocks[0] == 1:
            return number
        # A record that computes all granules of a pixel has no loop over rows that could be cut.
        if any(tile.granules > 1 for tile, _ in tiler.kinds):
            return number
        source = tiler.task.node
    return len(tilers)


def banded(fill: Fill, tilers: Sequence[Tiler], bands: Bands, places: Mapping[str, int]) -> Iterator[Record]:
    """Yield the records of the first tasks, and of the input that they read."""
    chosen = tilers[: bands.tasks]
    records = [tiler.records(places) for tiler in chosen]
    height = chosen[0].task.window.source[1]
    row_pixels = fill.pixels // height
    row_words = chosen[0].sources[0].step * row_pixels
    # Rows of the input that came in, then rows that each task has stored.
    done = [0] * (1 + len(chosen))
    for band in range(1, bands.count + 1):
        ready = height * band // bands.count
        if ready > done[0]:
            begin, count = fill.start + done[0] * row_words, (ready - done[0]) * row_pixels
            yield replace(fill, start=begin, pixels=count)
        done[0] = ready
        for number, (tiler, whole) in enumerate(zip(chosen, records, strict=True), 1):
            ready = _rows_ready(tiler.task.window, ready)
            if ready > done[number]:
                yield from (rows_of(record, tiler, (done[number], ready)) for record in whole)
            done[number] = ready


def _rows_ready(window: Window, rows: int) -> int:
    """Return how many rows a task can store once it has the first `rows` of its source."""
    return sum(window.rows_read(row, row + 1)[1] <= rows for row in range(window.blocks[0]))


def rows_of(
    record: Compute, tiler: Tiler, rows: tuple[int, int], origins: tuple[int, int] = (0, 0), done: int = 0
) -> Compute:
    """Return the part of a record that stores some rows.

    Parameters
    ----------
    rows: the first row to store, and the one behind the last.
    origins: the rows of source and target that lie at the beginning of their storages.
    done: rows that were stored before; products that compute them again do not count.
    """
    window, source, target, (first, end) = tiler.task.window, tiler.sources[0], tiler.target, rows
    assert target is not None
    height, width = window.blocks
    fresh = max(first, done)
    # A row that is stored moves the window by a row of its stride, pooling included, in the source.
    down = first * window.step[0]
    *inner, outer = record.loops
    return replace(
        record,
        start=record.start + (down - origins[0]) * window.source[2] * source.step,
        row=record.row + down,
        loops=(*inner, replace(outer, count=end - first)),
        target=record.target + (first - origins[1]) * width * record.target_step,
        first_pixel=first * width,
        # As a difference of roundings, so that the products of all parts add up to those of the record.
        products=record.products * end // height - record.products * fresh // height,
    )
