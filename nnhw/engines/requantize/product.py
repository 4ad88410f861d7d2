"""Products with a constant for each channel, as a scaler makes them: their widths, and the moves that they take."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nnhw.engines.encoding import bits_for_range
from nnhw.errors import MappingError
from nnhw.ir.types import IntType

ADDER_BITS = 32
"""Bits that one registered adder adds; a wider sum takes two moves for each addition."""
LOWER_BITS = 24
"""Bits that are added first where an addition takes two moves, and the sum is not much wider than an adder."""
DSP_PIECE_BITS = 15
"""Bits of a factor that one DSP block takes beside a sign: 16 x 16 signed multipliers serve both families."""
FUSED_FACTOR_BITS, FUSED_BITS, FUSED_MOVES = 16, 32, 4
"""Of a DSP block of the iCE40 that multiplies and adds: bits of its factors and of its result, moves that it takes."""


def radix4_digits(values: np.ndarray) -> np.ndarray:
    """Return the digits -1, 0, 1, 2 of integers to the base 4, lowest first: int64 [*shape, digits], at least one.

    Each of these multiples of a number is one LUT4 a bit, and no multiple needs an adder.
    """
    rest = np.asarray(values, dtype=np.int64)
    digits: list[np.ndarray] = []
    while not digits or rest.any():
        digit = ((rest + 1) & 3) - 1
        digits.append(digit)
        rest = (rest - digit) >> 2
    return np.stack(digits, axis=-1)


def tree_depth(operands: int) -> int:
    """Return the levels of a tree of adders."""
    return (operands - 1).bit_length()


def lower_bits(bits: int) -> int:
    """Return how many bits of an addition in two moves are added first; the others are at most `ADDER_BITS`."""
    return min(bits, max(LOWER_BITS, bits - ADDER_BITS))


def pieces(bits: int) -> int:
    """Return into how many pieces a signed factor is cut for DSP blocks."""
    return max(1, -(-(bits - 1) // DSP_PIECE_BITS))


@dataclass(frozen=True)
class Product:
    """The pipelined sum `raw * multiplier[channel] + addend[channel]`, as all multiplying requantizers compute it.

    Parameters
    ----------
    multiplier, addend: int64 [outputs, segments].
    raw: range of the raw sums.
    dsp: multipliers in DSP blocks; else adders in logic, one partial product for each radix-4 digit.
    fused: one DSP block of the iCE40 multiplies and adds.

    Range: no sum exceeds `bits`, so the adders work modulo 2**bits.
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
        fits = self.raw_bits <= FUSED_FACTOR_BITS and most < 1 << FUSED_FACTOR_BITS
        return fits and bits_for_range(min(self.range[0], -1), self.range[1])[0] <= FUSED_BITS

    @property
    def is_magnitude(self) -> bool:
        """Whether a fused product has the multiplier as sign and magnitude: it is wider than the block takes.

        A negative one comes with the complement of the sum, which lacks one multiplier: the addend has it.
        """
        return self.fused and self.multiplier_bits > FUSED_FACTOR_BITS

    @property
    def constants(self) -> tuple[np.ndarray, np.ndarray]:
        """(multipliers, addends), int64 [outputs, segments], as DSP blocks get them: bit patterns."""
        multiplier, addend = self.multiplier, self.addend
        if self.is_magnitude:
            negative = multiplier < 0
            addend = addend - np.where(negative, multiplier, 0)
            multiplier = np.abs(multiplier) | negative.astype(np.int64) << FUSED_FACTOR_BITS
        return multiplier & ((1 << self.multiplier_bits) - 1), addend & ((1 << self.bits) - 1)

    @cached_property
    def range(self) -> tuple[int, int]:
        """(lowest, highest) result over the whole raw range."""
        pairs = set(zip(self.multiplier.ravel().tolist(), self.addend.ravel().tolist(), strict=True))
        ends = [m * x + b for m, b in pairs for x in (self.raw.low, self.raw.high)]
        return min(ends), max(ends)

    @cached_property
    def bits(self) -> int:
        """Width of the result, two's complement."""
        low, high = self.range
        top = self.top_shift + 1
        return max(bits_for_range(min(low, -1), high)[0], top)

    @property
    def top_shift(self) -> int:
        """Weight, as a power of two, of the highest partial product."""
        if self.fused:
            return 0
        if self.dsp:
            return DSP_PIECE_BITS * (pieces(self.raw_bits) + pieces(self.multiplier_bits) - 2)
        return 2 * self.digits.shape[-1] - 2

    @property
    def raw_bits(self) -> int:
        """Width of a raw sum, two's complement."""
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
        """Partial products; digits that are zero in every channel have none."""
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
        """Moves of each level of the tree: the first ones, in logic, are narrow."""
        widest = [self.raw.bits + 1 + 3 * self.operands_span(1 << level) for level in range(1, self.levels + 1)]
        return tuple(self.moves if self.dsp or bits > ADDER_BITS else 1 for bits in widest)

    def operands_span(self, operands: int) -> int:
        """Return an upper bound of how many digits apart neighbours so many operands from one another lie."""
        used = np.flatnonzero(self.digits.any(axis=(0, 1)))
        return min(operands, len(used)) if len(used) == used.max(initial=-1) - used.min(initial=0) + 1 else 64

    @property
    def moves(self) -> int:
        """Moves of one wide addition."""
        return 1 if self.bits <= ADDER_BITS else 2

    @property
    def latency(self) -> int:
        """Moves: constants, (DSP inputs,) partial products, their tree, the addend; or constants and the DSP block."""
        if self.fused:
            return 1 + FUSED_MOVES
        return 1 + self.dsp + 1 + sum(self.level_moves) + self.moves


def reject_wide(product: Product) -> None:
    """Refuse a product beyond 64 bits: neither the golden function nor the adders hold it."""
    if product.bits > 2 * ADDER_BITS:
        raise MappingError(f"scaler needs sums of at most {2 * ADDER_BITS} bits, given {product.bits}; use fewer bits")
