"""Pass: two nodes that compute the same value from the same operands become one.

weighted_sum(threshold(linear(x, w)), threshold(linear(x, w))) --> t = threshold(linear(x, w)); weighted_sum(t, t)
"""

from __future__ import annotations

from nnhw.ir import Graph, Node, Op
from nnhw.ir.ops import Constant, Input

from .edit import bypassed

Key = tuple[Op, tuple[object, ...]]


def share_twins(graph: Graph) -> Graph:
    """Let the readers of each value read the first node with the same op, the same operands and equal constants.

    Two equal nodes that are both outputs of the graph stay two nodes: the caller expects both names.
    """
    first: dict[Key, str] = {}
    for name in [node.name for node in graph.nodes]:
        # Operands of a twin disappear together with it.
        if name not in graph:
            continue
        node = graph.node(name)
        # Inputs are the caller's, and equal constants cost nothing until something reads them.
        if isinstance(node.op, Input | Constant):
            continue
        twin = first.setdefault(_key(graph, node), name)
        if twin != name and not {twin, name} <= set(graph.outputs):
            graph = bypassed(graph, name, twin)
    return graph


def _key(graph: Graph, node: Node) -> Key:
    return node.op, tuple(_content(graph, name) for name in node.inputs)


def _content(graph: Graph, name: str) -> object:
    """Return a key that equal operands share: of a constant its type and numbers, of another value its name."""
    if name not in graph.constants:
        return name
    array = graph.constants[name]
    return str(graph.node(name).type), array.dtype.str, array.tobytes()
