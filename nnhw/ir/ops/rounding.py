"""Roundings of floats to whole numbers, by their usual names. All of them are monotone, and keep whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .base import Array

HALF_EVEN = "half_even"


def _half_away(number: Array) -> Array:
    """Round to the nearest, ties away from zero."""
    # The distance to the whole number is exact. A sum with 0.5 is not: for the float64 just below 0.5 it rounds to 1.
    whole = np.trunc(number)
    result: Array = whole + np.where(np.abs(number - whole) >= 0.5, np.copysign(1.0, number), 0.0)
    return result


def _half_up(number: Array) -> Array:
    """Round to the nearest, ties towards plus infinity."""
    whole = np.floor(number)
    result: Array = whole + (number - whole >= 0.5)
    return result


ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    HALF_EVEN: np.rint,
    "half_away": _half_away,
    "half_up": _half_up,
    "floor": np.floor,
    "ceil": np.ceil,
}
