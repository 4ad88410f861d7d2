"""Pass: a summand that never changes is subtracted from the thresholds behind the sum instead.

threshold(weighted_sum(x, threshold(y)))                          --> threshold(x)
step_table(weighted_sum(x, y, linear(threshold(z)); 2, 3, 1))     --> step_table(weighted_sum(x, y; 2, 3))

if no sum reaches a step of the inner threshold, as behind a batch normalization, or a layer, whose weights are 0.
"""

from __future__ import annotations

import numpy as np

from nnhw.ir import Graph, Node, TensorType
from nnhw.ir.ops import StepTable, Threshold, WeightedSum
from nnhw.ir.types import IntType

from .edit import Edit
from .ranges import constant_values

_FUNCTIONS = (Threshold, StepTable)


def fold_constants(graph: Graph) -> Graph:
    """Remove constant inputs of weighted sums, and the nodes that compute them.

    A branch whose constants differ from position to position, as at a border, stays: a channel has the same thresholds
    at all positions.
    """
    values = constant_values(graph)
    for node in [node for node in graph.nodes if isinstance(node.op, WeightedSum) and node.name not in values]:
        if any(name in values for name in node.inputs):
            graph = _folded(graph, graph.node(node.name), values)
    return graph


def _folded(graph: Graph, node: Node, values: dict[str, np.ndarray]) -> Graph:
    assert isinstance(node.op, WeightedSum)
    users = graph.users()[node.name]
    if node.name in graph.outputs or not all(isinstance(user.op, _FUNCTIONS) for user in users):
        return graph
    pairs = list(zip(node.inputs, node.op.factors, strict=True))
    shift = np.zeros((node.type.shape[0], 1), dtype=np.int64)
    for name, factor in pairs:
        if name in values:
            rows = values[name].reshape(len(shift), -1)
            if (rows != rows[:, :1]).any():
                return graph
            shift += factor * rows[:, :1]
    live = [(name, factor) for name, factor in pairs if name not in values]
    for user in users:
        graph = _shifted(graph, node, graph.node(user.name), live, shift)
    return graph


def _shifted(graph: Graph, node: Node, function: Node, live: list[tuple[str, int]], shift: np.ndarray) -> Graph:
    """Return the graph in which a threshold or table reads the inputs of the sum that may change.

    Parameters
    ----------
    node: the weighted sum. function: an op that reads it.
    live: the inputs that may change, at least one, with their factors.
    shift: what the constant inputs add, int64 [channels, 1].
    """
    edit = Edit(graph, {function.name, *function.inputs[1:]})
    rows, other = graph.constants[function.inputs[1]] - shift, graph.constants[function.inputs[2]]
    value, factor = live[0]
    if len(live) > 1:
        value = edit.add(node, WeightedSum(tuple(k for _, k in live)), [name for name, _ in live], f"{node.name}.live")
    elif factor > 0:
        # Integers x have x * factor >= T if x >= ceil(T / factor).
        rows = -(-rows // factor)
    else:
        # x * factor >= T if x < floor(T / factor) + 1: codes fall where they rose, and steps come in reverse order.
        rows = (rows // factor + 1)[:, ::-1]
        other = ~other if isinstance(function.op, Threshold) else other[:, ::-1]
    kind = edit.type_of(value).int_dtype
    place = TensorType(rows.shape, IntType(kind.low, kind.high + 1))
    # A threshold outside of the range is reached always or never, as it is at low or at high + 1.
    steps = edit.constant(function.inputs[1], rows.clip(kind.low, kind.high + 1), place)
    codes = edit.constant(function.inputs[2], other, graph.node(function.inputs[2]).type)
    edit.add(function, function.op, [value, steps, codes])
    return edit.apply(function.name)
