"""Activations in float64, each by the formula that its class states; `special` has exp, tanh and erf."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import TensorType

from . import special
from .base import RISING, Array, Op, Operand, float_operand
from .elementwise import Unary

# As PyTorch has them, to the nearest float64.
_SQRT_HALF = 0.7071067811865476
_SQRT_2_OVER_PI = 0.7978845608028654
_GELU_CUBIC = 0.044715

# Where the derivative is 0, to the nearest float64.
_SILU_TURN = -1.2784645427610738
_MISH_TURN = -1.1924312145154954
_GELU_TURN = -0.7517915246935645
_GELU_TANH_TURN = -0.7524614220710163

# Relative bound on how far these formulas, and PyTorch's, are from the true function: up to 8 units in the last place.
_LAST_BITS = 2.0**-49
# Absolute bound where a power overflows, or underflows to 0.
_UNDERFLOW = 2.0**-1010
# From these x on, here and in PyTorch, the result is exactly the limit of the function.
POWER_END = 746.0  # e**-x is 0, e**x infinite
_SIGMOID_END = 40.0  # 1 + e**-x is 1, e**-x - 1 is -1
_TANH_END = 24.0
_GELU_END, _GELU_TANH_END = 8.5, 7.3  # 1 + erf, or 1 + tanh, is 0 or 2
_GELU_TAIL, _TAIL_BITS = -3.0, 2.0**-53  # below, erf and tanh are within a unit in the last place
# How many float64 the rounded quotient threshold / beta may lie below the x that is looked for.
_NEIGHBOURS = 4


@dataclass(frozen=True)
class Rising(Unary):
    """An op of one float64 input that never falls."""

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising."""
        return RISING


@dataclass(frozen=True)
class Valley(Unary):
    """An op of one float64 input that falls to one turn and rises behind it."""

    def first_direction(self) -> int:
        """Falling."""
        return -1


def last_bits(x: Array, result: Array, low: float, high: float) -> Array:
    """Return the waver of a function with a small relative error; it is 0 for x = 0, x <= low and x >= high."""
    # At 0 and at both ends all formulas give the exact result, whatever the machine.
    exact = (x == 0) | (x <= low) | (x >= high)
    bound: Array = np.where(exact, 0.0, _LAST_BITS * np.abs(result) + _UNDERFLOW)
    return bound


@dataclass(frozen=True)
class LeakyRelu(Unary):
    """x for x >= 0, else x * slope."""

    slope: float
    name: ClassVar[str] = "leaky_relu"

    def evaluate(self, *inputs: Array) -> Array:
        """One rounding; NaN stays NaN."""
        # Not max(x, x * slope), which is another function for slopes above 1.
        x = inputs[0]
        return np.where(x >= 0, x, x * self.slope)

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising, unless the slope is negative."""
        return RISING if self.slope >= 0 else None

    def turns(self) -> tuple[float, ...]:
        """0 if the slope is negative."""
        return (0.0,) if self.slope < 0 else ()

    def first_direction(self) -> int:
        """Falling if the slope is negative."""
        return -1 if self.slope < 0 else 1


@dataclass(frozen=True)
class PRelu(Op):
    """x for x >= 0, else x * slope. Inputs: x; slope, float64 constant of no axes or [channels]."""

    name: ClassVar[str] = "prelu"
    arity: ClassVar[int] = 2
    parameters: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The type of x."""
        x, slope = operands
        float_operand(x, "x")
        float_operand(slope, "slope")
        if slope.constant.shape not in ((), x.type.shape[:1]):
            raise IrError(f"prelu needs one slope, or one per channel of {x.type}, got {slope.type}")
        return x.type

    def evaluate(self, *inputs: Array) -> Array:
        """One rounding; NaN stays NaN."""
        x, slope = inputs
        spread = slope.reshape((-1,) + (1,) * (x.ndim - 2)) if slope.ndim else slope
        return np.where(x >= 0, x, x * spread)

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising, unless a slope is negative."""
        return RISING if position == 0 and bool((operands[1].constant >= 0).all()) else None


@dataclass(frozen=True)
class Elu(Rising):
    """x * scale for x > 0, else (e**(x * input_scale) - 1) * (alpha * scale): ELU, SELU and CELU.

    Parameters
    ----------
    alpha: at least 0.
    scale, input_scale: positive.
    """

    alpha: float = 1.0
    scale: float = 1.0
    input_scale: float = 1.0
    name: ClassVar[str] = "elu"
    from_library: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (self.alpha >= 0 and self.scale > 0 and self.input_scale > 0):
            raise IrError(f"elu needs alpha >= 0 and scales > 0, got {self.alpha}, {self.scale} and {self.input_scale}")

    def evaluate(self, *inputs: Array) -> Array:
        """Each operation rounded once, `special.expm1` as stated there."""
        # Bounded by 0, as e**x of a large x would become infinite in the branch that is not taken.
        x = inputs[0]
        below = special.expm1(np.minimum(x, 0.0) * self.input_scale) * (self.alpha * self.scale)
        return np.where(x > 0, x * self.scale, below)

    def waver(self, x: Array, result: Array) -> Array:
        """The last bits of e**x - 1; 0 for x >= 0."""
        return last_bits(x, result, -_SIGMOID_END / self.input_scale, 0.0)

    def limits(self) -> tuple[float, float]:
        """From -alpha * scale to infinity."""
        return -(self.alpha * self.scale), float("inf")


@dataclass(frozen=True)
class HardSigmoid(Rising):
    """min(max(x + 3, 0), 6) / 6."""

    name: ClassVar[str] = "hardsigmoid"

    def evaluate(self, *inputs: Array) -> Array:
        """Two roundings."""
        result: Array = np.minimum(np.maximum(inputs[0] + 3.0, 0.0), 6.0) / 6.0
        return result


@dataclass(frozen=True)
class HardSwish(Valley):
    """x * min(max(x + 3, 0), 6) / 6."""

    name: ClassVar[str] = "hardswish"

    def evaluate(self, *inputs: Array) -> Array:
        """Three roundings, from left to right; 0 where x is minus infinity."""
        x = inputs[0]
        # Below -3 the second factor is 0; the first one is bounded, as minus infinity times 0 would be NaN.
        result: Array = np.maximum(x, -3.0) * np.minimum(np.maximum(x + 3.0, 0.0), 6.0) / 6.0
        return result

    def turns(self) -> tuple[float, ...]:
        """The least value is at -1.5."""
        return (-1.5,)

    def waver(self, x: Array, result: Array) -> Array:
        """Three roundings between -3 and 0, where one factor grows while the other one shrinks; else 0."""
        return np.where((x > -3) & (x < 0), _LAST_BITS * np.abs(result), 0.0)


@dataclass(frozen=True)
class Sigmoid(Rising):
    """1 / (1 + e**-x)."""

    name: ClassVar[str] = "sigmoid"
    from_library: ClassVar[bool] = True

    def evaluate(self, *inputs: Array) -> Array:
        """See `special.sigmoid`."""
        return special.sigmoid(inputs[0])

    def waver(self, x: Array, result: Array) -> Array:
        """The last bits; 0 where the result is 0, 0.5 or 1."""
        return last_bits(x, result, -POWER_END, _SIGMOID_END)

    def limits(self) -> tuple[float, float]:
        """From 0 to 1."""
        return 0.0, 1.0


@dataclass(frozen=True)
class Tanh(Rising):
    """The hyperbolic tangent."""

    name: ClassVar[str] = "tanh"
    from_library: ClassVar[bool] = True

    def evaluate(self, *inputs: Array) -> Array:
        """See `special.tanh`."""
        return special.tanh(inputs[0])

    def waver(self, x: Array, result: Array) -> Array:
        """The last bits; 0 where the result is -1, 0 or 1."""
        return last_bits(x, result, -_TANH_END, _TANH_END)

    def limits(self) -> tuple[float, float]:
        """From -1 to 1."""
        return -1.0, 1.0


@dataclass(frozen=True)
class Silu(Valley):
    """x / (1 + e**-x), also known as swish."""

    name: ClassVar[str] = "silu"
    from_library: ClassVar[bool] = True

    def evaluate(self, *inputs: Array) -> Array:
        """Each operation rounded once, `special.exp` as stated there."""
        result: Array = inputs[0] / (1.0 + special.exp(-inputs[0]))
        return result

    def turns(self) -> tuple[float, ...]:
        """The derivative's only zero: x = -(1 + e**-x) / e**-x."""
        return (_SILU_TURN,)

    def waver(self, x: Array, result: Array) -> Array:
        """The last bits; 0 where the result is 0 or x."""
        return last_bits(x, result, -POWER_END, _SIGMOID_END)


@dataclass(frozen=True)
class Mish(Valley):
    """x * tanh(log(1 + e**x))."""

    name: ClassVar[str] = "mish"
    from_library: ClassVar[bool] = True

    def evaluate(self, *inputs: Array) -> Array:
        """Each operation rounded once, `special.softplus` and `special.tanh` as stated there."""
        result: Array = inputs[0] * special.tanh(special.softplus(inputs[0]))
        return result

    def turns(self) -> tuple[float, ...]:
        """The derivative's only zero."""
        return (_MISH_TURN,)

    def waver(self, x: Array, result: Array) -> Array:
        """The last bits; 0 where the result is 0 or x."""
        return last_bits(x, result, -POWER_END, _SIGMOID_END)


@dataclass(frozen=True)
class Gelu(Valley):
    """x times the normal distribution's probability below x.

        erf form:   (x * 0.5) * (1 + erf(x * sqrt(1/2)))
        tanh form:  (x * 0.5) * (1 + tanh(u)),  u = sqrt(2 / pi) * (x + 0.044715 * x**3)

    These are PyTorch's own formulas: erf and tanh are -1 far below 0, and the result is -0.0 there.

    Parameters
    ----------
    tanh_form: whether to use the tanh form, an approximation, instead of the erf form.
    """

    tanh_form: bool = False
    name: ClassVar[str] = "gelu"
    from_library: ClassVar[bool] = True

    def evaluate(self, *inputs: Array) -> Array:
        """Each operation rounded once, `special.erf` and `special.tanh` as stated there."""
        x = inputs[0]
        if self.tanh_form:
            share = special.tanh(_SQRT_2_OVER_PI * (x + _GELU_CUBIC * (x * x * x)))
        else:
            share = special.erf(x * _SQRT_HALF)
        result: Array = (x * 0.5) * (1.0 + share)
        return result

    def turns(self) -> tuple[float, ...]:
        """The derivative's only zero."""
        return (_GELU_TANH_TURN,) if self.tanh_form else (_GELU_TURN,)

    def waver(self, x: Array, result: Array) -> Array:
        """The last bits of 1 + erf, times x; 0 where 1 + erf is 0 or 2."""
        # 1 + erf is off by last bits of 1, however small it is; far below 0 only the addition's own rounding is left.
        size, end = np.abs(x), _GELU_TANH_END if self.tanh_form else _GELU_END
        bits = np.where(x < _GELU_TAIL, _TAIL_BITS, _LAST_BITS)
        return np.where(size >= end, 0.0, bits * size)


@dataclass(frozen=True)
class Softplus(Unary):
    """x where x * beta > threshold, else log(1 + e**(x * beta)) / beta.

    It falls by log(1 + e**-threshold) / beta where x * beta passes the threshold: there are two turns at one place.

    Parameters
    ----------
    beta: positive.
    """

    beta: float = 1.0
    threshold: float = 20.0
    name: ClassVar[str] = "softplus"
    from_library: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise IrError(f"softplus needs beta > 0, got {self.beta}")

    def evaluate(self, *inputs: Array) -> Array:
        """Each operation rounded once, `special.softplus` as stated there."""
        x = inputs[0]
        scaled = x * self.beta
        return np.where(scaled > self.threshold, x, special.softplus(scaled) / self.beta)

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising only without a threshold."""
        return RISING if self.threshold == float("inf") else None

    def turns(self) -> tuple[float, ...]:
        """The end of the curve, twice: the result rises, falls from this float64 to the next one, and rises again."""
        return () if self.threshold == float("inf") else (self._curve_end(),) * 2

    def waver(self, x: Array, result: Array) -> Array:
        """The last bits; 0 behind the threshold, and where the result is 0 or x."""
        scaled = x * self.beta
        exact = (scaled > min(self.threshold, _SIGMOID_END)) | (scaled <= -POWER_END)
        return np.where(exact, 0.0, _LAST_BITS * np.abs(result) + _UNDERFLOW)

    def limits(self) -> tuple[float, float]:
        """From 0 to infinity."""
        return 0.0, float("inf")

    def _curve_end(self) -> float:
        """Return the greatest x whose product with beta is not above the threshold."""
        # The quotient and the product are both rounded, so the quotient may miss that x by a few float64.
        place = self.threshold / self.beta
        while place * self.beta > self.threshold:
            place = math.nextafter(place, -math.inf)
        for _ in range(_NEIGHBOURS):
            behind = math.nextafter(place, math.inf)
            place = behind if behind * self.beta <= self.threshold else place
        return place
