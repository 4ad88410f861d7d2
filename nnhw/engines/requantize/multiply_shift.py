"""Multiply, add, shift, round, clamp: the one integer meaning of every requantizer that does so."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nnhw.engines.requantize.ranked import RankedSteps, reaching


@dataclass(frozen=True, eq=False)
class MultiplyShift:
    """code = clamp(floor((sum * factor + addend) / 2**shift), low, high), one less for ties that round down.

    With half a unit in the addend it rounds to the nearest code, and ties up. A function has other ties of one kind at
    the most: half to even, or half away from zero, which are those of double rounding: its first rounding leaves
    `tie_bits` fraction bits, of which only zero and what is below it rounds the half down.

    With ranked steps the number is clamped, not the code: what is clamped is the word of ranks that the number lies in,
    and the highest bits of the fraction are its cell and its place.

    Parameters
    ----------
    factor, addend: int64 [channels], or [n, channels] where each sum has its own.
    low, high: clamp.
    even, parity: a number without fraction whose sum with the parity is odd counts as one less.
    tie_bits: int64 [channels], none above the shift; where it is not 0, a number whose highest so many fraction bits
        are 0 counts as one less, if it is at most the pivot; None: all are 0.
    pivot: the code of zero, or the nearest of low..high; 0 without such ties.
    ranked: steps that all channels share, whose first word is `low` and whose last one is `high`; None: there are none.

    Range: int64 holds the sums times their factors with the addends.
    """

    factor: np.ndarray = field(repr=False)
    addend: np.ndarray = field(repr=False)
    shift: int
    low: int
    high: int
    even: bool = False
    parity: int = 0
    tie_bits: np.ndarray | None = field(default=None, repr=False)
    pivot: int = 0
    ranked: RankedSteps | None = field(default=None, repr=False)

    def borders(self, lowest: int) -> np.ndarray:
        """Return the sums at which ranked steps may change the code, int64 [channels, count]; see `reaching`."""
        assert self.ranked is not None
        bits = self.ranked.word_bits
        heights = (self.ranked.steps + (self.low << bits)) << (self.shift - bits)
        return reaching(self.factor[:, None], self.addend[:, None], heights, lowest)

    def golden(self, sums: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, channels] of sums [n, channels]."""
        number = sums * self.factor + self.addend
        if self.ranked is not None:
            bits = self.ranked.word_bits
            return self.ranked.golden((number >> (self.shift - bits)) - (self.low << bits))
        code = number >> self.shift
        fraction = number & ((1 << self.shift) - 1)
        if self.even:
            code = code - ((fraction == 0) & ((code + self.parity) & 1 == 1))
        if self.tie_bits is not None:
            is_tie = (self.tie_bits > 0) & (fraction >> (self.shift - self.tie_bits) == 0)
            code = code - (is_tie & (number >> self.shift <= self.pivot))
        clamped: np.ndarray = np.clip(code, self.low, self.high)
        return clamped
