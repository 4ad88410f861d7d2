"""Operators on float64 in ONNX, as the same IEEE operations in the same order as in the IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from nnhw.ir import Node
from nnhw.ir.ops import BatchNorm, Clamp, LeakyRelu, Quantize
from nnhw.ir.ops.base import along_shape

from .onnx_emitter import Emitter, Row


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
        # The quantizer that it stands for multiplies with the rounded reciprocal, in float32.
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
    # Not Floor(number + 0.5): that sum is rounded, and 0.49999999999999994 would become 1.
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


def _operands(emitter: Emitter, node: Node) -> list[str]:
    """Return the names of a node's operands, constants as tensors that broadcast to its shape."""
    rank = len(node.type.shape)
    return [
        emitter.constant(along_shape(emitter.graph.constants[name], rank), np.float64)
        if name in emitter.graph.constants
        else name
        for name in node.inputs
    ]


def _binary(operator: str) -> Row:
    def row(emitter: Emitter, node: Node) -> None:
        emitter.finish(node, emitter.emit(operator, *_operands(emitter, node)))

    return row


def _comparison(operator: str) -> Row:
    def row(emitter: Emitter, node: Node) -> None:
        holds = emitter.emit(operator, *_operands(emitter, node))
        emitter.finish(node, emitter.cast(holds, np.float64))

    return row


def _where(emitter: Emitter, node: Node) -> None:
    condition, x, y = _operands(emitter, node)
    # Conditions are floats here: anything but 0 is true.
    absent = emitter.emit("Equal", condition, emitter.constant(0.0, np.float64))
    emitter.finish(node, emitter.emit("Where", absent, y, x))


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


FLOATS: Mapping[str, Row] = {
    "quantize": _quantize,
    "dequantize": _dequantize,
    "add": _binary("Add"),
    "sub": _binary("Sub"),
    "mul": _binary("Mul"),
    "div": _binary("Div"),
    "minimum": _binary("Min"),
    "maximum": _binary("Max"),
    "greater": _comparison("Greater"),
    "greater_equal": _comparison("GreaterOrEqual"),
    "where": _where,
    "sign": _unary("Sign"),
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
"""Operators on float64 --> functions that write them in ONNX."""
