"""Alignment of the step functions of several channels: which step of one channel is which step of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.ir.types import IntType


@dataclass(frozen=True)
class AlignedSteps:
    """The steps of all channels along one common sequence of codes.

    A place of a channel is a raw sum, or a raw sum times -1 if the channel runs through the sequence backwards.

    Parameters
    ----------
    codes: the common sequence, int64 [count + 1]; the codes of each channel are a part of it.
    steps: first place of each channel with the code behind each step, int64 [channels, count]. A step below all codes
        of a channel has its lowest place; one above all of them has the place above its highest.
    mirrored: bool [channels], whether places are raw sums times -1.
    raw: range of the raw sums.
    """

    codes: np.ndarray
    steps: np.ndarray
    mirrored: np.ndarray
    raw: IntType

    @property
    def lows(self) -> np.ndarray:
        """Lowest place of each channel, int64 [channels, 1]."""
        return np.where(self.mirrored, -self.raw.high, self.raw.low)[:, None]

    @property
    def highs(self) -> np.ndarray:
        """Highest place of each channel, int64 [channels, 1]."""
        return np.where(self.mirrored, -self.raw.low, self.raw.high)[:, None]

    @property
    def above(self) -> np.ndarray:
        """Whether a channel reaches a step, bool [channels, count]; its line must be at the step or above there."""
        return self.steps <= self.highs

    @property
    def below(self) -> np.ndarray:
        """Whether a channel has places below a step, bool [channels, count]; its line must be below the step there."""
        return self.steps > self.lows

    @property
    def seen(self) -> np.ndarray:
        """Whether a channel passes a step within its range, bool [channels, count]."""
        return self.above & self.below


def align(steps: Sequence[np.ndarray], codes: Sequence[np.ndarray], raw: IntType) -> AlignedSteps | None:
    """Return the steps of all channels along a common sequence of codes; None if there is no such sequence.

    Parameters
    ----------
    steps, codes: of each channel, in the normal form of `NormalSteps`.
    raw: range of the raw sums.
    """
    moves = [np.diff(row) for row in codes]
    if all((row > 0).all() or (row < 0).all() for row in moves):
        return _monotone(steps, codes, [bool((row < 0).any()) for row in moves], raw)
    return _turning(steps, codes, raw)


def _monotone(
    steps: Sequence[np.ndarray], codes: Sequence[np.ndarray], falls: Sequence[bool], raw: IntType
) -> AlignedSteps:
    """Align channels that only rise or only fall; a code that a channel skips has both of its steps at one place."""
    # All codes that occur in any channel, ascending.
    found = np.unique(np.concatenate(codes))
    rows = []
    for places, values, mirrored in zip(steps, codes, falls, strict=True):
        low, high = (-raw.high, -raw.low) if mirrored else (raw.low, raw.high)
        places, values = _turned(places, values) if mirrored else (places, values)
        # The first segment of the channel whose code is at least the one behind the step: its start is the step.
        rows.append(np.concatenate([[low], places, [high + 1]])[np.searchsorted(values, found[1:])])
    return AlignedSteps(found, np.array(rows, dtype=np.int64), np.array(falls, dtype=bool), raw)


def _turning(steps: Sequence[np.ndarray], codes: Sequence[np.ndarray], raw: IntType) -> AlignedSteps | None:
    """Align channels that rise and fall: the codes of each, or their reverse, must be contiguous in one sequence."""
    # The longest first: most shorter ones lie inside of it then.
    sequence = np.zeros(0, dtype=np.int64)
    for values in sorted(codes, key=len, reverse=True):
        joined = [_joined(sequence, part) for part in (values, values[::-1])]
        sequences = [each for each in joined if each is not None]
        if not sequences:
            return None
        sequence = min(sequences, key=len)
    count = len(sequence) - 1
    rows, mirrored = [], []
    for places, values in zip(steps, codes, strict=True):
        start, turned = _position(sequence, values), False
        if start is None:
            # A part of the sequence that is passed backwards, as a function of the negated sum.
            places, values = _turned(places, values)
            start, turned = _position(sequence, values), True
        assert start is not None
        low, high = (-raw.high, -raw.low) if turned else (raw.low, raw.high)
        rows.append(np.concatenate([[low] * start, places, [high + 1] * (count - start - len(places))]))
        mirrored.append(turned)
    return AlignedSteps(sequence, np.array(rows, dtype=np.int64), np.array(mirrored, dtype=bool), raw)


def _joined(sequence: np.ndarray, part: np.ndarray) -> np.ndarray | None:
    """Return a sequence, extended at one end if need be, that contains `part`; None if half of it or less overlaps."""
    if not len(sequence) or _position(sequence, part) is not None:
        return sequence if len(sequence) else part
    # The longest overlap first, so that the sequence stays short.
    for shared in range(len(part) - 1, len(part) // 2, -1):
        if (sequence[-shared:] == part[:shared]).all():
            return np.concatenate([sequence, part[shared:]])
        if (sequence[:shared] == part[-shared:]).all():
            return np.concatenate([part[:-shared], sequence])
    return None


def _turned(steps: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps and codes of a function of -x."""
    return 1 - steps[::-1], codes[::-1]


def _position(sequence: np.ndarray, part: np.ndarray) -> int | None:
    """Return the first index at which a sequence contains `part`; None if it does not."""
    if len(part) > len(sequence):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(sequence, len(part))
    found = np.flatnonzero((windows == part).all(axis=1))
    return int(found[0]) if len(found) else None
