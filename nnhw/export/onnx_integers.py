"""Operators on integers in ONNX: values are integers, and nothing is rounded that the IR does not round.

Products of codes of at most 8 bits are ConvInteger and MatMulInteger, always with unsigned codes and weights and zero
points, because some runtimes' kernels for mixed signs saturate. Wider products are MatMul of int64.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nnhw.ir import IntType, Node
from nnhw.ir.ops import (
    ArgMax,
    Concat,
    Conv2d,
    MaxPool2d,
    Pad,
    Permute,
    Rescale,
    Slice,
    StepTable,
    SumPool2d,
    Threshold,
    Upsample,
    WeightedSum,
)
from nnhw.ir.ops.rescale import FRACTION_BITS

from .onnx_emitter import Emitter, Row

COMPARED_STEPS = 15
"""Up to so many thresholds of a channel are all compared; for more there is a binary search."""
_FLOAT32_BITS = 24
"""Integers of so many bits are exact in float32."""


def _linear(emitter: Emitter, node: Node) -> None:
    x, weight = node.inputs[0], emitter.array(node, 1)
    codes = _as_bytes(emitter, x, weight)
    if codes is None:
        emitter.finish(node, emitter.emit("MatMul", x, emitter.constant(weight.T)))
        return
    value, zero, weights, weight_zero = codes
    sums = emitter.emit("MatMulInteger", value, emitter.constant(weights.T, np.uint8), zero, weight_zero)
    emitter.finish(node, emitter.cast(sums, np.int64))


def _conv2d(emitter: Emitter, node: Node) -> None:
    op, x, weight = node.op, node.inputs[0], emitter.array(node, 1)
    assert isinstance(op, Conv2d)
    codes = _as_bytes(emitter, x, weight)
    if codes is None:
        _wide_conv2d(emitter, node, op)
        return
    value, zero, weights, weight_zero = codes
    sums = emitter.emit(
        "ConvInteger",
        value,
        emitter.constant(weights, np.uint8),
        zero,
        weight_zero,
        strides=op.stride,
        pads=op.padding * 2,
        dilations=op.dilation,
        group=op.groups,
    )
    emitter.finish(node, emitter.cast(sums, np.int64))


def _wide_conv2d(emitter: Emitter, node: Node, op: Conv2d) -> None:
    """Write a convolution as a MatMul of int64, with the taps of every position gathered into a column."""
    x, weight = node.inputs[0], emitter.array(node, 1)
    outputs, per_group, *kernel = weight.shape
    taps = _windows(emitter, _padded(emitter, x, op.padding, op.padding, 0), node, kernel, op.stride, op.dilation)
    positions, size = int(np.prod(node.type.shape[1:])), per_group * int(np.prod(kernel))
    columns = emitter.emit("Reshape", taps, emitter.constant([0, op.groups, size, positions]))
    rows = emitter.constant(weight.reshape(op.groups, outputs // op.groups, size))
    product = emitter.emit("MatMul", rows, columns)
    emitter.finish(node, emitter.emit("Reshape", product, emitter.constant([0, *node.type.shape])))


def _as_bytes(emitter: Emitter, x: str, weight: np.ndarray) -> tuple[str, str, np.ndarray, str] | None:
    """Return (codes, zero point, weights, zero point) as bytes; None where they or their sums are too wide.

    Codes and zero points are names of values; weights are an array, which the caller may transpose.
    """
    dtype = emitter.type(x).int_dtype
    zero, weight_zero = (128 if low < 0 else 0 for low in (dtype.low, int(weight.min())))
    ends = (dtype.low + zero, dtype.high + zero, int(weight.min()) + weight_zero, int(weight.max()) + weight_zero)
    taps = weight[0].size
    # Sums of ONNX's integer products are int32; this bounds them in any order, with zero points or without.
    if min(ends) < 0 or max(ends) > 255 or taps * 255 * 255 >= 1 << 31:
        return None
    shifted = x if not zero else emitter.emit("Add", x, emitter.constant(zero))
    value = emitter.cast(shifted, np.uint8)
    return (
        value,
        emitter.constant(zero, np.uint8),
        weight + weight_zero,
        emitter.constant(weight_zero, np.uint8),
    )


def _threshold(emitter: Emitter, node: Node) -> None:
    op, falls = node.op, emitter.array(node, 2)
    assert isinstance(op, Threshold)
    rows = emitter.array(node, 1)
    spread = (-1,) + (1,) * (len(node.type.shape) - 1)
    index = _counted(emitter, node.inputs[0], rows)
    step = 2 if op.bipolar else 1
    # low + count, or low + steps - count in a falling channel; bipolar: in steps of two.
    signs, starts = np.where(falls, -step, step), np.where(falls, op.low + step * rows.shape[1], op.low)
    scaled = emitter.emit("Mul", index, emitter.constant(signs.reshape(spread)))
    emitter.finish(node, emitter.emit("Add", scaled, emitter.constant(starts.reshape(spread))))


def _step_table(emitter: Emitter, node: Node) -> None:
    assert isinstance(node.op, StepTable)
    codes = emitter.array(node, 2)
    spread = (-1,) + (1,) * (len(node.type.shape) - 1)
    first = emitter.constant((np.arange(len(codes)) * codes.shape[1]).reshape(spread))
    index = emitter.emit("Add", _counted(emitter, node.inputs[0], emitter.array(node, 1)), first)
    emitter.finish(node, emitter.emit("Gather", emitter.constant(codes.ravel()), index, axis=0))


def _counted(emitter: Emitter, x: str, rows: np.ndarray) -> str:
    """Return the number of thresholds that each element of [N, channels, ..] reaches, of its channel's row.

    Parameters
    ----------
    rows: [channels, steps], rising along each row.
    """
    sides = len(emitter.type(x).shape) - 1
    channels, steps = rows.shape
    if steps <= COMPARED_STEPS:
        # [N, channels, 1, ..] >= [channels, steps, 1, ..]
        apart = emitter.emit("Unsqueeze", x, emitter.constant([2]))
        reached = emitter.emit("GreaterOrEqual", apart, emitter.constant(rows.reshape(channels, steps, *[1] * sides)))
        return emitter.emit("ReduceSum", emitter.cast(reached, np.int64), emitter.constant([2]), keepdims=0)
    # Binary search: the count grows by powers of two for as long as the threshold there is reached.
    bits = steps.bit_length()
    size = 1 << bits
    # Places behind the last threshold are never reached, so the count ends there.
    padded = np.full((channels, size), np.iinfo(np.int64).max)
    padded[:, :steps] = rows
    table = emitter.constant(padded.ravel())
    first = emitter.constant((np.arange(channels) * size).reshape(-1, *[1] * sides))
    # Zeros of x's shape, whatever the size of the batch.
    count = emitter.emit("Mul", x, emitter.constant(0))
    for bit in reversed(range(bits)):
        place = emitter.emit("Add", emitter.emit("Add", count, emitter.constant((1 << bit) - 1)), first)
        reached = emitter.emit("GreaterOrEqual", x, emitter.emit("Gather", table, place, axis=0))
        step = emitter.emit("Mul", emitter.cast(reached, np.int64), emitter.constant(1 << bit))
        count = emitter.emit("Add", count, step)
    return count


def _rescale(emitter: Emitter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Rescale)
    spread = (-1,) + (1,) * (len(node.type.shape) - 1)
    multiplier, exponent, bias = (emitter.array(node, position).reshape(spread) for position in (1, 2, 3))
    sums = emitter.emit("Add", node.inputs[0], emitter.constant(bias))
    left = op.shift if op.rounding == "single" else op.shift + np.maximum(exponent, 0)
    product = emitter.emit("Mul", sums, emitter.constant(multiplier << left))
    if op.rounding == "single":
        rounded = _rounded(emitter, product, FRACTION_BITS - exponent)
    else:
        once = _rounded(emitter, product, np.full_like(exponent, FRACTION_BITS))
        size = _rounded(emitter, emitter.emit("Abs", once), np.maximum(-exponent, 0))
        rounded = emitter.emit("Mul", emitter.emit("Sign", once), size)
    moved = emitter.emit("Add", rounded, emitter.constant(op.offset))
    emitter.finish(node, emitter.emit("Clip", moved, emitter.constant(op.low), emitter.constant(op.high)))


def _rounded(emitter: Emitter, number: str, shift: np.ndarray) -> str:
    """Return number / 2**shift to the nearest, ties up; the remainder goes first, as ONNX's division truncates."""
    power = np.int64(1) << shift
    moved = emitter.emit("Add", number, emitter.constant(power >> 1))
    divisor = emitter.constant(power)
    whole = emitter.emit("Sub", moved, emitter.emit("Mod", moved, divisor))
    return emitter.emit("Div", whole, divisor)


def _sum_pool2d(emitter: Emitter, node: Node) -> None:
    op = node.op
    assert isinstance(op, SumPool2d)
    taps = _windows(emitter, node.inputs[0], node, op.kernel, op.stride)
    emitter.finish(node, emitter.emit("ReduceSum", taps, emitter.constant([2, 3]), keepdims=0))


def _max_pool2d(emitter: Emitter, node: Node) -> None:
    op, dtype = node.op, node.type.dtype
    assert isinstance(op, MaxPool2d)
    x = node.inputs[0]
    if not isinstance(dtype, IntType):
        pooled = emitter.emit("MaxPool", x, kernel_shape=op.kernel, strides=op.stride, pads=op.before + op.after)
        emitter.finish(node, pooled)
        return
    # A border of the least code never wins. Every runtime has MaxPool of float32, which holds these integers exactly.
    padded = _padded(emitter, x, op.before, op.after, dtype.low)
    if _within(dtype, _FLOAT32_BITS):
        pooled = emitter.emit("MaxPool", emitter.cast(padded, np.float32), kernel_shape=op.kernel, strides=op.stride)
        emitter.finish(node, emitter.cast(pooled, np.int64))
        return
    taps = _windows(emitter, padded, node, op.kernel, op.stride)
    emitter.finish(node, emitter.emit("ReduceMax", taps, axes=[2, 3], keepdims=0))


def _windows(
    emitter: Emitter,
    x: str,
    node: Node,
    kernel: tuple[int, ...] | list[int],
    stride: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
) -> str:
    """Return [N, channels, kernel_h, kernel_w, height', width'] of [N, channels, height, width]."""
    for axis, size, span, step, apart in zip((2, 4), node.type.shape[1:], kernel, stride, dilation, strict=True):
        index = np.arange(span)[:, None] * apart + np.arange(size)[None] * step
        x = emitter.emit("Gather", x, emitter.constant(index), axis=axis)
    return emitter.emit("Transpose", x, perm=[0, 1, 2, 4, 3, 5])


def _padded(emitter: Emitter, x: str, before: tuple[int, int], after: tuple[int, int], value: float) -> str:
    """Return x with a border of one value."""
    if not any(before + after):
        return x
    dtype = np.int64 if isinstance(value, int) else np.float64
    return emitter.emit("Pad", x, emitter.constant([0, 0, *before, 0, 0, *after]), emitter.constant(value, dtype))


def _pad(emitter: Emitter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Pad)
    value = int(op.value) if node.type.is_int else float(op.value)
    emitter.finish(node, _padded(emitter, node.inputs[0], op.before, op.after, value))


def _upsample(emitter: Emitter, node: Node) -> None:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Upsample)
    for axis, size, factor in zip((2, 3), node.type.shape[1:], op.factor, strict=True):
        x = emitter.emit("Gather", x, emitter.constant(np.arange(size) // factor), axis=axis)
    emitter.finish(node, x)


def _weighted_sum(emitter: Emitter, node: Node) -> None:
    op = node.op
    assert isinstance(op, WeightedSum)
    terms = [
        name if factor == 1 else emitter.emit("Mul", name, emitter.constant(factor))
        for name, factor in zip(node.inputs, op.factors, strict=True)
    ]
    total = terms[0]
    for term in terms[1:]:
        total = emitter.emit("Add", total, term)
    emitter.finish(node, total)


def _product(emitter: Emitter, node: Node) -> None:
    emitter.finish(node, emitter.emit("Mul", *node.inputs))


def _concat(emitter: Emitter, node: Node) -> None:
    assert isinstance(node.op, Concat)
    emitter.finish(node, emitter.emit("Concat", *node.inputs, axis=node.op.axis + 1))


def _reshape(emitter: Emitter, node: Node) -> None:
    emitter.finish(node, emitter.emit("Reshape", node.inputs[0], emitter.constant([0, *node.type.shape])))


def _permute(emitter: Emitter, node: Node) -> None:
    assert isinstance(node.op, Permute)
    axes = [0, *(axis + 1 for axis in node.op.axes)]
    emitter.finish(node, emitter.emit("Transpose", node.inputs[0], perm=axes))


def _slice(emitter: Emitter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Slice)
    ends = [emitter.constant([number]) for number in (op.start, op.stop, op.axis + 1)]
    emitter.finish(node, emitter.emit("Slice", node.inputs[0], *ends))


def _argmax(emitter: Emitter, node: Node) -> None:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, ArgMax)
    values = x
    if emitter.type(x).is_int:
        dtype = emitter.type(x).int_dtype
        # A double holds all integers to 2**53; beyond, two that differ could become one.
        if _within(dtype, 54):
            values = emitter.cast(x, np.int32 if _within(dtype, 32) else np.float64)
        else:
            largest = emitter.emit("ReduceMax", x, axes=[op.axis + 1], keepdims=1)
            # The first of the largest is the answer: ArgMax takes the first of equal ones.
            values = emitter.cast(emitter.emit("Equal", x, largest), np.int32)
    emitter.finish(node, emitter.emit("ArgMax", values, axis=op.axis + 1, keepdims=int(op.keepdim)))


def _within(dtype: IntType, bits: int) -> bool:
    return -(1 << bits - 1) <= dtype.low and dtype.high < 1 << bits - 1


INTEGERS: Mapping[str, Row] = {
    "linear": _linear,
    "conv2d": _conv2d,
    "threshold": _threshold,
    "step_table": _step_table,
    "rescale": _rescale,
    "sum_pool2d": _sum_pool2d,
    "weighted_sum": _weighted_sum,
    "product": _product,
    "max_pool2d": _max_pool2d,
    "pad": _pad,
    "upsample": _upsample,
    "concat": _concat,
    "flatten": _reshape,
    "reshape": _reshape,
    "permute": _permute,
    "slice": _slice,
    "argmax": _argmax,
}
"""Operators on integers, or on integers and floats alike --> functions that write them in ONNX."""
