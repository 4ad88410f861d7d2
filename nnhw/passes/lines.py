"""Two codes whose function is a line of a weighted sum: the least factors, and steps that lie on the line.

Of a weighted sum of two codes not every integer occurs, so that a step may lie at any place between two that do. Where
all of them can lie on one line `(x * factor + addend) >> shift`, one multiplication computes the codes, and a shared
engine runs them. Such factors have some more bits than those that only put all pairs in the right order.

The ratios of the factors for which there is a line are an interval: it is the image of a convex set, of all planes that
pass above one set of points and below another. Its ends are found by bisection from a ratio inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .wide_joins import simplest_between

MOST_SHIFT = 40
_HALVINGS = 30
_INSIDE = (0.05, 0.001)
"""Of the width of the interval, left out at its ends, in turn: there lines have little room, and float64 may err."""


@dataclass(frozen=True)
class Pairs:
    """A function of two codes that never falls with its weighted sum.

    Parameters
    ----------
    first, second: int64 [n]: all pairs, in the order of the codes of the function.
    codes: int64 [n], ascending.
    """

    first: np.ndarray
    second: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray, codes: np.ndarray) -> Pairs:
        """Return pairs in order."""
        order = np.argsort(codes, kind="stable")
        return cls(first[order], second[order], codes[order])

    def bounds(self, ratio: float) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each code above the least, the least sum that reaches it, and the greatest that does not."""
        total = self.first + ratio * self.second
        levels = np.arange(self.codes[0] + 1, self.codes[-1] + 1)
        start = np.searchsorted(self.codes, levels)
        least = np.minimum.accumulate(total[::-1])[::-1]
        return least[start], np.maximum.accumulate(total)[start - 1]


def find_line(pairs: Pairs, ratio: float, most: int) -> tuple[tuple[int, int], np.ndarray] | None:
    """Return the least factors with which a function is a line of the weighted sum, and its steps; None if none are.

    Parameters
    ----------
    ratio: about how much the second code counts where the first counts 1; it is not 0, and at most 1 either way.
    most: the greatest sum of both factors.

    Returns
    -------
    The factors, and int64 [codes - 1]: of each code above the least, the least integer that reaches it. All pairs have
    been compared.
    """
    if not _is_line(pairs, ratio):
        return None
    ends = []
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
        simplest = simplest_between(low, high)
        factors = simplest.denominator, simplest.numerator
        total = pairs.first * factors[0] + pairs.second * factors[1]
        steps = _aligned(total, pairs.codes) if sum(map(abs, factors)) <= most else None
        if steps is not None and (pairs.codes[0] + np.searchsorted(steps, total, side="right") == pairs.codes).all():
            return factors, steps
    return None


def _is_line(pairs: Pairs, ratio: float) -> bool:
    """Return whether a function is a line of the sum with a ratio, as far as float64 tells."""
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
    """Return the steps of a line with the least shift; None if there is none.

    Parameters
    ----------
    total: int64 [n], weighted sums. codes: int64 [n], ascending.
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
            steps: np.ndarray = -((addend - (index << shift)) // factor)
            return steps
    return None


def _line(above: np.ndarray, below: np.ndarray, numbers: np.ndarray) -> tuple[int, int] | None:
    """Return factor and addend of a rising line that is at least each number at `above`, and less at `below`."""
    distance = below[np.newaxis] - above[:, np.newaxis]
    most = numbers[np.newaxis] - 1 - numbers[:, np.newaxis]
    if (most[distance == 0] < 0).any():
        return None
    right, left = distance > 0, distance < 0
    low = max(1, int((-(most[left] // -distance[left])).max()) if left.any() else 1)
    high = int((most[right] // distance[right]).min()) if right.any() else low
    if low > high:
        return None
    factor = (low + high) // 2
    least, greatest = int((numbers - factor * above).max()), int((numbers - 1 - factor * below).min())
    return (factor, (least + greatest) // 2) if least <= greatest else None
