"""Recoding: turning floats that were computed from codes, such as (Sign(x) + 1) / 2, into codes again, exactly."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from math import gcd, lcm

import numpy as np

from nnhw.ir import Graph, Node
from nnhw.ir.ops import Concat, Dequantize, Flatten, MaxPool2d, Pad, Permute, Quantize, Reshape, Slice, Upsample
from nnhw.ir.ops.elementwise import Binary, Unary

from .calls import Call
from .translator import Translator
from .values import Codes, Float

_GREATEST_CODE = 255
"""Greatest magnitude of a code that floats may be turned into: 8 bits, as quantizers have them."""
_GREATEST_RANGE = 2**9  # codes that are tried: more than a layer can read
_OF_ONE_NUMBER = (Unary, Binary, Dequantize)
_MOVES = Flatten | Reshape | Permute | Slice | Upsample | MaxPool2d
_PICKS = (Flatten, Reshape, Permute, Slice, Upsample, MaxPool2d, Pad)
"""Ops whose results are elements of their operand, or borders."""


def recoded(translator: Translator, call: Call, value: Float) -> Codes | Float:
    """Return codes for a value that is a function of codes, if all numbers that it can have are integers times one
    scale.

    (code - 1) / 2 of the codes -1 and +1                     --> the codes 0 and 1
    codes of the scale 1/4 and codes of 1/8, one behind the other --> codes of the scale 1/8

    The greatest such scale is taken. Any other value is returned as it is.
    """
    scale, codes = _common_scale(_all_numbers(translator, value.name))
    if scale is None:
        return value
    bipolar = set(codes.tolist()) == {-1, 1}
    op = Quantize(int(codes.min()), int(codes.max()), bipolar)
    # In the table of quantizers, so that two readers of the value share one node.
    key = value.name, op, (), np.float64(scale).tobytes()
    if key not in translator.quantized:
        constant = translator.array(f"{value.name}.scale", np.array(scale), call.location)
        name = translator.builder.add(f"{value.name}.codes", op, [value.name, constant], call.location)
        translator.quantized[key] = Codes(name, np.array(scale), quantized=True)
    return translator.quantized[key]


def _all_numbers(translator: Translator, name: str) -> np.ndarray:
    """Return all numbers that a value can have; NaN if they do not follow from codes one by one, or are too many."""
    graph = translator.builder.build([name])
    node = graph.node(name)
    if isinstance(node.op, Concat | _MOVES):
        return np.concatenate([_all_numbers(translator, part) for part in node.inputs])
    path = _path(graph)
    return np.array([np.nan]) if path is None else _numbers(graph, path)


def _path(graph: Graph) -> list[Node] | None:
    """Return the ops from a dequantize with one scale to the graph's output, if each number is of one code."""
    names, path = {graph.outputs[0]}, []
    for node in reversed(graph.nodes):
        if node.name not in names or node.name in graph.constants:
            continue
        path.append(node)
        operands = [graph.constants[name] for name in node.inputs if name in graph.constants]
        if any(array.size != 1 for array in operands) or not isinstance(node.op, _OF_ONE_NUMBER + _PICKS):
            return None
        if not isinstance(node.op, Dequantize):
            names |= {operand.name for operand in graph.data_inputs(node)}
    starts = [node for node in path if isinstance(node.op, Dequantize)]
    return path[::-1] if len(starts) == 1 else None


def _numbers(graph: Graph, path: list[Node]) -> np.ndarray:
    """Return all numbers that a value can have, computed from all codes; NaN if there are too many codes."""
    codes = graph.data_inputs(path[0])[0].type.int_dtype
    if codes.high - codes.low > _GREATEST_RANGE:
        return np.array([np.nan])
    every = np.array([-1, 1]) if codes.bipolar else np.arange(codes.low, codes.high + 1)
    values: dict[str, np.ndarray] = {
        name: array.reshape(()) for name, array in graph.constants.items() if array.size == 1
    }
    values[path[0].inputs[0]] = every
    with np.errstate(all="ignore"):
        for node in path:
            operands = [values[name] for name in node.inputs]
            if isinstance(node.op, _PICKS):
                # Moving elements makes no new number, but a border may.
                border = [node.op.value] if isinstance(node.op, Pad) else []
                values[node.name] = np.append(operands[0], border)
            else:
                values[node.name] = node.op.evaluate(*operands)
    return values[path[-1].name]


def _common_scale(numbers: np.ndarray) -> tuple[float | None, np.ndarray]:
    """Return (greatest scale of which all numbers are multiples, the multiples); None if these are too large."""
    if not np.isfinite(numbers).all() or not numbers.any():
        return None, numbers
    # Exact fractions: floats could not tell a common scale from one that is nearly common.
    exact = [Fraction(number) for number in np.unique(np.abs(numbers)).tolist() if number]
    common = lcm(*(number.denominator for number in exact))
    scale = Fraction(reduce(gcd, (int(number * common) for number in exact)), common)
    codes = np.array([int(Fraction(number) / scale) for number in numbers.tolist()])
    if np.abs(codes).max() > _GREATEST_CODE or Fraction(float(scale)) != scale:
        return None, numbers
    return float(scale), codes
