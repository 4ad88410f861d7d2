"""Integer matrix product and convolution: exact sums of products of codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import IntType, TensorType

from .base import Array, Op, Operand, Pair, int_operand

_EXACT_BELOW: tuple[tuple[int, type[np.generic]], ...] = ((2**24, np.float32), (2**53, np.float64))
"""Bounds of the integers that each float type holds exactly, the fastest type first."""
_PADDED_MAX = 1 << 28
"""Most elements of a padded channel, as many as a value may have in all (`verify.ELEMENTS_MAX`)."""
_SUMS_BELOW = 2.0**62
"""Bound on sums of products, half of what int64 holds: they are compared with it as float64, which rounds them."""


@dataclass(frozen=True)
class Linear(Op):
    """sum over i of x[i] * weight[o, i]. Inputs: x, integers [inputs]; weight, integer constant [outputs, inputs]."""

    name: ClassVar[str] = "linear"
    arity: ClassVar[int] = 2
    parameters: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """[outputs], the least range that holds every sum of these weights."""
        x, weight = operands
        codes = int_operand(x, "x")
        int_operand(weight, "weight")
        values = weight.constant
        if values.ndim != 2 or x.type.shape != values.shape[1:]:
            raise IrError(f"linear needs x [inputs] and weight [outputs, inputs], got {x.type} and {weight.type}")
        check_sums(self.name, codes, values)
        low = np.minimum(values * codes.low, values * codes.high).sum(axis=1)
        high = np.maximum(values * codes.low, values * codes.high).sum(axis=1)
        return TensorType((values.shape[0],), IntType(int(low.min()), int(high.max())))

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64 [N, outputs], exact."""
        x, weight = inputs
        return _matmul(x, weight.T)


@dataclass(frozen=True)
class Conv2d(Op):
    """Cross-correlation of [channels, height, width] with [outputs, channels / groups, kernel_h, kernel_w].

    Padding is by zeros: a padded position adds nothing, whatever the codes are.
    Inputs: x, integers; weight, integer constant.
    """

    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    name: ClassVar[str] = "conv2d"
    arity: ClassVar[int] = 2
    parameters: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """[outputs, height', width'], the least range over all channels and positions, borders included."""
        x, weight = operands
        codes = int_operand(x, "x")
        int_operand(weight, "weight")
        values = weight.constant
        self._check(x, values)
        check_sums(self.name, codes, values)
        # An image of ones sums the least (greatest) contribution of each tap that is not padding.
        ones = np.ones((1, *x.type.shape), dtype=np.int64)
        low = self.evaluate(ones, np.minimum(values * codes.low, values * codes.high))
        high = self.evaluate(ones, np.maximum(values * codes.low, values * codes.high))
        return TensorType(low.shape[1:], IntType(int(low.min()), int(high.max())))

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64 [N, outputs, height', width'], exact."""
        x, weight = inputs
        outputs, per_group = weight.shape[0] // self.groups, weight.shape[1]
        rows = weight.reshape(weight.shape[0], -1)
        dtype = _exact_dtype(x, rows.T)
        top, left = self.padding
        padded = np.pad(x.astype(dtype), ((0, 0), (0, 0), (top, top), (left, left)))
        # A product for each group: one for all would be mostly products with 0.
        sums = []
        for group in range(self.groups):
            channels = padded[:, group * per_group : (group + 1) * per_group]
            taps = windows(channels, _pair(weight.shape[2:]), self.stride, self.dilation)
            sums.append(self._product(taps, rows[group * outputs : (group + 1) * outputs].astype(dtype)))
        return np.concatenate(sums, axis=1)

    def _product(self, taps: Array, rows: Array) -> Array:
        count, _, height, width, _, _ = taps.shape
        # [N, C, H, W, KH, KW] --> [N, C * KH * KW, H * W]: one column of taps per output position.
        columns = taps.transpose(0, 1, 4, 5, 2, 3).reshape(count, rows.shape[1], height * width)
        product: Array = rows @ columns
        return product.reshape(count, len(rows), height, width).astype(np.int64)

    def _check(self, x: Operand, weight: Array) -> None:
        if len(x.type.shape) != 3 or weight.ndim != 4:
            raise IrError(
                f"conv2d needs x [channels, height, width] and weight [outputs, channels / groups, h, w], "
                f"got {x.type} and weight {list(weight.shape)}"
            )
        if min(self.stride + self.dilation + (self.groups,)) < 1 or min(self.padding) < 0:
            raise IrError(f"conv2d needs stride, dilation and groups of at least 1, no negative padding, got {self}")
        if math.prod(size + 2 * pad for size, pad in zip(x.type.shape[1:], self.padding, strict=True)) > _PADDED_MAX:
            raise IrError(f"conv2d takes channels of at most {_PADDED_MAX} elements, padding included, got {self}")
        if x.type.shape[0] != weight.shape[1] * self.groups or weight.shape[0] % self.groups:
            raise IrError(
                f"conv2d with {self.groups} groups and weight {list(weight.shape)} does not fit {x.type.shape[0]} "
                f"channels"
            )
        for size, pad, kernel, step in zip(
            x.type.shape[1:], self.padding, weight.shape[2:], self.dilation, strict=True
        ):
            if size + 2 * pad < step * (kernel - 1) + 1:
                raise IrError(f"a kernel of {list(weight.shape[2:])} does not fit into {x.type}")


def check_sums(op: str, codes: IntType, weight: Array) -> None:
    """Raise IrError where sums of products with weights [outputs, ..] might not fit into 64 bits."""
    largest = np.abs(weight.astype(np.float64)).reshape(len(weight), -1).sum(axis=1).max(initial=0)
    if float(largest) * max(abs(codes.low), abs(codes.high)) >= _SUMS_BELOW:
        raise IrError(
            f"the sums of {op} must stay within 63 bits, got codes of {codes} and weights up to {largest:.3g}"
        )


def windows(x: Array, kernel: Pair, stride: Pair, dilation: Pair = (1, 1)) -> Array:
    """Return a view [N, C, height', width', kernel_h, kernel_w] of all windows over [N, C, height, width]."""
    span = tuple(step * (size - 1) + 1 for size, step in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, span, axis=(2, 3))
    return view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def _matmul(x: Array, weight: Array) -> Array:
    """[N, K] x [K, M] --> [N, M] int64, exact."""
    dtype = _exact_dtype(x, weight)
    product: Array = x.astype(dtype) @ weight.astype(dtype)
    return product.astype(np.int64)


def _exact_dtype(x: Array, weight: Array) -> type[np.generic]:
    """Return the fastest dtype in which the product of x and weight [K, M] is exact.

    Range: in floating point every product and every partial sum is an integer; below 2**24 (float32) or 2**53
    (float64) all of them are exact, in whatever order and with or without fused multiply-add.
    """
    return exact_dtype(int(np.abs(x).max(initial=0)) * int(np.abs(weight).sum(axis=0).max(initial=0)))


def exact_dtype(bound: int) -> type[np.generic]:
    """Return the fastest dtype in which integers up to `bound` are exact."""
    # NumPy multiplies matrices of floats by a library, and those of integers by plain loops.
    return next((dtype for limit, dtype in _EXACT_BELOW if bound < limit), np.int64)


def _pair(sizes: tuple[int, ...]) -> Pair:
    height, width = sizes
    return height, width
