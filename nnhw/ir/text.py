"""The text form of a graph: one S-expression, one line per node.

    (graph mnist_cnn
      ("2" (conv2d :stride (1 1) :padding (0 0) :dilation (1 1) :groups 1) ("1" "2.weight") (int -9 9) (16 26 26)
        (at "2" mnist_cnn.py 31))
      ...
      (outputs "9"))

The arrays of constant nodes are not part of it: they are saved beside it, see `files`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from nnhw.errors import IrError

from .expressions import Expression, parse, show
from .graph import NOWHERE, Graph, Location, Node
from .ops import OPS, Op
from .types import BIPOLAR, FLOAT, FloatType, IntType, TensorType

_T = TypeVar("_T")


def dumps(graph: Graph, *, locations: bool = True) -> str:
    """Return the text of a graph, without its arrays.

    Parameters
    ----------
    locations: say where nodes come from.
    """
    lines = [f"(graph {show(graph.name)}"]
    lines += [f"  {show(_node_form(node, locations))}" for node in graph.nodes]
    lines.append(f"  {show(('outputs', *graph.outputs))})")
    return "\n".join(lines) + "\n"


def loads(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """Return the graph of a text and its arrays: the inverse of `dumps`. Nothing but the form is checked.

    Raises: IrError for text that is not a graph.
    """
    form = parse(text)
    match form:
        case ("graph", str(name), *nodes, ("outputs", *outputs)):
            parsed = tuple(_node_of(node) for node in nodes)
            return Graph(name, parsed, tuple(map(str, outputs)), constants or {})
    raise IrError("a graph looks like (graph NAME NODE.. (outputs NAME..)); is this an .ir file?")


def _node_form(node: Node, locations: bool) -> Expression:
    attributes: list[Expression] = []
    for field in dataclasses.fields(node.op):
        value = getattr(node.op, field.name)
        if field.name not in node.op.optional or value != field.default:
            attributes += [f":{field.name}", value]
    form: tuple[Expression, ...] = (
        node.name,
        (node.op.name, *attributes),
        node.inputs,
        _dtype_form(node.type.dtype),
        node.type.shape,
    )
    if not locations or node.location == NOWHERE:
        return form
    return (*form, ("at", node.location.module, node.location.file, node.location.line))


def _dtype_form(dtype: IntType | FloatType) -> Expression:
    if isinstance(dtype, FloatType):
        return ("float64",)
    return ("bipolar",) if dtype.bipolar else ("int", dtype.low, dtype.high)


def _node_of(form: Expression) -> Node:
    match form:
        case (str(name), (str(op), *attributes), tuple(inputs), tuple(dtype), tuple(shape), *rest):
            type = TensorType(tuple(_items(shape, int)), _dtype_of(dtype))
            return Node(name, _op_of(op, attributes), tuple(_items(inputs, str)), type, _location_of(rest))
    raise IrError(f"a node looks like (NAME (OP ..) (INPUT ..) (TYPE ..) (SIZE ..)), got {show(form)}")


def _op_of(name: str, attributes: Sequence[Expression]) -> Op:
    row = OPS.get(name)
    if row is None:
        raise IrError(
            f"unknown op '{name}'; known are {', '.join(OPS)}. If it is one of your own, import the module that "
            "registers it, or give --extension MODULE"
        )
    keys, values = attributes[::2], attributes[1::2]
    fields = [field for field in dataclasses.fields(row) if field.name not in row.optional or f":{field.name}" in keys]
    if list(keys) != [f":{field.name}" for field in fields] or len(keys) != len(values):
        wanted = " ".join(_wanted(row, field.name) for field in dataclasses.fields(row))
        raise IrError(f"op {name} has the attributes ({wanted}), got ({' '.join(map(show, attributes))})")
    values = tuple(str(value) if isinstance(value, str) else value for value in values)  # bare words are Symbols
    for field, value in zip(fields, values, strict=True):
        # Annotations are strings here: 'int', 'float', 'bool', or a tuple of ints.
        kind = _ATTRIBUTE_KINDS.get(str(field.type), tuple)
        if type(value) is not kind:
            raise IrError(f"attribute :{field.name} of op {name} must be {field.type}, got {show(value)}")
    make: Callable[..., Op] = row
    return make(**{field.name: value for field, value in zip(fields, values, strict=True)})


def _wanted(row: type[Op], attribute: str) -> str:
    return f"[:{attribute} VALUE]" if attribute in row.optional else f":{attribute} VALUE"


_ATTRIBUTE_KINDS: dict[str, type[Any]] = {"int": int, "float": float, "bool": bool, "str": str}


def _dtype_of(form: Sequence[Expression]) -> IntType | FloatType:
    match form:
        case ("float64",):
            return FLOAT
        case ("bipolar",):
            return BIPOLAR
        case ("int", int(low), int(high)):
            return IntType(low, high)
    raise IrError(f"a type is (float64), (bipolar) or (int LOW HIGH), got {show(tuple(form))}")


def _location_of(rest: Sequence[Expression]) -> Location:
    match rest:
        case []:
            return NOWHERE
        case [("at", str(module), str(file), int(line))]:
            return Location(module, file, line)
    raise IrError(f"a place looks like (at MODULE FILE LINE), got {' '.join(map(show, rest))}")


def _items(form: Sequence[Expression], kind: type[_T]) -> list[_T]:
    items: list[_T] = []
    for item in form:
        if not isinstance(item, kind):
            raise IrError(f"expected {kind.__name__}, got {show(item)}")
        items.append(item)
    return items
