"""Ops that rearrange elements or take a part of them; of integers and floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from nnhw.errors import IrError
from nnhw.ir.types import TensorType

from .base import Array, Op, Operand


@dataclass(frozen=True)
class Flatten(Op):
    """[..] --> [elements]: all elements as one axis, in C order."""

    name: ClassVar[str] = "flatten"
    arity: ClassVar[int] = 1

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """[elements] of the same element type."""
        x = operands[0].type
        return TensorType((x.size,), x.dtype)

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the dtype of x."""
        return inputs[0].reshape(inputs[0].shape[0], math.prod(inputs[0].shape[1:]))


@dataclass(frozen=True)
class Reshape(Op):
    """[..] --> shape: the same elements in C order; the batch axis stays."""

    shape: tuple[int, ...]
    name: ClassVar[str] = "reshape"
    arity: ClassVar[int] = 1

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The attribute's shape, the same element type."""
        x = operands[0].type
        if x.size != math.prod(self.shape):
            raise IrError(f"reshape to {list(self.shape)} needs {math.prod(self.shape)} elements, got {x}")
        return TensorType(self.shape, x.dtype)

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the dtype of x."""
        return inputs[0].reshape(inputs[0].shape[0], *self.shape)


@dataclass(frozen=True)
class Permute(Op):
    """The axes of the image in another order: axis k of the result is axis `axes[k]` of x."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "permute"
    arity: ClassVar[int] = 1

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The permuted shape, the same element type."""
        x = operands[0].type
        if sorted(self.axes) != list(range(len(x.shape))):
            raise IrError(f"permute needs every axis of {x} once, got {self.axes}")
        return TensorType(tuple(x.shape[axis] for axis in self.axes), x.dtype)

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the dtype of x."""
        return inputs[0].transpose(0, *(axis + 1 for axis in self.axes))


@dataclass(frozen=True)
class Slice(Op):
    """The elements from `start` to below `stop` along one axis.

    Parameters
    ----------
    axis: axis of the image, without the batch.
    start, stop: first index, and the one behind the last; 0 <= start < stop.
    """

    axis: int
    start: int
    stop: int
    name: ClassVar[str] = "slice"
    arity: ClassVar[int] = 1

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """A shorter axis, the same element type."""
        x = operands[0].type
        if not 0 <= self.axis < len(x.shape) or not 0 <= self.start < self.stop <= x.shape[self.axis]:
            raise IrError(f"slice needs a part of an axis of {x}, got {self}")
        return TensorType((*x.shape[: self.axis], self.stop - self.start, *x.shape[self.axis + 1 :]), x.dtype)

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the dtype of x."""
        return inputs[0].take(range(self.start, self.stop), axis=self.axis + 1)
