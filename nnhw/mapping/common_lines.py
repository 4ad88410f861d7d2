"""A line for each channel, so that all channels share the same steps: a linear program, solved by a barrier method.

At place x, channel c has the height g_c * x + b_c on its line. Step k lies at place t_ck of the channel, and at the
same height z_k for all channels:

    g_c * (t_ck - 1) + b_c  <  z_k  <=  g_c * t_ck + b_c

The slack of a condition is by how much it holds. Lines and heights are sought whose least slack is largest, because
integers near them satisfy the conditions, too. There are many heights, but only one or two unknowns of each channel, so
the channels are eliminated from the linear equations of each Newton step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.mapping.alignment import AlignedSteps

MOST_ROUNDS = 30
"""Most Newton steps for one weight of the slack."""
GAP = 0.2
"""Relative gap at which the search stops: the slack is then at least 1 / (1 + GAP) of the largest one."""
LEAST_SLACK = 2.0**-20
"""Least slack that is useful, relative to the rise of the reference channel's line per place: for a smaller one, the
integers would be too wide."""


@dataclass(frozen=True)
class CommonLines:
    """Lines and heights in real numbers.

    Parameters
    ----------
    gains, offsets: g_c and b_c, float64 [channels].
    heights: z_k, float64 [count].
    slack: the least slack of all conditions, if the channel with most steps has gain 1.
    """

    gains: np.ndarray
    offsets: np.ndarray
    heights: np.ndarray
    slack: float


def fit_lines(aligned: AlignedSteps) -> CommonLines | None:
    """Return lines for steps, with equal gains if that is possible; None if there are no lines.

    Parameters
    ----------
    aligned: each channel passes at least one step.
    """
    reference = int(aligned.seen.sum(axis=1).argmax())
    away = np.where(aligned.seen & aligned.seen[reference], aligned.steps - aligned.steps[reference], 0)
    shared = aligned.seen & aligned.seen[reference]
    most = np.where(shared, away, np.iinfo(np.int64).min).max(axis=1)
    least = np.where(shared, away, np.iinfo(np.int64).max).min(axis=1)
    # A necessary condition for equal gains: each channel's steps are those of the reference channel, moved, within a
    # place.
    if (shared.any(axis=1) & (most - least <= 1)).all():
        found = refit_lines(aligned, np.ones(len(aligned.steps)))
        if found is not None:
            return found
    return _Program(aligned, reference, None).solve()


def refit_lines(aligned: AlignedSteps, gains: np.ndarray) -> CommonLines | None:
    """Return lines with given gains [channels], the largest of which are around 1; None if there are no such lines."""
    return _Program(aligned, int(aligned.seen.sum(axis=1).argmax()), gains).solve()


@dataclass(frozen=True)
class _Point:
    """A point of the search.

    Parameters
    ----------
    lines: offsets, or gains and offsets, of the channels, float64 [channels, 1 or 2], in places scaled to -1..1.
    heights: float64 [count].
    slack: a bound that all conditions keep; it is an unknown, too.
    """

    lines: np.ndarray
    heights: np.ndarray
    slack: float

    def moved(self, by: _Point, share: float) -> _Point:
        """Return the point moved by a share of a step."""
        return _Point(self.lines + share * by.lines, self.heights + share * by.heights, self.slack + share * by.slack)


class _Program:
    """The linear program for one alignment.

    Parameters
    ----------
    aligned: the steps.
    reference: channel whose line is fixed, as all lines could be scaled and moved together.
    gains: rise of each line per place, float64 [channels]; None: they are unknowns, but for the reference's gain of 1.
    """

    def __init__(self, aligned: AlignedSteps, reference: int, gains: np.ndarray | None) -> None:
        self.aligned, self.reference, self.gains = aligned, reference, gains
        self.above, self.below = aligned.above, aligned.below
        low, high = float(aligned.lows.min()), float(aligned.highs.max())
        self.middle, self.half = (low + high) / 2, (high - low) / 2
        # Scaled to -1..1, which keeps the equations well conditioned.
        places = (aligned.steps - self.middle) / self.half
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
            except np.linalg.LinAlgError:
                # The equations are singular, since nothing bounds the slack from above.
                return None
            # At the barrier's optimum, the largest slack is at most (number of conditions) / weight away.
            if point.slack + count / weight < LEAST_SLACK:
                return None
            if count / weight <= GAP * point.slack:
                break
            # Each weight starts from the centre for the one before, which is near: so few Newton steps are needed.
            weight *= 10
        slopes = point.lines[:, 0] / self.half if self.gains is None else self.gains
        return CommonLines(slopes, point.lines[:, -1] - slopes * self.middle, point.heights, point.slack)

    def _start(self) -> _Point | None:
        """Return lines fitted channel by channel to the heights known so far; None if a channel shares too few of them.

        Channels with most steps come first. The slack is negative where the lines violate conditions.
        """
        # Half a place in front of a step lies between its two conditions.
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
        # The barrier needs a start at which all conditions hold; with the slack as an unknown, any lines will do.
        slack = min(at[self.above].min(), under[self.below].min()) - 0.5
        return _Point(lines, heights, float(slack))

    def _slacks(self, point: _Point) -> tuple[np.ndarray, np.ndarray]:
        """Return the slacks of the right and the left conditions minus the point's slack, float64 [channels, count]."""
        at = self.fixed_at + np.einsum("cp,cpk->ck", point.lines, self.at) - point.heights
        under = point.heights - self.fixed_under - np.einsum("cp,cpk->ck", point.lines, self.under)
        return at - point.slack, under - point.slack

    def _centred(self, point: _Point, weight: float) -> _Point:
        """Return the point that maximizes weight * slack + the sum of the logarithms of all conditions' slacks."""
        for _ in range(MOST_ROUNDS):
            step, gain, reach = self._newton(point, weight)
            # Never so far that a slack becomes 0, where its logarithm ends.
            point = point.moved(step, min(1.0, 0.9 / reach))
            # Close enough to the centre for a start at the next weight.
            if gain < 0.5:
                break
        return point

    def _newton(self, point: _Point, weight: float) -> tuple[_Point, float, float]:
        """Return Newton's step, the gain that it promises, and the inverse of the share of it at which a slack is 0."""
        at, under = self._slacks(point)
        # Conditions that do not bind at all, beyond the range of a channel, count as 0.
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
        # The reference's line is fixed: its equations are replaced by "no change".
        own[self.reference], mixed[self.reference], slope[self.reference] = np.eye(slope.shape[1]), 0, 0
        rest = np.append((one - two).sum(axis=0), one.sum() + two.sum() - weight)
        matrix = np.diag(np.append(both.sum(axis=0), both.sum()))
        matrix[-1, :-1] = matrix[:-1, -1] = apart.sum(axis=0)
        solved = np.linalg.solve(own, np.concatenate([mixed, slope[:, :, None]], axis=2))
        # Schur complement: the channels' unknowns are expressed by heights and slack, which leaves one system of count
        # + 1.
        flat = mixed.reshape(-1, mixed.shape[2])
        reduced = flat.T @ solved.reshape(len(flat), -1)
        moved = np.linalg.solve(matrix - reduced[:, :-1], reduced[:, -1] - rest)
        lines = -solved[:, :, -1] - solved[:, :, :-1] @ moved
        step = _Point(lines, moved[:-1], float(moved[-1]))
        gain = -float((slope * lines).sum() + rest @ moved)
        down_at = step.heights + step.slack - np.einsum("cp,cpk->ck", lines, self.at)
        down_under = np.einsum("cp,cpk->ck", lines, self.under) + step.slack - step.heights
        # 1e-9: a step along which no slack shrinks may be taken whole.
        return step, gain, max(float((down_at * one).max()), float((down_under * two).max()), 1e-9)


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the slope of the least-squares line through points."""
    away = x - x.mean()
    return float((away * y).sum() / (away**2).sum())
