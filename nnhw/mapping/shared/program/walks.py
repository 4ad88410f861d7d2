"""The times at which a task reads each word of its source for the last time, and writes each word of its result.

With them a result may lie over its source: no word is overwritten before its last read. A time is a number of stored
pixels, counted over all tiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from nnhw.mapping.shared.program.tasks import Window
from nnhw.mapping.shared.program.tensors import Tensor
from nnhw.mapping.shared.program.tiles import Tile, Tiler


def last_reads(tiler: Tiler, source: Tensor, size: int) -> np.ndarray:
    """Return the time of the last read of each word of a storage, int64 [size]; -1 for words that are not read.

    A granule may reach beyond the storage, where no lane has a channel: such reads do not count.
    """
    pixels = _last_pixels(tiler.task.window) if not tiler.task.is_sum else np.arange(source.pixels)
    times = np.full(size, -1, dtype=np.int64)
    for order, tile in enumerate(tiler.tiles):
        place = tile.word * source.chunk if not tiler.task.is_sum else source.granule(tile.number, tiler.array)[0]
        start = order * tiler.task.window.pixels
        for granule in range(tile.granules):
            first = np.arange(len(pixels)) * source.step + place + granule * _plane(source, tiler)
            time = np.where(pixels < 0, -1, start * tile.granules + _turn(tiler, tile, pixels, granule))
            for offset in range(tile.words):
                words = first + offset * source.chunk
                inside = words < size
                times[words[inside]] = np.maximum(times[words[inside]], time[inside])
    return times


def first_writes(tiler: Tiler, size: int) -> np.ndarray:
    """Return the time of the first write of each word of the target's storage, int64 [size].

    Words behind its last pixel that are overwritten are included.
    """
    target, pixels = tiler.target, tiler.task.window.pixels
    assert target is not None
    times = np.full(size, np.iinfo(np.int64).max)
    for order, tile in enumerate(tiler.tiles):
        for granule in range(tile.granules):
            first = target.places(np.arange(pixels)) + tile.target_word + granule * _plane(target, tiler)
            time = order * pixels * tile.granules + _turn(tiler, tile, np.arange(pixels), granule)
            for offset in range(tiler.array.parts):
                times[first + offset] = np.minimum(times[first + offset], time)
    return times


def _plane(tensor: Tensor, tiler: Tiler) -> int:
    """Return the distance in words from one granule of a pixel to the next."""
    return tensor.chunk if tensor.is_planar else tiler.array.parts


def _turn(tiler: Tiler, tile: Tile, pixels: np.ndarray, granule: int) -> np.ndarray:
    """Return the time within a tile at which a granule of each of some pixels is computed."""
    if tiler.sources[0].is_planar:
        return granule * tiler.task.window.pixels + pixels
    return pixels * tile.granules + granule


def allows(reads: np.ndarray, writes: np.ndarray, distance: int) -> bool:
    """Return whether a result may lie `distance` words behind its source: no word is written before its last read."""
    return _too_early(reads, writes, distance) is None


def distances(reads: np.ndarray, writes: np.ndarray) -> list[int]:
    """Return the distances nearest to zero, one on each side, at which a result may overlap its source.

    Parameters
    ----------
    reads, writes: from `last_reads` and `first_writes`.
    """
    last = len(writes) - 1
    every = np.arange(-last, len(reads))
    free = np.ones(len(every), dtype=bool)
    found = []
    for direction in (slice(last, None, -1), slice(last + 1, None)):
        left = free[direction]
        while left.any():
            distance = int(every[direction][np.argmax(left)])
            word = _too_early(reads, writes, distance)
            if word is None:
                found.append(distance)
                break
            # This word of the result is written too early over many words of the source: rule out all those distances
            # at once.
            free[last - word :][: len(reads)] &= reads <= writes[word]
    return found


def _too_early(reads: np.ndarray, writes: np.ndarray, distance: int) -> int | None:
    """Return the word of a result that is written furthest ahead of the last read at its place; None if none is.

    Parameters
    ----------
    distance: place of the result minus that of the source, in words.
    """
    low, high = max(0, -distance), min(len(writes), len(reads) - distance)
    if low >= high:
        return None
    early = reads[low + distance : high + distance] - writes[low:high]
    word = int(np.argmax(early))
    return low + word if early[word] > 0 else None


# The same windows are asked for again with each of the hundreds of arrays that are tried.
@lru_cache(maxsize=256)
def _last_pixels(window: Window) -> np.ndarray:
    """Return, for each pixel of the source, the number of the last stored pixel that reads it; -1 if none does."""
    _, height, width = window.source
    last = np.full((height, width), -1, dtype=np.int64)
    numbers = np.arange(window.pixels).reshape(window.blocks)
    for down, right in itertools.product(_offsets(window, 0), _offsets(window, 1)):
        rows = np.arange(window.blocks[0]) * window.step[0] + down
        columns = np.arange(window.blocks[1]) * window.step[1] + right
        inside = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
        places = np.ix_(rows[inside[0]], columns[inside[1]])
        np.maximum.at(last, places, numbers[np.ix_(*inside)])
    last.setflags(write=False)
    return last.reshape(-1)


def _offsets(window: Window, axis: int) -> Iterator[int]:
    """Yield the distances of the first stored pixel's taps from the source's first row (axis 0) or column (axis 1)."""
    found = {
        tap * window.dilation[axis] + position * window.stride[axis] - window.before[axis]
        for tap in range(window.kernel[axis])
        for position in range(window.pool[axis])
    }
    yield from sorted(found)
