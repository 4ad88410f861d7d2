"""The least integer factors with which codes are a function of one weighted sum of integers.

A join is the float sum of several sources; it puts all combinations of their integers in order. Combinations with equal
codes that follow one another are a segment. Factors serve if the weighted sums of each segment lie above those of the
segments before it, which is checked for all combinations. Where it fails, two combinations stand in the wrong order,
and their difference is a bound: its weighted sum must be positive. Factors that break a known bound are skipped.

Between two sources with spans of up to n steps the bounds on the ratio of the factors are fractions with terms of up to
n. Between two such fractions lies their mediant: if any factors serve, some of up to 2 * n do, however many digits the
scales have. Scales such as 0.033 and 0.01 need this: 10 steps of one are 33 of the other, but for their rounding to
float32, which decides in every tie; 33 : 10 is wrong there, and the nearest better approximation has 24 bits, where the
mediant of 33 : 10 and its neighbour has 9.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

_MOST_CANDIDATES = 2**22
"""Most tuples of factors that are tried."""
_AT_ONCE = 2**16
"""Tuples of factors that are compared with the bounds at a time."""
_MOST_BOUNDS = 256
"""Most bounds that are kept, those closest to a tie: they exclude most candidates."""


def find_factors(values: np.ndarray, segments: np.ndarray, ratios: np.ndarray) -> tuple[int, ...] | None:
    """Return the least factors that serve, one for each source and none of them 0; None if there are none.

    Parameters
    ----------
    values: the integers of all combinations, int64 [combinations, sources].
    segments: number of the segment of each combination, in the join's order: int [combinations, classes].
    ratios: approximate weight of each source in the join, relative to the greatest: float64 [sources].
    """
    bounds = np.zeros((0, len(ratios)), dtype=np.int64)
    for candidates in _candidates(ratios, greatest_factor(np.ptp(values, axis=0).tolist())):
        left = _within(candidates, bounds)
        while len(left):
            # Candidates come smallest first, so the first one that breaks no bound of any class is the least.
            found = _broken(values, segments, left[0], ratios)
            if not len(found):
                return tuple(int(factor) for factor in left[0])
            left = _within(left, found)
            bounds = _tightest(np.concatenate([bounds, found]), ratios)
    return None


def greatest_factor(spans: Sequence[int]) -> int:
    """Return the greatest factor to try for sources whose integers span so many steps each.

    Every edge of the cone of factors that keep all bounds is a product of bounds, so that its entries are determinants
    of differences of integers; the sum of as many edges as there are sources lies inside.
    """
    sizes = sorted(max(span, 1) for span in spans)
    inside = math.factorial(len(sizes)) * math.prod(sizes[1:])
    return min(inside, _MOST_CANDIDATES // int(3 ** (len(sizes) - 1)))


def _candidates(ratios: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Yield blocks of factors [N, sources], smallest first: the integers around each multiple of the ratios."""
    lead = int(np.abs(ratios).argmax())
    # The source with ratio 1 takes each integer in turn; the others the nearest one and its neighbours, 3 ** (sources -
    # 1).
    around = [(0,) if source == lead else (0, -1, 1) for source in range(len(ratios))]
    offsets = np.array(list(itertools.product(*around)))
    start, size = 1, _AT_ONCE // len(offsets)
    while start <= most:
        # Blocks double: the least factors are mostly small, and are found without making many candidates.
        stop = min(2 * start, start + size, most + 1)
        nearest = np.rint(np.arange(start, stop)[:, np.newaxis] * ratios).astype(np.int64)
        block = (nearest[:, np.newaxis] + offsets).reshape(-1, len(ratios))
        yield block[(block != 0).all(axis=1)]
        start = stop


def _within(candidates: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    for bound in bounds:
        candidates = candidates[candidates @ bound > 0]
        if not len(candidates):
            break
    return candidates


def _broken(values: np.ndarray, segments: np.ndarray, factors: np.ndarray, ratios: np.ndarray) -> np.ndarray:
    """Return bounds that these factors break, of the first class that has any: int64 [bounds, sources].

    There are none if, sorted by their sums, no combination has a lower segment than the one before, and combinations of
    equal sums have the same segment. To compare neighbours is enough: order is transitive.
    """
    total = values @ factors
    order = np.argsort(total, kind="stable")
    tied = np.diff(total[order]) == 0
    for segment in segments.T:
        moves = np.diff(segment[order])
        wrong = np.flatnonzero((moves < 0) | (tied & (moves != 0)))
        if len(wrong):
            steps = values[order[wrong + 1]] - values[order[wrong]]
            return _tightest(steps * np.sign(moves[wrong])[:, np.newaxis], ratios)
    return np.zeros((0, len(factors)), dtype=np.int64)


def _tightest(bounds: np.ndarray, ratios: np.ndarray) -> np.ndarray:
    """Return the bounds that the ratios break, or keep by the smallest angle, tightest first; one of each direction."""
    _, first = np.unique(bounds @ ratios / np.linalg.norm(bounds, axis=1), return_index=True)
    return bounds[first[:_MOST_BOUNDS]]
