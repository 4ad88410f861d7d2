"""Pass: an input channel whose code never changes goes from a layer's weights into the steps behind the layer.

threshold(linear(x, w); T)  -->  threshold(linear(x, w with column c = 0); T - w[:, c] * k)

where x[c] is k for every input. Then no layer reads x[c] any more, so that `drop_unread` can remove it.
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
"""For each layer, by name: its input channels that never change and have a weight other than 0, each with its part of
the sums, int64 [outputs]."""


def fold_fixed_channels(graph: Graph) -> Graph:
    """Remove constant input channels of linear layers and convolutions, if nothing else needs such a channel then.

    A channel is constant if its range (`ranges`) is a single code at each position. Where padding has another value,
    its part of the sums differs at the border, which no threshold of a channel can replace: then it stays. It also
    stays if the host reads the sums, unless it adds 0.
    """
    columns = _fixed_columns(graph)
    if not columns:
        return graph
    # A trial with all columns shows which channels lose their last reader; only those are worth folding.
    try:
        everything = demanded(_folded(graph, columns))
    except IrError:
        # A rescaling has no room for its new bias: fold only what adds 0.
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
        # The layer itself tells what this channel alone adds at each position, borders included.
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
    """Return the columns of channels that are needed no more once all columns are folded."""
    needed = masks[node.inputs[0]][0]
    return {channel: offset for channel, offset in columns.items() if not needed[channel]}


def _folded(graph: Graph, columns: Columns) -> Graph:
    arrays: Arrays = {}
    for name, found in columns.items():
        if not found:
            continue
        # Only zeros are written here; `drop_unread` takes the columns out, where all readers of the channel agree.
        weight = graph.constants[graph.node(name).inputs[1]].copy()
        weight[:, list(found)] = 0
        arrays[name] = weight
        offset = sum(found.values())
        assert isinstance(offset, np.ndarray)
        if offset.any():
            absorb(graph, name, offset, arrays)
    return retyped(with_constants(graph, arrays))
