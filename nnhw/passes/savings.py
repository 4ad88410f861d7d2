"""What each optimizing pass saved: nodes, weights, products and channels of integer layers, counted in the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nnhw.ir import Graph, Node
from nnhw.ir.ops import Conv2d, Linear

OPTIMIZATIONS = ("fold_constants", "share_twins", "fold_fixed_channels", "drop_unread", "merge_parallel", "merge_gates")
"""Passes that are not needed for correctness and only make a graph smaller; the others turn floats into integers."""


@dataclass(frozen=True)
class Size:
    """The size of a graph.

    Parameters
    ----------
    nodes: number of nodes that compute something, which constants and inputs do not.
    weights: number of weights of linear layers and convolutions, zeros included.
    products: number of products in them per frame, those with a 0 included.
    channels: number of their output channels.
    layers: names of these layers in the model.
    """

    nodes: int
    weights: int
    products: int
    channels: int
    layers: tuple[str, ...]

    @classmethod
    def of(cls, graph: Graph) -> Size:
        """Count the nodes, weights, products and channels of a graph."""
        layers = [node for node in graph.nodes if isinstance(node.op, Linear | Conv2d)]
        weights = [int(graph.constants[node.inputs[1]].size) for node in layers]
        places = [int(np.prod(node.type.shape[1:], dtype=np.int64)) for node in layers]
        return cls(
            nodes=sum(bool(node.inputs) for node in graph.nodes),
            weights=sum(weights),
            products=sum(count * places for count, places in zip(weights, places, strict=True)),
            channels=sum(node.type.shape[0] for node in layers),
            layers=tuple(map(_layer_name, layers)),
        )

    def saved(self, after: Size) -> dict[str, object]:
        """Return by how much each number is smaller in `after`, and the names of the layers that it lacks."""
        gone = [name for name in self.layers if name not in after.layers]
        numbers = {name: getattr(self, name) - getattr(after, name) for name in _NUMBERS}
        return {**numbers, "layers": gone}


def savings(sizes: Mapping[str, tuple[Size, Size]]) -> dict[str, dict[str, object]]:
    """Return what each pass saved, by name and in the passes' order; passes that saved nothing are left out.

    Parameters
    ----------
    sizes: the graph's size in front of each pass and behind it, by the pass's name.
    """
    return {name: before.saved(after) for name, (before, after) in sizes.items() if before != after}


def _layer_name(node: Node) -> str:
    return node.location.module or node.name


_NUMBERS = ("nodes", "weights", "products", "channels")
