"""Ops over a moving window or at the borders of a feature map; of integers and floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import IntType, TensorType

from .base import Array, Op, Operand, Pair, int_operand
from .linear import windows


@dataclass(frozen=True)
class MaxPool2d(Op):
    """The greatest element of each window, per channel.

    Positions beyond the border are ignored. Rows and columns at the end that no whole window covers are left out.

    Parameters
    ----------
    kernel, stride: rows and columns.
    before, after: (rows, columns) by which windows may reach beyond the border, at the top left and the bottom right;
        less than the kernel.
    """

    kernel: Pair
    stride: Pair
    before: Pair = (0, 0)
    after: Pair = (0, 0)
    name: ClassVar[str] = "max_pool2d"
    arity: ClassVar[int] = 1

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """[channels, height', width'] of the same element type."""
        x = operands[0].type
        sides = pooled_sides(self, x, self.before, self.after)
        if any(reach >= span for reach, span in zip(self.before + self.after, self.kernel * 2, strict=True)):
            raise IrError(f"max_pool2d needs a padding below its kernel {self.kernel}, got {self.before}, {self.after}")
        return TensorType((x.shape[0], *sides), x.dtype)

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the dtype of x."""
        x = inputs[0]
        # Less than, or equal to, any element, so that a window's maximum is that of its elements inside of the border.
        lowest = np.iinfo(x.dtype).min if x.dtype.kind == "i" else -np.inf
        padded = np.pad(x, _widths(self.before, self.after), constant_values=lowest)
        result: Array = windows(padded, self.kernel, self.stride).max(axis=(4, 5))
        return result


@dataclass(frozen=True)
class SumPool2d(Op):
    """The sum of each window, per channel, of integers: average pooling without its division.

    Rows and columns at the end that no whole window covers are left out.

    Parameters
    ----------
    kernel, stride: rows and columns.
    """

    kernel: Pair
    stride: Pair
    name: ClassVar[str] = "sum_pool2d"
    arity: ClassVar[int] = 1

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """[channels, height', width'], the range of sums of as many elements as the kernel has."""
        x = operands[0]
        codes = int_operand(x, "x")
        sides = pooled_sides(self, x.type, (0, 0), (0, 0))
        taps = self.kernel[0] * self.kernel[1]
        return TensorType((x.type.shape[0], *sides), IntType(codes.low * taps, codes.high * taps))

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64, exact."""
        result: Array = windows(inputs[0], self.kernel, self.stride).sum(axis=(4, 5), dtype=np.int64)
        return result


@dataclass(frozen=True)
class Pad(Op):
    """A border of one value around each channel.

    Parameters
    ----------
    before, after: (rows, columns) of the border at the top left, and at the bottom right.
    value: of the border; a whole number if x is an integer.
    """

    before: Pair
    after: Pair
    value: float = 0.0
    name: ClassVar[str] = "pad"
    arity: ClassVar[int] = 1

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """[channels, height', width']; the range of integers grows to hold the value: bipolar becomes -1..1."""
        x = operands[0].type
        if len(x.shape) != 3 or min(self.before + self.after) < 0:
            raise IrError(f"pad needs x [channels, height, width] and no negative widths, got {x} and {self}")
        sides = (size + a + b for size, a, b in zip(x.shape[1:], self.before, self.after, strict=True))
        dtype = x.dtype
        if isinstance(dtype, IntType):
            if not float(self.value).is_integer():
                raise IrError(f"pad needs a whole number for the border of integers, got {self.value}")
            if not dtype.holds(np.array([int(self.value)])):
                dtype = IntType(min(dtype.low, int(self.value)), max(dtype.high, int(self.value)))
        return TensorType((x.shape[0], *sides), dtype)

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the dtype of x."""
        x = inputs[0]
        return np.pad(x, _widths(self.before, self.after), constant_values=x.dtype.type(self.value))


@dataclass(frozen=True)
class Upsample(Op):
    """Nearest-neighbour upsampling: each element is repeated `factor` times, (vertically, horizontally)."""

    factor: Pair
    name: ClassVar[str] = "upsample"
    arity: ClassVar[int] = 1

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """[channels, height', width'] of the same element type."""
        x = operands[0].type
        if len(x.shape) != 3 or min(self.factor) < 1:
            raise IrError(f"upsample needs x [channels, height, width] and factors of at least 1, got {x}")
        return TensorType((x.shape[0], x.shape[1] * self.factor[0], x.shape[2] * self.factor[1]), x.dtype)

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the dtype of x."""
        return inputs[0].repeat(self.factor[0], axis=2).repeat(self.factor[1], axis=3)


def pooled_sides(op: MaxPool2d | SumPool2d, x: TensorType, before: Pair, after: Pair) -> tuple[int, ...]:
    """Return (height', width') of a pooling. Raises: IrError if no window fits."""
    if len(x.shape) != 3:
        raise IrError(f"{op.name} needs x [channels, height, width], got {x}")
    if min(op.kernel + op.stride) < 1 or min(before + after) < 0:
        raise IrError(f"{op.name} needs a kernel and a stride of at least 1, and no negative padding, got {op}")
    padded = [size + a + b for size, a, b in zip(x.shape[1:], before, after, strict=True)]
    if any(size < span for size, span in zip(padded, op.kernel, strict=True)):
        raise IrError(f"{op.name} with kernel {op.kernel} needs x [channels, height, width], got {x}")
    return tuple((size - span) // step + 1 for size, span, step in zip(padded, op.kernel, op.stride, strict=True))


def _widths(before: Pair, after: Pair) -> tuple[Pair, ...]:
    return ((0, 0), (0, 0), (before[0], after[0]), (before[1], after[1]))
