"""TFLite's fixed-point functions of one code in NumPy, on whole arrays: LOGISTIC, TANH and HARD_SWISH.

The layers of the traced module are tables of such functions, made one Python integer at a time by `fixed_point`. This
shares no code with them, so that each checks the other.

Source: tensorflow/lite/kernels/internal/reference; gemmlowp, fixedpoint/fixedpoint.h. Numbers are int32 in int64.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray

_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
_POWERS = {-2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242}
"""exp(-2**exponent) with 31 fraction bits, by exponent."""


def doubled_high(a: Array | int, b: Array | int, bits: int = 32) -> Array:
    """Return a * b / 2**(bits - 1), to the nearest, as SaturatingRoundingDoublingHighMul does it in `bits` bits."""
    product = np.asarray(a, np.int64) * b
    half = 1 << (bits - 2)
    return np.minimum(quotient(product + np.where(product >= 0, half, 1 - half), bits - 1), (1 << (bits - 1)) - 1)


def quotient(x: Array, bits: int) -> Array:
    """Return x / 2**bits, cut towards 0 as in C."""
    return np.where(x >= 0, x >> bits, -(-x >> bits))


def divided(x: Array, bits: int) -> Array:
    """Return x / 2**bits to the nearest, ties away from zero, as RoundingDivideByPOT does it."""
    mask = (1 << bits) - 1
    result: Array = (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0))
    return result


def _lifted(x: Array, bits: int) -> Array:
    return np.clip(x << bits, _LEAST, _MOST)


def _exp(x: Array, whole: int) -> Array:
    """Return exp(x) with 31 fraction bits, of x <= 0 with `whole` bits in front of the point."""
    quarter = 1 << (29 - whole)
    within = (x & (quarter - 1)) - quarter
    # Four terms of the series around -1/8.
    y = _lifted(within, whole) + (1 << 28)
    y2 = doubled_high(y, y)
    terms = doubled_high(divided(doubled_high(y2, y2), 2) + doubled_high(y2, y), 715827883) + y2
    result = 1895147668 + doubled_high(1895147668, y + divided(terms, 1))
    rest = within - x
    for exponent, power in _POWERS.items():
        if exponent < whole:
            has = (rest >> (31 - whole + exponent)) & 1
            result = np.where(has == 1, doubled_high(result, power), result)
    return np.where(x == 0, _MOST, result)


def _two_by_one_plus(x: Array) -> Array:
    """Return 2 / (1 + x) with 29 fraction bits, of x in 0..1 with 31, by Newton's division."""
    divisor = (x + _MOST + 1) // 2
    result = 1515870810 + doubled_high(divisor, -1010580540)
    for _ in range(3):
        result = result + _lifted(doubled_high(result, (1 << 29) - doubled_high(divisor, result)), 2)
    return result


def logistic(x: Array) -> Array:
    """Return the logistic function with 31 fraction bits, of x with 27."""
    above = _lifted(_two_by_one_plus(_exp(-np.abs(x), 4)), 1)
    return np.where(x == 0, 1 << 30, np.where(x > 0, above, _MOST - above))


def tanh(x: Array) -> Array:
    """Return the hyperbolic tangent with 31 fraction bits, of x with 27."""
    # The bits of x are those of 2 * x with one more in front of the point.
    size = _lifted(_two_by_one_plus(_exp(-np.abs(x), 5)) - (1 << 29), 2)
    return np.sign(x) * size


def hard_swish(x: Array, out: tuple[int, int], relu: tuple[int, int]) -> Array:
    """Return the hard swish of distances, of 16 bits.

    Parameters
    ----------
    out, relu: (multiplier, exponent), multipliers of 31 bits, from the input's steps / 128 to those of the result and
        to 3 / 2**15.
    """
    fine = x << 7
    short = [min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1) for multiplier, _ in (out, relu)]
    gate = np.clip(fine << (relu[1] - 1), -(1 << 15), (1 << 15) - 1) if relu[1] > 0 else fine
    gate = doubled_high(gate, short[1], 16)
    if relu[1] > 0:
        gate = np.clip(gate << 1, -(1 << 15), (1 << 15) - 1)
    gate = divided(gate, max(-relu[1], 0))
    product = ((gate + (1 << 15)) >> 1) * doubled_high(fine, short[0], 16)
    return divided(quotient(product, 15), -out[1])
