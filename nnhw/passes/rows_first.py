"""Pass: softmax and normalization work along the first axis, whose elements follow one another where values stream.

integer_softmax(x; axis a) --> permute(integer_softmax(permute(x); axis 0))
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from nnhw.ir import Graph, Node
from nnhw.ir.ops import IntegerNorm, IntegerSoftmax, Permute

from .edit import Edit


def rows_first(graph: Graph) -> Graph:
    """Put the elements of each row next to one another. Exact: rows keep their elements, in their order.

    What multiplies matrices reads and gives values in any order, so that the permutations around attention's shares
    cost nothing there.
    """
    for name in [node.name for node in graph.nodes if isinstance(node.op, IntegerNorm | IntegerSoftmax)]:
        node = graph.node(name)
        op, shape = node.op, node.type.shape
        assert isinstance(op, IntegerNorm | IntegerSoftmax)
        # If all axes around the row have size 1, its elements follow one another already.
        if op.axis and math.prod((*shape[op.axis + 1 :], shape[0])) > 1:
            graph = _turned(graph, node, op)
    return graph


def _turned(graph: Graph, node: Node, op: IntegerNorm | IntegerSoftmax) -> Graph:
    """Return the graph whose op works along the first axis of a permuted value."""
    rank = len(node.type.shape)
    axes = (op.axis, *(other for other in range(1, rank) if other != op.axis), 0)
    edit = Edit(graph, {node.name})
    x = edit.add(node, Permute(axes), [node.inputs[0]], f"{node.name}.in_rows")
    inputs = [x, *node.inputs[1:]]
    if isinstance(op, IntegerSoftmax):
        keep = graph.constants[node.inputs[2]]
        if keep.ndim:
            keep = keep.reshape((1,) * (rank - keep.ndim) + keep.shape).transpose(axes)
            kind = replace(graph.node(node.inputs[2]).type, shape=keep.shape)
            inputs[2] = edit.constant(node.inputs[2], np.ascontiguousarray(keep), kind)
    rows = edit.add(node, replace(op, axis=0), inputs, f"{node.name}.of_rows")
    edit.add(node, Permute(tuple(axes.index(place) for place in range(rank))), [rows])
    return edit.apply(node.name)
