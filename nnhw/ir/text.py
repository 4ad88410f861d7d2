"""The text form of a graph: one S-expression, one line per node. Its grammar is in docs/ir.md.

    (graph mnist_cnn (version 1)
      ("2" (conv2d :stride (1 1) :padding (0 0) :dilation (1 1) :groups 1) ("1" "2.weight") (int -9 9) (16 26 26)
        (at "2" mnist_cnn.py 31))
      ...
      (outputs "9"))

The arrays of constants are saved beside the text (see `files`), or written into it on demand.
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

_WIDTH = 116
"""Characters of a line of data, without its indent."""


def dumps(graph: Graph, *, locations: bool = True, data: bool = False, version: bool = True) -> str:
    """Return the text of a graph.

    Parameters
    ----------
    locations: write the source location of each node.
    data: write the arrays of constants into the text; they are read back exactly.
    version: write the version of the text form.
    """
    stated = (Symbol("version"), VERSION) if version else None
    return "\n".join(_graph_lines(graph, stated, locations, data)) + "\n"


def loads(text: str, constants: Mapping[str, np.ndarray] | None = None, file: str = "") -> Graph:
    """Return the graph of a text: the inverse of `dumps`.

    Every rule of `verify` is checked, with an error that shows the place; types that the text leaves out are inferred.
    A constant may lack its array if the types of its readers are stated; `verify` reports it later.

    Parameters
    ----------
    constants: the arrays that are not in the text, by node name; in bodies of loops by `inner_name`.
    file: name of the text's file, for errors.

    Raises: IrError that names line and column for text that is not a graph; ProblemList for several of its nodes.
    """
    source = Text(text, file)
    return GraphReader(source, constants or {}).graph(parse(source))


def _graph_lines(graph: Graph, stated: Expression | None, locations: bool, data: bool) -> list[str]:
    """Return the lines of a graph, or of the body of a loop.

    Parameters
    ----------
    stated: the expression that states the version; None for a body.
    """
    lines = [f"(graph {show(graph.name)}" + (f" {show(stated)}" if stated else "")]
    for node in graph.nodes:
        lines += (f"  {line}" for line in _node_lines(node, locations, data))
        if data and node.name in graph.constants:
            written = list(_data_lines(graph.constants[node.name]))
            # The data goes inside of the node's brackets: take the closing one off, and put it behind.
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
    """Return the items behind the operator of a node: inputs, type, shape, and location."""
    # Types could be inferred, but are written: a reader of the text sees them, and a changed rule is noticed.
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
    """Yield lines with an array's numbers in C order."""
    numbers = " ".join(_number(value) for value in array.ravel().tolist())
    yield from textwrap.wrap(f"(data {numbers})", _WIDTH, break_long_words=False, break_on_hyphens=False)


def _number(value: float | bool) -> str:
    """Return a number as text that is read back exactly; an unusual NaN as the 16 hexadecimal digits of its bits."""
    if isinstance(value, float) and math.isnan(value):
        bits = np.float64(value).view(np.uint64).item()
        return "nan" if bits == np.float64("nan").view(np.uint64).item() else f"nan:{bits:016x}"
    return show(value)
