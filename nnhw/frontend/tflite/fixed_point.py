"""The fixed-point functions of TFLite's kernels, one Python integer at a time: functions of one code become tables."""

from __future__ import annotations

import math
from collections.abc import Callable

from .model_file import FileTensor

_ONE = (1 << 31) - 1
_BARREL = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242))


def high_product(a: int, b: int) -> int:
    """Return a * b / 2**31, to the nearest, ties up; the one product that does not fit is cut."""
    return min((a * b + (1 << 30)) >> 31, _ONE)


def halved(x: int, times: int) -> int:
    """Return x / 2**times, to the nearest, ties away from zero."""
    half = (1 << times) >> 1
    return (x + half) >> times if x >= 0 else -((-x + half) >> times)


def multiplied(x: int, factor: tuple[int, int], rounding: str) -> int:
    """Return x by a quantized multiplier (multiplier, exponent)."""
    multiplier, exponent = factor
    if rounding == "single":
        total = 31 - exponent
        return (x * multiplier + (1 << (total - 1))) >> total
    return halved(high_product(x << max(exponent, 0), multiplier), max(-exponent, 0))


def saturated(x: int) -> int:
    """Return x within 32 bits."""
    return max(-(1 << 31), min(x, _ONE))


def exp_of_negative(x: int, integer_bits: int) -> int:
    """Return exp(x) for x <= 0 with so many integer bits, as a fraction of 31 bits."""
    if x == 0:
        return _ONE
    quarter = 1 << (31 - integer_bits - 2)
    part = (x & (quarter - 1)) - quarter
    y = saturated(part << integer_bits) + (1 << 28)
    square = high_product(y, y)
    series = halved(
        high_product(halved(high_product(square, square), 2) + high_product(square, y), 715827883) + square, 1
    )
    result = 1895147668 + high_product(1895147668, y + series)
    rest = part - x
    for exponent, factor in _BARREL:
        if integer_bits > exponent and rest & (1 << (31 - integer_bits + exponent)):
            result = high_product(result, factor)
    return result


def _newton(x: int) -> int:
    """Return 2 / (1 + x) for 0 <= x <= 1, with 29 fraction bits."""
    half = (x + _ONE + 1) // 2
    guess = 1515870810 + high_product(half, -1010580540)
    for _ in range(3):
        guess += saturated(high_product(guess, (1 << 29) - high_product(half, guess)) << 2)
    return guess


def inverse_of_one_plus(x: int) -> int:
    """Return 1 / (1 + x) for fractions 0..1."""
    return saturated(_newton(x) << 1)


def logistic(x: int) -> int:
    """Return the logistic function of a number with 4 integer bits."""
    if x == 0:
        return 1 << 30
    positive = inverse_of_one_plus(exp_of_negative(-abs(x), 4))
    return positive if x > 0 else _ONE - positive


def tanh(x: int) -> int:
    """Return the hyperbolic tangent of a number with 4 integer bits."""
    if x == 0:
        return 0
    power = exp_of_negative(-abs(x), 5)  # of the double: the same bits, one fraction bit less
    size = saturated((_newton(power) - (1 << 29)) << 2)
    return size if x > 0 else -size


def radius(integer_bits: int, left: int) -> int:
    """Return the greatest distance that a left shift keeps in 32 bits."""
    return math.floor(((1 << integer_bits) - 1) * (1 << (31 - integer_bits)) / (1 << left))


def table(tensor: FileTensor, function: Callable[[int], int]) -> list[int]:
    """Return the values of a function for all distances of a tensor's codes, from the least on."""
    return [function(distance) for distance in range(tensor.distances.low, tensor.distances.high + 1)]
