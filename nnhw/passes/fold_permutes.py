"""Pass: a permutation in front of a linear layer becomes another order of its weights.

linear(flatten(permute(x)), weight) --> linear(flatten(x), weight in the order of x)
"""

from __future__ import annotations

import numpy as np

from nnhw.ir import Graph, Node
from nnhw.ir.ops import Flatten, Linear, Permute, Reshape

from .edit import Edit, sole_names


def fold_permutes(graph: Graph) -> Graph:
    """Fold each permutation of integers into the weights of the linear layers that read it; others stay."""
    for linear in [node for node in graph.nodes if isinstance(node.op, Linear)]:
        path = _path(graph, graph.node(linear.name))
        if any(isinstance(node.op, Permute) for node in path):
            graph = _folded(graph, graph.node(linear.name), path)
    return graph


def _path(graph: Graph, linear: Node) -> list[Node]:
    """Return the ops in front of a linear layer that only rearrange elements, first to last."""
    path: list[Node] = []
    node = graph.node(linear.inputs[0])
    while isinstance(node.op, Flatten | Reshape | Permute):
        path.insert(0, node)
        node = graph.node(node.inputs[0])
    return path


def _folded(graph: Graph, linear: Node, path: list[Node]) -> Graph:
    source = graph.node(path[0].inputs[0])
    order = np.arange(source.type.size).reshape(1, *source.type.shape)  # which element of x stands at each place
    for node in path:
        order = node.op.evaluate(order)
    weight = graph.constants[linear.inputs[1]]
    moved = np.empty_like(weight)
    moved[:, order[0]] = weight
    edit = Edit(graph, sole_names(graph, [graph.node(linear.inputs[1])], linear))
    flat = source.name if len(source.type.shape) == 1 else edit.add(path[-1], Flatten(), [source.name])
    weights = edit.constant(linear.inputs[1], moved, graph.node(linear.inputs[1]).type)
    edit.add(linear, linear.op, [flat, weights])
    return edit.apply(linear.name)
