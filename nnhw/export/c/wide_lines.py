"""Step functions by one multiplication and a shift, with multipliers that are wider than those of hardware.

A step function counts the steps that a sum reaches. Where steps lie on a line but for the rounding of floats,
`(sum * multiplier + addend) >> shift` is this count, if the multiplier has bits enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.mapping.requantize import NormalSteps

MULTIPLIER_BITS = 30
"""Bits of a multiplier: with its sign an int32_t holds it, and a margin for rounding it."""
LINE_BITS = 62
"""Bits of a product with its addend: with its sign an int64_t holds it, and a margin for rounding the addend."""


@dataclass(frozen=True)
class Lines:
    """A line for each channel that counts its steps.

    Parameters
    ----------
    multiplier, addend: int64 [channels].
    shift: bits.
    most: int64 [channels], number of steps of each channel, to which its count is limited.
    """

    multiplier: np.ndarray
    addend: np.ndarray
    shift: int
    most: np.ndarray


def fit_lines(function: NormalSteps) -> Lines | None:
    """Return lines that count the steps of a function exactly, on its whole range; None if a channel has none."""
    raw = function.raw
    reach = max(-raw.low, raw.high, 1)
    strips = [_strip(steps) for steps in function.steps]
    steepest = max(strip[0] for strip in strips)
    if steepest <= 0 or reach >= 1 << 31 or any(width >= 1 for _, _, width in strips):
        return None
    # The largest shift with which neither the line over the whole range nor the multiplier overflows.
    bits = min(LINE_BITS - 1 - np.log2(steepest * 2 * reach), MULTIPLIER_BITS - np.log2(steepest))
    shift = int(min(bits, LINE_BITS - 1))
    if shift < 1:
        return None
    multiplier = np.array([round(slope * (1 << shift)) for slope, _, _ in strips])
    addend = np.array([-round(start * int(m)) for (_, start, _), m in zip(strips, multiplier, strict=True)])
    most = np.array([len(steps) for steps in function.steps])
    lines = Lines(multiplier, addend, shift, most)
    exact = all(_counts(lines, channel, steps) for channel, steps in enumerate(function.steps))
    # Python's integers, as these products may be beyond 64 bits.
    ends = np.array([[raw.low], [raw.high]], dtype=object) * multiplier + addend
    return lines if exact and np.abs(ends).max() < 1 << LINE_BITS else None


def _counts(lines: Lines, channel: int, steps: np.ndarray) -> bool:
    """Return whether the line of a channel reaches each number at exactly the sum where its step is."""
    multiplier, addend = int(lines.multiplier[channel]), int(lines.addend[channel])
    if len(steps) == 0:
        return True
    # A division rounded up: the least sum at which the line reaches the number.
    return multiplier > 0 and all(
        -((addend - (number << lines.shift)) // multiplier) == step for number, step in enumerate(steps.tolist(), 1)
    )


def _strip(steps: np.ndarray) -> tuple[float, float, float]:
    """Return the narrowest strip that holds all steps: (slope in steps per sum, sum at step 0, width in sums)."""
    if len(steps) < 2:
        # One step: the line is at 3/2 on it and at 1/2 on the sum below, equally far from 1.
        return 1.0, float(steps[0]) - 1.5 if len(steps) else 0.0, 0.0
    number = np.arange(1, len(steps) + 1)
    slopes = [np.diff(steps[side]) / np.diff(number[side]) for side in (_hull(steps), _hull(-steps))]
    # The narrowest strip has an edge of the convex hull on one of its sides.
    distances = np.concatenate(slopes)
    rest = steps[None, :] - distances[:, None] * number[None, :]
    least, most = rest.min(axis=1), rest.max(axis=1)
    best = int(np.argmin(most - least))
    # Half a sum below the middle of the strip: as its width is below 1, the line reaches each number on its step, and
    # not on the sum below.
    return 1 / float(distances[best]), float((least[best] + most[best] - 1) / 2), float(most[best] - least[best])


def _hull(steps: np.ndarray) -> list[int]:
    """Return the indices of the steps on the lower convex hull of the points (index, step)."""
    hull: list[int] = []
    for place, step in enumerate(steps):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (steps[b] - steps[a]) * (place - b) < (step - steps[b]) * (b - a):
                break
            hull.pop()
        hull.append(place)
    return hull
