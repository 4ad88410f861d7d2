"""Elementwise float64 arithmetic; each op is one IEEE operation, or a stated sequence of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import FLOAT, TensorType

from .base import FALLING, RISING, Array, Op, Operand, along_shape, float_operand


@dataclass(frozen=True)
class Unary(Op):
    """An op of one float64 input whose result has the same shape."""

    arity: ClassVar[int] = 1

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The type of x."""
        float_operand(operands[0], "x")
        return operands[0].type


@dataclass(frozen=True)
class Negate(Unary):
    """-x."""

    name: ClassVar[str] = "neg"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact."""
        result: Array = -inputs[0]
        return result

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Falling."""
        return FALLING


@dataclass(frozen=True)
class Relu(Unary):
    """max(x, 0)."""

    name: ClassVar[str] = "relu"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; NaN stays NaN."""
        result: Array = np.maximum(inputs[0], 0.0)
        return result

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising."""
        return RISING


@dataclass(frozen=True)
class Clamp(Unary):
    """min(max(x, low), high): hardtanh, ReLU6, clip."""

    low: float
    high: float
    name: ClassVar[str] = "clamp"

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise IrError(f"clamp needs low <= high, got {self.low} and {self.high}")

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; NaN stays NaN."""
        result: Array = np.minimum(np.maximum(inputs[0], self.low), self.high)
        return result

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising."""
        return RISING


@dataclass(frozen=True)
class Binary(Op):
    """An op of two float64 inputs that broadcast against each other; a constant lacks the batch axis."""

    arity: ClassVar[int] = 2

    def check_operands(self, operands: Sequence[Operand]) -> None:
        """Check that there are two operands, at most one of them a constant. Raises: IrError."""
        if len(operands) != self.arity or all(operand.value is not None for operand in operands):
            raise IrError(f"{self.name} takes two inputs, at most one of them a constant")

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The broadcast shape, float64."""
        left, right = operands
        float_operand(left, "the left operand")
        float_operand(right, "the right operand")
        try:
            shape = np.broadcast_shapes(left.type.shape, right.type.shape)
        except ValueError as error:
            raise IrError(f"shapes do not broadcast: {left.type} and {right.type}") from error
        values = [operand.type.shape for operand in operands if operand.value is None]
        # Only constants are repeated: an engine that adds two streams takes an element of each at a time.
        if any(value != shape for value in values):
            raise IrError(f"shapes do not fit without repeating a value: {left.type} and {right.type}")
        return TensorType(tuple(shape), FLOAT)

    def aligned(self, inputs: Sequence[Array]) -> tuple[Array, Array]:
        """Return both inputs with the same number of axes: a constant gets axes of size 1 in front."""
        left, right = inputs
        rank = max(left.ndim, right.ndim)
        return along_shape(left, rank - 1), along_shape(right, rank - 1)


@dataclass(frozen=True)
class Add(Binary):
    """x + y."""

    name: ClassVar[str] = "add"

    def evaluate(self, *inputs: Array) -> Array:
        """One rounding."""
        left, right = self.aligned(inputs)
        result: Array = np.add(left, right)
        return result

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising in both."""
        return RISING


@dataclass(frozen=True)
class Subtract(Binary):
    """x - y."""

    name: ClassVar[str] = "sub"

    def evaluate(self, *inputs: Array) -> Array:
        """One rounding."""
        left, right = self.aligned(inputs)
        result: Array = np.subtract(left, right)
        return result

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising in x, falling in y."""
        return RISING if position == 0 else FALLING


@dataclass(frozen=True)
class Multiply(Binary):
    """x * y."""

    name: ClassVar[str] = "mul"

    def evaluate(self, *inputs: Array) -> Array:
        """One rounding."""
        left, right = self.aligned(inputs)
        result: Array = np.multiply(left, right)
        return result

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """The sign of the other factor."""
        sign: Array = np.sign(operands[1 - position].constant)
        return sign


@dataclass(frozen=True)
class Divide(Binary):
    """x / y."""

    name: ClassVar[str] = "div"

    def evaluate(self, *inputs: Array) -> Array:
        """One rounding; infinity or NaN for y = 0."""
        left, right = self.aligned(inputs)
        with np.errstate(divide="ignore", invalid="ignore"):
            result: Array = np.divide(left, right)
        return result

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """The sign of y, in x. As a function of y it is not monotone: it jumps at 0."""
        return np.sign(operands[1].constant) if position == 0 else None


@dataclass(frozen=True)
class BatchNorm(Op):
    """Batch normalization with fixed statistics, per channel (axis 1 at run time).

    In this order, each line rounded to float64:

        inverse = 1 / sqrt(variance + eps)
        alpha   = inverse * weight
        shift   = bias - mean * alpha
        y       = x * alpha + shift

    Inputs: x; weight, bias, mean, variance: float64 constants [channels].
    """

    eps: float
    name: ClassVar[str] = "batch_norm"
    arity: ClassVar[int] = 5
    parameters: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The type of x."""
        x, *parameters = operands
        float_operand(x, "x")
        for role, parameter in zip(("weight", "bias", "mean", "variance"), parameters, strict=True):
            float_operand(parameter, role)
            if not x.type.shape or parameter.constant.shape != x.type.shape[:1]:
                raise IrError(f"{role} needs one number per channel of {x.type}, got {parameter.type}")
        return x.type

    def evaluate(self, *inputs: Array) -> Array:
        """See the class: no fused multiply-add, no other order."""
        x, weight, bias, mean, variance = inputs
        alpha, shift = self.affine(weight, bias, mean, variance)
        channels = (-1,) + (1,) * (x.ndim - 2)
        result: Array = x * alpha.reshape(channels) + shift.reshape(channels)
        return result

    def affine(self, weight: Array, bias: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return alpha and shift, float64 [channels]."""
        # Infinity and NaN of odd parameters are reported where a region is evaluated, with channel and remedy.
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = 1.0 / np.sqrt(variance + self.eps)
            alpha = inverse * weight
            return alpha, bias - mean * alpha

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """The sign of the weight."""
        x, *parameters = operands
        alpha, _ = self.affine(*(parameter.constant for parameter in parameters))
        sign: Array = np.sign(alpha)
        return sign.reshape((-1,) + (1,) * (len(x.type.shape) - 1))
