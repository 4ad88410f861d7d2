"""Candidates for parts of the accelerator: nodes that are computed from one value, up to one result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, fx

from .node_values import Dependence, NodeValue, TracedGraph
from .operators import LINEAR, QUANTIZE, VALUE


@dataclass(frozen=True)
class Subgraph:
    """Nodes of a graph with one input and one output.

    Parameters
    ----------
    source: the node that all are computed from; it is not among them.
    nodes: in the order of the graph, the output last; without the constants that they read.
    layers: number of nodes with weights.
    """

    source: fx.Node
    nodes: tuple[fx.Node, ...]
    layers: int

    @property
    def output(self) -> fx.Node:
        """The node whose value is the result."""
        return self.nodes[-1]


def families(traced: TracedGraph, values: Mapping[fx.Node, NodeValue]) -> list[list[Subgraph]]:
    """Return the candidates for parts: a list for each source, with the largest region first."""
    members: dict[fx.Node, list[fx.Node]] = {}
    for node in traced.graph.nodes:
        value = values.get(node)
        if value is not None and value.kind is Dependence.PART and value.source is not None:
            members.setdefault(value.source, []).append(node)
    found = [list(_regions(traced, values, source, nodes)) for source, nodes in members.items()]
    return [sorted(regions, key=_size, reverse=True) for regions in found if regions]


def _size(region: Subgraph) -> tuple[int, int]:
    return region.layers, len(region.nodes)


def _regions(
    traced: TracedGraph, values: Mapping[fx.Node, NodeValue], source: fx.Node, nodes: Sequence[fx.Node]
) -> Iterator[Subgraph]:
    """Yield the regions from a source to each value that an accelerator can return: codes, or sums of a layer."""
    behind: dict[fx.Node, set[fx.Node]] = {}
    unsafe = _last_change(traced, source)
    for node in nodes:
        behind[node] = {node}.union(*(behind[one] for one in node.all_input_nodes if one in behind))
        within = behind[node]
        layers = sum(bool(LINEAR & set(traced.operators(one).names)) for one in within)
        ends = values[node].codes or LINEAR & set(traced.operators(node).names)
        if not layers or not ends or not isinstance(node.meta.get(VALUE), Tensor):
            continue
        # The accelerator returns one value: all others of the region have to stay inside of it.
        if _escapes(traced, source, node, within):
            continue
        ordered = tuple(one for one in nodes if one in within)
        # The part reads its source where its output stood: behind a change it would read other numbers.
        if unsafe is None or _comes_before(traced.graph, unsafe, ordered[0]):
            yield Subgraph(source, ordered, layers)


def _escapes(traced: TracedGraph, source: fx.Node, output: fx.Node, within: set[fx.Node]) -> bool:
    """Return whether a value other than the output is read outside of a region.

    Quantizers of the source do not count: PyTorch can compute them once more.
    """
    return any(
        user not in within
        for node in within
        if node is not output and not (QUANTIZE in traced.operators(node).names and source in node.all_input_nodes)
        for user in node.users
    )


def _last_change(traced: TracedGraph, source: fx.Node) -> fx.Node | None:
    """Return the last node that changes a value's memory in place; None if there is none."""
    memory = _memory(source)
    return next((node for node, changed in reversed(list(traced.changes())) if _memory(changed) & memory), None)


def _memory(node: fx.Node) -> set[int]:
    """Return the addresses of the storages of a value's tensors; values that share memory have one in common."""
    value = node.meta.get(VALUE)
    tensors = value if isinstance(value, list | tuple) else [value]
    return {tensor.untyped_storage()._cdata for tensor in tensors if isinstance(tensor, Tensor)}


def _comes_before(graph: fx.Graph, first: fx.Node, second: fx.Node) -> bool:
    return next(node for node in graph.nodes if node in (first, second)) is first
