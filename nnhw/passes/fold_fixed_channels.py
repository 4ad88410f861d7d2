"""Pass: channels whose code never changes go from the weights of the layers that read them into the steps behind.

threshold(linear(x, w); T)  -->  threshold(linear(x, w with column c = 0); T - w[:, c] * k)

where x[c] is k for every input. Nothing computes with x[c] any more, so that `drop_unread` can leave it out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nnhw.errors import IrError
from nnhw.ir import Graph, Node
from nnhw.ir.ops import Conv2d, Linear

from .demand import Mask, demanded
from .edit import retyped
from .offsets import Arrays, absorb, can_absorb, with_constants
from .ranges import Interval, element_ranges

Columns = dict[str, dict[int, np.ndarray]]
"""By layer: inputs that never change and that have a weight, each with what it adds to the sums of the outputs."""


def fold_fixed_channels(graph: Graph) -> Graph:
    """Take constant inputs out of linear layers and convolutions, where that leaves a channel without readers.

    A channel is constant if the ranges of everything in front of it leave it one code at each place. At a border the
    padding's zeros may differ from it: then its part of the sums differs from place to place, no step of a channel
    could stand for it, and it stays. It also stays where the sums leave for the host, unless it adds 0.
    """
    columns = _fixed_columns(graph)
    if not columns:
        return graph
    try:
        everything = demanded(_folded(graph, columns))
    except IrError:  # a rescaling that has no room for the bias
        columns = {name: _without_offset(found) for name, found in columns.items()}
        everything = demanded(_folded(graph, columns))
    useful = {name: _leaving(graph.node(name), found, everything) for name, found in columns.items()}
    useful = {name: found for name, found in useful.items() if found}
    return _folded(graph, useful) if useful else graph


def _fixed_columns(graph: Graph) -> Columns:
    ranges = element_ranges(graph)
    found = {}
    for node in graph.nodes:
        whole = isinstance(node.op, Linear) or (isinstance(node.op, Conv2d) and node.op.groups == 1)
        if whole and node.inputs[0] in ranges:
            columns = _columns_of(graph, node, ranges)
            if columns:
                found[node.name] = columns
    return found


def _columns_of(graph: Graph, node: Node, ranges: Mapping[str, Interval]) -> dict[int, np.ndarray]:
    low, high = ranges[node.inputs[0]]
    weight = graph.constants[node.inputs[1]]
    fixed = (low == high).reshape(low.shape[1], -1).all(axis=1)
    read = weight.reshape(*weight.shape[:2], -1).any(axis=(0, 2))
    absorbing = can_absorb(graph, node.name)
    columns = {}
    for channel in np.flatnonzero(fixed & read).tolist():
        one = np.zeros_like(low)
        one[:, channel] = low[:, channel]
        sums = node.op.evaluate(one, weight)[0]
        offset = sums.reshape(len(sums), -1)
        if (offset == offset[:, :1]).all() and (absorbing or not offset.any()):
            columns[channel] = offset[:, 0]
    return columns


def _without_offset(columns: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    return {channel: offset for channel, offset in columns.items() if not offset.any()}


def _leaving(node: Node, columns: dict[int, np.ndarray], masks: Mapping[str, Mask]) -> dict[int, np.ndarray]:
    """Return the columns whose channel nobody reads once all are folded."""
    needed = masks[node.inputs[0]][0]
    return {channel: offset for channel, offset in columns.items() if not needed[channel]}


def _folded(graph: Graph, columns: Columns) -> Graph:
    arrays: Arrays = {}
    for name, found in columns.items():
        if not found:
            continue
        weight = graph.constants[graph.node(name).inputs[1]].copy()
        weight[:, list(found)] = 0
        arrays[name] = weight
        offset = sum(found.values())
        assert isinstance(offset, np.ndarray)
        if offset.any():
            absorb(graph, name, offset, arrays)
    return retyped(with_constants(graph, arrays))
