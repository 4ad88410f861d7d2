"""Products of two computed matrices, and constants repeated for each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import IntType, TensorType

from .base import Array, Op, Operand, int_operand
from .linear import exact_dtype

_SUMS_BELOW = 1 << 62
"""Bound on the sums of products, half of what int64 holds, as for linear layers."""


@dataclass(frozen=True)
class MatrixProduct(Op):
    """sum over k of left[.., m, k] * right[.., k, n]: two computed matrices, or one pair for each of the axes in front.

    Inputs: left, right, integers with equal axes in front of the last two.

    Parameters
    ----------
    transpose_left: left is [.., k, m].
    transpose_right: right is [.., n, k].
    """

    transpose_left: bool = False
    transpose_right: bool = False
    name: ClassVar[str] = "matrix_product"
    arity: ClassVar[int] = 2

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """[.., m, n], the range of sums of k products.

        Raises: IrError for shapes that do not fit, and for sums that might not fit into 63 bits.
        """
        left, right = operands
        types = int_operand(left, "left"), int_operand(right, "right")
        if min(len(left.type.shape), len(right.type.shape)) < 2:
            raise IrError(f"{self.name} needs two or more axes of both operands, got {left.type} and {right.type}")
        rows, inner = self.sides(left.type.shape, self.transpose_left)
        other, columns = self.sides(right.type.shape, self.transpose_right)
        if inner != other or left.type.shape[:-2] != right.type.shape[:-2]:
            raise IrError(
                f"{self.name} needs left [.., m, k] and right [.., k, n] with equal axes in front, got {left.type}"
                f"{' transposed' * self.transpose_left} and {right.type}{' transposed' * self.transpose_right}"
            )
        ends = [a * b for a in (types[0].low, types[0].high) for b in (types[1].low, types[1].high)]
        if max(map(abs, ends)) * inner >= _SUMS_BELOW:
            raise IrError(f"the sums of {self.name} must stay within 63 bits, got {left.type} and {right.type}")
        return TensorType((*left.type.shape[:-2], rows, columns), IntType(min(ends) * inner, max(ends) * inner))

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64 [N, .., m, n], exact."""
        left = inputs[0].swapaxes(-1, -2) if self.transpose_left else inputs[0]
        right = inputs[1].swapaxes(-1, -2) if self.transpose_right else inputs[1]
        # No partial sum is greater, in whatever order it is computed.
        bound = int(np.abs(left).max(initial=0)) * int(np.abs(right).max(initial=0)) * left.shape[-1]
        dtype = exact_dtype(bound)
        product: Array = left.astype(dtype) @ right.astype(dtype)
        return product.astype(np.int64)

    @staticmethod
    def sides(shape: tuple[int, ...], transposed: bool) -> tuple[int, int]:
        """Return the last two sizes of an operand, in the order in which the product reads them."""
        return (shape[-1], shape[-2]) if transposed else (shape[-2], shape[-1])


@dataclass(frozen=True)
class Broadcast(Op):
    """A constant repeated for each image of x, such as a class token or an embedding of positions.

    Of x only the batch size matters. Inputs: x, anything; values, constant.
    """

    name: ClassVar[str] = "broadcast"
    arity: ClassVar[int] = 2
    parameters: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The type of the constant."""
        return operands[1].type

    def evaluate(self, *inputs: Array) -> Array:
        """Return [N, *shape of the constant]."""
        x, values = inputs
        return np.repeat(values[np.newaxis], len(x), axis=0)
