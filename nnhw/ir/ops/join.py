"""Ops that join several values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import FloatType, IntType, TensorType

from .base import ANY, Array, Op, Operand, int_operand


@dataclass(frozen=True)
class WeightedSum(Op):
    """sum over k of factors[k] * x_k: integers of one shape, added element by element.

    Parameters
    ----------
    factors: one for each input, none of them 0.
    """

    factors: tuple[int, ...]
    name: ClassVar[str] = "weighted_sum"
    arity: ClassVar[int] = ANY

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The common shape, the range of the sum."""
        shapes = {operand.type.shape for operand in operands}
        if len(shapes) != 1 or len(self.factors) != len(operands) or 0 in self.factors:
            raise IrError(
                f"weighted_sum needs integers of one shape and a factor other than 0 for each, got "
                f"{', '.join(str(operand.type) for operand in operands)} and the factors {self.factors}"
            )
        types = [int_operand(operand, "each input") for operand in operands]
        ends = [sorted((k * t.low, k * t.high)) for k, t in zip(self.factors, types, strict=True)]
        return TensorType(shapes.pop(), IntType(sum(end[0] for end in ends), sum(end[1] for end in ends)))

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64, exact."""
        total: Array = sum(factor * x for factor, x in zip(self.factors, inputs, strict=True))  # type: ignore[assignment]
        return total


@dataclass(frozen=True)
class Concat(Op):
    """The concatenation of tensors along an axis of the image (0 is the first behind the batch)."""

    axis: int
    name: ClassVar[str] = "concat"
    arity: ClassVar[int] = ANY

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The joined shape; float64, or the least range of integers that holds all inputs."""
        types = [operand.type for operand in operands]
        first = types[0]
        rests = {(*t.shape[: self.axis], *t.shape[self.axis + 1 :], t.is_int, len(t.shape)) for t in types}
        if len(rests) != 1 or not 0 <= self.axis < len(first.shape):
            raise IrError(
                f"concat along axis {self.axis} needs tensors of one kind that differ in this axis alone, got "
                f"{', '.join(map(str, types))}"
            )
        size = sum(t.shape[self.axis] for t in types)
        shape = (*first.shape[: self.axis], size, *first.shape[self.axis + 1 :])
        return TensorType(shape, _common([t.dtype for t in types]))

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the dtype of the inputs."""
        return np.concatenate(inputs, axis=self.axis + 1)


def _common(dtypes: Sequence[IntType | FloatType]) -> IntType | FloatType:
    """Return the type that holds all; bipolar only if all are, as a bipolar code has no bits for other integers."""
    integers = [dtype for dtype in dtypes if isinstance(dtype, IntType)]
    if not integers or len(set(dtypes)) == 1:
        return dtypes[0]
    return IntType(min(t.low for t in integers), max(t.high for t in integers))
