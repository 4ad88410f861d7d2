"""Ops at the end of models, such as softmax and argmax, which the host computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import IntType, TensorType

from .base import Array, Op, Operand, float_operand


@dataclass(frozen=True)
class AlongAxis(Op):
    """An op along one axis of the image: axis 0 is the first behind the batch."""

    axis: int
    arity: ClassVar[int] = 1

    def check(self, operands: Sequence[Operand]) -> TensorType:
        """Return the type of x. Raises: IrError if x has no such axis."""
        x = operands[0].type
        if not 0 <= self.axis < len(x.shape):
            raise IrError(f"{self.name} needs an axis below {len(x.shape)}, got {self.axis}")
        return x


@dataclass(frozen=True)
class Softmax(AlongAxis):
    """exp(x - max) / sum of exp(x - max)."""

    name: ClassVar[str] = "softmax"

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The type of x."""
        float_operand(operands[0], "x")
        return self.check(operands)

    def evaluate(self, *inputs: Array) -> Array:
        """In float64."""
        # The library's exp: only the host computes it, behind all codes, so its last bits decide on no code.
        powers = np.exp(inputs[0] - inputs[0].max(axis=self.axis + 1, keepdims=True))
        result: Array = powers / powers.sum(axis=self.axis + 1, keepdims=True)
        return result


@dataclass(frozen=True)
class LogSoftmax(AlongAxis):
    """x - max - log(sum of exp(x - max))."""

    name: ClassVar[str] = "log_softmax"

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The type of x."""
        float_operand(operands[0], "x")
        return self.check(operands)

    def evaluate(self, *inputs: Array) -> Array:
        """In float64."""
        shifted = inputs[0] - inputs[0].max(axis=self.axis + 1, keepdims=True)
        result: Array = shifted - np.log(np.exp(shifted).sum(axis=self.axis + 1, keepdims=True))
        return result


@dataclass(frozen=True)
class ArgMax(AlongAxis):
    """The index of the greatest element, the first of equal ones.

    Parameters
    ----------
    keepdim: whether the axis stays, with size 1.
    """

    keepdim: bool = False
    name: ClassVar[str] = "argmax"

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """x without the axis, integers 0..size - 1."""
        x = self.check(operands)
        before, after = x.shape[: self.axis], x.shape[self.axis + 1 :]
        kept = (1,) if self.keepdim else ()
        return TensorType(before + kept + after, IntType(0, x.shape[self.axis] - 1))

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64."""
        index: Array = np.argmax(inputs[0], axis=self.axis + 1, keepdims=self.keepdim)
        return index.astype(np.int64)
