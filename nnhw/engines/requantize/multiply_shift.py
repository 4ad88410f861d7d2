"""Multiply, add, shift, round, clamp: the one integer meaning of all requantizers that compute codes this way."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nnhw.engines.requantize.ranked import RankedSteps, reaching


@dataclass(frozen=True, eq=False)
class MultiplyShift:
    """code = clamp(floor((sum * factor + addend) / 2**shift), low, high), where certain ties count one less.

    With half a unit in the addend this rounds to the nearest code, and ties up. Two kinds of ties may round down
    instead. Half to even: those whose code would be odd (`even`). Double rounding, half away from zero: the first
    rounding leaves `tie_bits` bits of the fraction; where these are 0, and the number is not positive, the second
    rounding takes the half down.

    With ranked steps the number is clamped, not the code: what is clamped is the word of ranks that the number lies in,
    and the highest bits of the fraction are its cell and its place.

    Parameters
    ----------
    factor, addend: int64 [channels], or [n, channels] where each sum has its own.
    shift: fraction bits of the number, which is sum * factor + addend.
    low, high: lowest and highest code.
    even: a number whose fraction is 0 counts one less if its integer part plus `parity` is odd.
    parity: 0 or 1, see `even`.
    tie_bits: int64 [channels], none above `shift`; where it is not 0, a number whose highest `tie_bits` fraction bits
        are 0 counts one less if its integer part is at most `pivot`. None: all are 0.
    pivot: the code that stands for zero, or the nearest one of low..high; 0 without such ties.
    ranked: steps that all channels share, whose first word is `low` and whose last one is `high`; None: there are none.

    Range: sum * factor + addend must fit int64.
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
        # The addend has half a unit, so what was a tie is a number whose fraction is 0.
        if self.even:
            code = code - ((fraction == 0) & ((code + self.parity) & 1 == 1))
        if self.tie_bits is not None:
            is_tie = (self.tie_bits > 0) & (fraction >> (self.shift - self.tie_bits) == 0)
            # The integer part as it was, before ties to even changed the code.
            code = code - (is_tie & (number >> self.shift <= self.pivot))
        clamped: np.ndarray = np.clip(code, self.low, self.high)
        return clamped
