"""Conditions in float64: comparisons with the results 0 and 1, the sign, and the choice between two values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import FLOAT, TensorType

from .activation import Rising
from .base import FALLING, RISING, Array, Op, Operand, along_shape, float_operand
from .elementwise import Binary


@dataclass(frozen=True)
class Sign(Rising):
    """-1 for x < 0, 0 for x = 0, 1 for x > 0."""

    name: ClassVar[str] = "sign"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; NaN stays NaN, and -0 gives 0."""
        # The sum turns -0.0 into 0.0.
        result: Array = np.sign(inputs[0]) + 0.0
        return result


@dataclass(frozen=True)
class Greater(Binary):
    """1 where x > y, else 0."""

    name: ClassVar[str] = "greater"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; 0 if one of them is NaN."""
        left, right = self.aligned(inputs)
        result: Array = np.greater(left, right).astype(left.dtype)
        return result

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising in x, falling in y."""
        return RISING if position == 0 else FALLING


@dataclass(frozen=True)
class GreaterEqual(Binary):
    """1 where x >= y, else 0."""

    name: ClassVar[str] = "greater_equal"

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; 0 if one of them is NaN."""
        left, right = self.aligned(inputs)
        result: Array = np.greater_equal(left, right).astype(left.dtype)
        return result

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising in x, falling in y."""
        return RISING if position == 0 else FALLING


@dataclass(frozen=True)
class Where(Op):
    """x where the condition is not 0, else y.

    Inputs: condition, x, y, float64, which broadcast as those of a sum do; one or two of them may be constants.
    """

    name: ClassVar[str] = "where"
    arity: ClassVar[int] = 3

    def check_operands(self, operands: Sequence[Operand]) -> None:
        """Check that there are three operands, not all of them constants. Raises: IrError."""
        if len(operands) != self.arity or all(operand.value is not None for operand in operands):
            raise IrError(f"{self.name} takes three inputs, at most two of them constants")

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The broadcast shape, float64."""
        for operand, role in zip(operands, ("the condition", "x", "y"), strict=True):
            float_operand(operand, role)
        given = ", ".join(str(operand.type) for operand in operands)
        try:
            shape = tuple(np.broadcast_shapes(*(operand.type.shape for operand in operands)))
        except ValueError as error:
            raise IrError(f"shapes do not broadcast: {given}") from error
        if any(operand.value is None and operand.type.shape != shape for operand in operands):
            raise IrError(f"shapes do not fit without repeating a value: {given}")
        return TensorType(shape, FLOAT)

    def evaluate(self, *inputs: Array) -> Array:
        """Exact."""
        rank = max(array.ndim for array in inputs)
        condition, x, y = (along_shape(array, rank - 1) for array in inputs)
        result: Array = np.where(condition != 0, x, y)
        return result
