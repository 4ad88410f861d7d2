"""Rows of weights, in the order in which the array takes them: one row in each cycle of an output position."""

from __future__ import annotations

import numpy as np

from nnhw.engines.shared import ArrayConfig
from nnhw.errors import MappingError
from nnhw.mapping.shared.program.tasks import STREAMING, Task
from nnhw.mapping.shared.settings import LINES


def channelwise_rows(weights: np.ndarray, first: int, channels: int, array: ArrayConfig) -> np.ndarray:
    """Return the rows of a channelwise tile, int64 [taps or 1, lanes, simd]; only the first product of a lane is used.

    Parameters
    ----------
    weights: int64 [channels, rows, columns], or [1, rows, columns] for all channels.
    first, channels: first channel of the tile, and their number.
    """
    mine = _mine(weights, first, channels)
    rows = np.zeros((count_channelwise(weights, first, channels), array.lanes, array.simd), np.int64)
    rows[:, :channels, 0] = mine[:, : len(rows)].T
    return rows


def count_channelwise(weights: np.ndarray, first: int, channels: int) -> int:
    """Return the number of rows of a channelwise tile: one for each tap, or a single one if all taps are equal."""
    mine = _mine(weights, first, channels)
    return 1 if bool((mine == mine[:, :1]).all()) else mine.shape[1]


def _mine(weights: np.ndarray, first: int, channels: int) -> np.ndarray:
    flat = weights.reshape(len(weights), -1)
    return flat if len(flat) == 1 else flat[first : first + channels]


def dense_rows(
    weights: np.ndarray, places: list[int], first: int, words: int, steps: int, array: ArrayConfig
) -> np.ndarray:
    """Return the rows of a dense tile, int64 [taps * words * steps, lanes, simd].

    Parameters
    ----------
    weights: int64 [outputs, channels, rows, columns].
    places: for each lane, the position of its first channel among the codes of the words that are read.
    first: output of the first lane.
    words: words that are read for a tap. steps: cycles that are spent on a word.
    """
    _, inside, *kernel = weights.shape
    taps = kernel[0] * kernel[1]
    block = np.zeros((taps, words * array.codes_per_word, array.lanes), np.int64)
    # In groups, lanes read different channels of the same words; weights of the others are 0.
    for lane, place in enumerate(places):
        block[:, place : place + inside, lane] = weights[first + lane].reshape(inside, taps).T
    used = block.reshape(taps * words, array.codes_per_word, array.lanes)[:, : steps * array.simd]
    return np.ascontiguousarray(used.reshape(-1, array.simd, array.lanes).transpose(0, 2, 1))


def split_factors(task: Task, array: ArrayConfig) -> tuple[np.ndarray, int]:
    """Return the factors of a sum as weights [1, summands, repeats], and a sign by which these are multiplied.

    A factor that is wider than a weight is split into several taps on the same value.

    Raises
    ------
    MappingError: the factors are so large that too many taps would be needed.
    """
    factors, (low, high) = task.weights[0, :, 0].tolist(), (array.weight.low, array.weight.high)
    if sum(abs(factor) for factor in factors) > LINES.most_repeats * high:
        raise MappingError(
            f"layer {task.where} adds with the factors {factors}, too large for weights of {array.weight_bits} bits",
            f"choose scales whose ratios are small integers, an array with more weight bits, or {STREAMING}",
        )
    found = []
    # Weights reach from -2**(b-1) to 2**(b-1) - 1, so negated factors may need fewer taps; the line undoes the sign.
    for sign in (1, -1) if task.lines else (1,):
        rows = [_parts(sign * factor, low, high) for factor in factors]
        most = max(1, *(len(row) for row in rows))
        found.append((np.array([[*row, *[0] * (most - len(row))] for row in rows], np.int64)[None], sign))
    return min(found, key=lambda pair: pair[0].shape[2])


def _parts(factor: int, low: int, high: int) -> list[int]:
    """Return numbers within low..high whose sum is a factor, as few as possible."""
    parts = []
    while factor:
        parts.append(max(low, min(high, factor)))
        factor -= parts[-1]
    return parts
