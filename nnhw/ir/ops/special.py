"""Transcendental functions in float64, made of additions, products, quotients and powers of two alone.

A library's exp may differ in the last bit from one machine, or one memory layout, to another. Each step here is one
IEEE operation, so that a model has the same thresholds everywhere. Errors are at most 3 units in the last place. Where
one formula takes over from another, a rising function may fall by some last bits (`Op.waver` bounds them).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from .base import Array

_LOG2_E = 1.4426950408889634
# ln(2) in two parts. The high part has 33 bits, so that its product with k, which is below 2**11, is exact.
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
# Below and above these, e**x is 0 and infinity.
_EXP_LOWEST, _EXP_HIGHEST = -746.0, 710.0
# The remainder at ln(2) / 2 is below 2**-57.
_EXP_TERMS = [float(Fraction(1, math.factorial(k))) for k in range(14)]
# Below this |x| the series takes over from exp(x) - 1, which cancels more bits the closer x is to 0.
_EXPM1_REACH = 0.5
_EXPM1_TERMS = [float(Fraction(1, math.factorial(k))) for k in range(1, 18)]
# The remainder at 1 / 3 is below 2**-57.
_ATANH_TERMS = [float(Fraction(1, 2 * k + 1)) for k in range(18)]
# Below this |x|, 1 - 2 p / (1 + p) would cancel bits.
_TANH_REACH = 2.0
# Where the series, which needs more terms for larger x, gives way to the fraction, which needs more levels for smaller
# x.
_ERF_REACH = 2.0
_ERF_TERMS = 48
_ERFC_LEVELS = 48
# From here on erfc is below half a unit in the last place of erf.
_ERFC_END = 6.0
_SQRT_PI = 1.7724538509055159


def exp(x: Array) -> Array:
    """Return e**x: 2**k times the Taylor series of e**r with 14 terms, for x = k * ln(2) + r and |r| <= ln(2) / 2."""
    # NaN as an exponent of two would be an undefined integer; it is put back at the end.
    bounded = np.clip(np.nan_to_num(x, nan=0.0), _EXP_LOWEST, _EXP_HIGHEST)
    k = np.rint(bounded * _LOG2_E)
    r = (bounded - k * _LN2_HIGH) - k * _LN2_LOW
    with np.errstate(over="ignore", under="ignore"):
        result: Array = np.ldexp(_polynomial(_EXP_TERMS, r), k.astype(np.int64))
    return np.where(np.isnan(x), x, result)


def expm1(x: Array) -> Array:
    """Return e**x - 1: the Taylor series with 17 terms for |x| < 0.5, else `exp` minus 1."""
    return _expm1_of(x, exp(x))


def _expm1_of(x: Array, power: Array) -> Array:
    """Return e**x - 1, given power = e**x."""
    # Near 0, e**x - 1 would cancel most bits of e**x: the series has none of that.
    near = np.abs(x) < _EXPM1_REACH
    small = np.where(near, x, 0.0)
    return np.where(near, small * _polynomial(_EXPM1_TERMS, small), power - 1.0)


def log1p_unit(x: Array) -> Array:
    """Return log(1 + x) for x from 0 to 1: 2 atanh(s) with s = x / (2 + x), by 18 terms of its series."""
    s = x / (2.0 + x)
    result: Array = 2.0 * (s * _polynomial(_ATANH_TERMS, s * s))
    return result


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e**-x)."""
    result: Array = 1.0 / (1.0 + exp(-x))
    return result


def tanh(x: Array) -> Array:
    """Return -m / (2 + m) with m = e**(-2 |x|) - 1, from |x| = 2 on 1 - 2 p / (1 + p) with p = m + 1; the sign of x."""
    size = np.abs(x)
    power = exp(-2.0 * size)
    m = _expm1_of(-2.0 * size, power)
    result: Array = np.copysign(np.where(size < _TANH_REACH, -m / (2.0 + m), 1.0 - 2.0 * power / (1.0 + power)), x)
    return result


def softplus(x: Array) -> Array:
    """Return log(1 + e**x) = max(x, 0) + log(1 + e**-|x|)."""
    # In this form nothing overflows, and the argument of the logarithm's series stays within 0..1.
    result: Array = np.maximum(x, 0.0) + log1p_unit(exp(-np.abs(x)))
    return result


def erf(x: Array) -> Array:
    """Return the error function: for |x| < 2 by a series with positive terms, else 1 - erfc by its continued fraction.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.6 and 7.1.14.
    """
    size = np.abs(x)
    positive = np.where(size < _ERF_REACH, _erf_series(np.minimum(size, _ERF_REACH)), 1.0 - _erfc_fraction(size))
    return np.copysign(positive, x)


def _erf_series(x: Array) -> Array:
    """Return 2 / sqrt(pi) * e**(-x**2) * x * (1 + 2 x**2 / 3 * (1 + 2 x**2 / 5 * (1 + ..)))."""
    square = 2.0 * (x * x)
    total = np.ones_like(x)
    # All terms are positive, so nothing cancels, as it would in the alternating series of erf.
    for odd in range(2 * _ERF_TERMS + 1, 1, -2):
        total = 1.0 + square / odd * total
    result: Array = exp(-(x * x)) * (x * total) * (2.0 / _SQRT_PI)
    return result


def _erfc_fraction(x: Array) -> Array:
    """Return e**(-x**2) / sqrt(pi) / (x + (1/2) / (x + (2/2) / (x + (3/2) / ..)))."""
    x = np.clip(x, _ERF_REACH, _ERFC_END)
    tail = x
    for level in range(_ERFC_LEVELS, 0, -1):
        tail = x + (level / 2) / tail
    result: Array = exp(-(x * x)) / _SQRT_PI / tail
    return result


def _polynomial(coefficients: list[float], x: Array) -> Array:
    """Return c0 + x * (c1 + x * (c2 + ..))."""
    total = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = coefficient + x * total
    return total
