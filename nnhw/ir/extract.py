"""Extracting a part of a graph as a graph of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .graph import Graph, GraphBuilder
from .verify import verify


def extract(graph: Graph, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
    """Return the part of a graph that computes `outputs` from `inputs`, as a verified graph.

    Parameters
    ----------
    name: name of the new graph.
    inputs: names of the values that become its inputs; if empty, it has those inputs of the old graph that it needs.
    outputs: names of the values that it gives.
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
