"""Weights in the order in which the array takes them: a row for each cycle of a position."""

from __future__ import annotations

import numpy as np

from nnhw.engines.shared import ArrayConfig
from nnhw.errors import MappingError
from nnhw.mapping.shared.program.tasks import STREAMING, Task
from nnhw.mapping.shared.settings import LINES


def channelwise_rows(weights: np.ndarray, first: int, channels: int, array: ArrayConfig) -> np.ndarray:
    """Return the rows [taps or 1, lanes, simd] of a channelwise tile, of which only the first product counts.

    Parameters
    ----------
    weights: int64 [channels or 1, rows, columns].
    first, channels: of the tile.
    """
    mine = _mine(weights, first, channels)
    rows = np.zeros((count_channelwise(weights, first, channels), array.lanes, array.simd), np.int64)
    rows[:, :channels, 0] = mine[:, : len(rows)].T
    return rows


def count_channelwise(weights: np.ndarray, first: int, channels: int) -> int:
    """Return the rows of a channelwise tile: one, where all taps have the same."""
    mine = _mine(weights, first, channels)
    return 1 if bool((mine == mine[:, :1]).all()) else mine.shape[1]


def _mine(weights: np.ndarray, first: int, channels: int) -> np.ndarray:
    flat = weights.reshape(len(weights), -1)
    return flat if len(flat) == 1 else flat[first : first + channels]


def dense_rows(
    weights: np.ndarray, places: list[int], first: int, words: int, steps: int, array: ArrayConfig
) -> np.ndarray:
    """Return the rows [taps * words * steps, lanes, simd] of a dense tile.

    Parameters
    ----------
    weights: int64 [outputs, channels, rows, columns].
    places: of each lane, the code in the words at which its first channel is.
    first: output of the first lane.
    words, steps: read for a tap, and cycles spent on each.
    """
    _, inside, *kernel = weights.shape
    taps = kernel[0] * kernel[1]
    block = np.zeros((taps, words * array.codes_per_word, array.lanes), np.int64)
    for lane, place in enumerate(places):
        block[:, place : place + inside, lane] = weights[first + lane].reshape(inside, taps).T
    used = block.reshape(taps * words, array.codes_per_word, array.lanes)[:, : steps * array.simd]
    return np.ascontiguousarray(used.reshape(-1, array.simd, array.lanes).transpose(0, 2, 1))


def split_factors(task: Task, array: ArrayConfig) -> tuple[np.ndarray, int]:
    """Return the factors of a sum as weights [1, summands, repeats] of taps on the same value, and their sign.

    Raises
    ------
    MappingError: they are so large that too many taps were needed.
    """
    factors, (low, high) = task.weights[0, :, 0].tolist(), (array.weight.low, array.weight.high)
    if sum(abs(factor) for factor in factors) > LINES.most_repeats * high:
        raise MappingError(
            f"layer {task.where} adds with the factors {factors}, too large for weights of {array.weight_bits} bits; "
            f"choose scales whose ratios are small integers, an array with more weight bits, or {STREAMING}"
        )
    found = []
    for sign in (1, -1) if task.lines else (1,):
        rows = [_parts(sign * factor, low, high) for factor in factors]
        most = max(1, *(len(row) for row in rows))
        found.append((np.array([[*row, *[0] * (most - len(row))] for row in rows], np.int64)[None], sign))
    return min(found, key=lambda pair: pair[0].shape[2])


def _parts(factor: int, low: int, high: int) -> list[int]:
    """Return numbers between low and high that add up to a factor."""
    parts = []
    while factor:
        parts.append(max(low, min(high, factor)))
        factor -= parts[-1]
    return parts
