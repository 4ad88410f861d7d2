"""Pass: a permutation in front of a linear layer becomes another order of its weights.

linear(flatten(permute(x)), weight)            --> linear(flatten(x), weight in the order of x)
linear(concat(flatten(x), flatten(y)), weight) --> linear(concat(..), weight), both in the order in which x and y stream
"""

from __future__ import annotations

import numpy as np

from nnhw.ir import Graph, Node
from nnhw.ir.ops import Concat, Flatten, Linear, Op, Permute, Reshape

from .edit import Edit, sole_names, without_twins
from .shapes import order_of


def fold_permutes(graph: Graph) -> Graph:
    """Fold each permutation of integers in front of a linear layer into its weights; other permutations stay."""
    for linear in [node for node in graph.nodes if isinstance(node.op, Linear)]:
        path = _path(graph, graph.node(linear.name).inputs[0])
        if any(isinstance(node.op, Permute) for node in path):
            graph = _folded(graph, graph.node(linear.name), path)
    joins = [node.name for node in graph.nodes if isinstance(node.op, Concat) and len(node.type.shape) == 1]
    for name in joins:
        readers = graph.users()[name]
        if name not in graph.outputs and all(isinstance(reader.op, Linear) for reader in readers):
            for reader in readers:
                graph = _streamed(graph, reader, graph.node(name))
    return without_twins(graph) if joins else graph


def _path(graph: Graph, name: str) -> list[Node]:
    """Return the chain of reordering ops that ends in a value, first to last; empty if its op is none."""
    path: list[Node] = []
    node = graph.node(name)
    while isinstance(node.op, Flatten | Reshape | Permute):
        path.insert(0, node)
        node = graph.node(node.inputs[0])
    return path


def _folded(graph: Graph, linear: Node, path: list[Node]) -> Graph:
    source = graph.node(path[0].inputs[0])
    # Moving the elements' numbers shows that the layer reads element order[0, i] of the source as its input i.
    order = np.arange(source.type.size).reshape(1, *source.type.shape)
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


def _streamed(graph: Graph, linear: Node, join: Node) -> Graph:
    """Let a linear layer read joined values in the order in which they stream: pixel by pixel, channels innermost."""
    edit = Edit(graph, sole_names(graph, [join, graph.node(linear.inputs[1])], linear))
    parts, columns, first = [], list[np.ndarray](), 0
    for name in join.inputs:
        path = _path(graph, name)
        source = graph.node(path[0].inputs[0] if path else name)
        shape = source.type.shape
        moves: list[Op] = [Permute((*range(1, len(shape)), 0)), Flatten()] if len(shape) > 1 else []
        # The inverse of an order: the place at which the layer reads each element of the source.
        place = np.argsort(order_of([node.op for node in path], shape).reshape(-1))
        columns.append(first + place[order_of(moves, shape).reshape(-1)])
        first += source.type.size
        value = source.name
        for op in moves:
            value = edit.add(path[-1], op, [value], f"{name}.{op.name}")
        parts.append(value)
    moved = np.concatenate(columns)
    # The order is that of the stream already.
    if (np.diff(moved) == 1).all():
        return graph
    joined = edit.add(join, join.op, parts)
    weight = graph.constants[linear.inputs[1]][:, moved]
    weights = edit.constant(linear.inputs[1], weight, graph.node(linear.inputs[1]).type)
    edit.add(linear, linear.op, [joined, weights])
    return edit.apply(linear.name)
