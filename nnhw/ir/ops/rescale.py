"""Fixed-point requantization, as in the integer networks of TFLite and CMSIS-NN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import IntType, TensorType

from .base import Array, Op, Operand, int_operand

ROUNDINGS = ("single", "double")
"""Names of the roundings, which `Rescale` defines."""
FRACTION_BITS = 31
"""Fraction bits of a multiplier."""
MOST_LEFT, MOST_RIGHT = 30, 31
"""Greatest exponents: of a shift to the left, and to the right."""


@dataclass(frozen=True)
class Rescale(Op):
    """Codes of sums: clamp(round((x + bias) * 2**shift * multiplier / 2**31 * 2**exponent) + offset, low, high).

    Inputs: x, integers [channels, ..]; multiplier, exponent, bias, integer constants [channels]. Multipliers are
    0..2**31 - 1, exponents -31..30.

    Parameters
    ----------
    offset: zero point of the codes.
    low, high: range of the codes.
    rounding: 'single': round once, to the nearest, ties up. 'double': round (x + bias) * 2**(shift + left) *
        multiplier / 2**31 to the nearest, ties up; then this / 2**right to the nearest, ties away from zero. left is
        max(exponent, 0), right max(-exponent, 0).
    shift: fraction bits that the sum gets in front of the product, 0 or more: 20 in TFLite's additions.

    Range: the type rule refuses sums and constants whose product does not fit into 64 bits.
    Source: 'double' is gemmlowp's SaturatingRoundingDoublingHighMul and RoundingDivideByPOT (fixedpoint.h), as in
    TFLite's reference kernels and CMSIS-NN; nothing saturates, as no multiplier is negative. 'single' is both's
    single-rounding build.
    """

    offset: int
    low: int
    high: int
    rounding: str
    shift: int = 0
    name: ClassVar[str] = "rescale"
    arity: ClassVar[int] = 4
    parameters: ClassVar[tuple[int, ...]] = (1, 2, 3)
    optional: ClassVar[tuple[str, ...]] = ("shift",)

    def __post_init__(self) -> None:
        if self.rounding not in ROUNDINGS or self.low > self.high or not 0 <= self.shift <= MOST_LEFT:
            raise IrError(
                f"rescale needs rounding 'single' or 'double', low <= high and a shift of 0..{MOST_LEFT}, got "
                f"'{self.rounding}', {self.low}, {self.high} and {self.shift}"
            )

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """Shape of x, codes low..high."""
        x = operands[0]
        sums = int_operand(x, "x")
        for operand, role in zip(operands[1:], ("multiplier", "exponent", "bias"), strict=True):
            int_operand(operand, role)
            if operand.constant.shape != x.type.shape[:1] or not x.type.shape:
                raise IrError(f"rescale needs x [channels, ..] and {role} [channels], got {x.type} and {operand.type}")
        for multiplier, exponent, bias in zip(*(operand.constant.tolist() for operand in operands[1:]), strict=True):
            self._check_channel(sums, multiplier, exponent, bias)
        return TensorType(x.type.shape, IntType(self.low, self.high))

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64 codes of the shape of x."""
        x = inputs[0]
        spread = (-1,) + (1,) * (x.ndim - 2)
        multiplier, exponent, bias = (constant.astype(np.int64).reshape(spread) for constant in inputs[1:])
        product = ((x + bias) << self.shift) * multiplier
        if self.rounding == "single":
            rounded = _rounded(product, FRACTION_BITS - exponent)
        else:
            left, right = np.maximum(exponent, 0), np.maximum(-exponent, 0)
            once = _rounded(product << left, np.full_like(left, FRACTION_BITS))
            # Ties up of the magnitude are ties away from zero.
            rounded = np.sign(once) * _rounded(np.abs(once), right)
        return np.clip(rounded + self.offset, self.low, self.high)

    def _check_channel(self, sums: IntType, multiplier: int, exponent: int, bias: int) -> None:
        if not (0 <= multiplier < 1 << FRACTION_BITS and -MOST_RIGHT <= exponent <= MOST_LEFT):
            raise IrError(
                f"rescale needs multipliers of 0..2**31 - 1 and exponents of -31..30, got {multiplier} and {exponent}"
            )
        # 'single' shifts once, to the right by 31 - exponent: a positive exponent makes no number longer.
        left = self.shift + (0 if self.rounding == "single" else max(exponent, 0))
        half = FRACTION_BITS - 1 - (exponent if self.rounding == "single" else 0)
        most = (max(abs(sums.low + bias), abs(sums.high + bias)) * multiplier << left) + (1 << half)
        if most >= 1 << 63:
            raise IrError(
                f"rescale must stay within 64 bits, got sums of {sums}, bias {bias}, multiplier {multiplier} and "
                f"exponent {exponent}"
            )


def _rounded(number: Array, shift: Array) -> Array:
    """Return number / 2**shift, rounded to the nearest, ties up."""
    # 0 for a shift of 0, for which 1 << (shift - 1) would be undefined.
    half = (np.int64(1) << shift) >> 1
    result: Array = (number + half) >> shift
    return result
