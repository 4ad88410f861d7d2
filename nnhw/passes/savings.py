"""What an optimization has saved: nodes, weights, products and channels of the integer layers, counted in the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nnhw.ir import Graph, Node
from nnhw.ir.ops import Conv2d, Linear

OPTIMIZATIONS = ("fold_constants", "share_twins", "fold_fixed_channels", "drop_unread", "merge_parallel")
"""Passes that make a graph smaller and need not; what the others change makes integers of floats."""


@dataclass(frozen=True)
class Size:
    """What a graph takes.

    Parameters
    ----------
    nodes: values that are computed; constants and inputs are not.
    weights: of linear layers and convolutions.
    products: of one frame, those with weights that are 0 and those at borders included.
    channels: outputs of linear layers and convolutions.
    layers: names of these layers, as the model calls them.
    """

    nodes: int
    weights: int
    products: int
    channels: int
    layers: tuple[str, ...]

    @classmethod
    def of(cls, graph: Graph) -> Size:
        """Count a graph; a layer whose weights are 0 in some places counts as one that has them all."""
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
        """Return how much less there is in another graph, and which layers are gone."""
        gone = [name for name in self.layers if name not in after.layers]
        numbers = {name: getattr(self, name) - getattr(after, name) for name in _NUMBERS}
        return {**numbers, "layers": gone}


def savings(sizes: Mapping[str, tuple[Size, Size]]) -> dict[str, dict[str, object]]:
    """Return by optimization what it saved, in the order of the passes; those that left the graph as it was are not in.

    Parameters
    ----------
    sizes: in front of each pass and behind it.
    """
    return {name: before.saved(after) for name, (before, after) in sizes.items() if before != after}


def _layer_name(node: Node) -> str:
    return node.location.module or node.name


_NUMBERS = ("nodes", "weights", "products", "channels")
