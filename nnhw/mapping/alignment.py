"""Step functions of channels side by side: which step of one is which step of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.ir.types import IntType


@dataclass(frozen=True)
class AlignedSteps:
    """The steps of all channels along one sequence of codes, each channel in the direction in which they follow it.

    Parameters
    ----------
    codes: int64 [count + 1], of which each channel has a part.
    steps: int64 [channels, count]: first place whose code lies behind a step; the lowest place of a channel for steps
        that lie below all of its codes, one above the highest for those above.
    mirrored: bool [channels]: places of such a channel are its raw sums times -1.
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
        """Which steps a channel reaches, bool [channels, count]: at them its line is at the step or above."""
        return self.steps <= self.highs

    @property
    def below(self) -> np.ndarray:
        """Which steps a channel is below, bool [channels, count]: one place before them its line is below the step."""
        return self.steps > self.lows

    @property
    def seen(self) -> np.ndarray:
        """Which steps a channel has, bool [channels, count]."""
        return self.above & self.below


def align(steps: Sequence[np.ndarray], codes: Sequence[np.ndarray], raw: IntType) -> AlignedSteps | None:
    """Return the steps of channels along a common sequence of codes, or None if there is none.

    Parameters
    ----------
    steps, codes: of each channel, in the normal form of `NormalSteps`.
    """
    moves = [np.diff(row) for row in codes]
    if all((row > 0).all() or (row < 0).all() for row in moves):
        return _monotone(steps, codes, [bool((row < 0).any()) for row in moves], raw)
    return _turning(steps, codes, raw)


def _monotone(
    steps: Sequence[np.ndarray], codes: Sequence[np.ndarray], falls: Sequence[bool], raw: IntType
) -> AlignedSteps:
    """Align channels none of which turns: a code that a channel jumps over has both of its steps in one place."""
    found = np.unique(np.concatenate(codes))
    rows = []
    for places, values, mirrored in zip(steps, codes, falls, strict=True):
        low, high = (-raw.high, -raw.low) if mirrored else (raw.low, raw.high)
        places, values = _turned(places, values) if mirrored else (places, values)
        rows.append(np.concatenate([[low], places, [high + 1]])[np.searchsorted(values, found[1:])])
    return AlignedSteps(found, np.array(rows, dtype=np.int64), np.array(falls, dtype=bool), raw)


def _turning(steps: Sequence[np.ndarray], codes: Sequence[np.ndarray], raw: IntType) -> AlignedSteps | None:
    """Align channels that turn: the codes of each, or their mirror image, are a part without gaps of one sequence."""
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
            places, values = _turned(places, values)
            start, turned = _position(sequence, values), True
        assert start is not None
        low, high = (-raw.high, -raw.low) if turned else (raw.low, raw.high)
        rows.append(np.concatenate([[low] * start, places, [high + 1] * (count - start - len(places))]))
        mirrored.append(turned)
    return AlignedSteps(sequence, np.array(rows, dtype=np.int64), np.array(mirrored, dtype=bool), raw)


def _joined(sequence: np.ndarray, part: np.ndarray) -> np.ndarray | None:
    """Return a sequence that has another one as a part, longer by what sticks out at one end; None: too little fits."""
    if not len(sequence) or _position(sequence, part) is not None:
        return sequence if len(sequence) else part
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
    """Return where a sequence has another one as a part, or None."""
    if len(part) > len(sequence):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(sequence, len(part))
    found = np.flatnonzero((windows == part).all(axis=1))
    return int(found[0]) if len(found) else None
