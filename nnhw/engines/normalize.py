"""Normalization engine: the rows of a stream with their mean taken off, divided by their deviation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nnhw.engines.contract import RequantizingConfig
from nnhw.engines.join import signed_digits
from nnhw.engines.pairwise import PairConfig, can_use_dsp
from nnhw.engines.requantize import Requantizer
from nnhw.engines.rows import RowConfig
from nnhw.ir.ops.normalization import RECIPROCAL_BITS, ROOT_BITS, IntegerNorm
from nnhw.ir.types import IntType

QUOTIENT_BITS = 2 * RECIPROCAL_BITS
"""Bits of the quotient of which a root is taken: two for each bit of the root."""


@dataclass(frozen=True)
class NormConfig(RequantizingConfig, RowConfig):
    """Parameters of a normalization; a row are the elements of its axis, which follow one another in the stream.

    Parameters
    ----------
    op: what it computes.
    requantizer: applied to the results, one row of it for each channel; None: they leave as they are.
    dsp: products are made in DSP blocks, those that `can_use_dsp`.

    Timing: see `RowConfig`. The spread is computed from the sum and the squares, with one bit of the sum in each cycle.
    It is shifted up, two places a cycle, until one of its two highest bits is 1. A constant is divided by it, with one
    bit of the quotient in each cycle, and the root takes two of these bits at a time.
    """

    op: IntegerNorm
    requantizer: Requantizer | None = None
    dsp: bool = False

    @property
    def squares(self) -> PairConfig:
        """The squares of all lanes."""
        return self._products(self.source, self.source)

    @property
    def factor(self) -> PairConfig:
        """The products of all lanes with the root of the row."""
        return self._products(self.distance, IntType(0, (1 << RECIPROCAL_BITS) - 1))

    def _products(self, left: IntType, right: IntType) -> PairConfig:
        dsp = self.dsp and can_use_dsp(left, right)
        return PairConfig("product", left, right, self.lanes, self.chunks, self.rows, dsp=dsp)

    @property
    def total(self) -> IntType:
        """Type of the sum of a row."""
        return IntType(self.length * self.source.low, self.length * self.source.high)

    @property
    def squared(self) -> IntType:
        """Type of the sum of the squares of a row."""
        return IntType(0, self.length * max(self.source.low**2, self.source.high**2))

    @property
    def distance(self) -> IntType:
        """Type of the factor of the root: the length times an element, minus the sum of the row.

        Without a centre nothing is subtracted, and the power of two in the length becomes part of the shift behind the
        product (`even_bits`), which makes the factor narrower.
        """
        if not self.op.centered:
            odd = self.length >> self.even_bits
            return IntType(odd * self.source.low, odd * self.source.high)
        # The sum of the row has the element itself, so only the other elements can be far from it.
        reach = (self.length - 1) * (self.source.high - self.source.low)
        return IntType(-max(reach, 1), max(reach, 1))

    @property
    def even_bits(self) -> int:
        """Places by which products are shifted up: log2 of the power of two in the length; 0 with a centre."""
        return 0 if self.op.centered else (self.length & -self.length).bit_length() - 1

    @property
    def factor_digits(self) -> list[tuple[int, int]]:
        """(shift, sign) of the digits of the length, or its odd part, by which elements are multiplied."""
        return signed_digits(self.length >> self.even_bits)

    @property
    def scale_levels(self) -> int:
        """Register stages of the product of an element with the length."""
        return (len(self.factor_digits) - 1).bit_length()

    @property
    def spread_steps(self) -> int:
        """Bits of the sum and of the length that make the spread."""
        return max(self.length.bit_length(), self.total.bits if self.op.centered else 0)

    @property
    def spread_bits(self) -> int:
        """Bits of the spread, an even number, at least those of the number whose root is taken."""
        reach = self.source.high - self.source.low
        # The greatest variance of numbers in a range is a quarter of its square, half of them at either end.
        most = self.length**2 * reach**2 // 4 if self.op.centered else self.length * self.squared.high
        bits = (most + self.op.epsilon).bit_length()
        # Even, as the root of a shift by an odd number of places is no shift.
        return max(ROOT_BITS, bits + bits % 2)

    @property
    def most_shifts(self) -> int:
        """Most steps of two places by which the spread is shifted up, until one of its two highest bits is 1."""
        return self.spread_bits // 2 - 1

    @property
    def collect_levels(self) -> int:
        """Cycles from a beat to the sum of squares."""
        return self.squares.levels + self.tree_levels + 1

    @property
    def total_levels(self) -> int:
        """Cycles from a beat to the sum."""
        return self.tree_levels + 1

    @property
    def solve_cycles(self) -> int:
        """Cycles from the sum of squares to the root."""
        return (self.spread_steps + 1) + self.most_shifts + (QUOTIENT_BITS + 1)

    @property
    def shift_levels(self) -> int:
        """Register stages of the shift of a product, which differs from row to row."""
        return self.most_shifts.bit_length()

    @property
    def raw(self) -> IntType:
        """Type of a result in front of the requantizer."""
        return self.op.results(self.length)

    @property
    def raw_latency(self) -> int:
        """Moves from the reading of a word to its raw results."""
        return 1 + self.scale_levels + self.op.centered + self.factor.levels + self.shift_levels + 1

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats int64 [rows * chunks, lanes] of the input beats (values)."""
        rows = np.asarray(beats[0], dtype=np.int64).reshape(-1, self.length)
        # Rows lie along the first axis behind the batch here, whatever the axis of the tensor.
        raw = replace(self.op, axis=0).evaluate(rows)
        outputs = self.length if self.requantizer is None else self.requantizer.outputs
        return self.requantized(raw.reshape(-1, outputs)).reshape(-1, self.lanes)
