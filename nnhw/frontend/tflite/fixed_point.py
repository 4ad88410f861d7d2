"""Fixed-point functions of TFLite's kernels on single Python integers, from which tables of codes are made."""

from __future__ import annotations

import math
from collections.abc import Callable

from .model_file import FileTensor

_ONE = (1 << 31) - 1
"""The number 1 with 31 fraction bits, less the last one: the greatest int32."""
_BARREL = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242))


def high_product(a: int, b: int) -> int:
    """Return a * b / 2**31 of 32-bit integers, to the nearest, ties up; (-2**31)**2, which does not fit, is cut."""
    return min((a * b + (1 << 30)) >> 31, _ONE)


def halved(x: int, times: int) -> int:
    """Return x / 2**times to the nearest integer, ties away from zero."""
    half = (1 << times) >> 1
    return (x + half) >> times if x >= 0 else -((-x + half) >> times)


def multiplied(x: int, factor: tuple[int, int], rounding: str) -> int:
    """Return x * multiplier * 2**(exponent - 31) for factor (multiplier, exponent).

    Parameters
    ----------
    rounding: 'single' rounds once; 'double' rounds the product, then its shift right, as gemmlowp does.
    """
    multiplier, exponent = factor
    if rounding == "single":
        total = 31 - exponent
        return (x * multiplier + (1 << (total - 1))) >> total
    return halved(high_product(x << max(exponent, 0), multiplier), max(-exponent, 0))


def saturated(x: int) -> int:
    """Return x within 32 bits."""
    return max(-(1 << 31), min(x, _ONE))


def exp_of_negative(x: int, integer_bits: int) -> int:
    """Return exp(x) with 31 fraction bits, for x <= 0 in 32 bits of which `integer_bits` are in front of the point."""
    if x == 0:
        return _ONE
    quarter = 1 << (31 - integer_bits - 2)
    # exp(x) = exp(part) * exp(x - part): part in -1/4..0 by a series, the rest by a product of constants.
    part = (x & (quarter - 1)) - quarter
    y = saturated(part << integer_bits) + (1 << 28)
    square = high_product(y, y)
    series = halved(
        high_product(halved(high_product(square, square), 2) + high_product(square, y), 715827883) + square, 1
    )
    result = 1895147668 + high_product(1895147668, y + series)
    rest = part - x
    # One bit of the rest after the other, each with its own power of e (gemmlowp calls it a barrel shifter).
    for exponent, factor in _BARREL:
        if integer_bits > exponent and rest & (1 << (31 - integer_bits + exponent)):
            result = high_product(result, factor)
    return result


def _newton(x: int) -> int:
    """Return 2 / (1 + x) with 29 fraction bits, for x in 0..1 with 31 fraction bits, by three steps of Newton."""
    # 48 / 17 - 32 / 17 * half is the line nearest to 1 / half on 1/2..1; each step doubles the bits that are right.
    half = (x + _ONE + 1) // 2
    guess = 1515870810 + high_product(half, -1010580540)
    for _ in range(3):
        guess += saturated(high_product(guess, (1 << 29) - high_product(half, guess)) << 2)
    return guess


def inverse_of_one_plus(x: int) -> int:
    """Return 1 / (1 + x) for x in 0..1; both with 31 fraction bits."""
    return saturated(_newton(x) << 1)


def logistic(x: int) -> int:
    """Return the logistic function, with 31 fraction bits, of a 32-bit number with 4 integer bits."""
    if x == 0:
        return 1 << 30
    positive = inverse_of_one_plus(exp_of_negative(-abs(x), 4))
    return positive if x > 0 else _ONE - positive


def tanh(x: int) -> int:
    """Return the hyperbolic tangent, with 31 fraction bits, of a 32-bit number with 4 integer bits."""
    if x == 0:
        return 0
    power = exp_of_negative(-abs(x), 5)  # of the double: the same bits, one fraction bit less
    size = saturated((_newton(power) - (1 << 29)) << 2)
    return size if x > 0 else -size


def radius(integer_bits: int, left: int) -> int:
    """Return the greatest integer that `left` bits of shift keep within numbers of `integer_bits` integer bits."""
    return math.floor(((1 << integer_bits) - 1) * (1 << (31 - integer_bits)) / (1 << left))


def table(tensor: FileTensor, function: Callable[[int], int]) -> list[int]:
    """Return a function's value for each distance of a tensor's codes from the zero point, from the least on."""
    return [function(distance) for distance in range(tensor.distances.low, tensor.distances.high + 1)]
