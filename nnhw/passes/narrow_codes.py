"""Pass: a sign that is never 0 has one bit.

threshold(x) with the codes -1, 0 and +1, of which no sum gives 0 --> bipolar threshold(x) with the codes -1 and +1
"""

from __future__ import annotations

import numpy as np

from nnhw.ir import Graph, Node, TensorType
from nnhw.ir.ops import Threshold

from .edit import Edit, retyped, sole_names

_SIGNS = (-1, 2)
"""Least code, and number of steps, of a threshold whose codes are -1, 0 and +1."""


def narrow_codes(graph: Graph) -> Graph:
    """Make each threshold bipolar that has the codes -1, 0 and +1, and 0 for no integer that it reads.

    `torch.sign` gives 0 for 0, which the sums of most layers never are once a batch norm has moved them.
    """
    for node in graph.nodes:
        if isinstance(node.op, Threshold) and (rows := _steps(graph, node)) is not None:
            old = graph.node(node.inputs[1])
            edit = Edit(graph, sole_names(graph, [old], node))
            steps = edit.constant(old.name, rows, TensorType(rows.shape, old.type.dtype))
            edit.add(node, Threshold(-1, bipolar=True), [node.inputs[0], steps, node.inputs[2]])
            graph = retyped(edit.apply(node.name))
    return graph


def _steps(graph: Graph, node: Node) -> np.ndarray | None:
    """Return the one step of each channel, [channels, 1], of a threshold that never gives 0; None for all others."""
    rows = graph.constants[node.inputs[1]]
    if not isinstance(node.op, Threshold) or node.op.bipolar or (node.op.low, rows.shape[1]) != _SIGNS:
        return None
    # Integers that are never read tell no two steps apart.
    dtype = graph.node(node.inputs[0]).type.int_dtype
    reached = np.clip(rows, dtype.low, dtype.high + 1)
    return reached[:, :1] if (reached[:, 0] == reached[:, 1]).all() else None
