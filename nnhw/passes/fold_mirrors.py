"""Pass: codes that are mirrored in some channels are read as they are, by layers whose weights change their sign there.

linear(threshold(x), weight) --> linear(x, -weight in the channels that are mirrored)

where the threshold gives low + high - x in these channels, and x in all others.
"""

from __future__ import annotations

import numpy as np

from nnhw.ir import Graph, Node
from nnhw.ir.ops import Broadcast, Concat, Conv2d, Linear, Pad, Slice, Threshold, Upsample

from .edit import ORDER_OPS, Edit, bypassed, retyped, sole_names
from .offsets import Arrays, absorb, can_absorb, with_constants

_MOVES = (*ORDER_OPS, Slice, Upsample, Concat)
"""Ops whose results are elements of their operands."""


def fold_mirrors(graph: Graph) -> Graph:
    """Fold each threshold that mirrors codes into the weights of the layers behind it, if all that reads it is such.

    It stays in front of a border that is not its own mirror image, of weights whose negative is outside of their type,
    and of sums without a function that could take the constant that mirroring adds.
    """
    for name in [node.name for node in graph.nodes if isinstance(node.op, Threshold)]:
        mirrored = _mirrored(graph, graph.node(name))
        layers = None if mirrored is None else _layers(graph, graph.node(name), mirrored)
        if layers:
            graph = _folded(graph, graph.node(name), layers)
    return graph


def _mirrored(graph: Graph, node: Node) -> np.ndarray | None:
    """Return which channels a threshold mirrors, bool [channels]; None if it does anything else somewhere."""
    source = graph.node(node.inputs[0]).type
    if source != node.type or source.int_dtype.high - source.int_dtype.low != _steps(graph, node):
        return None
    codes = np.arange(source.int_dtype.low, source.int_dtype.high + 1, 2 if source.int_dtype.bipolar else 1)
    channels = source.shape[0]
    rows = codes[:, np.newaxis].repeat(channels, axis=1)
    results = node.op.evaluate(rows, *(graph.constants[name] for name in node.inputs[1:]))
    kept, turned = (results == rows).all(axis=0), (results == rows[::-1]).all(axis=0)
    return turned if (kept | turned).all() else None


def _steps(graph: Graph, node: Node) -> int:
    steps: int = graph.constants[node.inputs[1]].shape[1]
    # From -1 to +1 there is one step.
    return 2 * steps if node.type.int_dtype.bipolar else steps


def _layers(graph: Graph, mirror: Node, mirrored: np.ndarray) -> dict[str, np.ndarray] | None:
    """Return the new weights of all layers that read mirrored codes; None if something else does, or it is not exact.

    Parameters
    ----------
    mirrored: which channels of `mirror` are, bool [channels].
    """
    kind = mirror.type.int_dtype
    spread = mirrored.reshape(1, -1, *[1] * (len(mirror.type.shape) - 1))
    flags = {mirror.name: np.broadcast_to(spread, (1, *mirror.type.shape))}
    layers: dict[str, np.ndarray] = {}
    for node in graph.nodes:
        if node.name in graph.outputs and node.name in flags:
            return None
        data = [operand for operand in graph.data_inputs(node) if operand.name in flags]
        if not data or isinstance(node.op, Broadcast):
            continue
        if isinstance(node.op, Linear | Conv2d):
            weights = _turned(graph, node, flags[data[0].name], kind.low + kind.high)
            if weights is None:
                return None
            layers[node.name] = weights
        elif isinstance(node.op, Pad) and 2 * node.op.value == kind.low + kind.high:
            (top, left), (bottom, right) = node.op.before, node.op.after
            flags[node.name] = np.pad(flags[data[0].name], ((0, 0), (0, 0), (top, bottom), (left, right)), mode="edge")
        elif isinstance(node.op, _MOVES):
            operands = graph.data_inputs(node)
            parts = [flags.get(part.name, np.zeros((1, *part.type.shape), bool)) for part in operands]
            flags[node.name] = node.op.evaluate(*parts)
        else:
            return None
    return None if any(name in graph.outputs for name in flags) else layers


def _turned(graph: Graph, layer: Node, flags: np.ndarray, ends: int) -> np.ndarray | None:
    """Return the weights with which a layer gives the same sums, but for a constant, of codes that are not mirrored.

    None if a layer of a map has elements of a channel of which only some are mirrored, if the weights' type has no
    room, or if nothing behind the layer can take the constant.

    Parameters
    ----------
    flags: whether each element that the layer reads is mirrored, bool [1, *shape].
    ends: the sum of the least and the greatest code; 0 leaves no constant.
    """
    weight = graph.constants[layer.inputs[1]]
    rows = flags.reshape(flags.shape[1], -1)
    if (rows != rows[:, :1]).any():
        return None
    groups = layer.op.groups if isinstance(layer.op, Conv2d) else 1
    signs = np.where(rows[:, 0], -1, 1).reshape(groups, -1).repeat(len(weight) // groups, axis=0)
    turned: np.ndarray = weight * signs.reshape(*signs.shape, *[1] * (weight.ndim - 2))
    if not graph.node(layer.inputs[1]).type.int_dtype.holds(turned):
        return None
    return None if ends and not can_absorb(graph, layer.name) else turned


def _folded(graph: Graph, mirror: Node, layers: dict[str, np.ndarray]) -> Graph:
    """Return the graph in which layers have new weights and read what `mirror` reads."""
    ends = mirror.type.int_dtype.low + mirror.type.int_dtype.high
    arrays: Arrays = {}
    for name, turned in layers.items():
        layer = graph.node(name)
        old = graph.node(layer.inputs[1])
        # Mirrored codes are ends - x, so the sums lose what all weights that changed their sign give for `ends`.
        lost = ends * ((graph.constants[old.name] - turned) // 2).reshape(len(turned), -1).sum(axis=1)
        edit = Edit(graph, sole_names(graph, [old], layer))
        edit.add(layer, layer.op, [layer.inputs[0], edit.constant(old.name, turned, old.type)])
        graph = edit.apply(name)
        if lost.any():
            absorb(graph, name, lost, arrays)
    return bypassed(retyped(with_constants(graph, arrays)), mirror.name, mirror.inputs[0])
