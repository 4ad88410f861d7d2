"""Pass: gates that are the same function of sums of the same values become one layer each, with one step function.

f(a * W1 + b * U1), f(a * W2 + b * U2)  -->  y = f(a * [W2; W1] + b * [U2; U1]); a slice of y for each

The gates of an LSTM are such: tanh(x) is 2 * sigmoid(2 * x) - 1, so even a tanh has the steps of the sigmoids beside
it, stretched and moved. In hardware one array computes the sums of all gates, and one memory of steps serves them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from nnhw.ir import Graph, IntType, Node, TensorType
from nnhw.ir.ops import Linear, Slice, Threshold, WeightedSum

from .edit import Edit

_FEW_STEPS = 3
"""Functions of up to so many steps need no memory of steps: merging them saves too little for the slices behind."""


@dataclass(frozen=True)
class _Rows:
    """Sums of products that a gate adds: rows of a linear layer.

    Parameters
    ----------
    layer: the linear layer. path: it, and the slice behind it if there is one.
    start, stop: the rows.
    """

    layer: Node
    path: tuple[Node, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class _Gate:
    """A step function of a weighted sum of such rows."""

    function: Node
    total: Node
    rows: tuple[_Rows, ...]


def merge_gates(graph: Graph) -> Graph:
    """Merge step functions of weighted sums of linear layers that read the same values.

    The gates must have the same factors and number of steps, and in all channels the same steps but for a stretch and
    an offset. Nothing else may read their layers. Where codes begin at another number, a second step function of the
    slice moves them. The gate whose reader comes last has the last channels, so that the others need not wait for it.
    """
    while (found := _found(graph)) is not None:
        graph = _joined_slices(_merged(graph, found))
    return graph


def _found(graph: Graph) -> list[_Gate] | None:
    """Return the first gates that can be merged, in the order of their channels; None if there are none."""
    groups: dict[object, list[_Gate]] = defaultdict(list)
    for node in graph.nodes:
        if (gate := _gate(graph, node)) is not None:
            layers = tuple((rows.layer.inputs[0], rows.layer.op) for rows in gate.rows)
            steps = graph.node(node.inputs[1]).type.shape[1]
            groups[gate.total.op, layers, steps].append(gate)
    for gates in groups.values():
        # One group at a time: merging changes the readers of the others' layers.
        if len(gates) > 1 and _are_alone(graph, gates) and _are_alike(graph, gates):
            return sorted(gates, key=lambda gate: _last_read(graph, gate.function))
    return None


def _gate(graph: Graph, function: Node) -> _Gate | None:
    """Return the gate that a step function is; None if it is none."""
    if not isinstance(function.op, Threshold) or graph.node(function.inputs[1]).type.shape[1] <= _FEW_STEPS:
        return None
    total = graph.node(function.inputs[0])
    if not isinstance(total.op, WeightedSum) or len(total.type.shape) != 1:
        return None
    rows = tuple(_rows(graph, graph.node(name)) for name in total.inputs)
    return None if None in rows else _Gate(function, total, tuple(each for each in rows if each is not None))


def _rows(graph: Graph, node: Node) -> _Rows | None:
    """Return the rows of a linear layer that a value is; None if it is something else."""
    if isinstance(node.op, Linear):
        return _Rows(node, (node,), 0, node.type.shape[0])
    if isinstance(node.op, Slice) and isinstance(graph.node(node.inputs[0]).op, Linear):
        layer = graph.node(node.inputs[0])
        return _Rows(layer, (layer, node), node.op.start, node.op.stop)
    return None


def _are_alone(graph: Graph, gates: Sequence[_Gate]) -> bool:
    """Return whether nothing but gates reads their sums, and what these are made of."""
    gone = {gate.total.name for gate in gates}
    gone |= {node.name for gate in gates for rows in gate.rows for node in rows.path}
    users = graph.users()
    last = {gate.function.name for gate in gates}
    return not gone & set(graph.outputs) and all(user.name in gone | last for name in gone for user in users[name])


def _are_alike(graph: Graph, gates: Sequence[_Gate]) -> bool:
    """Return whether the steps of all channels are the same but for a stretch and an offset, rounded to integers."""
    rows = [row for gate in gates for row in _rising_steps(graph, gate)]
    reached = [np.isfinite(row) for row in rows]
    widest = max(rows, key=lambda row: np.ptp(row[np.isfinite(row)]) if np.isfinite(row).any() else 0.0)
    for row, known in zip(rows, reached, strict=True):
        both = known & np.isfinite(widest)
        if both.sum() <= _FEW_STEPS:
            return False
        # The line through all steps: two of them alone would carry their rounding along to the others.
        stretch, offset = np.polyfit(widest[both], row[both], 1)
        # A step is the real one rounded up: it is up to 1 too large, and so is the one that is stretched.
        if (np.abs(stretch * widest[both] + offset - row[both]) > 1 + abs(stretch)).any():
            return False
    return True


def _rising_steps(graph: Graph, gate: _Gate) -> np.ndarray:
    """Return the steps of each channel as those of one that rises, float64 [channels, steps]; NaN: never passed."""
    steps, descending = (graph.constants[name] for name in gate.function.inputs[1:])
    kind = gate.total.type.int_dtype
    passed = np.where((steps > kind.low) & (steps <= kind.high), steps, np.nan)
    rising: np.ndarray = np.where(descending[:, None], -passed[:, ::-1], passed)
    return rising


def _last_read(graph: Graph, node: Node) -> int:
    """Return the place in the graph of the last node that reads a value; slices pass it on."""
    places = {other.name: index for index, other in enumerate(graph.nodes)}
    users = graph.users()[node.name]
    through = [_last_read(graph, user) if isinstance(user.op, Slice) else places[user.name] for user in users]
    return max(through, default=len(graph.nodes))


def _merged(graph: Graph, gates: Sequence[_Gate]) -> Graph:
    """Return the graph with one layer, sum and step function for all gates, and a slice in the place of each."""
    names = [gate.function.name for gate in gates]
    first = min(gates, key=lambda gate: graph.nodes.index(gate.function))
    edit = Edit(graph)
    sums = [_stacked_layer(graph, edit, [gate.rows[place] for gate in gates]) for place in range(len(first.rows))]
    total = edit.add(first.total, first.total.op, sums)
    constants = [_stacked(graph, edit, [gate.function.inputs[place] for gate in gates]) for place in (1, 2)]
    low = first.function.op.low if isinstance(first.function.op, Threshold) else 0
    merged = edit.add(first.function, Threshold(low), [total, *constants], f"{first.function.name}.gates")
    starts = np.cumsum([0, *(gate.function.type.shape[0] for gate in gates)]).tolist()
    parts = {name: Slice(0, *ends) for name, ends in zip(names, pairwise(starts), strict=True)}
    # The first gate's slice is a part of the same edit, in its place; those of the others take the places of these.
    edit.add(first.function, parts.pop(first.function.name), [merged])
    graph = edit.apply(first.function.name)
    for name, part in parts.items():
        graph = _taken(graph, graph.node(name), part, merged)
    return graph


def _taken(graph: Graph, function: Node, part: Slice, merged: str) -> Graph:
    """Return the graph with a slice of the merged codes in the place of a gate's function."""
    edit, kind, low = Edit(graph, {function.name}), function.type.int_dtype, graph.node(merged).type.int_dtype.low
    if kind.low == low:
        edit.add(function, part, [merged])
        return edit.apply(function.name)
    codes = edit.add(function, part, [merged], f"{function.name}.part")
    channels, steps = function.type.shape[0], kind.high - kind.low
    places = np.arange(low + 1, low + steps + 1)[None].repeat(channels, axis=0)
    thresholds = edit.constant(
        f"{function.name}.moves", places, TensorType(places.shape, IntType(low + 1, low + steps))
    )
    rising = edit.constant(f"{function.name}.falls", np.zeros(channels, bool), TensorType((channels,), IntType(0, 1)))
    edit.add(function, Threshold(kind.low), [codes, thresholds, rising], function.name)
    return edit.apply(function.name)


def _stacked_layer(graph: Graph, edit: Edit, parts: Sequence[_Rows]) -> str:
    """Add one linear layer for parts of several; return its name."""
    layer = parts[0].layer
    arrays = [graph.constants[rows.layer.inputs[1]][rows.start : rows.stop] for rows in parts]
    weight = _constant(graph, edit, [rows.layer.inputs[1] for rows in parts], arrays)
    return edit.add(layer, layer.op, [layer.inputs[0], weight])


def _stacked(graph: Graph, edit: Edit, names: Sequence[str]) -> str:
    """Add the concatenation of constants along the channels; return its name."""
    return _constant(graph, edit, names, [graph.constants[name] for name in names])


def _constant(graph: Graph, edit: Edit, names: Sequence[str], arrays: Sequence[np.ndarray]) -> str:
    kinds = [graph.node(name).type.int_dtype for name in names]
    kind = replace(kinds[0], low=min(kind.low for kind in kinds), high=max(kind.high for kind in kinds))
    array = np.concatenate(arrays)
    return edit.constant(names[0], array, TensorType(array.shape, kind))


def _joined_slices(graph: Graph) -> Graph:
    """Return the graph with one slice where a slice reads another one of the same axis."""
    for name in [node.name for node in graph.nodes if isinstance(node.op, Slice)]:
        if name not in graph:
            continue
        node = graph.node(name)
        inner = graph.node(node.inputs[0])
        if isinstance(node.op, Slice) and isinstance(inner.op, Slice) and inner.op.axis == node.op.axis:
            start = inner.op.start
            edit = Edit(graph, {name})
            edit.add(node, Slice(node.op.axis, start + node.op.start, start + node.op.stop), [inner.inputs[0]])
            graph = edit.apply(name)
    return graph
