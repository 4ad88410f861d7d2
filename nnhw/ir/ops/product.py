"""The product of two values, both of which come from the model's input."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import IntType, TensorType

from .base import Array, Op, Operand, int_operand


@dataclass(frozen=True)
class Product(Op):
    """x * y, element by element, of integers; an axis of size 1 in one of them is repeated.

    One of the two has the shape of the result, the other one the same number of axes: a gate [channels, 1, 1] has one
    number for each channel of a map [channels, height, width].
    """

    name: ClassVar[str] = "product"
    arity: ClassVar[int] = 2

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The shape of the larger operand, the range of the products; two bipolar ones give the integers -1..1."""
        left, right = (int_operand(operand, "each input") for operand in operands)
        shape = product_shape(*(operand.type.shape for operand in operands))
        if shape is None:
            raise IrError(
                f"product needs integers with as many axes, one of them with the sizes of the result and the other "
                f"with these sizes or 1, got {operands[0].type} and {operands[1].type}"
            )
        return TensorType(shape, product_range(left, right))

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64, exact."""
        result: Array = np.multiply(*inputs)
        return result


def product_shape(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of the product of two values with these shapes; None if they have no product."""
    if len(left) != len(right):
        return None
    shape = tuple(map(max, left, right))
    fits = all(size in (1, most) for side in (left, right) for size, most in zip(side, shape, strict=True))
    return shape if fits and shape in (left, right) else None


def product_range(left: IntType, right: IntType) -> IntType:
    """Return the least range that holds every product of integers of these two types."""
    corners = [a * b for a, b in itertools.product((left.low, left.high), (right.low, right.high))]
    return IntType(min(corners), max(corners))
