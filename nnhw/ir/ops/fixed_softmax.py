"""Softmax of codes in 32-bit fixed point, as at the end of TFLite's integer networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import FLOAT, TensorType

from .base import Array, Operand, int_operand
from .tail import AlongAxis

_ONE = (1 << 31) - 1
"""The greatest number below 1.0 with 31 fraction bits, which stands for 1.0."""
_QUARTER = 1 << 24
"""1 / 4 with 26 fraction bits."""
_EXP_AT_EIGHTH, _THIRD = 1895147668, 715827883
"""exp(-1 / 8) and 1 / 3 with 31 fraction bits."""
_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-1 / 4), exp(-1 / 2), exp(-1), .., exp(-16) with 31 fraction bits."""
_FIRST_GUESS, _SLOPE = 1515870810, -1010580540
"""48 / 17 and -32 / 17 with 29 fraction bits: Newton's start for a reciprocal."""


@dataclass(frozen=True)
class FixedSoftmax(AlongAxis):
    """Probabilities of codes in steps of 1 / 256, 0..255, as TFLite's reference kernel for int8 computes them.

    Input: x, integers. Result: float64, because only the host computes it; its numbers are whole.

    Parameters
    ----------
    multiplier, left: they scale a code's distance from the greatest code (0 or below) to 26 fraction bits: distance *
        2**left * multiplier / 2**31.
    least: codes with a distance below this get probability 0; at least -511.

    Source: tensorflow/lite/kernels/internal/reference/softmax.h; gemmlowp, fixedpoint/fixedpoint.h.
    """

    multiplier: int
    left: int
    least: int
    name: ClassVar[str] = "fixed_softmax"

    def __post_init__(self) -> None:
        if not (0 <= self.multiplier <= _ONE and 0 <= self.left <= 31 and self.least <= 0):
            raise IrError(
                f"fixed_softmax needs a multiplier of 0..2**31 - 1, left of 0..31 and least of 0 or below, got "
                f"{self.multiplier}, {self.left} and {self.least}"
            )

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """Shape of x, float64."""
        int_operand(operands[0], "x")
        return TensorType(self.check(operands).shape, FLOAT)

    def evaluate(self, *inputs: Array) -> Array:
        """Return whole numbers 0..255 in float64."""
        axis = self.axis + 1
        distance = inputs[0] - inputs[0].max(axis=axis, keepdims=True)
        # Far ones are computed with a distance of 0, as their shift to the left could overflow, and left out.
        far = distance < self.least
        powers = _exp(_product(np.where(far, 0, distance) << self.left, self.multiplier))
        total = np.where(far, 0, _divided(powers, 12)).sum(axis=axis, keepdims=True)
        # The sum has 19 fraction bits, so 1.0 is of 20 bits; frexp gives the sum's bit length: how many more it has.
        unit_bits = np.frexp(total.astype(np.float64))[1] - 20
        rest = (total << (12 - unit_bits)) - (1 << 31)
        shares = _divided(_product(_reciprocal(rest), powers), 23 + unit_bits)
        result: Array = np.where(far, 0, np.clip(shares, 0, 255)).astype(np.float64)
        return result


def _product(left: Array | int, right: Array | int) -> Array:
    """Return left * right / 2**31, rounded to the nearest, ties up."""
    result: Array = (np.asarray(left, np.int64) * right + (1 << 30)) >> 31
    return result


def _divided(number: Array, bits: Array | int) -> Array:
    """Return number / 2**bits, rounded to the nearest, ties away from zero."""
    half = (np.int64(1) << np.asarray(bits)) >> 1
    result: Array = np.sign(number) * ((np.abs(number) + half) >> bits)
    return result


def _doubled(number: Array, times: int) -> Array:
    """Return number * 2**times, clipped to 32 bits."""
    result: Array = np.clip(number << times, -(1 << 31), _ONE)
    return result


def _exp(x: Array) -> Array:
    """Return exp of numbers <= 0 with 26 fraction bits, as fractions of 31 bits."""
    # x = part - rest, with part in [-1/4, 0) and rest a multiple of 1/4: a bit of rest is a factor exp(-2**k).
    part = (x & (_QUARTER - 1)) - _QUARTER
    result = _exp_near(_doubled(part, 5))
    rest = part - x
    for place, factor in enumerate(_POWERS):
        result = np.where(rest & (_QUARTER << place), _product(result, factor), result)
    return np.where(x == 0, _ONE, result)


def _exp_near(x: Array) -> Array:
    """Return exp on [-1/4, 0) by its series around -1/8; 31 fraction bits in and out."""
    # 1/8 with 31 fraction bits: from here on x is the distance from -1/8.
    x = x + (1 << 28)
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    series = _divided(_product(_divided(fourth, 2) + cube, _THIRD) + square, 1)
    return _EXP_AT_EIGHTH + _product(_EXP_AT_EIGHTH, x + series)


def _reciprocal(x: Array) -> Array:
    """Return 1 / (1 + x) for fractions 0..1 of 31 bits, by three steps of Newton's method."""
    # Newton's method needs an argument of 1/2..1, so it gives the reciprocal of half of 1 + x, in 29 fraction bits.
    half = (x + _ONE + 1) >> 1
    guess = _FIRST_GUESS + _product(half, _SLOPE)
    for _ in range(3):
        error = (1 << 29) - _product(half, guess)
        guess = guess + _doubled(_product(guess, error), 2)
    return _doubled(guess, 1)
