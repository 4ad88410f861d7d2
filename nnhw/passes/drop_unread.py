"""Pass: channels and whole values on which no result depends are not computed.

linear(flatten(conv2d(x; 8 outputs)))                --> linear(flatten(conv2d(x; 5 outputs)))
slice(threshold(conv2d(x; 8 outputs)); 2, 5)         --> threshold(conv2d(x; 3 outputs))

where the linear layer has no weight other than 0 for three of the channels, as behind structured pruning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnhw.ir import Graph, GraphBuilder, Node, Op, TensorType
from nnhw.ir.graph import free_name
from nnhw.ir.ops import Concat, Conv2d, Linear, Rescale, Slice, StepTable, Threshold

from .demand import Mask, demanded, is_needed, is_whole


def drop_unread(graph: Graph) -> Graph:
    """Remove the channels, rows and columns of all values that no result depends on; see `demand`.

    Layers keep their names, and numbers of channels without great prime factors (`demand.MOST_PRIME`). A layer always
    keeps one input, so that one whose weights are all 0 still gives its zeros. The graph's inputs and outputs stay.
    """
    masks = demanded(graph)
    if all(is_whole(mask) for mask in masks.values()):
        return graph
    return _Cutter(graph, masks).cut()


@dataclass
class _Cutter:
    """Copies the needed part of a graph.

    Parameters
    ----------
    graph: the whole graph.
    masks: the needed places of each value, by name.
    """

    graph: Graph
    masks: Mapping[str, Mask]

    def __post_init__(self) -> None:
        self.builder = GraphBuilder(self.graph.name)
        self.names: dict[str, str] = {}
        """The value that replaces another one, whose op does nothing any more and is left out."""
        self.added: set[str] = set()
        """Names of new, shorter constants; the whole ones stay, as they may have other readers."""

    def cut(self) -> Graph:
        for node in self.graph.nodes:
            if node.name in self.graph.constants:
                self._keep(node)
            elif is_needed(self.masks[node.name]):
                self._copy(node)
        return self.builder.build([self.names.get(name, name) for name in self.graph.outputs], self.graph.keys)

    def _keep(self, node: Node) -> None:
        self.builder.copy([node], self.graph)

    def _copy(self, node: Node) -> None:
        # Nodes without operands that are values are inputs, which the caller gives whole.
        data = [name for name in node.inputs if name not in self.graph.constants]
        if not data:
            self._keep(node)
            return
        result, masks = self.masks[node.name], [self.masks[name] for name in data]
        if isinstance(node.op, Concat):
            kept = _kept_parts(node.op, result, masks)
            data, masks = [data[index] for index in kept], [masks[index] for index in kept]
        op = _op(node.op, result, masks)
        # A concatenation of one operand, or a slice of all that is left, is its operand.
        if (isinstance(op, Concat) and len(data) == 1) or (isinstance(op, Slice) and _is_all(op, masks[0])):
            self.names[node.name] = self.names.get(data[0], data[0])
            return
        inputs = [self._cut_constant(node, name) if name in self.graph.constants else name for name in node.inputs]
        if isinstance(op, Concat):
            inputs = data
        self.builder.add(node.name, op, [self.names.get(name, name) for name in inputs], node.location)

    def _cut_constant(self, node: Node, name: str) -> str:
        data = [operand for operand in node.inputs if operand not in self.graph.constants]
        rule = _CONSTANTS.get(type(node.op))
        if rule is None:
            return name
        whole = self.graph.constants[name]
        array = rule(node.op, whole, self.masks[node.name], self.masks[data[0]])
        if array.shape == whole.shape:
            return name
        old = self.graph.node(name)
        unique = free_name(name, lambda tried: tried in self.graph or tried in self.added)
        self.added.add(unique)
        return self.builder.constant(unique, array, TensorType(array.shape, old.type.dtype), old.location)


def _kept_parts(op: Concat, result: Mask, masks: list[Mask]) -> list[int]:
    """Return the indices of the operands of which some place along the axis is needed."""
    ends = np.cumsum([mask[op.axis].size for mask in masks])
    parts = np.split(result[op.axis], ends[:-1])
    return [index for index, part in enumerate(parts) if part.any()]


def _op(op: Op, result: Mask, masks: list[Mask]) -> Op:
    """Return the op with attributes that fit what is left of its operands and its result."""
    if isinstance(op, Slice):
        axis = masks[0][op.axis]
        start = int(axis[: op.start].sum())
        return replace(op, start=start, stop=start + int(result[op.axis].sum()))
    if isinstance(op, Conv2d) and op.groups > 1 and not is_whole(result):
        # Only depthwise convolutions are cut (`demand`), and they have as many groups as channels.
        return replace(op, groups=int(result[0].sum()))
    return op


def _is_all(op: Slice, mask: Mask) -> bool:
    """Return whether a slice takes all that is left of its operand."""
    return op.start == 0 and op.stop == int(mask[op.axis].sum())


def _weights(op: Linear | Conv2d, weight: np.ndarray, result: Mask, operand: Mask) -> np.ndarray:
    rows = weight[result[0]]
    return rows if isinstance(op, Conv2d) and op.groups > 1 else rows[:, operand[0]]


def _rows(op: Op, array: np.ndarray, result: Mask, operand: Mask) -> np.ndarray:
    kept: np.ndarray = array[result[0]]
    return kept


_CONSTANTS: dict[type[Op], Callable[[Any, np.ndarray, Mask, Mask], np.ndarray]] = {
    Linear: _weights,
    Conv2d: _weights,
    Threshold: _rows,
    StepTable: _rows,
    Rescale: _rows,
}
