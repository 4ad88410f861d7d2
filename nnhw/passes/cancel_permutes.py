"""Pass: permutations and reshapes that undo each other are removed, or become one reshape.

permute(permute(x; 1, 0); 1, 0) --> x
reshape(permute(reshape(x)))    --> reshape(x), where all elements are back in their order
"""

from __future__ import annotations

import numpy as np

from nnhw.ir import Graph, Node, Op
from nnhw.ir.ops import Flatten, Reshape

from .edit import ORDER_OPS, Edit, bypassed, sole_names
from .shapes import order_of


def cancel_permutes(graph: Graph) -> Graph:
    """Let each reordering read the earliest value that has all elements in the order of its result."""
    for node in graph.nodes:
        if isinstance(node.op, ORDER_OPS) and node.name in graph:
            graph = _cancelled(graph, graph.node(node.name))
    return graph


def _cancelled(graph: Graph, last: Node) -> Graph:
    path: list[Node] = []
    found: tuple[Node, int] | None = None
    node = last
    while isinstance(node.op, ORDER_OPS):
        path.insert(0, node)
        node = graph.data_inputs(node)[0]
        # A permutation of 0..n-1 that always grows by 1 is the identity.
        if (np.diff(order_of([step.op for step in path], node.type.shape).reshape(-1)) == 1).all():
            found = node, len(path)
    if found is None:
        return graph
    source, steps = found
    if source.type.shape == last.type.shape:
        return bypassed(graph, last.name, source.name)
    # It is a single reshape already; to replace it would change nothing, for ever.
    if steps == 1 and isinstance(last.op, Flatten | Reshape):
        return graph
    op: Op = Flatten() if len(last.type.shape) == 1 else Reshape(last.type.shape)
    edit = Edit(graph, sole_names(graph, path, last))
    edit.add(last, op, [source.name])
    return edit.apply(last.name)
