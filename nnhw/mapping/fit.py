"""Exact multiply-add-shift forms of step functions; their integers come from the steps, not from rounded real scales.

A place x is a raw sum. The line `(m * x + b) / 2**s` reaches index k exactly at step t_k if m * x + b is at least
k * 2**s at t_k, and less one place earlier. So the line passes above one set of points and below another. Only their
convex hulls matter, and for a given s the slopes m of such lines form an interval. Where ties round half to even, the
points of odd or of even k are one higher, as a tie there does not count; where ties round away from zero, the points
of all codes up to zero lie higher by what counts as a tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nnhw.engines.requantize import Scaler
from nnhw.ir.types import IntType

MOST_SHIFT = 40
"""Most fraction bits that are tried: sums of 20 bits and codes of 8 need up to about 36."""
MOST_SLOPE = 1 << 62
"""Stands for an unbounded multiplier."""
MOST_AREA_BITS = 62
"""Most bits of a product of two distances: with its sign, int64 holds it."""
MOST_KNOWN = 1 << 16
"""Channels with a shift whose points and slopes are kept: those of a large network. A search maps many networks."""
Point = tuple[int, int]
"""(place, number): the line has to pass above or below the number at that place."""


@dataclass(frozen=True)
class Channel:
    """A rising step function of one channel on a part of the raw range: the conditions on its line.

    Parameters
    ----------
    steps: first place of each index 1, 2, ..., ascending; a step outside of low..high gives a condition on one side.
    low, high: the first and the last place of the part.
    parity: parity of the indices whose ties round up; None: all do. See `Scaler.parity`.
    tie_bits: 0, or the number of highest fraction bits that are 0 in a tie; then ties up to index `pivot` count as one
        less.
    """

    steps: tuple[int, ...]
    low: int
    high: int
    parity: int | None
    tie_bits: int = 0
    pivot: int = 0

    @lru_cache(MOST_KNOWN)  # noqa: B019 - bounded, and equal channels of other layers find it, too
    def hulls(self, shift: int) -> tuple[list[Point], list[Point]]:
        """Return the points at or above which the line runs, and those at or below which it runs."""
        above, below = self._corners()
        if self.parity is None and not self.tie_bits:
            return [(x, k << shift) for x, k in above], [(x, (k << shift) - 1) for x, k in below]
        return (
            [(x, (k << shift) + self._down(k, shift)) for x, k in above],
            [(x, (k << shift) - 1 + self._down(k, shift)) for x, k in below],
        )

    @lru_cache(MOST_KNOWN)  # noqa: B019 - as above
    def _corners(self) -> tuple[list[Point], list[Point]]:
        """Return the places and the indices of the points that may bind from below and from above, at any shift.

        All points of one parity, and all on one side of the pivot, lie higher by the same, and a shift stretches them
        in one direction. So they have the same corners at every shift.
        """
        steps, k = np.array(self.steps, dtype=np.int64), np.arange(1, len(self.steps) + 1)
        above, below = steps <= self.high, steps > self.low
        if self.tie_bits:
            kind = k <= self.pivot
        else:
            kind = k & 1 > 0 if self.parity is not None else k > 0
        found: tuple[list[int], list[int]] = [], []
        for own in (kind, ~kind):
            rising, falling = k[above & own], k[below & own][::-1]
            found[0].extend(rising[_hull_corners(np.maximum(steps[rising - 1], self.low), rising)].tolist())
            found[1].extend(falling[_hull_corners(-np.minimum(steps[falling - 1], self.high + 1), -falling)].tolist())
        return (
            [(max(self.steps[k - 1], self.low), k) for k in sorted(found[0])],
            [(min(self.steps[k - 1], self.high + 1) - 1, k) for k in sorted(found[1])],
        )

    def _down(self, k: int, shift: int) -> int:
        """Return the distance from k * 2**shift to the first number that counts as k."""
        if self.tie_bits:
            return 1 << (shift - self.tie_bits) if k <= self.pivot else 0
        return 0 if self.parity is None else (k + self.parity) & 1

    @lru_cache(MOST_KNOWN)  # noqa: B019 - bounded, and equal channels of other layers find it, too
    def slopes(self, shift: int) -> tuple[int, int] | None:
        """Return the smallest and the largest multiplier of a line with a shift; None if there is no line."""
        low, high = -MOST_SLOPE, MOST_SLOPE
        if shift < self.tie_bits:
            return None
        above, below = self.hulls(shift)
        for x1, y1 in above:
            for x2, y2 in below:
                # The line is at least y1 at x1 and at most y2 at x2, so multiplier * distance <= most.
                most, distance = y2 - y1, x2 - x1
                # Compared by hand: calls of `min` and `max` would take as long as all else here.
                if distance > 0:
                    bound = most // distance
                    if bound < high:
                        high = bound
                elif distance < 0:
                    bound = -(most // -distance)
                    if bound > low:
                        low = bound
                elif most < 0:
                    return None
            if low > high:
                return None
        return low, high

    def slope(self, shift: int) -> int | None:
        """Return the multiplier nearest to zero for a shift; None if there is none."""
        slopes = self.slopes(shift)
        # The nearest to zero has the fewest bits.
        return None if slopes is None else min(max(slopes[0], 0), slopes[1])

    def addends(self, multiplier: int, shift: int) -> tuple[int, int]:
        """Return the smallest and the largest addend for one of the `slopes`; unbounded sides are one unit away."""
        above, below = self.hulls(shift)
        low = max((y - multiplier * x for x, y in above), default=None)
        high = min((y - multiplier * x for x, y in below), default=None)
        unit = 1 << shift
        if low is None:
            return (0, unit - 1) if high is None else (high - unit + 1, high)
        return low, low + unit - 1 if high is None else high

    def addend(self, multiplier: int, shift: int) -> int:
        """Return an addend for a multiplier from `slope`."""
        above, below = self.hulls(shift)
        # With conditions on one side alone, the end that they give is one that is needed; the other one is arbitrary.
        return self.addends(multiplier, shift)[1 if below and not above else 0]


def _hull_corners(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the indices of the corners of the upper convex hull of points of which both coordinates ascend.

    Of points with one x the last counts. A point on or below the line between its neighbours is no corner, whatever
    becomes of these; so all such points leave at once, until there is none.
    """
    if not len(x):
        return np.arange(0)
    if (int(x[-1] - x[0]) * int(y[-1] - y[0])).bit_length() > MOST_AREA_BITS:
        # Areas would overflow int64; Python's integers do not.
        x, y = x.astype(object), y.astype(object)
    chosen = np.ones(len(x), dtype=bool)
    chosen[:-1] = x[1:] != x[:-1]
    kept, x, y = np.flatnonzero(chosen), x[chosen], y[chosen]
    while len(kept) > 2:
        run, rise = x[1:] - x[:-1], y[1:] - y[:-1]
        chosen = np.ones(len(kept), dtype=bool)
        chosen[1:-1] = rise[:-1] * run[1:] > rise[1:] * run[:-1]
        if chosen.all():
            break
        kept, x, y = kept[chosen], x[chosen], y[chosen]
    return kept


@dataclass(frozen=True)
class LinePieces:
    """A step function of one channel, cut into pieces each of which has a line.

    Parameters
    ----------
    channels: the conditions of each piece, in the order of the raw sums.
    borders: first raw sum of each piece but the first.
    falls: whether the function falls; the conditions are then those of the function of -x.
    """

    channels: tuple[Channel, ...]
    borders: tuple[int, ...]
    falls: bool


def cut(
    steps: list[int], falls: bool, raw: IntType, most: int, parity: int | None, most_shift: int = MOST_SHIFT
) -> LinePieces | None:
    """Cut a step function into as few pieces with lines as possible; None if more than `most` are needed.

    Parameters
    ----------
    steps: ascending. falls: whether the function falls. raw: range of the raw sums.
    parity, most_shift: see `Channel` and `fit_scaler`.
    """
    low, high = raw.low, raw.high
    if falls:
        # A function that falls is one of -x that rises: it reaches the step that x leaves.
        steps, low, high = [1 - step for step in reversed(steps)], -high, -low
    channels: list[Channel] = []
    borders: list[int] = []
    while True:
        # Greedy is optimal: a part of a piece that has a line has that line, too.
        end = _longest(steps, low, high, parity, most_shift)
        if end is None:
            return None
        channels.append(Channel(tuple(steps), low, end, parity))
        if end == high:
            break
        if len(channels) == most:
            return None
        low = end + 1
        borders.append(low)
    if falls:
        return LinePieces(tuple(reversed(channels)), tuple(1 - border for border in reversed(borders)), True)
    return LinePieces(tuple(channels), tuple(borders), False)


def _longest(steps: list[int], low: int, high: int, parity: int | None, most_shift: int) -> int | None:
    """Return the last place of the longest range from `low` on that has a line; None if even the shortest has none.

    It ends in front of a step, or at `high`.
    """
    if Channel(tuple(steps), low, high, parity).slope(most_shift) is not None:
        return high
    # A part of a range that has a line has that line, too, so the ends of ranges with lines can be bisected.
    ends = [*sorted({step - 1 for step in steps if low < step <= high}), high]
    good, bad = -1, len(ends) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        fits = Channel(tuple(steps), low, ends[middle], parity).slope(most_shift) is not None
        good, bad = (middle, bad) if fits else (good, middle)
    return None if good < 0 else ends[good]


def fit_scaler(
    steps: np.ndarray,
    descending: np.ndarray,
    code: IntType,
    raw: IntType,
    most: int = 1,
    parity: int | None = None,
    most_shift: int = MOST_SHIFT,
) -> Scaler | None:
    """Return the multiply-add-shift with the smallest shift that equals a step function; None if there is none.

    Parameters
    ----------
    steps: int64 [outputs, levels - 1], each row ascending; descending: bool [outputs]; see `Thresholds`.
    code, raw: range of the codes, and of the raw sums.
    most: most pieces of a channel, each with its own line.
    parity: parity of the codes whose ties round up, see `Scaler.parity`; None: all do.
    most_shift: greatest shift that is tried.
    """
    steps, floor, ceiling = occurring_steps(steps, descending, raw)
    # Many channels have equal steps, such as behind a scale for the whole layer.
    known: dict[tuple[tuple[int, ...], bool], LinePieces | None] = {}
    rows = [(tuple(row), bool(down)) for row, down in zip(steps.tolist(), descending, strict=True)]
    for row in rows:
        if row not in known:
            known[row] = cut(list(row[0]), row[1], raw, most, parity, most_shift)
            if known[row] is None:
                return None
    found = [pieces for row in rows if (pieces := known[row]) is not None]
    shift = smallest_shift({channel for pieces in found for channel in pieces.channels})
    segments = max(len(pieces.channels) for pieces in found)
    lines = [_lines(pieces, shift, segments) for pieces in found]
    # Borders that no sum reaches fill up channels with fewer pieces.
    borders = [[*p.borders, *[raw.high + 1] * (segments - 1 - len(p.borders))] for p in found]
    return Scaler(
        multiplier=np.array([[m for m, _ in row] for row in lines], dtype=np.int64),
        addend=np.array([[b for _, b in row] for row in lines], dtype=np.int64),
        shift=shift,
        code=code,
        raw=raw,
        borders=np.array(borders, dtype=np.int64).reshape(len(rows), segments - 1),
        floor=floor,
        ceiling=ceiling,
        even=parity is not None,
        parity=parity or 0,
    )


def occurring_steps(steps: np.ndarray, descending: np.ndarray, raw: IntType) -> tuple[np.ndarray, int, int]:
    """Return the steps between the lowest and the highest index that occur in any channel, and these two indices."""
    always, reached = (steps <= raw.low).sum(axis=1), (steps <= raw.high).sum(axis=1)
    levels = steps.shape[1]
    lowest = int(np.where(descending, levels - reached, always).min())
    highest = int(np.where(descending, levels - always, reached).max())
    rising, falling = steps[:, lowest:highest], steps[:, levels - highest : levels - lowest]
    return np.where(descending[:, None], falling, rising), lowest, highest


def smallest_shift(channels: set[Channel]) -> int:
    """Return the smallest shift with which every channel has a line; then all greater shifts do, too."""
    shift = 0
    for channel in channels:
        while channel.slope(shift) is None:
            shift += 1
    return shift


def _lines(pieces: LinePieces, shift: int, segments: int) -> list[tuple[int, int]]:
    """Return (multiplier, addend) of each piece, the last one repeated."""
    lines = []
    for channel in pieces.channels:
        slope = channel.slope(shift)
        assert slope is not None
        lines.append((-slope if pieces.falls else slope, channel.addend(slope, shift)))
    return lines + [lines[-1]] * (segments - len(lines))
