"""Ops that choose or rearrange elements, of integers and floats alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from nnhw.errors import IrError
from nnhw.ir.types import TensorType

from .base import Array, Op, Operand, Pair
from .linear import windows


@dataclass(frozen=True)
class MaxPool2d(Op):
    """The greatest element of each window, per channel. Rest rows and columns are left out."""

    kernel: Pair
    stride: Pair
    name: ClassVar[str] = "max_pool2d"
    arity: ClassVar[int] = 1

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """[channels, height', width'] of the same element type."""
        x = operands[0].type
        if len(x.shape) != 3 or any(size < span for size, span in zip(x.shape[1:], self.kernel, strict=True)):
            raise IrError(f"max_pool2d with kernel {self.kernel} needs x [channels, height, width], got {x}")
        sides = tuple(
            (size - span) // step + 1 for size, span, step in zip(x.shape[1:], self.kernel, self.stride, strict=True)
        )
        return TensorType((x.shape[0], *sides), x.dtype)

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the dtype of x."""
        result: Array = windows(inputs[0], self.kernel, self.stride).max(axis=(4, 5))
        return result


@dataclass(frozen=True)
class Flatten(Op):
    """[..] --> [elements], in C order."""

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
    """[..] --> shape, in C order; the batch axis stays."""

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
