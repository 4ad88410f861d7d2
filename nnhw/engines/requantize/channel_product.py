"""Products of sums with a constant of each channel, as requantizers make them: their widths, and their latency."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nnhw.engines.encoding import bits_for_range
from nnhw.errors import MappingError
from nnhw.ir.types import IntType

ADDER_BITS = 32
"""Widest sum, in bits, that is added in one move; wider ones take two moves for each addition."""
LOWER_BITS = 24
"""Bits that are added in the first of two moves, unless more than `ADDER_BITS` would remain for the second."""
DSP_PIECE_BITS = 15
"""Bits of a factor, beside a sign, that one DSP block takes: both families have signed multipliers of 16 x 16 bits."""
FUSED_FACTOR_BITS, FUSED_BITS, FUSED_MOVES = 16, 32, 4
"""For a DSP block of the iCE40 that multiplies and adds: bits of a factor, bits of the result, moves of latency."""


def radix4_digits(values: np.ndarray) -> np.ndarray:
    """Return the digits -1, 0, 1 or 2 of integers to the base 4, lowest first: int64 [*shape, digits], at least one.

    Each of these multiples of a number takes one LUT4 a bit and no adder, unlike a digit of 3.
    """
    rest = np.asarray(values, dtype=np.int64)
    digits: list[np.ndarray] = []
    while not digits or rest.any():
        # The remainder in -1..2, so that the rest stays divisible by 4.
        digit = ((rest + 1) & 3) - 1
        digits.append(digit)
        rest = (rest - digit) >> 2
    return np.stack(digits, axis=-1)


def tree_depth(operands: int) -> int:
    """Return the levels of a tree of adders of two operands each."""
    return (operands - 1).bit_length()


def lower_bits(bits: int) -> int:
    """Return how many bits of an addition of `bits` bits in two moves are added first; at most `ADDER_BITS` remain."""
    return min(bits, max(LOWER_BITS, bits - ADDER_BITS))


def pieces(bits: int) -> int:
    """Return into how many pieces a signed factor of `bits` bits is cut for DSP blocks."""
    return max(1, -(-(bits - 1) // DSP_PIECE_BITS))


@dataclass(frozen=True)
class ConstantProduct:
    """The pipelined sum `raw * multiplier[channel] + addend[channel]`, as all multiplying requantizers compute it.

    Parameters
    ----------
    multiplier, addend: int64 [outputs, segments]; the requantizer chooses the segment by the raw sum.
    raw: range of the raw sums.
    dsp: multipliers in DSP blocks; else adders in logic, one partial product for each radix-4 digit.
    fused: with `dsp`: one DSP block of the iCE40 multiplies and adds.

    Range: every result fits `bits` bits, so the adders may work modulo 2**bits.
    """

    multiplier: np.ndarray = field(repr=False)
    addend: np.ndarray = field(repr=False)
    raw: IntType
    dsp: bool
    fused: bool = False

    @property
    def can_be_fused(self) -> bool:
        """Whether one DSP block of the iCE40 can do all of it."""
        most = int(np.abs(self.multiplier).max())
        # A multiplier of 16 bits and a sign fits as well: as a magnitude, see `is_magnitude`.
        fits = self.raw_bits <= FUSED_FACTOR_BITS and most < 1 << FUSED_FACTOR_BITS
        return fits and bits_for_range(min(self.range[0], -1), self.range[1])[0] <= FUSED_BITS

    @cached_property
    def is_addition(self) -> bool:
        """Whether all channels add one number and multiply by 1, as where both scales are equal: no product is left."""
        # With a multiplier of 1 in all channels, and one addend, there are no constants to choose.
        same = bool((self.multiplier == 1).all()) and len(np.unique(self.addend)) == 1
        return same and not self.dsp and not self.fused

    @property
    def is_magnitude(self) -> bool:
        """Whether a fused product gets its multiplier as sign and magnitude, since two's complement is too wide.

        For a negative multiplier -m the block computes ~raw * m = -raw * m - m, and the addend has the missing m.
        """
        return self.fused and self.multiplier_bits > FUSED_FACTOR_BITS

    @property
    def constants(self) -> tuple[np.ndarray, np.ndarray]:
        """(multipliers, addends), int64 [outputs, segments], as DSP blocks get them: bit patterns."""
        multiplier, addend = self.multiplier, self.addend
        if self.is_magnitude:
            negative = multiplier < 0
            addend = addend - np.where(negative, multiplier, 0)
            # The sign is the bit above the magnitude, where two's complement would have it, too.
            multiplier = np.abs(multiplier) | negative.astype(np.int64) << FUSED_FACTOR_BITS
        return multiplier & ((1 << self.multiplier_bits) - 1), addend & ((1 << self.bits) - 1)

    @cached_property
    def range(self) -> tuple[int, int]:
        """(lowest, highest) result over the whole raw range."""
        # A line has its extremes at the ends of the range; and many channels have the same constants.
        pairs = set(zip(self.multiplier.ravel().tolist(), self.addend.ravel().tolist(), strict=True))
        ends = [m * x + b for m, b in pairs for x in (self.raw.low, self.raw.high)]
        return min(ends), max(ends)

    @cached_property
    def bits(self) -> int:
        """Width of the result, two's complement."""
        low, high = self.range
        # At least one bit of the highest partial product lies within, even if no result is so high.
        top = self.top_shift + 1
        return max(bits_for_range(min(low, -1), high)[0], top)

    @property
    def top_shift(self) -> int:
        """How far the highest partial product is shifted left, in bits."""
        if self.fused:
            return 0
        if self.dsp:
            return DSP_PIECE_BITS * (pieces(self.raw_bits) + pieces(self.multiplier_bits) - 2)
        return 2 * self.digits.shape[-1] - 2

    @property
    def raw_bits(self) -> int:
        """Width of a raw sum, two's complement."""
        # With -1 in the range, the number that holds it is signed.
        return bits_for_range(min(self.raw.low, -1), self.raw.high)[0]

    @property
    def multiplier_bits(self) -> int:
        """Width of a multiplier, two's complement."""
        return bits_for_range(min(int(self.multiplier.min()), -1), int(self.multiplier.max()))[0]

    @cached_property
    def digits(self) -> np.ndarray:
        """Radix-4 digits [outputs, segments, n] of the multipliers."""
        return radix4_digits(self.multiplier)

    @cached_property
    def operands(self) -> int:
        """Number of partial products; digits that are zero in every channel have none."""
        if self.fused:
            return 1
        if self.dsp:
            return pieces(self.raw_bits) * pieces(self.multiplier_bits)
        return max(1, int(self.digits.any(axis=(0, 1)).sum()))

    @property
    def levels(self) -> int:
        """Levels of the tree of partial products."""
        return tree_depth(self.operands)

    @cached_property
    def level_moves(self) -> tuple[int, ...]:
        """Moves of each level of the tree, 1 or 2: in logic the sums of the first levels are narrow."""
        # An upper bound: a partial product has one bit more than a sum; each digit of distance adds two bits for its
        # weight, and one for a carry.
        widest = [self.raw.bits + 1 + 3 * self.operands_span(1 << level) for level in range(1, self.levels + 1)]
        return tuple(self.moves if self.dsp or bits > ADDER_BITS else 1 for bits in widest)

    def operands_span(self, operands: int) -> int:
        """Return an upper bound of the digits that `operands` neighbouring partial products span.

        Where no digit between them is left out, it is their number; else 64, which stands for any.
        """
        used = np.flatnonzero(self.digits.any(axis=(0, 1)))
        return min(operands, len(used)) if len(used) == used.max(initial=-1) - used.min(initial=0) + 1 else 64

    @property
    def moves(self) -> int:
        """Moves of an addition of full width, 1 or 2."""
        return 1 if self.bits <= ADDER_BITS else 2

    @property
    def latency(self) -> int:
        """Moves from a raw sum to the result: constants, (DSP inputs,) partial products, their tree, the addend.

        If fused: constants, and the DSP block. An addition alone: that one.
        """
        if self.is_addition:
            return self.moves
        if self.fused:
            return 1 + FUSED_MOVES
        # Constants are read in the first move; factors of DSP blocks wait in the blocks' input registers in another.
        return 1 + self.dsp + 1 + sum(self.level_moves) + self.moves


def reject_wide(product: ConstantProduct) -> None:
    """Refuse a product of more than 64 bits: neither int64 in the golden function nor two adders hold it.

    Raises
    ------
    MappingError: it has more.
    """
    if product.bits > 2 * ADDER_BITS:
        raise MappingError(f"scaler needs sums of at most {2 * ADDER_BITS} bits, given {product.bits}; use fewer bits")
