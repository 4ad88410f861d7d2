"""Pass: a branch whose values never change goes into the thresholds behind the sum that it is added to.

threshold(weighted_sum(x, threshold(y)))                          --> threshold(x)
step_table(weighted_sum(x, y, linear(threshold(z)); 2, 3, 1))     --> step_table(weighted_sum(x, y; 2, 3))

if no sum reaches a step of the inner threshold, as behind a batch normalization whose weights are 0.
"""

from __future__ import annotations

import numpy as np

from nnhw.ir import Graph, Node, TensorType
from nnhw.ir.ops import StepTable, Threshold, WeightedSum
from nnhw.ir.types import IntType

from .edit import Edit

_FUNCTIONS = (Threshold, StepTable)


def fold_constants(graph: Graph) -> Graph:
    """Take constant inputs out of weighted sums, and what computed them out of the graph.

    A branch whose constants differ from position to position, as a border makes them, stays: thresholds belong to
    channels.
    """
    values = constant_values(graph)
    for node in [node for node in graph.nodes if isinstance(node.op, WeightedSum) and node.name not in values]:
        if any(name in values for name in node.inputs):
            graph = _folded(graph, graph.node(node.name), values)
    return graph


def constant_values(graph: Graph) -> dict[str, np.ndarray]:
    """Return the values [1, *shape], by node, that are the same for every input."""
    found: dict[str, np.ndarray] = {}
    for node in graph.nodes:
        data = graph.data_inputs(node)
        if data and all(operand.name in found for operand in data):
            operands = (found.get(name, graph.constants.get(name)) for name in node.inputs)
            found[node.name] = node.op.evaluate(*operands)  # type: ignore[arg-type]
        elif isinstance(node.op, _FUNCTIONS):
            low, high = (_codes_at(graph, node, end) for end in ("low", "high"))
            if (low == high).all() and not _moves_between(graph, node):
                found[node.name] = low
    return found


def _codes_at(graph: Graph, function: Node, end: str) -> np.ndarray:
    """Return the codes of one image that consists of the least or the greatest integer of the range."""
    source = graph.node(function.inputs[0]).type
    image = np.full((1, *source.shape), getattr(source.int_dtype, end))
    return function.op.evaluate(image, *(graph.constants[name] for name in function.inputs[1:]))


def _moves_between(graph: Graph, function: Node) -> bool:
    """Return whether the codes of a table change within the range of its input and come back."""
    if isinstance(function.op, Threshold):
        return False
    kind = graph.node(function.inputs[0]).type.int_dtype
    thresholds, codes = (graph.constants[name] for name in function.inputs[1:])
    # Code k + 1 is reached if its threshold is, and is not passed at once.
    inside = (thresholds > kind.low) & (thresholds <= kind.high)
    return bool((inside & (np.diff(codes, axis=1) != 0)).any())


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
    """Let a function of a sum read what remains of the sum."""
    edit = Edit(graph, {function.name, *function.inputs[1:]})
    rows, other = graph.constants[function.inputs[1]] - shift, graph.constants[function.inputs[2]]
    value, factor = live[0]
    if len(live) > 1:
        value = edit.add(node, WeightedSum(tuple(k for _, k in live)), [name for name, _ in live], f"{node.name}.live")
    elif factor > 0:
        rows = -(-rows // factor)
    else:  # x * factor >= T where x < floor(T / factor) + 1: steps and their order turn round
        rows = (rows // factor + 1)[:, ::-1]
        other = ~other if isinstance(function.op, Threshold) else other[:, ::-1]
    kind = edit.type_of(value).int_dtype
    place = TensorType(rows.shape, IntType(kind.low, kind.high + 1))
    steps = edit.constant(function.inputs[1], rows.clip(kind.low, kind.high + 1), place)
    codes = edit.constant(function.inputs[2], other, graph.node(function.inputs[2]).type)
    edit.add(function, function.op, [value, steps, codes])
    return edit.apply(function.name)
