"""Edits of graphs that several passes share; graphs are immutable, so each edit returns a new one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from nnhw.ir import FLOAT, Graph, Node, Op, Operand, TensorType
from nnhw.ir.graph import free_name, infer
from nnhw.ir.ops import BatchNorm, Concat, Constant, Flatten, MaxPool2d, Pad, Permute, PRelu, Reshape, Slice, Upsample

ORDER_OPS = (Flatten, Reshape, Permute)
"""Ops that keep every element, in another shape or order."""

SHAPE_OPS = (*ORDER_OPS, Slice, Upsample, Pad, MaxPool2d, Concat)
"""Ops that move, pick, repeat or join elements, and add nothing but borders."""


def is_channel_list(op: Op) -> bool:
    """Return whether the constants of `op` have shape [channels]; those of all other ops broadcast as NumPy does."""
    return isinstance(op, BatchNorm | PRelu)


class Edit:
    """New nodes that replace one node of a graph; their types are inferred, and their names made unique.

    Parameters
    ----------
    graph: the graph to change; see `apply`.
    free: names of nodes that the edit removes, so that new nodes may take them.
    """

    def __init__(self, graph: Graph, free: Iterable[str] = ()) -> None:
        self._graph = graph
        self._free = set(free)
        self._nodes: dict[str, Node] = {}
        self._constants: dict[str, np.ndarray] = {}

    def constant(self, name: str, array: np.ndarray, type: TensorType | None = None) -> str:
        """Add a constant and return its name; `type` is float64 by default."""
        name = self._unique(name)
        self._nodes[name] = Node(name, Constant(), (), type or TensorType(array.shape, FLOAT))
        self._constants[name] = array
        return name

    def add(self, like: Node, op: Op, inputs: Sequence[str], name: str = "") -> str:
        """Add a node that reads `inputs`; return its name.

        Parameters
        ----------
        like: gives the node's source location, and its name unless another one is given.
        name: the wanted name; a number is appended if it is taken.
        """
        name = self._unique(name or like.name)
        node = Node(name, op, tuple(inputs), like.type, like.location)
        node = dataclasses.replace(node, type=infer(node, [self._operand(operand) for operand in inputs]))
        self._nodes[name] = node
        return name

    def type_of(self, name: str) -> TensorType:
        """Return the type of a new or an old node."""
        return (self._nodes.get(name) or self._graph.node(name)).type

    def apply(self, place: str) -> Graph:
        """Return the graph with the new nodes in the place of node `place`; its readers read the last new node."""
        result = next(reversed(self._nodes))
        # Readers of the old node read the new one, also if it has another name.
        names = {place: result}
        nodes: list[Node] = []
        for node in self._graph.nodes:
            if node.name == place:
                nodes += self._nodes.values()
            # A node that gives its name to a new one is left out.
            elif node.name not in self._nodes:
                nodes.append(_renamed(node, names))
        outputs = tuple(names.get(output, output) for output in self._graph.outputs)
        constants = {name: array for name, array in self._graph.constants.items() if name not in self._nodes}
        merged = {**constants, **self._constants}
        return dataclasses.replace(self._graph, nodes=tuple(nodes), outputs=outputs, constants=merged).pruned()

    def _operand(self, name: str) -> Operand:
        constant = self._constants.get(name, self._graph.constants.get(name))
        return Operand(self.type_of(name), constant)

    def _unique(self, name: str) -> str:
        return free_name(name, lambda tried: tried in self._nodes or (tried in self._graph and tried not in self._free))


def bypassed(graph: Graph, place: str, value: str) -> Graph:
    """Return the graph in which the readers of `place` read `value`, an earlier node of the same type."""
    names = {place: value}
    nodes = tuple(_renamed(node, names) for node in graph.nodes if node.name != place)
    outputs = tuple(names.get(name, name) for name in graph.outputs)
    return dataclasses.replace(graph, nodes=nodes, outputs=outputs).pruned()


def without_twins(graph: Graph) -> Graph:
    """Return the graph in which equal shape ops on the same integers are one node."""
    first: dict[tuple[Op, tuple[str, ...]], str] = {}
    for node in graph.nodes:
        if isinstance(node.op, SHAPE_OPS) and node.type.is_int:
            # Its operands may have been twins themselves, so look at the graph as it is now.
            inputs = graph.node(node.name).inputs
            twin = first.setdefault((node.op, inputs), node.name)
            if twin != node.name:
                graph = bypassed(graph, node.name, twin)
    return graph


def sole_names(graph: Graph, nodes: Iterable[Node], user: Node) -> set[str]:
    """Return the names of `user` and of those of `nodes` that only `user` reads: they disappear together with it."""
    users = graph.users()
    return {user.name} | {node.name for node in nodes if users[node.name] == (user,) and node.name not in graph.outputs}


def retyped(graph: Graph) -> Graph:
    """Return the graph with all types inferred again, as needed behind a node whose range has changed."""
    types: dict[str, TensorType] = {}
    nodes = []
    for node in graph.nodes:
        if node.inputs:
            operands = [Operand(types[name], graph.constants.get(name)) for name in node.inputs]
            node = dataclasses.replace(node, type=infer(node, operands))
        types[node.name] = node.type
        nodes.append(node)
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    if not any(name in names for name in node.inputs):
        return node
    return dataclasses.replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))
