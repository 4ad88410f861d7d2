"""A part of a graph as a graph of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .graph import Graph, GraphBuilder
from .verify import verify


def extract(graph: Graph, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
    """Return what `outputs` need, computed from `inputs`, or from the graph's own inputs if there are none.

    Parameters
    ----------
    name: of the new graph.
    inputs: values that the new graph is given; with none, its inputs are those of the old one that it needs.
    """
    builder = GraphBuilder(name)
    for given in inputs:
        node = graph.node(given)
        builder.input(node.name, node.type, node.location)
    needed = _needed(graph, outputs, set(inputs))
    builder.copy((node for node in graph.nodes if node.name in needed - set(inputs)), graph)
    return verify(builder.build(outputs))


def _needed(graph: Graph, outputs: Collection[str], given: set[str]) -> set[str]:
    needed = set(outputs)
    for node in reversed(graph.nodes):
        if node.name in needed and node.name not in given:
            needed.update(node.inputs)
    return needed
