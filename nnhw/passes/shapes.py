"""Rules by which a shape op (one that moves, picks or joins elements) and an elementwise op exchange their order.

Each rule gives the constants that the elementwise op needs in its new place, or None where the exchange is not exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnhw.ir import Graph, Node
from nnhw.ir.ops import BatchNorm, Concat, MaxPool2d, Op, Pad, Permute, Slice

from .edit import ORDER_OPS, Edit, is_channel_list

Shape = tuple[int, ...]


def falls(graph: Graph, node: Node) -> np.ndarray | None:
    """Return where an op with one operand falls, bool that broadcasts to the operand; None if it is not monotone."""
    position = next(index for index, name in enumerate(node.inputs) if name not in graph.constants)
    trend = node.op.trend(position, graph.operands(node))
    return None if trend is None else np.asarray(trend < 0)


def never_falls(graph: Graph, node: Node) -> bool:
    """Return whether an op with one operand never falls, so that the greatest of some values stays the greatest.

    Then max pooling may change places with it.
    """
    if len(graph.data_inputs(node)) > 1:
        return False
    falling = falls(graph, node)
    return falling is not None and not falling.any()


def order_of(ops: Sequence[Op], shape: Shape) -> np.ndarray:
    """Return the order that a chain of reordering ops gives to a value of `shape`.

    Returns: int64 of the result's shape: for each place, the index (C order) of the element that comes to stand there.
    """
    order = np.arange(math.prod(shape)).reshape(1, *shape)
    for op in ops:
        order = op.evaluate(order)
    return order[0]


def constants_before(graph: Graph, shape: Node, node: Node) -> list[np.ndarray] | None:
    """Return the constants that `node`, which reads `shape`, needs if it moves in front of it; None if it cannot.

    A concat has several operands; see `split_constants`.
    """
    before, after = graph.data_inputs(shape)[0].type.shape, shape.type.shape
    found = []
    for name in node.inputs:
        if name in graph.constants:
            array = _constant_before(graph.constants[name], shape, node, before, after)
            if array is None:
                return None
            found.append(array)
    return found


def _constant_before(array: np.ndarray, shape: Node, node: Node, before: Shape, after: Shape) -> np.ndarray | None:
    if array.size == 1:
        return _shared(array, node, before[0])
    if not isinstance(shape.op, ORDER_OPS):
        rows: np.ndarray = array.reshape(-1)
        if isinstance(shape.op, Slice) and shape.op.axis == 0:
            # The slice drops the channels outside of its range, so they may get any constant: that of an end.
            rows = rows[np.clip(np.arange(before[0]) - shape.op.start, 0, len(rows) - 1)]
        return _spread(rows, node, before) if _per_channel(array, node, after) else None
    wide = _spread(array, node, after, listed=False) if is_channel_list(node.op) else array
    moved = np.empty(before)
    # Each constant goes back to the place from which the reordering takes its element.
    moved.reshape(-1)[order_of([shape.op], before).reshape(-1)] = np.broadcast_to(wide, after).reshape(-1)
    rows = moved.reshape(before[0], -1)
    if np.array_equal(rows, np.broadcast_to(rows[:, :1], rows.shape), equal_nan=True):
        return _spread(rows[:, 0], node, before)
    # In this place the constant differs within channels; a permutation further in front may turn the axis along which
    # it differs into the channels.
    positional = isinstance(shape.op, Permute) and not is_channel_list(node.op)
    return _without_repeats(moved) if positional else None


def _without_repeats(array: np.ndarray) -> np.ndarray:
    """Return an array that broadcasts to `array`, with size 1 along each axis along which `array` is constant."""
    for axis in range(array.ndim):
        first = array.take([0], axis=axis)
        array = first if (array == first).all() else array
    return array


def split_constants(graph: Graph, shape: Node, node: Node) -> list[list[np.ndarray]] | None:
    """Return the constants that `node`, which reads the concat `shape`, needs on each input of the concat.

    None if it cannot move there.
    """
    parts = graph.data_inputs(shape)
    assert isinstance(shape.op, Concat)
    found: list[list[np.ndarray]] = [[] for _ in parts]
    ends = np.cumsum([part.type.shape[shape.op.axis] for part in parts])[:-1]
    for name in node.inputs:
        if name not in graph.constants:
            continue
        array = graph.constants[name]
        if array.size > 1 and not _per_channel(array, node, shape.type.shape):
            return None
        sliced = array.size > 1 and shape.op.axis == 0
        whole = _shared(array, node, shape.type.shape[0]) if array.size == 1 else array
        pieces = np.split(array, ends, axis=0) if sliced else [whole] * len(parts)
        for row, piece in zip(found, pieces, strict=True):
            row.append(piece)
    return found


def constants_behind(graph: Graph, shape: Node, node: Node) -> list[np.ndarray] | None:
    """Return the constants that `node`, which `shape` reads, needs if it moves behind `shape`; None if it cannot."""
    before, after = node.type.shape, shape.type.shape
    found = []
    for name in node.inputs:
        if name in graph.constants:
            array = _constant_behind(graph.constants[name], shape, node, before, after)
            if array is None:
                return None
            found.append(array)
    return found


def _constant_behind(array: np.ndarray, shape: Node, node: Node, before: Shape, after: Shape) -> np.ndarray | None:
    if array.size == 1:
        return _shared(array, node, after[0])
    # The constant moves as the values do: as a whole value, it goes through the shape op itself.
    wide = _spread(array, node, before, listed=False) if is_channel_list(node.op) else array
    full = np.broadcast_to(wide, before)[np.newaxis]
    if isinstance(shape.op, MaxPool2d | Pad):
        # A moved array of constants would have borders of its own, so each channel must have a single constant.
        return array if _per_channel(array, node, before) else None
    moved: np.ndarray = shape.op.evaluate(full)[0]
    rows = moved.reshape(len(moved), -1)
    if (rows == rows[:, :1]).all():
        return _spread(rows[:, 0], node, after)
    return None if is_channel_list(node.op) else moved


def joined_constants(graph: Graph, nodes: Sequence[Node], axis: int) -> list[np.ndarray] | None:
    """Return the constants of one op behind a concat that replaces equal ops `nodes` in front of it; None if none."""
    found = []
    rank, channels = len(nodes[0].type.shape), [node.type.shape[0] for node in nodes]
    for position, name in enumerate(nodes[0].inputs):
        if name not in graph.constants:
            continue
        arrays = [graph.constants[node.inputs[position]] for node in nodes]
        if all(array.size == 1 and array.flat[0] == arrays[0].flat[0] for array in arrays):
            found.append(_shared(arrays[0], nodes[0], sum(channels) if axis == 0 else channels[0]))
            continue
        alike = all(
            array.size == 1 or _per_channel(array, node, node.type.shape)
            for array, node in zip(arrays, nodes, strict=True)
        )
        if axis != 0 or not alike:
            return None
        rows = [np.broadcast_to(array.reshape(-1), count) for array, count in zip(arrays, channels, strict=True)]
        found.append(_spread(np.concatenate(rows), nodes[0], (0,) * rank))
    return found


def moved_inputs(
    edit: Edit, graph: Graph, node: Node, data: Sequence[str], constants: Sequence[np.ndarray]
) -> list[str]:
    """Return the operand names of a moved node; constants with new contents are added to the edit.

    Parameters
    ----------
    data: names of its new data operands, in order.
    constants: its constants in their new shapes, in order.
    """
    waiting, arrays = iter(data), iter(constants)
    names = []
    for name in node.inputs:
        if name not in graph.constants:
            names.append(next(waiting))
            continue
        array = next(arrays)
        names.append(name if np.array_equal(array, graph.constants[name]) else edit.constant(name, array))
    return names


def _shared(array: np.ndarray, node: Node, channels: int) -> np.ndarray:
    """Return a single number as a constant of `node`: [channels] for batch_norm, which does not broadcast, else []."""
    return np.full(channels, array.item()) if isinstance(node.op, BatchNorm) else array.reshape(())


def _per_channel(array: np.ndarray, node: Node, shape: Shape) -> bool:
    if array.ndim == 1 and is_channel_list(node.op):
        return True
    return array.shape == (shape[0],) + (1,) * (len(shape) - 1)


def _spread(array: np.ndarray, node: Node, shape: Shape, listed: bool = True) -> np.ndarray:
    """Return an array [channels] in the shape that a constant of `node` has for values of `shape`.

    Parameters
    ----------
    listed: False: as an array that broadcasts, even for ops whose constants are lists of channels.
    """
    if is_channel_list(node.op) and listed:
        return array
    return array.reshape((-1,) + (1,) * (len(shape) - 1))
