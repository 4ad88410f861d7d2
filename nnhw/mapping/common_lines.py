"""Lines of channels that pass common steps: a linear program, solved by a barrier.

With places x, channel c has the line g_c * x + b_c, and step k, at place t_ck of the channel, the height z_k:

    g_c * (t_ck - 1) + b_c  <  z_k  <=  g_c * t_ck + b_c

The lines and heights with the largest least slack are sought, because integers near them satisfy the same. The heights
are many and the unknowns of each channel are one or two, so channels are eliminated from each of Newton's steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.mapping.alignment import AlignedSteps

MOST_ROUNDS = 30
"""Newton's steps for one weight of the slack."""
GAP = 0.2
"""Share of the slack within which it is the largest."""
LEAST_SLACK = 2.0**-20
"""Of the distance that one raw sum moves the reference channel's line; integers that honour less are too wide."""


@dataclass(frozen=True)
class CommonLines:
    """Lines and heights in real numbers.

    Parameters
    ----------
    gains, offsets: float64 [channels], in places.
    heights: float64 [count].
    slack: that all conditions have, where the largest gain of a channel with most steps is 1.
    """

    gains: np.ndarray
    offsets: np.ndarray
    heights: np.ndarray
    slack: float


def fit_lines(aligned: AlignedSteps) -> CommonLines | None:
    """Return lines for steps of which each channel has one at least, with equal gains if that is possible, or None."""
    reference = int(aligned.seen.sum(axis=1).argmax())
    away = np.where(aligned.seen & aligned.seen[reference], aligned.steps - aligned.steps[reference], 0)
    shared = aligned.seen & aligned.seen[reference]
    most = np.where(shared, away, np.iinfo(np.int64).min).max(axis=1)
    least = np.where(shared, away, np.iinfo(np.int64).max).min(axis=1)
    if (shared.any(axis=1) & (most - least <= 1)).all():
        found = refit_lines(aligned, np.ones(len(aligned.steps)))
        if found is not None:
            return found
    return _Program(aligned, reference, None).solve()


def refit_lines(aligned: AlignedSteps, gains: np.ndarray) -> CommonLines | None:
    """Return lines with given gains [channels], the largest of which are around 1, or None."""
    return _Program(aligned, int(aligned.seen.sum(axis=1).argmax()), gains).solve()


@dataclass(frozen=True)
class _Point:
    """Unknowns [channels, 1 or 2] of the lines, heights [count], and the slack that is left."""

    lines: np.ndarray
    heights: np.ndarray
    slack: float

    def moved(self, by: _Point, share: float) -> _Point:
        """Return the point a share of a step farther."""
        return _Point(self.lines + share * by.lines, self.heights + share * by.heights, self.slack + share * by.slack)


class _Program:
    """The linear program for one alignment.

    Parameters
    ----------
    reference: channel whose line is given: without gains, it rises by 1 with each place.
    gains: by how much the lines rise with each place; None: they are sought.
    """

    def __init__(self, aligned: AlignedSteps, reference: int, gains: np.ndarray | None) -> None:
        self.aligned, self.reference, self.gains = aligned, reference, gains
        self.above, self.below = aligned.above, aligned.below
        low, high = float(aligned.lows.min()), float(aligned.highs.max())
        self.middle, self.half = (low + high) / 2, (high - low) / 2
        places = (aligned.steps - self.middle) / self.half  # in -1..1
        before = places - 1 / self.half
        ones = np.ones_like(places)
        parts = ([places, ones], [before, ones]) if gains is None else ([ones], [ones])
        self.at, self.under = (np.stack(part, axis=1) for part in parts)  # [channels, unknowns, count]
        given = np.zeros(len(places)) if gains is None else self.half * gains
        self.fixed_at, self.fixed_under = (given[:, None] * part for part in (places, before))

    def solve(self) -> CommonLines | None:
        """Return the lines with the largest slack, or None if it is not positive."""
        point = self._start()
        if point is None:
            return None
        count = float(self.above.sum() + self.below.sum())
        weight = count
        while True:
            try:
                point = self._centred(point, weight)
            except np.linalg.LinAlgError:  # nothing bounds the slack from above
                return None
            if point.slack + count / weight < LEAST_SLACK:
                return None
            if count / weight <= GAP * point.slack:
                break
            weight *= 10
        slopes = point.lines[:, 0] / self.half if self.gains is None else self.gains
        return CommonLines(slopes, point.lines[:, -1] - slopes * self.middle, point.heights, point.slack)

    def _start(self) -> _Point | None:
        """Return lines fitted to one channel after the other, or None if two have too few steps in common."""
        seen, places = self.aligned.seen, (self.aligned.steps - 0.5 - self.middle) / self.half
        channels, unknowns, _ = self.at.shape
        lines = np.zeros((channels, unknowns))
        gains = np.full(channels, self.half) if self.gains is None else self.half * self.gains
        if self.gains is None:
            lines[self.reference, 0] = self.half
        heights, known = gains[self.reference] * places[self.reference], seen[self.reference].copy()
        for channel in np.argsort(-seen.sum(axis=1), kind="stable"):
            both, x = seen[channel] & known, places[channel]
            if channel == self.reference:
                continue
            if both.sum() < unknowns:
                return None
            gain = gains[channel] if self.gains is not None else _slope(x[both], heights[both])
            offset = float((heights[both] - gain * x[both]).mean())
            lines[channel] = [gain, offset][-unknowns:]
            heights = np.where(seen[channel] & ~known, gain * x + offset, heights)
            known |= seen[channel]
        if not known.all():
            return None
        at, under = self._slacks(_Point(lines, heights, 0.0))
        slack = min(at[self.above].min(), under[self.below].min()) - 0.5
        return _Point(lines, heights, float(slack))

    def _slacks(self, point: _Point) -> tuple[np.ndarray, np.ndarray]:
        """Return the slacks [channels, count] at and under the steps, less the point's."""
        at = self.fixed_at + np.einsum("cp,cpk->ck", point.lines, self.at) - point.heights
        under = point.heights - self.fixed_under - np.einsum("cp,cpk->ck", point.lines, self.under)
        return at - point.slack, under - point.slack

    def _centred(self, point: _Point, weight: float) -> _Point:
        """Return the point with the largest weight * slack + sum of the logarithms of the slacks."""
        for _ in range(MOST_ROUNDS):
            step, gain, reach = self._newton(point, weight)
            point = point.moved(step, min(1.0, 0.9 / reach))
            if gain < 0.5:
                break
        return point

    def _newton(self, point: _Point, weight: float) -> tuple[_Point, float, float]:
        """Return Newton's step, what it gains, and the inverse of the share of it at which a slack is used up."""
        at, under = self._slacks(point)
        one = np.where(self.above, 1 / np.where(self.above, at, 1), 0)
        two = np.where(self.below, 1 / np.where(self.below, under, 1), 0)
        both, apart = one**2 + two**2, one**2 - two**2
        weighted_at, weighted_under = self.at * one[:, None] ** 2, self.under * two[:, None] ** 2
        # Second derivatives: of the lines, of lines and (heights, slack), of (heights, slack).
        own = np.einsum("cpk,cqk->cpq", weighted_at, self.at) + np.einsum("cpk,cqk->cpq", weighted_under, self.under)
        mixed = np.concatenate(
            [-(weighted_at + weighted_under), (weighted_under - weighted_at).sum(axis=2, keepdims=True)], axis=2
        )
        slope = np.einsum("cpk,ck->cp", self.under, two) - np.einsum("cpk,ck->cp", self.at, one)
        own[self.reference], mixed[self.reference], slope[self.reference] = np.eye(slope.shape[1]), 0, 0
        rest = np.append((one - two).sum(axis=0), one.sum() + two.sum() - weight)
        matrix = np.diag(np.append(both.sum(axis=0), both.sum()))
        matrix[-1, :-1] = matrix[:-1, -1] = apart.sum(axis=0)
        solved = np.linalg.solve(own, np.concatenate([mixed, slope[:, :, None]], axis=2))
        flat = mixed.reshape(-1, mixed.shape[2])
        reduced = flat.T @ solved.reshape(len(flat), -1)
        moved = np.linalg.solve(matrix - reduced[:, :-1], reduced[:, -1] - rest)
        lines = -solved[:, :, -1] - solved[:, :, :-1] @ moved
        step = _Point(lines, moved[:-1], float(moved[-1]))
        gain = -float((slope * lines).sum() + rest @ moved)
        down_at = step.heights + step.slack - np.einsum("cp,cpk->ck", lines, self.at)
        down_under = np.einsum("cp,cpk->ck", lines, self.under) + step.slack - step.heights
        return step, gain, max(float((down_at * one).max()), float((down_under * two).max()), 1e-9)


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the slope of the straight line through points, by least squares."""
    away = x - x.mean()
    return float((away * y).sum() / (away**2).sum())
