"""Cutting a network in two: layers in front that have engines of their own, and those behind that share one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnhw.ir import Graph, extract
from nnhw.mapping.layers import Layer
from nnhw.mapping.reader import read_layers


@dataclass(frozen=True)
class Partition:
    """A network in two parts.

    Parameters
    ----------
    front: layers that stream; None: there are none.
    back: layers that share an engine.
    layers: how many layers are in front.
    """

    front: Graph | None
    back: Graph
    layers: int


def partitions(body: Graph, most: int) -> list[Partition]:
    """Return the network with no layer in front, with one, and so on: wherever a single value passes from part to part.

    Parameters
    ----------
    most: layers in front.
    """
    layers = read_layers(body)
    found = [Partition(None, body, 0)]
    for count in range(1, min(most, len(layers) - 1) + 1):
        node = layers[count - 1].node
        if layers[count - 1].function is not None and node in body and _is_cut(layers, count):
            (source,) = body.inputs
            front = extract(body, f"{body.name}_front", (source.name,), (node,))
            back = extract(body, body.name, (node,), body.outputs)
            found.append(Partition(front, back, count))
    return found


def _is_cut(layers: Sequence[Layer], count: int) -> bool:
    """Return whether the layers from `count` on read nothing of those in front but the last one's value."""
    behind = {layer.node for layer in layers[count - 1 :]}
    return all(name in behind for layer in layers[count:] for name in layer.inputs)
