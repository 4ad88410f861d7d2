"""Products of two computed matrices, integer softmax and integer normalization by ONNX's operators on int64.

Shifts are divisions by powers of two, which a table gives; the integer square root is that of float64, which IEEE 754
rounds to the nearest: of a number below 2**52 it is rounded to no other integer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nnhw.ir import Node
from nnhw.ir.ops import IntegerNorm, IntegerSoftmax, MatrixProduct
from nnhw.ir.ops.normalization import RECIPROCAL_BITS, ROOT_BITS

from .onnx_emitter import Emitter, Row

# Bits that the sum of a softmax, and the spread of a normalization, have at most: lengths of the tables below.
_TOTAL_BITS, _SPREAD_BITS = 40, 63
_MOST = np.iinfo(np.int64).max


def _matrix_product(emitter: Emitter, node: Node) -> None:
    op = node.op
    assert isinstance(op, MatrixProduct)
    operands = []
    for name, transposed in zip(node.inputs, (op.transpose_left, op.transpose_right), strict=True):
        rank = len(emitter.type(name).shape) + 1
        axes = [*range(rank - 2), rank - 1, rank - 2]
        operands.append(emitter.emit("Transpose", name, perm=axes) if transposed else name)
    emitter.finish(node, emitter.emit("MatMul", *operands))


def _integer_softmax(emitter: Emitter, node: Node) -> None:
    op, x, table, keep = node.op, node.inputs[0], emitter.array(node, 1), emitter.array(node, 2)
    assert isinstance(op, IntegerSoftmax)
    kept, seen = emitter.constant(keep), x
    if not keep.all():
        seen = emitter.emit("Where", emitter.cast(kept, np.bool_), x, emitter.constant(emitter.type(x).int_dtype.low))
    greatest = emitter.emit("ReduceMax", seen, axes=[op.axis + 1], keepdims=1)
    distance = emitter.emit(
        "Clip", emitter.emit("Sub", greatest, x), emitter.constant(0), emitter.constant(len(table) - 1)
    )
    power = emitter.emit("Mul", emitter.emit("Gather", emitter.constant(table), distance, axis=0), kept)
    total = _sum(emitter, power, op.axis)
    bits = _bits(emitter, total, _TOTAL_BITS)
    whole = _looked_up(emitter, bits, [(1 << (RECIPROCAL_BITS - 1 + k)) - 1 for k in range(_TOTAL_BITS + 1)])
    factor = emitter.emit("Div", whole, total)
    shifts = [max(RECIPROCAL_BITS - 1 + k - op.bits, 1) for k in range(_TOTAL_BITS + 1)]
    half = _looked_up(emitter, bits, [1 << (shift - 1) for shift in shifts])
    divisor = _looked_up(emitter, bits, [1 << shift for shift in shifts])
    moved = emitter.emit("Add", emitter.emit("Mul", power, factor), half)
    shares = emitter.emit("Div", moved, divisor)
    emitter.finish(node, emitter.emit("Clip", shares, emitter.constant(0), emitter.constant(op.high)))


def _integer_norm(emitter: Emitter, node: Node) -> None:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, IntegerNorm)
    count = emitter.constant(node.type.shape[op.axis])
    # Without centring the sum counts as 0.
    total = emitter.emit("Mul", _sum(emitter, x, op.axis), emitter.constant(int(op.centered)))
    squares = emitter.emit("Mul", count, _sum(emitter, emitter.emit("Mul", x, x), op.axis))
    spread = emitter.emit("Sub", squares, emitter.emit("Mul", total, total))
    raised = emitter.emit("Add", spread, emitter.constant(op.epsilon))
    number = emitter.emit("Clip", raised, emitter.constant(1), emitter.constant(_MOST))
    bits = _bits(emitter, number, _SPREAD_BITS)
    halves = [(k + 1 >> 1) - ROOT_BITS // 2 for k in range(_SPREAD_BITS + 1)]
    larger = emitter.emit("Mul", number, _looked_up(emitter, bits, [4 ** max(-half, 0) for half in halves]))
    mantissa = emitter.emit("Div", larger, _looked_up(emitter, bits, [4 ** max(half, 0) for half in halves]))
    whole = emitter.constant((1 << (ROOT_BITS + 2 * RECIPROCAL_BITS - 2)) - 1)
    square = emitter.cast(emitter.emit("Div", whole, mantissa), np.float64)
    factor = emitter.cast(emitter.emit("Sqrt", square), np.int64)
    shifts = [half + ROOT_BITS // 2 + RECIPROCAL_BITS - 1 - op.fraction_bits for half in halves]
    half = _looked_up(emitter, bits, [1 << max(shift - 1, 0) for shift in shifts])
    divisor = _looked_up(emitter, bits, [1 << max(shift, 0) for shift in shifts])
    centred = emitter.emit("Sub", emitter.emit("Mul", count, x), total)
    moved = emitter.emit("Add", emitter.emit("Mul", centred, factor), half)
    # ONNX's integer division rounds towards 0, a shift down: the remainder goes first, so that the division is exact.
    exact = emitter.emit("Sub", moved, emitter.emit("Mod", moved, divisor))
    emitter.finish(node, emitter.emit("Div", exact, divisor))


def _broadcast(emitter: Emitter, node: Node) -> None:
    values = emitter.array(node, 1)
    batch = emitter.emit("Shape", node.inputs[0], start=0, end=1)
    shape = emitter.emit("Concat", batch, emitter.constant(list(values.shape)), axis=0)
    kind = np.int64 if node.type.is_int else np.float64
    emitter.finish(node, emitter.emit("Expand", emitter.constant(values, kind), shape))


def _sum(emitter: Emitter, x: str, axis: int) -> str:
    return emitter.emit("ReduceSum", x, emitter.constant([axis + 1]), keepdims=1)


def _bits(emitter: Emitter, number: str, most: int) -> str:
    """Return the number of bits of a positive number: the number of powers of two that it reaches."""
    apart = emitter.emit("Unsqueeze", number, emitter.constant([-1]))
    reached = emitter.emit("GreaterOrEqual", apart, emitter.constant([1 << bit for bit in range(most)]))
    return emitter.emit("ReduceSum", emitter.cast(reached, np.int64), emitter.constant([-1]), keepdims=0)


def _looked_up(emitter: Emitter, index: str, values: list[int]) -> str:
    return emitter.emit("Gather", emitter.constant(values), index, axis=0)


ATTENTION: Mapping[str, Row] = {
    "matrix_product": _matrix_product,
    "integer_softmax": _integer_softmax,
    "integer_norm": _integer_norm,
    "broadcast": _broadcast,
}
"""Operators of attention and normalization --> functions that write them in ONNX."""
