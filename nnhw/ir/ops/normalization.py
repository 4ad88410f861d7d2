"""Softmax and normalization of codes by integers alone, made for hardware.

Powers come from a table. The divisor is the same for all elements of a row, so there is one reciprocal for a row, and
one multiplication by its 16 bits for an element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import IntType, TensorType

from .base import Array, Operand, broadcasts_to, int_operand
from .tail import AlongAxis

RECIPROCAL_BITS = 16
"""Bits of a reciprocal, the first of which is 1, and of a power in a table."""
ROOT_BITS = 18
"""Most bits of a number, once it is normalized, whose reciprocal square root is taken; even."""
MOST_FRACTION_BITS = 15
"""Most fraction bits of a result: a code of 16 bits holds it and its sign."""
_GREATEST_POWER = (1 << RECIPROCAL_BITS) - 1
_NORMS_BELOW = 1 << 31
"""Bound on n times the greatest magnitude of x: its square, which bounds all sums, has 62 bits."""
_TOTALS_BELOW = 1 << 40
"""Bound on the sum of a softmax's powers of 16 bits: those of 2**24 elements."""


def bit_length(number: Array) -> Array:
    """Return the number of bits of positive integers below 2**63, int64 of their shape."""
    length = np.zeros_like(number)
    # Bisection in integers: a float's exponent would be too large by one where the conversion rounds up.
    for step in (32, 16, 8, 4, 2, 1):
        above = number >> (length + step) > 0
        length = np.where(above, length + step, length)
    return length + 1


def reciprocal(number: Array) -> tuple[Array, Array]:
    """Return r of 16 bits and s for which r / 2**s is just below 1 / number: s = bits of the number + 15.

    r = floor((2**s - 1) / number), 2**15 <= r < 2**16. Range: numbers 1..2**40 - 1.
    """
    shift = bit_length(number) + (RECIPROCAL_BITS - 1)
    # Less 1, so that the reciprocal of a power of two has 16 bits as well.
    return ((np.int64(1) << shift) - 1) // number, shift


def reciprocal_root(number: Array) -> tuple[Array, Array]:
    """Return r of 16 bits and s for which r / 2**s is about 1 / sqrt(number).

    The number becomes m of 17 or 18 bits by an even shift, to the left or, dropping bits, to the right:
    m = number * 4**-g. Then r = floor(sqrt((2**48 - 1) / m)), found bit by bit, and s = 24 + g.

    Range: numbers 1..2**63 - 1; 2**15 <= r < 2**16; r / 2**s is below 1 / sqrt(number) times 1 + 2**-16, and above it
    times 1 - 2**-15.
    """
    # Only shifts by an even number of bits have a square root that is a shift.
    half = (bit_length(number) + 1 >> 1) - (ROOT_BITS >> 1)
    mantissa = np.where(half < 0, number << np.maximum(-2 * half, 0), number >> np.maximum(2 * half, 0))
    square = ((np.int64(1) << (ROOT_BITS + 2 * RECIPROCAL_BITS - 2)) - 1) // mantissa
    root = np.zeros_like(number)
    for bit in reversed(range(RECIPROCAL_BITS)):
        # An integer square root, as hardware computes it: a bit stays if the square is not too large.
        tried = root | (1 << bit)
        root = np.where(tried * tried <= square, tried, root)
    return root, half + (ROOT_BITS // 2 + RECIPROCAL_BITS - 1)


def rounded_shift(number: Array, shift: Array) -> Array:
    """Return number / 2**shift, rounded to the nearest, ties up; the shift is 1 or more."""
    result: Array = number + (np.int64(1) << (shift - 1)) >> shift
    return result


@dataclass(frozen=True)
class IntegerSoftmax(AlongAxis):
    """Softmax along an axis, by integers alone: shares in steps of 2**-bits,

    power_i = table[greatest - x_i] where keep is 1, else 0
    total = sum of power_i; s = bits of total + 15; r = floor((2**s - 1) / total)
    share_i = min((power_i * r + 2**(s - bits - 1)) >> (s - bits), high)

    Inputs: x, integers; table, integers 0..65535 [distances] that never rise, the first 2**15 or more, whose last one
    holds for all greater distances; keep, 0 or 1, broadcasts to x: elements that take part, at least one of each row.

    Parameters
    ----------
    axis: axis of the image, without the batch, along which shares add up to about 1.
    bits: fraction bits of a share, 1 to 15.
    high: greatest share, 1 to 2**bits. If no share comes near 1, a lower limit leaves more bits for finer steps.

    Range: totals are below 2**40, products below 2**32.
    """

    bits: int = 8
    high: int = 255
    name: ClassVar[str] = "integer_softmax"
    arity: ClassVar[int] = 3
    parameters: ClassVar[tuple[int, ...]] = (1, 2)

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The shape of x, integers 0..high."""
        x, table, keep = operands
        int_operand(x, "x")
        shape = self.check(operands).shape
        if not 1 <= self.bits <= MOST_FRACTION_BITS:
            raise IrError(f"{self.name} needs 1 to {MOST_FRACTION_BITS} bits, got {self.bits}")
        if not 1 <= self.high <= 1 << self.bits:
            raise IrError(f"{self.name} of {self.bits} bits needs high within 1..{1 << self.bits}, got {self.high}")
        powers, kept = table.constant, keep.constant
        if powers.ndim != 1 or powers.dtype.kind != "i" or (np.diff(powers) > 0).any():
            raise IrError(f"{self.name} needs a table of integers [distances] that never rise, got {table.type}")
        if not (_GREATEST_POWER >= powers[0] >= 1 << (RECIPROCAL_BITS - 1) and powers[-1] >= 0):
            raise IrError(
                f"{self.name} needs powers within 0..{_GREATEST_POWER}, the first from {1 << (RECIPROCAL_BITS - 1)} "
                f"on, got {powers[0]}..{powers[-1]}"
            )
        if shape[self.axis] * _GREATEST_POWER >= _TOTALS_BELOW:
            raise IrError(f"{self.name} takes at most 2**24 elements along its axis, got {shape[self.axis]}")
        if not broadcasts_to(kept.shape, shape) or not np.isin(kept, (0, 1)).all():
            raise IrError(f"{self.name} needs keep of 0 and 1 that broadcasts to {list(shape)}, got {keep.type}")
        if not np.broadcast_to(kept, shape).any(axis=self.axis).all():
            raise IrError(f"{self.name} has rows of which keep leaves no element; let each row keep one or more")
        return TensorType(shape, IntType(0, self.high))

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64 of the shape of x."""
        return self.shares(self.powers(*inputs))

    def powers(self, x: Array, table: Array, keep: Array) -> Array:
        """Return the power of each element, int64 of the shape of x."""
        kept = np.broadcast_to(keep, x.shape).astype(bool)
        # The greatest of the kept ones: the power of a distance below 0 is in no table.
        greatest = np.where(kept, x, np.iinfo(np.int64).min).max(axis=self.axis + 1, keepdims=True)
        result: Array = np.where(kept, table[np.clip(greatest - x, 0, len(table) - 1)], 0)
        return result

    def shares(self, power: Array) -> Array:
        """Return the share of each power, int64 of the same shape."""
        factor, shift = reciprocal(power.sum(axis=self.axis + 1, keepdims=True))
        result: Array = np.minimum(rounded_shift(power * factor, shift - self.bits), self.high)
        return result


@dataclass(frozen=True)
class IntegerNorm(AlongAxis):
    """Normalization along an axis, by integers alone: (x - mean) / standard deviation in steps of 2**-fraction_bits,

    total = sum of x_i if centered, else 0, over the n elements of the axis
    r / 2**s is about 1 / sqrt(max(n * sum of x_i**2 - total**2 + epsilon, 1))
    y_i = ((n * x_i - total) * r + 2**(s - fraction_bits - 1)) >> (s - fraction_bits)

    r of 16 bits and s are the result of `reciprocal_root`. Input: x, integers. Centered this is layer normalization,
    else RMS normalization, each without its weight and bias.

    Parameters
    ----------
    axis: axis of the image, without the batch.
    epsilon: number that is added to the variance times n**2; 0 or more.
    fraction_bits: fraction bits of the result, 1 to 15.
    centered: whether to subtract the mean.

    Range: n times the greatest magnitude of x is below 2**31, so that sums of squares stay within 63 bits.
    """

    epsilon: int
    fraction_bits: int = 10
    centered: bool = True
    name: ClassVar[str] = "integer_norm"

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The shape of x, integers within plus and minus sqrt(n - 1), or sqrt(n) if not centered, in steps."""
        codes = int_operand(operands[0], "x")
        shape = self.check(operands).shape
        if not 1 <= self.fraction_bits <= MOST_FRACTION_BITS or not 0 <= self.epsilon < 1 << 62:
            raise IrError(
                f"{self.name} needs 1 to {MOST_FRACTION_BITS} fraction bits and an epsilon of 0..2**62 - 1, got "
                f"{self.fraction_bits} and {self.epsilon}"
            )
        count = shape[self.axis]
        if count * max(abs(codes.low), abs(codes.high)) >= _NORMS_BELOW:
            raise IrError(f"{self.name} takes n numbers up to 2**31 / n, got {operands[0].type}")
        return TensorType(shape, self.results(count))

    def results(self, count: int) -> IntType:
        """Return the type of the results of so many elements along the axis."""
        # |n * x_i - total| <= sqrt(n - 1) * sqrt(n * sum of squares - total**2), and r may be too large by 2**-16.
        exact = math.isqrt((count - int(self.centered)) << (2 * self.fraction_bits)) + 1
        reach = exact + (exact >> RECIPROCAL_BITS) + 1
        return IntType(-reach, reach)

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64 of the shape of x."""
        x, axis = inputs[0], self.axis + 1
        count = x.shape[axis]
        total = x.sum(axis=axis, keepdims=True) * int(self.centered)
        # n**2 times the variance: all is scaled by n, so that the mean need not be divided, and is exact.
        spread = count * (x * x).sum(axis=axis, keepdims=True) - total * total
        factor, shift = reciprocal_root(np.maximum(spread + self.epsilon, 1))
        return rounded_shift((count * x - total) * factor, shift - self.fraction_bits)
