"""The rules of a graph, checked between every two passes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nnhw.errors import IrError, ProblemList, raise_all

from .graph import Graph, Node, infer, inner_name
from .ops import OPS, Constant, Input, Scan
from .types import BIT, IntType, TensorType

ELEMENTS_MAX = 1 << 28
"""Most elements of a value for one image: far more than a model needs, and few enough for a computer's memory."""


def verify(graph: Graph, before: Graph | None = None) -> Graph:
    """Return the graph if it keeps all rules; so a pass can end in `return verify(...)`.

    Rules: names are unique and not empty; every op is in `OPS`; operands are defined before they are used; every type
    is the one that the op's rule gives; each constant node has an array of the right dtype, shape and range, and each
    array a node; there is an output, and every output exists. The bodies of loops keep these rules, too.

    Parameters
    ----------
    before: a graph that keeps the rules. What a node has in common with it, operands included, is not looked at again.

    Raises
    ------
    IrError for one broken rule, ProblemList for more.
    """
    problems: list[IrError] = []
    known: set[str] = set()
    for node in graph.nodes:
        same = before is not None and _is_unchanged(graph, node, before)
        problems += _problems_of(graph, node, known, _PLACE_RULES if same else _RULES)
        known.add(node.name)
    constants = {node.name for node in graph.nodes if isinstance(node.op, Constant)}
    for name in sorted(set(graph.constants) - constants):
        problems.append(IrError(f"array '{name}' has no constant node"))
    if not graph.outputs:
        problems.append(IrError(f"graph '{graph.name}' has no output"))
    problems += [IrError(f"output '{name}' is not a node") for name in graph.outputs if name not in known]
    raise_all(problems)
    return graph


def _is_unchanged(graph: Graph, node: Node, before: Graph) -> bool:
    """Return whether another graph has this very node, and its operands have the same types and arrays there."""
    if node.name not in before or before.node(node.name) is not node:
        return False
    names = (node.name, *node.inputs)
    return all(
        name in graph
        and name in before
        and graph.node(name).type == before.node(name).type
        and graph.constants.get(name) is before.constants.get(name)
        for name in names
    )


def _problems_of(graph: Graph, node: Node, known: set[str], rules: tuple[_Rule, ...]) -> list[IrError]:
    for rule in rules:
        problem = rule(graph, node, known)
        if problem:
            return [IrError(f"node '{node.name}' {problem}")]
    return []


def _name_rule(graph: Graph, node: Node, known: set[str]) -> str:
    if not node.name or not node.name.isprintable():
        return "needs a name of printable characters"
    return "is defined twice" if node.name in known else ""


def _op_rule(graph: Graph, node: Node, known: set[str]) -> str:
    return "" if OPS.get(node.op.name) is type(node.op) else f"has an unknown op {node.op!r}"


def _order_rule(graph: Graph, node: Node, known: set[str]) -> str:
    missing = [name for name in node.inputs if name not in known]
    return f"uses '{missing[0]}' before it is defined" if missing else ""


def _type_rule(graph: Graph, node: Node, known: set[str]) -> str:
    if isinstance(node.op, Input | Constant):
        return f"takes no inputs, got {', '.join(node.inputs)}" if node.inputs else ""
    try:
        type = infer(node, graph.operands(node))
    except IrError as error:
        return f"breaks a type rule: {error}"
    return "" if type == node.type else f"must have the type {type}, got {node.type}"


def is_too_large(type: TensorType) -> bool:
    """Return whether a value has more elements than `ELEMENTS_MAX`."""
    return math.prod(type.shape) > ELEMENTS_MAX


def _size_rule(graph: Graph, node: Node, known: set[str]) -> str:
    if not is_too_large(node.type):
        return ""
    return f"has the shape {list(node.type.shape)}; at most {ELEMENTS_MAX} elements are accepted"


def _constant_rule(graph: Graph, node: Node, known: set[str]) -> str:
    if not isinstance(node.op, Constant):
        return ""
    array = graph.constants.get(node.name)
    return "has no array" if array is None else array_problem(node.type, array)


def array_problem(type: TensorType, array: np.ndarray) -> str:
    """Return why an array cannot be a constant of a type, as part of a message; empty if it can."""
    if array.shape != type.shape:
        return f"needs an array of shape {list(type.shape)}, got {list(array.shape)}"
    dtype = type.dtype
    if not isinstance(dtype, IntType):
        return "" if array.dtype == np.float64 else f"needs a float64 array, got {array.dtype}"
    if array.dtype == np.bool_ and dtype == BIT:
        return ""
    if array.dtype != np.int64:
        return f"needs an int64 array, got {array.dtype}"
    return "" if dtype.holds(array) else f"needs values in {dtype}, got {array.min()}..{array.max()}"


def _body_rule(graph: Graph, node: Node, known: set[str]) -> str:
    if not isinstance(node.op, Scan):
        return ""
    # Files and observers know values of a body by `inner_name`, which has to be unique among the graph's own names.
    taken = [other.name for other in graph.nodes if other.name.startswith(inner_name(node.name, ""))]
    if taken:
        return f"has a body, whose values would share the name '{taken[0]}' with another one"
    try:
        verify(node.op.body)
    except (IrError, ProblemList) as error:
        return f"has a body that breaks a rule: {error}"
    return ""


_Rule = Callable[[Graph, Node, set[str]], str]
_PLACE_RULES: tuple[_Rule, ...] = (_name_rule, _order_rule, _body_rule)
"""Rules that other nodes of a graph may break for a node that is the same as in another graph."""
# In this order: a later rule relies on the ones before, such as types on operands that exist.
_RULES: tuple[_Rule, ...] = (_name_rule, _op_rule, _order_rule, _body_rule, _type_rule, _size_rule, _constant_rule)
