"""Handlers of traced fixed-point requantization and other operators on integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnhw.errors import CaptureError
from nnhw.ir import IntType, TensorType
from nnhw.ir.ops import Add, Dequantize, FixedSoftmax, Rescale, StepTable, Subtract, WeightedSum

from .calls import Call
from .translator import RESCALE, Handler, Translator
from .values import Codes, Float, TracedConstant, Value

_PARAMETERS = ("multiplier", "exponent", "bias")


def rescale(translator: Translator, call: Call) -> Value:
    """Codes of integers by a multiplier and shifts."""
    x = integers(translator, call, call["x"])
    shape = translator.builder.type_of(x).shape
    names = [_parameter(translator, call, name, shape[0]) for name in _PARAMETERS]
    op = Rescale(*(call[name] for name in ("offset", "low", "high", "rounding", "shift")))
    return Codes(translator.emit(call, op, x, *names), np.array(1.0), quantized=True)


def integers(translator: Translator, call: Call, value: Any) -> str:
    """Return the node with a value's integers, if the value is codes with scale 1, or a sum of two such.

    Raises
    ------
    CaptureError: the value is something else.
    """
    if isinstance(value, Codes) and (value.scale == 1).all():
        return value.name
    if isinstance(value, Float) and (name := _sum(translator, call, value.name)):
        return name
    raise CaptureError(
        f"{call} needs integers: codes with scale 1, the sums of a layer that multiplies such codes, or a sum of two "
        f"of them; quantize activations and weights with scale=1, and let the rescaling add the bias"
    )


def _sum(translator: Translator, call: Call, name: str) -> str:
    """Return the node of an integer sum or difference of two integer values; empty if a value is none."""
    # The sum was emitted as one of floats, when nobody knew that a rescaling would read it.
    graph = translator.builder.build([name])
    node = graph.node(name)
    operands = graph.data_inputs(node)
    if not isinstance(node.op, Add | Subtract) or len(operands) != 2:
        return ""
    if not all(isinstance(o.op, Dequantize) and (graph.constants[o.inputs[1]] == 1).all() for o in operands):
        return ""
    op = WeightedSum((1, 1) if isinstance(node.op, Add) else (1, -1))
    if operands[0] is operands[1]:
        raise CaptureError(f"{call} reads the sum of a value with itself; multiply the scale by 2 instead")
    return translator.builder.add(f"{name}.integers", op, [o.inputs[0] for o in operands], node.location)


def _parameter(translator: Translator, call: Call, name: str, channels: int) -> str:
    value = call[name]
    if not isinstance(value, TracedConstant):
        raise CaptureError(f"{call} computes its {name} from the model's input; it must be a constant")
    given = value.tensor.detach().cpu().numpy().astype(np.int64)
    array = np.broadcast_to(given.reshape(-1), channels).copy()
    type = TensorType(array.shape, IntType(int(array.min()), int(array.max())))
    return translator.builder.constant(f"{translator.label(call)}.{name}", array, type, call.location)


def lookup(translator: Translator, call: Call) -> Value:
    """A function of one code, by the table of its values: steps where it changes."""
    x = integers(translator, call, call["x"])
    table, low = call["table"].tensor.numpy().astype(np.int64), int(call["low"])
    dtype, channels = translator.builder.type_of(x).int_dtype, translator.builder.type_of(x).shape[0]
    if dtype.low < low or dtype.high >= low + len(table):
        raise CaptureError(f"{call} has a table for {low}..{low + len(table) - 1}, and reads {dtype}")
    # + 1: a step is at the first integer that has the new value.
    places = low + 1 + np.flatnonzero(np.diff(table))
    inside = places[(places > dtype.low) & (places <= dtype.high)]
    # The first step begins at the least integer, whatever the table has below it.
    codes = table[np.append(dtype.low, inside) - low]
    names = [
        translator.builder.constant(
            f"{translator.label(call)}.{role}", np.tile(row, (channels, 1)), type, call.location
        )
        for role, row, type in (
            ("thresholds", inside, TensorType((channels, len(inside)), IntType(dtype.low, dtype.high))),
            ("codes", codes, TensorType((channels, len(codes)), IntType(int(codes.min()), int(codes.max())))),
        )
    ]
    op = StepTable(int(codes.min()), int(codes.max()))
    return Codes(translator.emit(call, op, x, *names), np.array(1.0), quantized=True)


def fixed_softmax(translator: Translator, call: Call) -> Value:
    """Softmax of codes in fixed point, along the last axis."""
    x = integers(translator, call, call["x"])
    axis = len(translator.builder.type_of(x).shape) - 1
    return Float(
        translator.emit(call, FixedSoftmax(axis, *(call[name] for name in ("multiplier", "left", "least"))), x)
    )


HANDLERS: dict[str, Handler] = {
    RESCALE: rescale,
    "nnhw.lookup.default": lookup,
    "nnhw.fixed_softmax.default": fixed_softmax,
}
