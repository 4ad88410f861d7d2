"""The float operations of a model in C: the quantizer of its input, and what follows its last integers.

Every operation is one IEEE operation in double precision, in the order of the graph, so that the results are those of
nnhw; only exp and log of softmax and log_softmax come from the C library, whose last bits are its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from nnhw.errors import ExportError
from nnhw.ir import Graph, Node
from nnhw.ir.ops import (
    Absolute,
    Add,
    BatchNorm,
    Clamp,
    Dequantize,
    Divide,
    Elu,
    Exp,
    Flatten,
    Gelu,
    Greater,
    GreaterEqual,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Maximum,
    Minimum,
    Mish,
    Multiply,
    Negate,
    Op,
    Permute,
    PRelu,
    Quantize,
    Relu,
    Reshape,
    Sigmoid,
    Sign,
    Silu,
    Slice,
    Softplus,
    Square,
    Subtract,
    Tanh,
    Where,
    activation,
)
from nnhw.ir.ops.base import along_shape

from .c_text import c_type, loop, real, table

_SHAPE_OPS = (Flatten, Reshape, Permute, Slice)
"""Operators that only move elements; they cost no statement, only another order of the index."""
# Placeholders are operands in the order of the node, of which one is a constant.
_BINARY: dict[type[Op], str] = {Add: "{} + {}", Subtract: "{} - {}", Multiply: "{} * {}", Divide: "{} / {}"}
_COMPARED: dict[type[Op], str] = {Greater: "{} > {} ? 1.0 : 0.0", GreaterEqual: "{} >= {} ? 1.0 : 0.0"}
_CHOSEN: dict[type[Op], str] = {Minimum: "<", Maximum: ">"}


@dataclass
class Expression:
    """A value whose elements are each computed from one element of an array.

    Parameters
    ----------
    array: C expression of the array.
    index: int64 of the value's shape: the element of the array that each element is computed from.
    lines: statements that turn `v`, at first the array's element, into the value's; `{k}` stands for constant k.
    constants: float64, of the value's shape.
    """

    array: str
    index: np.ndarray
    lines: list[str] = field(default_factory=list)
    constants: list[np.ndarray] = field(default_factory=list)

    def then(self, line: str, *constants: np.ndarray) -> Expression:
        """Return the expression with another statement; its constants broadcast to the value."""
        first = len(self.constants)
        # Numbers of this line's constants are moved behind those of the lines before.
        line = line.format(*(f"{{{first + k}}}" for k in range(len(constants))))
        spread = [np.broadcast_to(one, self.index.shape) for one in constants]
        return Expression(self.array, self.index, [*self.lines, line], [*self.constants, *spread])

    def moved(self, op: Op) -> Expression:
        """Return the expression after an operator that only moves elements."""

        def move(array: np.ndarray) -> np.ndarray:
            # The operator itself moves indices and constants, with an axis for the batch.
            return op.evaluate(array[None])[0]

        return Expression(self.array, move(self.index), self.lines, [move(one) for one in self.constants])


class FloatWriter:
    """Writes the statements of one float function, and collects the tables and helpers that it needs."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.tables: list[str] = []
        self.helpers: list[str] = []
        self.needs_math = False

    def elements(self, value: Expression, store: str) -> list[str]:
        """Return the loop over all elements of a value.

        Parameters
        ----------
        store: statement that stores `v`, the value of element `i`.
        """
        constants = [self._constant(one.reshape(-1)) for one in value.constants]
        where = self._index(value.index.reshape(-1))
        lines = [line.format(*constants) for line in value.lines]
        called = [name for line in lines for name in re.findall(r"special_\w+", line)]
        self.helpers += called
        self.needs_math |= bool(called)
        return loop("i", value.index.size, [f"double v = {value.array}[{where}];", *lines, store])

    def _constant(self, values: np.ndarray) -> str:
        if not _changes(values).any():
            text = real(values[0])
            return f"({text})" if text[0] == "-" else text
        name = f"{self.prefix}_numbers_{len(self.tables)}"
        # Most constants differ from channel to channel alone: a table of all elements would repeat each number.
        period = _period(values)
        self.tables += table("double", name, period[0])
        return f"{name}[i{period[1]}]"

    def _index(self, index: np.ndarray) -> str:
        if (index == np.arange(len(index))).all():
            return "i"
        name = f"{self.prefix}_order_{len(self.tables)}"
        self.tables += table("uint16_t" if index.max() < 1 << 16 else "uint32_t", name, index)
        return f"{name}[i]"


def _period(values: np.ndarray) -> tuple[np.ndarray, str]:
    """Return a table with one entry for each run of equal values, such as a channel's, and the suffix of its index."""
    changes = np.flatnonzero(_changes(values)) + 1
    run = int(np.gcd.reduce(np.append(changes, len(values)))) if len(changes) else len(values)
    return (values[::run], f" / {run}") if run > 1 else (values, "")


def _changes(values: np.ndarray) -> np.ndarray:
    """Return for each value but the first whether it is another constant than the one before it."""
    # 0.0 == -0.0, but they are different constants.
    return (values[1:] != values[:-1]) | (np.signbit(values[1:]) != np.signbit(values[:-1]))


def applied(node: Node, graph: Graph, value: Expression) -> Expression:
    """Return the expression after an elementwise operator.

    Raises
    ------
    ExportError: it has no form in C.
    """
    op, rank = node.op, value.index.ndim
    numbers = [along_shape(graph.constants[name], rank)[0] for name in node.inputs if name in graph.constants]
    if isinstance(op, _SHAPE_OPS):
        return value.moved(op)
    if isinstance(op, Dequantize):
        return value.then("v = v * {};", numbers[0])
    written = _BINARY.get(type(op)) or _COMPARED.get(type(op))
    if written is not None and len(numbers) == 1:
        order = ("{{}}", "v") if node.inputs[0] in graph.constants else ("v", "{{}}")
        return value.then(f"v = {written.format(*order).replace('{{}}', '{}')};", numbers[0])
    if isinstance(op, Where) and len(numbers) == 2 and node.inputs[0] not in graph.constants:
        return value.then("v = v != 0.0 ? {} : {};", *numbers)
    if type(op) in _CHOSEN and len(numbers) == 1:
        return value.then("v = v " + _CHOSEN[type(op)] + " {} ? v : {};", numbers[0], numbers[0])
    if isinstance(op, BatchNorm):
        # Folded by the same function as in the IR, so that the two factors are the same doubles.
        alpha, shift = op.affine(*(graph.constants[name] for name in node.inputs[1:]))
        spread = (-1,) + (1,) * (rank - 1)
        return value.then("v = v * {} + {};", alpha.reshape(spread), shift.reshape(spread))
    if isinstance(op, PRelu):
        slope = graph.constants[node.inputs[1]].reshape((-1,) + (1,) * (rank - 1))
        return value.then("v = v >= 0.0 ? v : v * {};", slope)
    for kind, write in _UNARY.items():
        if isinstance(op, kind):
            return write(op, value)
    raise ExportError(
        f"{node} has no C at the float ends of a model; docs/c.md lists the operators that have; 'codes' exports the "
        "integer network alone"
    )


def _clamp(op: Op, value: Expression) -> Expression:
    assert isinstance(op, Clamp)
    # An end that is infinite bounds nothing, and C has no literal for it.
    for end, sign in ((op.low, "<"), (op.high, ">")):
        if np.isfinite(end):
            value = value.then(f"v = v {sign} {{}} ? {{}} : v;", np.array(end), np.array(end))
    return value


def _leaky(op: Op, value: Expression) -> Expression:
    assert isinstance(op, LeakyRelu)
    return value.then("v = v >= 0.0 ? v : v * {};", np.array(op.slope))


def _gelu(op: Op, value: Expression) -> Expression:
    assert isinstance(op, Gelu)
    if op.tanh_form:
        cubic, outer = real(activation._GELU_CUBIC), real(activation._SQRT_2_OVER_PI)
        return value.then(f"v = (v * 0.5) * (1.0 + special_tanh({outer} * (v + {cubic} * (v * v * v))));")
    return value.then(f"v = (v * 0.5) * (1.0 + special_erf(v * {real(activation._SQRT_HALF)}));")


def _elu(op: Op, value: Expression) -> Expression:
    assert isinstance(op, Elu)
    scale, inner, below = (np.array(one) for one in (op.scale, op.input_scale, op.alpha * op.scale))
    return value.then("v = v > 0.0 ? v * {} : special_expm1(v * {}) * {};", scale, inner, below)


def _softplus(op: Op, value: Expression) -> Expression:
    assert isinstance(op, Softplus)
    beta = np.array(op.beta)
    if op.threshold == float("inf"):
        return value.then("v = special_softplus(v * {}) / {};", beta, beta)
    line = "v = v * {} > {} ? v : special_softplus(v * {}) / {};"
    return value.then(line, beta, np.array(op.threshold), beta, beta)


_UNARY: dict[type[Op], Callable[[Op, Expression], Expression]] = {
    Sigmoid: lambda op, value: value.then("v = special_sigmoid(v);"),
    Tanh: lambda op, value: value.then("v = special_tanh(v);"),
    Exp: lambda op, value: value.then("v = special_exp(v);"),
    Silu: lambda op, value: value.then("v = v / (1.0 + special_exp(-v));"),
    Mish: lambda op, value: value.then("v = v * special_tanh(special_softplus(v));"),
    HardSwish: lambda op, value: value.then(
        "v = (v > -3.0 ? v : -3.0) * (v + 3.0 > 6.0 ? 6.0 : v + 3.0 > 0.0 ? v + 3.0 : 0.0) / 6.0;"
    ),
    Gelu: _gelu,
    Elu: _elu,
    Softplus: _softplus,
    Negate: lambda op, value: value.then("v = -v;"),
    Sign: lambda op, value: value.then("v = v > 0.0 ? 1.0 : v < 0.0 ? -1.0 : 0.0;"),
    Relu: lambda op, value: value.then("v = v < 0.0 ? 0.0 : v;"),
    Absolute: lambda op, value: value.then("v = v < 0.0 ? -v : v;"),
    Square: lambda op, value: value.then("v = v * v;"),
    HardSigmoid: lambda op, value: (
        value.then("v = v + 3.0;").then("v = v < 0.0 ? 0.0 : v;").then("v = (v > 6.0 ? 6.0 : v) / 6.0;")
    ),
    Clamp: _clamp,
    LeakyRelu: _leaky,
}


def quantizer(graph: Graph, writer: FloatWriter) -> list[str]:
    """Return the body of `NAME_quantize(const float *image, TYPE *codes)`, for the float head of a model.

    Raises
    ------
    ExportError: an operator has no form in C.
    """
    last = graph.node(graph.outputs[0])
    shape = graph.inputs[0].type.shape
    value = Expression("(double)image", np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape))
    known = {graph.inputs[0].name: value}
    for node in (one for one in graph.nodes if one.inputs and one is not last):
        data = [one.name for one in graph.data_inputs(node)]
        if len(data) != 1:
            raise ExportError(f"{node} joins several values in front of the quantizer, which has no C")
        known[node.name] = applied(node, graph, known[data[0]])
    return _quantized(last, graph, known[graph.data_inputs(last)[0].name], writer)


def _quantized(node: Node, graph: Graph, value: Expression, writer: FloatWriter) -> list[str]:
    op, ctype = node.op, c_type(node.type.int_dtype)
    if not isinstance(op, Quantize):
        raise ExportError(f"{node} stands behind the quantizer of the input, which has no C")
    if op.bipolar:
        return writer.elements(value, f"codes[i] = ({ctype})(v >= 0.0 ? 1 : -1);")
    scale = along_shape(graph.constants[node.inputs[1]], value.index.ndim)[0]
    if op.reciprocal:
        inverse = (np.float32(1) / scale.astype(np.float32)).astype(np.float64)
        # The quantizer that it stands for computes in float32. The product is stored in a float, which rounds it.
        value = value.then("float steps = (float)v * (float){};", inverse)
        value = value.then(f"steps = steps + (float){op.offset};") if op.offset else value
        value = value.then("v = (double)steps;")
    else:
        value = value.then("v = v / {};", scale)
        value = value.then(f"v = v + ({op.offset}.0);") if op.offset else value
    # Clamped before rounding, so that `rounded_` gets numbers that an int32_t holds; NaN becomes the lowest code.
    low, high = op.low + op.offset, op.high + op.offset
    value = value.then(f"v = v > ({low}.0) ? v : ({low}.0);").then(f"v = v < ({high}.0) ? v : ({high}.0);")
    writer.helpers.append(f"rounded_{op.rounding}")
    return writer.elements(value, f"codes[i] = ({ctype})(rounded_{op.rounding}(v) - ({op.offset}));")


ROUNDINGS: dict[str, str] = {
    "half_even": (
        "rest > 0.5 || (rest == 0.5 && whole % 2 != 0) ? 1 : rest < -0.5 || (rest == -0.5 && whole % 2 != 0) ? -1 : 0"
    ),
    "half_away": "rest >= 0.5 ? 1 : rest <= -0.5 ? -1 : 0",
    "half_up": "rest >= 0.5 ? 1 : rest < -0.5 ? -1 : 0",
    "floor": "rest < 0.0 ? -1 : 0",
    "ceil": "rest > 0.0 ? 1 : 0",
}


def rounding_lines(name: str) -> list[str]:
    """Return the function of a rounding, for numbers that an int32_t holds; their fraction is computed exactly."""
    rule = ROUNDINGS[name.removeprefix("rounded_")]
    return [
        f"static int32_t {name}(double v)",
        "{",
        "    int32_t whole = (int32_t)v;",
        "    double rest = v - (double)whole;",
        f"    return whole + ({rule});",
        "}",
        "",
    ]
