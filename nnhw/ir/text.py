"""The text form of a graph: one S-expression, one line per node. Its grammar is in docs/ir.md.

    (graph mnist_cnn (version 1)
      ("2" (conv2d :stride (1 1) :padding (0 0) :dilation (1 1) :groups 1) ("1" "2.weight") (int -9 9) (16 26 26)
        (at "2" mnist_cnn.py 31))
      ...
      (outputs "9"))

The arrays of constant nodes are part of it on demand; else they are saved beside it, see `files`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping

import numpy as np

from .attributes import fields_of
from .expressions import Expression, Symbol, Text, parse, show
from .graph import NOWHERE, Graph, Node
from .ops import Op, Scan
from .text_forms import SEQUENCE
from .text_reader import VERSION, GraphReader
from .types import FloatType, IntType

_WIDTH = 116  # of the lines of data, without their indent


def dumps(graph: Graph, *, locations: bool = True, data: bool = False, version: bool = True) -> str:
    """Return the text of a graph.

    Parameters
    ----------
    locations: say where nodes come from.
    data: write the arrays of constants into the text, exactly.
    version: say which version of the form it is.
    """
    stated = (Symbol("version"), VERSION) if version else None
    return "\n".join(_graph_lines(graph, stated, locations, data)) + "\n"


def loads(text: str, constants: Mapping[str, np.ndarray] | None = None, file: str = "") -> Graph:
    """Return the graph of a text and of arrays that are not in it: the inverse of `dumps`.

    Every rule of `verify` is checked where it can be told by its place; types that the text leaves out are inferred. A
    constant may lack its array, for which `verify` asks, as long as the types of those that read it are stated.

    Parameters
    ----------
    constants: arrays by the names of their nodes, in bodies of loops by the names that these have outside.
    file: that the text is from, for errors.

    Raises: IrError that names line and column for text that is not a graph; ProblemList for several of its nodes.
    """
    source = Text(text, file)
    return GraphReader(source, constants or {}).graph(parse(source))


def _graph_lines(graph: Graph, stated: Expression | None, locations: bool, data: bool) -> list[str]:
    """Return the lines of a graph, or of the body of a loop in it, which does not state the version."""
    lines = [f"(graph {show(graph.name)}" + (f" {show(stated)}" if stated else "")]
    for node in graph.nodes:
        lines += (f"  {line}" for line in _node_lines(node, locations, data))
        if data and node.name in graph.constants:
            written = list(_data_lines(graph.constants[node.name]))
            lines[-1] = f"{lines[-1][:-1]}"
            lines += [f"    {line}" for line in written]
            lines[-1] += ")"
    outputs = tuple(zip(graph.keys, graph.outputs, strict=True)) if graph.keys else graph.outputs
    lines.append(f"  {show(('outputs', *outputs))})")
    return lines


def _node_lines(node: Node, locations: bool, data: bool) -> list[str]:
    rest = " ".join(map(show, _typed(node, locations)))
    if not isinstance(node.op, Scan):
        return [f"({show(node.name)} {show(_op_form(node.op))} {rest})"]
    body = [f"    {line}" for line in _graph_lines(node.op.body, None, locations, data)]
    return [f"({show(node.name)} ({node.op.name} :body", *body[:-1], f"{body[-1]}) {rest})"]


def _op_form(op: Op) -> Expression:
    attributes: list[Expression] = []
    for name, field in fields_of(type(op)).items():
        value = getattr(op, name)
        if name not in op.optional or value != field.default:
            attributes += [f":{name}", value]
    return (op.name, *attributes)


def _typed(node: Node, locations: bool) -> tuple[Expression, ...]:
    """Return what stands behind the operator of a node."""
    shape: tuple[Expression, ...] = node.type.shape
    if node.type.is_sequence:
        shape = (SEQUENCE, *shape)
    form: tuple[Expression, ...] = (node.inputs, _dtype_form(node.type.dtype), shape)
    if not locations or node.location == NOWHERE:
        return form
    return (*form, ("at", node.location.module, node.location.file, node.location.line))


def _dtype_form(dtype: IntType | FloatType) -> Expression:
    if isinstance(dtype, FloatType):
        return ("float64",)
    return ("bipolar",) if dtype.bipolar else ("int", dtype.low, dtype.high)


def _data_lines(array: np.ndarray) -> Iterator[str]:
    """Yield an array's numbers in C order as lines."""
    numbers = " ".join(_number(value) for value in array.ravel().tolist())
    yield from textwrap.wrap(f"(data {numbers})", _WIDTH, break_long_words=False, break_on_hyphens=False)


def _number(value: float | bool) -> str:
    """Return a number as it is read back: NaN other than the usual one by the 16 hexadecimal digits of its bits."""
    if isinstance(value, float) and math.isnan(value):
        bits = np.float64(value).view(np.uint64).item()
        return "nan" if bits == np.float64("nan").view(np.uint64).item() else f"nan:{bits:016x}"
    return show(value)
