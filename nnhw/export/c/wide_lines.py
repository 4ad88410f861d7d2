"""Step functions by one multiplication and a shift, with multipliers that are wider than those of hardware.

A step function counts the steps that a sum reaches. Where steps lie on a line but for the rounding of floats,
`(sum * multiplier + addend) >> shift` is this count, if the multiplier has bits enough. Where steps only lie near a
line, it is the count or a little less, and comparisons with the next steps find the rest.
"""

from __future__ import annotations

import math
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


MOST_LATE = 3
"""Most comparisons behind a line; a binary search of 255 steps has eight, each of which waits for the one before."""
PLACE_BITS = 32
"""Bits of the unsigned numbers in which near lines compute."""


@dataclass(frozen=True)
class NearLines:
    """A line for each channel that counts its steps, or up to `late` too few.

    A sum is limited to `low` .. `last` of its channel. Then `count = (((sum - low) >> drop) * multiplier + addend) >>
    shift` is 0 or more, and the steps `count` .. `count + late - 1`, compared with the sum, add those that it lacks.

    Parameters
    ----------
    low, last: int64 [channels], the sum below the first step, and the last step.
    multiplier, addend: int64 [channels].
    shift, drop, late: for all channels.
    steps: int64 [channels, most + late]; behind a channel's last step a sum that is never reached.
    """

    low: np.ndarray
    last: np.ndarray
    multiplier: np.ndarray
    addend: np.ndarray
    shift: int
    drop: int
    late: int
    steps: np.ndarray


def fit_near_lines(function: NormalSteps) -> NearLines | None:
    """Return near lines of a step function that are exact on its whole range; None if its steps are too uneven."""
    never = function.raw.high + 1
    # A channel without steps has one that no sum reaches.
    rows = [row if len(row) else np.array([never]) for row in function.steps]
    # The line of a single step stays at 0, and the comparison finds it.
    strips = [_strip(row) if len(row) > 1 else (0.0, 0.0, 0.0) for row in rows]
    least = max(max(1, math.ceil(width * slope)) for slope, _, width in strips)
    for late in range(least, MOST_LATE + 1):
        found = _near_lines(rows, [slope for slope, _, _ in strips], late, never)
        if found is not None:
            return found
    return None


def _near_lines(rows: list[np.ndarray], slopes: list[float], late: int, never: int) -> NearLines | None:
    """Return near lines with `late` comparisons, with as few sums per place as possible; None if there are none."""
    most = max(map(len, rows))
    shift = PLACE_BITS - (most + late).bit_length()
    low, last = (np.array([int(row[end]) for row in rows]) for end in (0, -1))
    low -= 1
    # Places that are closer to each other than a comparison corrects only need more bits.
    for drop in range(max(1, int((last - low).max()).bit_length())):
        multiplier = np.array([round(slope * (1 << (shift + drop))) for slope in slopes])
        if multiplier.max() >> PLACE_BITS:
            return None
        pairs = zip(rows, multiplier.tolist(), strict=True)
        addends = [_addend(row, factor, shift, drop, late) for row, factor in pairs]
        if all(addend is not None for addend in addends):
            # The sum is limited to the last step, so that the next sum is never reached, and is as short as a step.
            steps = np.minimum(last + 1, never)[:, None].repeat(most + late, axis=1)
            for line, row in zip(steps, rows, strict=True):
                line[: len(row)] = row
            return NearLines(low, last, multiplier, np.array(addends), shift, drop, late, steps)
    return None


def _addend(steps: np.ndarray, multiplier: int, shift: int, drop: int, late: int) -> int | None:
    """Return an addend with which a line reaches each number at its step or later, but not behind the step `late` on.

    So the line's count is never too great, and by at most `late` too small. None if there is no such addend.
    """
    # Python's integers, as products may be beyond 64 bits.
    places = [(step - int(steps[0]) + 1) >> drop for step in steps.tolist()]
    before = [(step - int(steps[0])) >> drop for step in steps.tolist()]
    numbers = range(1, len(places) + 1)
    # The count is at least 0 at the sum below all steps, and at the last step at least their number less `late`.
    least = max([0, *((k << shift) - multiplier * place for k, place in zip(numbers, places[late:], strict=False))])
    # In front of step k it is below k.
    most = min((k << shift) - 1 - multiplier * place for k, place in zip(numbers, before, strict=True))
    # Nor is it ever above the number of steps, where it would leave the table.
    most = min(most, ((len(places) + 1) << shift) - 1 - multiplier * places[-1])
    return (least + most) // 2 if least <= most else None


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
