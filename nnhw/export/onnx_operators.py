"""What each operator of the IR becomes in ONNX: integers stay integers, and nothing is rounded that the IR does not.

Products of codes of at most 8 bits are ConvInteger and MatMulInteger; unsigned codes and weights with a zero point,
because some kernels for mixed signs saturate. Wider ones are MatMul of int64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import numpy as np

from nnhw.ir import Graph, IntType, Node, TensorType
from nnhw.ir.ops import (
    ArgMax,
    BatchNorm,
    Clamp,
    Concat,
    Conv2d,
    LeakyRelu,
    MaxPool2d,
    Pad,
    Permute,
    Quantize,
    Rescale,
    Slice,
    StepTable,
    SumPool2d,
    Threshold,
    Upsample,
    WeightedSum,
)
from nnhw.ir.ops.base import along_shape
from nnhw.ir.ops.rescale import FRACTION_BITS

COMPARED_STEPS = 15
"""Thresholds of a channel that are compared all at once; of more, a binary search compares a few."""
_FLOAT32_BITS = 24
_LAST_BITS = "the last bits of its exponential function belong to each runtime's library"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("elu", "sigmoid", "tanh", "silu", "mish", "gelu", "softplus", "exp", "softmax", "log_softmax"), _LAST_BITS
    ),
    "fixed_softmax": "its fixed-point arithmetic needs shifts of signed integers, which ONNX has not",
}
"""Operator that has no exact form --> why."""


class Emitter(ABC):
    """Where operators put their ONNX nodes. A value has the name of its node in the graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @abstractmethod
    def emit(self, operator: str, *inputs: str, to: str = "", **attributes: object) -> str:
        """Add one ONNX node; return the name of its result."""

    @abstractmethod
    def constant(self, values: object, dtype: type[np.generic] = np.int64) -> str:
        """Return the name of a constant tensor."""

    @abstractmethod
    def cast(self, value: str, dtype: type[np.generic]) -> str:
        """Add a conversion; return the name of its result."""

    @abstractmethod
    def finish(self, node: Node, value: str) -> None:
        """Give a result the name of the graph's node."""

    def type(self, name: str) -> TensorType:
        """Return the type of a value of the graph."""
        return self.graph.node(name).type

    def array(self, node: Node, position: int) -> np.ndarray:
        """Return the constant that a node reads at a position."""
        return self.graph.constants[node.inputs[position]]


Row = Callable[[Emitter, Node], None]


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
    """Gather the taps of every position, and multiply them as int64."""
    x, weight = node.inputs[0], emitter.array(node, 1)
    outputs, per_group, *kernel = weight.shape
    taps = _windows(emitter, _padded(emitter, x, op.padding, op.padding, 0), node, kernel, op.stride, op.dilation)
    positions, size = int(np.prod(node.type.shape[1:])), per_group * int(np.prod(kernel))
    columns = emitter.emit("Reshape", taps, emitter.constant([0, op.groups, size, positions]))
    rows = emitter.constant(weight.reshape(op.groups, outputs // op.groups, size))
    product = emitter.emit("MatMul", rows, columns)
    emitter.finish(node, emitter.emit("Reshape", product, emitter.constant([0, *node.type.shape])))


def _as_bytes(emitter: Emitter, x: str, weight: np.ndarray) -> tuple[str, str, np.ndarray, str] | None:
    """Return codes and weights as bytes with their zero points; None where they or their sums are too wide."""
    dtype = emitter.type(x).int_dtype
    zero, weight_zero = (128 if low < 0 else 0 for low in (dtype.low, int(weight.min())))
    ends = (dtype.low + zero, dtype.high + zero, int(weight.min()) + weight_zero, int(weight.max()) + weight_zero)
    taps = weight[0].size
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
    """Return how many thresholds [channels, steps] of its channel each element reaches."""
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
    padded = np.full((channels, size), np.iinfo(np.int64).max)
    padded[:, :steps] = rows
    table = emitter.constant(padded.ravel())
    first = emitter.constant((np.arange(channels) * size).reshape(-1, *[1] * sides))
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
    """number / 2**shift, to the nearest, ties up: ONNX's integer division truncates, so the remainder goes first."""
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
        values = emitter.cast(x, np.int32 if _within(emitter.type(x).int_dtype, 32) else np.float64)
    emitter.finish(node, emitter.emit("ArgMax", values, axis=op.axis + 1, keepdims=int(op.keepdim)))


def _within(dtype: IntType, bits: int) -> bool:
    return -(1 << bits - 1) <= dtype.low and dtype.high < 1 << bits - 1


def _quantize(emitter: Emitter, node: Node) -> None:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Quantize)
    if op.bipolar:
        reached = emitter.cast(emitter.emit("GreaterOrEqual", x, emitter.constant(0.0, np.float64)), np.int64)
        doubled = emitter.emit("Mul", reached, emitter.constant(2))
        emitter.finish(node, emitter.emit("Sub", doubled, emitter.constant(1)))
        return
    scale = along_shape(emitter.array(node, 1), len(node.type.shape))
    dtype: type[np.generic] = np.float64
    if op.reciprocal:
        dtype = np.float32
        inverse = np.float32(1) / scale.astype(np.float32)
        steps = emitter.emit("Mul", emitter.cast(x, dtype), emitter.constant(inverse, dtype))
    else:
        steps = emitter.emit("Div", x, emitter.constant(scale, dtype))
    if op.offset:
        steps = emitter.emit("Add", steps, emitter.constant(op.offset, dtype))
    ends = [emitter.constant(end + op.offset, dtype) for end in (op.low, op.high)]
    rounded = _ROUNDINGS[op.rounding](emitter, emitter.emit("Clip", steps, *ends), dtype)
    codes = emitter.cast(rounded, np.int64)
    emitter.finish(node, emitter.emit("Sub", codes, emitter.constant(op.offset)) if op.offset else codes)


def _half_up(emitter: Emitter, number: str, dtype: type[np.generic]) -> str:
    whole = emitter.emit("Floor", number)
    rest = emitter.emit("GreaterOrEqual", emitter.emit("Sub", number, whole), emitter.constant(0.5, dtype))
    return emitter.emit("Add", whole, emitter.cast(rest, dtype))


def _half_away(emitter: Emitter, number: str, dtype: type[np.generic]) -> str:
    size = _half_up(emitter, emitter.emit("Abs", number), dtype)
    return emitter.emit("Mul", emitter.emit("Sign", number), size)


_ROUNDINGS: Mapping[str, Callable[[Emitter, str, type[np.generic]], str]] = {
    "half_even": lambda emitter, number, dtype: emitter.emit("Round", number),
    "half_away": _half_away,
    "half_up": _half_up,
    "floor": lambda emitter, number, dtype: emitter.emit("Floor", number),
    "ceil": lambda emitter, number, dtype: emitter.emit("Ceil", number),
}


def _dequantize(emitter: Emitter, node: Node) -> None:
    scale = along_shape(emitter.array(node, 1), len(node.type.shape))
    value = emitter.cast(node.inputs[0], np.float64)
    emitter.finish(node, emitter.emit("Mul", value, emitter.constant(scale, np.float64)))


def _binary(operator: str) -> Row:
    def row(emitter: Emitter, node: Node) -> None:
        rank = len(node.type.shape)
        names = [
            emitter.constant(along_shape(emitter.graph.constants[name], rank), np.float64)
            if name in emitter.graph.constants
            else name
            for name in node.inputs
        ]
        emitter.finish(node, emitter.emit(operator, *names))

    return row


def _unary(operator: str) -> Row:
    def row(emitter: Emitter, node: Node) -> None:
        emitter.finish(node, emitter.emit(operator, node.inputs[0]))

    return row


def _square(emitter: Emitter, node: Node) -> None:
    emitter.finish(node, emitter.emit("Mul", node.inputs[0], node.inputs[0]))


def _truncate(emitter: Emitter, node: Node) -> None:
    x = node.inputs[0]
    falls = emitter.emit("Less", x, emitter.constant(0.0, np.float64))
    emitter.finish(node, emitter.emit("Where", falls, emitter.emit("Ceil", x), emitter.emit("Floor", x)))


def _relu(emitter: Emitter, node: Node) -> None:
    emitter.finish(node, emitter.emit("Max", node.inputs[0], emitter.constant(0.0, np.float64)))


def _clamp(emitter: Emitter, node: Node) -> None:
    assert isinstance(node.op, Clamp)
    ends = [emitter.constant(end, np.float64) for end in (node.op.low, node.op.high)]
    emitter.finish(node, emitter.emit("Clip", node.inputs[0], *ends))


def _leaky(emitter: Emitter, node: Node, slope: np.ndarray) -> None:
    x = node.inputs[0]
    rises = emitter.emit("GreaterOrEqual", x, emitter.constant(0.0, np.float64))
    below = emitter.emit("Mul", x, emitter.constant(slope, np.float64))
    emitter.finish(node, emitter.emit("Where", rises, x, below))


def _leaky_relu(emitter: Emitter, node: Node) -> None:
    assert isinstance(node.op, LeakyRelu)
    _leaky(emitter, node, np.array(node.op.slope))


def _prelu(emitter: Emitter, node: Node) -> None:
    slope = emitter.array(node, 1)
    _leaky(emitter, node, slope.reshape((-1,) + (1,) * (len(node.type.shape) - 1)) if slope.ndim else slope)


def _hard(emitter: Emitter, x: str) -> str:
    """min(max(x + 3, 0), 6)."""
    three, zero, six = (emitter.constant(number, np.float64) for number in (3.0, 0.0, 6.0))
    return emitter.emit("Min", emitter.emit("Max", emitter.emit("Add", x, three), zero), six)


def _hardsigmoid(emitter: Emitter, node: Node) -> None:
    emitter.finish(node, emitter.emit("Div", _hard(emitter, node.inputs[0]), emitter.constant(6.0, np.float64)))


def _hardswish(emitter: Emitter, node: Node) -> None:
    x = node.inputs[0]
    product = emitter.emit("Mul", emitter.emit("Max", x, emitter.constant(-3.0, np.float64)), _hard(emitter, x))
    emitter.finish(node, emitter.emit("Div", product, emitter.constant(6.0, np.float64)))


def _batch_norm(emitter: Emitter, node: Node) -> None:
    assert isinstance(node.op, BatchNorm)
    spread = (-1,) + (1,) * (len(node.type.shape) - 1)
    affine = node.op.affine(*(emitter.array(node, position) for position in (1, 2, 3, 4)))
    alpha, shift = (emitter.constant(array.reshape(spread), np.float64) for array in affine)
    emitter.finish(node, emitter.emit("Add", emitter.emit("Mul", node.inputs[0], alpha), shift))


OPERATORS: Mapping[str, Row] = {
    "quantize": _quantize,
    "dequantize": _dequantize,
    "linear": _linear,
    "conv2d": _conv2d,
    "threshold": _threshold,
    "step_table": _step_table,
    "rescale": _rescale,
    "sum_pool2d": _sum_pool2d,
    "weighted_sum": _weighted_sum,
    "max_pool2d": _max_pool2d,
    "pad": _pad,
    "upsample": _upsample,
    "concat": _concat,
    "flatten": _reshape,
    "reshape": _reshape,
    "permute": _permute,
    "slice": _slice,
    "argmax": _argmax,
    "add": _binary("Add"),
    "sub": _binary("Sub"),
    "mul": _binary("Mul"),
    "div": _binary("Div"),
    "minimum": _binary("Min"),
    "maximum": _binary("Max"),
    "neg": _unary("Neg"),
    "abs": _unary("Abs"),
    "sqrt": _unary("Sqrt"),
    "floor": _unary("Floor"),
    "ceil": _unary("Ceil"),
    "round": _unary("Round"),
    "trunc": _truncate,
    "square": _square,
    "relu": _relu,
    "clamp": _clamp,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
    "batch_norm": _batch_norm,
}
"""Operator of the IR --> how it is written in ONNX."""
