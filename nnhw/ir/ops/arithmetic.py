"""Elementwise arithmetic beyond sums and products, in float64; minimum and maximum of integers, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import IntType, TensorType

from . import special
from .activation import POWER_END, Rising, Valley, last_bits
from .base import RISING, Array, Operand
from .elementwise import Binary


@dataclass(frozen=True)
class Absolute(Valley):
    """|x|."""

    name: ClassVar[str] = "abs"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact."""
        result: Array = np.abs(inputs[0])
        return result

    def turns(self) -> tuple[float, ...]:
        """0."""
        return (0.0,)


@dataclass(frozen=True)
class Square(Valley):
    """x * x."""

    name: ClassVar[str] = "square"

    def evaluate(self, *inputs: Array) -> Array:
        """One rounding."""
        result: Array = inputs[0] * inputs[0]
        return result

    def turns(self) -> tuple[float, ...]:
        """0."""
        return (0.0,)


@dataclass(frozen=True)
class Exp(Rising):
    """e**x."""

    name: ClassVar[str] = "exp"
    from_library: ClassVar[bool] = True

    def evaluate(self, *inputs: Array) -> Array:
        """See `special.exp`."""
        return special.exp(inputs[0])

    def waver(self, x: Array, result: Array) -> Array:
        """The last bits; 0 where the result is 0 or 1."""
        return last_bits(x, result, -POWER_END, np.inf)

    def limits(self) -> tuple[float, float]:
        """From 0 to infinity."""
        return 0.0, float("inf")


@dataclass(frozen=True)
class Sqrt(Rising):
    """The square root; NaN for x < 0."""

    name: ClassVar[str] = "sqrt"

    def evaluate(self, *inputs: Array) -> Array:
        """One rounding."""
        with np.errstate(invalid="ignore"):
            result: Array = np.sqrt(inputs[0])
        return result


@dataclass(frozen=True)
class Floor(Rising):
    """The greatest whole number that is not above x."""

    name: ClassVar[str] = "floor"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact."""
        result: Array = np.floor(inputs[0])
        return result


@dataclass(frozen=True)
class Ceil(Rising):
    """The least whole number that is not below x."""

    name: ClassVar[str] = "ceil"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact."""
        result: Array = np.ceil(inputs[0])
        return result


@dataclass(frozen=True)
class Round(Rising):
    """The nearest whole number, halves to the even one."""

    name: ClassVar[str] = "round"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact."""
        result: Array = np.rint(inputs[0])
        return result


@dataclass(frozen=True)
class Truncate(Rising):
    """The nearest whole number towards 0."""

    name: ClassVar[str] = "trunc"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact."""
        result: Array = np.trunc(inputs[0])
        return result


@dataclass(frozen=True)
class Extreme(Binary):
    """The lesser or the greater of two numbers: of float64, which broadcast, or of integers of one shape."""

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The broadcast shape, float64; of integers their shape, and the range of the possible results."""
        kinds = [operand.type.dtype for operand in operands]
        types = [kind for kind in kinds if isinstance(kind, IntType)]
        if len(types) < len(operands):
            return super().infer(operands)
        shapes = [operand.type.shape for operand in operands]
        if shapes[0] != shapes[1] or any(operand.value is not None for operand in operands):
            raise IrError(
                f"{self.name} of integers needs two values of one shape, got {operands[0].type} and {operands[1].type}"
            )
        if all(kind.bipolar for kind in types):
            return operands[0].type
        # Both extremes rise in both operands, so the ends of the result are those of the ends.
        low, high = (int(self.evaluate(*(np.array([getattr(t, end)]) for t in types))[0]) for end in ("low", "high"))
        return TensorType(shapes[0], IntType(low, high))

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising in both."""
        return RISING


@dataclass(frozen=True)
class Minimum(Extreme):
    """The lesser of x and y, of floats or integers; NaN if one of them is."""

    name: ClassVar[str] = "minimum"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact."""
        left, right = self.aligned(inputs)
        result: Array = np.minimum(left, right)
        return result


@dataclass(frozen=True)
class Maximum(Extreme):
    """The greater of x and y, of floats or integers; NaN if one of them is."""

    name: ClassVar[str] = "maximum"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact."""
        left, right = self.aligned(inputs)
        result: Array = np.maximum(left, right)
        return result
