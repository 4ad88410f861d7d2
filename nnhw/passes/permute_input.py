"""Pass: the host permutes the input, so that its codes arrive in the order in which layers read them.

conv2d(permute(quantize(x))) --> conv2d(permute(unpermute(quantize(permute(x)))))

`cancel_permutes` removes the two in the middle. Other readers of the codes get the original order by the `unpermute`,
which `sink_shapes` moves behind their quantizers.
"""

from __future__ import annotations

import numpy as np

from nnhw.ir import Graph, Node, Op
from nnhw.ir.ops import (
    Concat,
    Conv2d,
    Dequantize,
    Input,
    Linear,
    MaxPool2d,
    Pad,
    Permute,
    Reshape,
    Slice,
    SumPool2d,
    Upsample,
)

from .edit import ORDER_OPS, Edit
from .regions import quantizers
from .shapes import order_of

_WINDOWS = (Conv2d, SumPool2d, MaxPool2d, Pad, Upsample)
"""Ops that need rows and columns in their places; a linear layer takes another order into its weights."""
_STOPS = (*_WINDOWS, Slice, Concat, Linear, Input)
"""Ops behind which the elements are no longer those of the input in some order."""


def permute_input(graph: Graph) -> Graph:
    """Move reorderings of the input's codes in front of the input's quantizer, if all readers with windows share them.

    Readers with windows are convolutions, pools, padding and upsampling; elementwise ops may stand between. If their
    orders differ, the graph stays as it is.
    """
    for quantizer in quantizers(graph):
        # A quantizer with a scale for each channel cannot see its channels reordered.
        if not _reads_codes(graph, quantizer) and not graph.constants[quantizer.inputs[1]].ndim:
            path = _common_path(graph, quantizer)
            if path:
                graph = _permuted(graph, quantizer, path)
    return graph


def _reads_codes(graph: Graph, quantizer: Node) -> bool:
    """Return whether a quantizer depends on codes, so that it is not the input's."""
    waiting = [quantizer]
    while waiting:
        node = waiting.pop()
        if isinstance(node.op, Dequantize):
            return True
        waiting += graph.data_inputs(node)
    return False


def _common_path(graph: Graph, quantizer: Node) -> list[Op]:
    """Return the reorderings that all readers with windows share; empty if they differ or change nothing."""
    shape = quantizer.type.shape
    paths = [path for node in graph.nodes if (path := _path(graph, quantizer, node)) is not None]
    orders = [order_of(path, shape) for path in paths]
    if not orders or not all(np.array_equal(order, orders[0]) for order in orders):
        return []
    moves = orders[0].shape[0] != shape[0] or bool((np.diff(orders[0].reshape(-1)) != 1).any())
    return paths[0] if moves else []


def _path(graph: Graph, quantizer: Node, window: Node) -> list[Op] | None:
    """Return the reorderings between `quantizer` and an op with windows; None if that op does not read its codes."""
    if not isinstance(window.op, _WINDOWS):
        return None
    path: list[Op] = []
    node = graph.data_inputs(window)[0]
    while node.name != quantizer.name:
        if isinstance(node.op, _STOPS):
            return None
        if isinstance(node.op, ORDER_OPS):
            path.insert(0, node.op)
        node = graph.data_inputs(node)[0]
    return path


def _permuted(graph: Graph, quantizer: Node, path: list[Op]) -> Graph:
    edit = Edit(graph, {quantizer.name})
    value, before = quantizer.inputs[0], []
    for op in path:
        before.append(edit.type_of(value).shape)
        value = edit.add(quantizer, op, [value], f"{quantizer.name}.order")
    # One scale for all, so the quantizer gives the same codes in any order.
    value = edit.add(quantizer, quantizer.op, [value, quantizer.inputs[1]])
    for op, shape in zip(reversed(path), reversed(before), strict=True):
        value = edit.add(quantizer, _undone(op, shape), [value], f"{quantizer.name}.undone")
    return edit.apply(quantizer.name)


def _undone(op: Op, shape: tuple[int, ...]) -> Op:
    """Return the op that undoes `op`, whose operand has this shape."""
    if isinstance(op, Permute):
        return Permute(tuple(int(axis) for axis in np.argsort(op.axes)))
    return Reshape(shape)
