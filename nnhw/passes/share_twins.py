"""Pass: what is computed twice is computed once.

weighted_sum(threshold(linear(x, w)), threshold(linear(x, w))) --> t = threshold(linear(x, w)); weighted_sum(t, t)
"""

from __future__ import annotations

from nnhw.ir import Graph, Node, Op
from nnhw.ir.ops import Constant, Input

from .edit import bypassed

Key = tuple[Op, tuple[object, ...]]


def share_twins(graph: Graph) -> Graph:
    """Let whoever reads a value read the first node with the same op, the same operands and equal constants.

    A node that two outputs of the graph name as two values stays two nodes: outputs are the caller's contract.
    """
    first: dict[Key, str] = {}
    for name in [node.name for node in graph.nodes]:
        if name not in graph:  # it went with its reader
            continue
        node = graph.node(name)
        if isinstance(node.op, Input | Constant):
            continue
        twin = first.setdefault(_key(graph, node), name)
        if twin != name and not {twin, name} <= set(graph.outputs):
            graph = bypassed(graph, name, twin)
    return graph


def _key(graph: Graph, node: Node) -> Key:
    return node.op, tuple(_content(graph, name) for name in node.inputs)


def _content(graph: Graph, name: str) -> object:
    """Return what two equal operands have in common: of constants the numbers, of values the name."""
    if name not in graph.constants:
        return name
    array = graph.constants[name]
    return str(graph.node(name).type), array.dtype.str, array.tobytes()
