"""Functions of two codes that are a line of a weighted sum x of the codes: `(x * factor + addend) >> shift`.

Such a function takes one multiplication, and a shared engine can run it. A weighted sum of two codes does not take
every integer, so a step of the function may lie anywhere between two sums that occur; the question is whether all steps
can lie on one line. The factors get a few bits more than those that only put all pairs in the right order.

The ratios of the two factors for which there is a line are an interval: it is the image of a convex set, of all planes
that pass above one set of points and below another. Its ends are found by bisection from a ratio inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .wide_joins import simplest_between

MOST_SHIFT = 40
"""Greatest shift of a line that is tried, in bits."""
_HALVINGS = 30
"""Steps of bisection for each end of the interval of ratios, which is then known to 2**-30 of the ratio."""
_INSIDE = (0.05, 0.001)
"""Shares of the interval's width to leave out at both ends, tried in turn: close to an end a line has little room, and
float64 may judge it wrongly."""


@dataclass(frozen=True)
class Pairs:
    """The table of a function of two codes, sorted by its results.

    Parameters
    ----------
    first, second: the two codes of all pairs, int64 [n].
    codes: the function's results, int64 [n], ascending.
    """

    first: np.ndarray
    second: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray, codes: np.ndarray) -> Pairs:
        """Sort pairs by their results; all arrays int64 [n]."""
        order = np.argsort(codes, kind="stable")
        return cls(first[order], second[order], codes[order])

    def bounds(self, ratio: float) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each result above the least one, the least sum that reaches it, and the greatest that does not.

        Returns: two arrays float64 [results - 1], of the sums first + ratio * second.
        """
        total = self.first + ratio * self.second
        levels = np.arange(self.codes[0] + 1, self.codes[-1] + 1)
        start = np.searchsorted(self.codes, levels)
        least = np.minimum.accumulate(total[::-1])[::-1]
        return least[start], np.maximum.accumulate(total)[start - 1]


def find_line(pairs: Pairs, ratio: float, most: int) -> tuple[tuple[int, int], np.ndarray] | None:
    """Return the least factors with which a function is a line of the weighted sum, and its steps; None if none are.

    Parameters
    ----------
    ratio: approximate factor of the second code for a factor 1 of the first one; from -1 to 1, not 0.
    most: greatest sum of both factors' magnitudes.

    Returns
    -------
    The two factors, and int64 [results - 1]: for each result above the least, the least sum that reaches it. All pairs
    have been compared.
    """
    if not _is_line(pairs, ratio):
        return None
    ends = []
    # The interval is looked for between 0 and twice the given ratio.
    for way in (-1.0, 1.0):
        inside, outside = ratio, ratio + way * abs(ratio)
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if _is_line(pairs, middle) else (inside, middle)
        ends.append(inside)
    for inside in _INSIDE:
        margin = inside * (ends[1] - ends[0])
        low, high = Fraction(ends[0] + margin), Fraction(ends[1] - margin)
        if low >= high:
            continue
        # Bisection in float64 only chose the candidate; from here on all is exact, and all pairs are compared.
        simplest = simplest_between(low, high)
        factors = simplest.denominator, simplest.numerator
        total = pairs.first * factors[0] + pairs.second * factors[1]
        steps = _aligned(total, pairs.codes) if sum(map(abs, factors)) <= most else None
        if steps is not None and (pairs.codes[0] + np.searchsorted(steps, total, side="right") == pairs.codes).all():
            return factors, steps
    return None


def _is_line(pairs: Pairs, ratio: float) -> bool:
    """Return whether the function is a line of the weighted sum with this ratio, as far as float64 can tell."""
    # A line f * x + a has to reach i at above[i] and to stay below j at below[j]. Subtracted, f * distance[i, j] < rise
    # for all i and j, which bounds f from above where the distance is positive, and from below where it is negative.
    above, below = pairs.bounds(ratio)
    distance = below[np.newaxis] - above[:, np.newaxis]
    index = np.arange(len(above))
    rise = (index[np.newaxis] - index[:, np.newaxis]).astype(np.float64)
    right, left = distance > 0, distance < 0
    if (rise[distance == 0] <= 0).any():
        return False
    high = (rise[right] / distance[right]).min() if right.any() else np.inf
    low = (rise[left] / distance[left]).max() if left.any() else 0.0
    return bool(max(low, 0.0) < high)


def _aligned(total: np.ndarray, codes: np.ndarray) -> np.ndarray | None:
    """Return the steps of the line with the least shift: for each result above the least, its least sum; None if none.

    Parameters
    ----------
    total: weighted sums of all pairs, int64 [n]. codes: their results, int64 [n], ascending.
    """
    levels = np.arange(int(codes[0]) + 1, int(codes[-1]) + 1)
    start = np.searchsorted(codes, levels)
    above = np.minimum.accumulate(total[::-1])[::-1][start]
    below = np.maximum.accumulate(total)[start - 1]
    index = np.arange(1, len(levels) + 1)
    for shift in range(MOST_SHIFT + 1):
        line = _line(above, below, index << shift)
        if line is not None:
            factor, addend = line
            # The least x with x * factor + addend >= index << shift, by a division that rounds up.
            steps: np.ndarray = -((addend - (index << shift)) // factor)
            return steps
    return None


def _line(above: np.ndarray, below: np.ndarray, numbers: np.ndarray) -> tuple[int, int] | None:
    """Return integers (factor, addend) of a rising line; None if there is none.

    The line has to be at least numbers[i] at above[i], and less than numbers[i] at below[i], for all i.
    """
    # As in `_is_line`, in integers: factor * distance[i, j] <= most[i, j].
    distance = below[np.newaxis] - above[:, np.newaxis]
    most = numbers[np.newaxis] - 1 - numbers[:, np.newaxis]
    if (most[distance == 0] < 0).any():
        return None
    right, left = distance > 0, distance < 0
    low = max(1, int((-(most[left] // -distance[left])).max()) if left.any() else 1)
    high = int((most[right] // distance[right]).min()) if right.any() else low
    if low > high:
        return None
    # From the middle of both intervals, which leaves room on both sides.
    factor = (low + high) // 2
    least, greatest = int((numbers - factor * above).max()), int((numbers - 1 - factor * below).min())
    return (factor, (least + greatest) // 2) if least <= greatest else None
