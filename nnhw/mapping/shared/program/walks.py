"""When a task is done with each word of its source, and when it writes each word of its result."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from nnhw.mapping.shared.program.tasks import Window
from nnhw.mapping.shared.program.tensors import Tensor
from nnhw.mapping.shared.program.tiles import Tile, Tiler


def last_reads(tiler: Tiler, source: Tensor, size: int) -> np.ndarray:
    """Return the time of the last read of each word of a storage, int64 [size], -1 for words that are not read.

    Times count the stored pixels of all tiles. A granule may reach beyond the storage: no lane there has a channel.
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
    """Return the time of the first write of each word of the target's storage, those that spill over included."""
    target, pixels = tiler.target, tiler.task.window.pixels
    assert target is not None
    times = np.full(size, np.iinfo(np.int64).max)
    for order, tile in enumerate(tiler.tiles):
        for granule in range(tile.granules):
            first = np.arange(pixels) * target.step + tile.target_word + granule * _plane(target, tiler)
            time = order * pixels * tile.granules + _turn(tiler, tile, np.arange(pixels), granule)
            for offset in range(tiler.array.parts):
                times[first + offset] = np.minimum(times[first + offset], time)
    return times


def _plane(tensor: Tensor, tiler: Tiler) -> int:
    """Return the words from one granule of a pixel to the next."""
    return tensor.chunk if tensor.is_planar else tiler.array.parts


def _turn(tiler: Tiler, tile: Tile, pixels: np.ndarray, granule: int) -> np.ndarray:
    """Return when the granule of some pixels has its turn within a tile."""
    if tiler.sources[0].is_planar:
        return granule * tiler.task.window.pixels + pixels
    return pixels * tile.granules + granule


def allows(reads: np.ndarray, writes: np.ndarray, distance: int) -> bool:
    """Return whether a result may lie `distance` words behind its source: no word is written before its last read."""
    return _too_early(reads, writes, distance) is None


def distances(reads: np.ndarray, writes: np.ndarray) -> list[int]:
    """Return the distances nearest to zero, down and up, at which a result may overlap its source.

    A word that is written too early at one distance is so at many others: it rules all of these out at once.
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
            free[last - word :][: len(reads)] &= reads <= writes[word]
    return found


def _too_early(reads: np.ndarray, writes: np.ndarray, distance: int) -> int | None:
    """Return the word of a result that is written earliest before the last read of what lies there, or None.

    Parameters
    ----------
    distance: words from the source to the result.
    """
    low, high = max(0, -distance), min(len(writes), len(reads) - distance)
    if low >= high:
        return None
    early = reads[low + distance : high + distance] - writes[low:high]
    word = int(np.argmax(early))
    return low + word if early[word] > 0 else None


@lru_cache(maxsize=256)  # arrays by the hundred are tried with the same windows
def _last_pixels(window: Window) -> np.ndarray:
    """Return the number of the last stored pixel that reads each pixel of the source, -1 where none does."""
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
    """Yield how far the taps of the first stored pixel are from the source's first row or column."""
    found = {
        tap * window.dilation[axis] + position * window.stride[axis] - window.before[axis]
        for tap in range(window.kernel[axis])
        for position in range(window.pool[axis])
    }
    yield from sorted(found)
