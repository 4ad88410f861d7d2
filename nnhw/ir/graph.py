"""The dataflow graph: immutable, its nodes in topological order, each of which defines one value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from nnhw.errors import IrError

from .ops import Constant, Input, Op, Operand, Scan
from .types import FLOAT, TensorType


@dataclass(frozen=True)
class Location:
    """The place in the user's model that a node comes from.

    Parameters
    ----------
    module: path of the module, such as 'features.3'; empty for the model itself.
    file: name of the source file without folders; empty if not known.
    line: number of the line in it; 0 if not known.
    """

    module: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        module = f"'{self.module}'" if self.module else "of the model"
        return f"{module} ({where})" if where else module


NOWHERE = Location()
Result = TypeVar("Result")


@dataclass(frozen=True)
class Node:
    """One value of a graph, and the operator that computes it.

    Parameters
    ----------
    name: its name, unique in the graph.
    op: the operator with its attributes.
    inputs: names of the operands.
    type: type of the value: the result of `op.infer`, but given for inputs and constants.
    location: the place in the user's model that it comes from.
    """

    name: str
    op: Op
    inputs: tuple[str, ...]
    type: TensorType
    location: Location = NOWHERE

    def __str__(self) -> str:
        return f"{self.op.name} {self.location}" if self.location != NOWHERE else f"{self.op.name} '{self.name}'"


@dataclass(frozen=True, eq=False)
class Graph:
    """An immutable dataflow graph. Two graphs are equal if all names, types, locations and constants are equal.

    Parameters
    ----------
    name: name of the graph.
    nodes: its values in topological order: each stands behind its operands.
    outputs: names of the values that are its results.
    keys: keys of the results, where a model returns them as a dict.
    constants: array of each constant node, by the node's name: int64, float64 or bool; read-only.
    """

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Read-only, so that graphs can share arrays and be compared and hashed. The index by name is no field, as it
        # follows from the nodes.
        object.__setattr__(self, "constants", MappingProxyType({k: _frozen(v) for k, v in self.constants.items()}))
        object.__setattr__(self, "_by_name", {node.name: node for node in self.nodes})
        object.__setattr__(self, "_places", {node.name: place for place, node in enumerate(self.nodes)})

    def node(self, name: str) -> Node:
        """Return the node with this name. Raises: IrError if there is none."""
        by_name: dict[str, Node] = self.__dict__["_by_name"]
        if name not in by_name:
            raise IrError(f"graph '{self.name}' has no node '{name}'")
        return by_name[name]

    def in_order(self, names: Iterable[str]) -> tuple[Node, ...]:
        """Return the nodes with these names, as they stand in the graph."""
        places: dict[str, int] = self.__dict__["_places"]
        return tuple(map(self.node, sorted(names, key=places.__getitem__)))

    @property
    def loops(self) -> tuple[tuple[Node, Scan], ...]:
        """The `scan` nodes, which run a body for each step of a sequence, each with its op."""
        return tuple((node, node.op) for node in self.nodes if isinstance(node.op, Scan))

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__["_by_name"]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The input nodes, in order; the caller gives their values."""
        return tuple(node for node in self.nodes if isinstance(node.op, Input))

    @property
    def output_nodes(self) -> tuple[Node, ...]:
        """The nodes of `outputs`, in that order."""
        return tuple(self.node(name) for name in self.outputs)

    def in_form(self, results: Sequence[Result]) -> Result | tuple[Result, ...] | dict[str, Result]:
        """Return the results as the model does: the only one, or a tuple or a dict of them."""
        if self.keys:
            return dict(zip(self.keys, results, strict=True))
        return results[0] if len(results) == 1 else tuple(results)

    def operands(self, node: Node) -> tuple[Operand, ...]:
        """Return the operands of `node` as its type rule needs them: types, and arrays of constants."""
        return tuple(Operand(self.node(name).type, self.constants.get(name)) for name in node.inputs)

    def data_inputs(self, node: Node) -> tuple[Node, ...]:
        """Return the operands of `node` that are not constants."""
        return tuple(self.node(name) for name in node.inputs if name not in self.constants)

    def users(self) -> dict[str, tuple[Node, ...]]:
        """Return, for each node's name, the nodes that read it, in order. Graph outputs are not users."""
        found: dict[str, dict[str, Node]] = {node.name: {} for node in self.nodes}
        for node in self.nodes:
            for name in node.inputs:
                found[name][node.name] = node
        return {name: tuple(readers.values()) for name, readers in found.items()}

    def pruned(self) -> Graph:
        """Return the graph without the nodes that no output needs; inputs stay, as callers give values for them."""
        needed = set(self.outputs)
        for node in reversed(self.nodes):
            if node.name in needed:
                needed.update(node.inputs)
        kept = tuple(node for node in self.nodes if node.name in needed or isinstance(node.op, Input))
        names = {node.name for node in kept}
        return self._with(kept, self.outputs, {k: v for k, v in self.constants.items() if k in names})

    def replace(self, name: str, nodes: Sequence[Node], constants: Mapping[str, np.ndarray] | None = None) -> Graph:
        """Return the pruned graph in which `nodes` replace node `name`, whose readers read the last of them.

        Parameters
        ----------
        nodes: one or more, in topological order; they read one another and nodes in front of `name`. The last one may
            have the same name.
        constants: arrays of the constant nodes among them.
        """
        result = nodes[-1].name
        place = self.nodes.index(self.node(name))
        behind = [_redirected(node, {name: result}) for node in self.nodes[place + 1 :]]
        outputs = tuple(result if output == name else output for output in self.outputs)
        merged = (*self.nodes[:place], *nodes, *behind)
        return self._with(merged, outputs, {**self.constants, **(constants or {})}).pruned()

    def _with(self, nodes: Sequence[Node], outputs: tuple[str, ...], constants: Mapping[str, np.ndarray]) -> Graph:
        return replace(self, nodes=tuple(nodes), outputs=outputs, constants=constants)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        mine, theirs = ((graph.name, graph.nodes, graph.outputs, graph.keys) for graph in (self, other))
        return (
            mine == theirs
            and self.constants.keys() == other.constants.keys()
            and all(_identical(array, other.constants[name]) for name, array in self.constants.items())
        )

    # Without the arrays, which have no hash: graphs that are equal have the same names, nodes and outputs, too.
    def __hash__(self) -> int:
        return hash((self.name, self.nodes, self.outputs))


class GraphBuilder:
    """Makes a graph node by node; types are inferred, and names are made unique.

    The `Builder` is for users; this one is for passes and frontends.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: dict[str, Node] = {}
        self._constants: dict[str, np.ndarray] = {}

    def input(self, name: str, type: TensorType, location: Location = NOWHERE) -> str:
        """Add an input; return its name."""
        return self._append(Node(self.unique(name), Input(), (), type, location))

    def constant(self, name: str, array: np.ndarray, type: TensorType, location: Location = NOWHERE) -> str:
        """Add a constant; return its name."""
        added = self._append(Node(self.unique(name), Constant(), (), type, location))
        self._constants[added] = array
        return added

    def add(self, name: str, op: Op, inputs: Sequence[str], location: Location = NOWHERE) -> str:
        """Add a node that computes `op` of the named operands; return its name.

        Raises
        ------
        IrError with the node's location if the operands do not fit the op.
        """
        operands = [Operand(self.type_of(operand), self._constants.get(operand)) for operand in inputs]
        # For the messages of the type rule only, as the type is not known yet.
        untyped = Node(name, op, tuple(inputs), TensorType((), FLOAT), location)
        type = infer(untyped, operands)
        return self._append(Node(self.unique(name), op, tuple(inputs), type, location))

    def copy(self, nodes: Iterable[Node], graph: Graph) -> None:
        """Add nodes of another graph unchanged, with their constants. Raises: IrError if a name is taken."""
        for node in nodes:
            if node.name in self._nodes:
                raise IrError(f"graph '{self.name}' already has a node '{node.name}'")
            if node.name in graph.constants:
                self._constants[node.name] = graph.constants[node.name]
            self._append(node)

    def type_of(self, name: str) -> TensorType:
        """Return the type of a node. Raises: IrError if there is no node with this name."""
        if name not in self._nodes:
            raise IrError(f"graph '{self.name}' has no node '{name}'")
        return self._nodes[name].type

    def location_of(self, name: str) -> Location:
        """Return the location of a node."""
        return self._nodes[name].location

    def unique(self, name: str) -> str:
        """Return `name` if it is free, else the first free one of `name_2`, `name_3`, .."""
        return free_name(name, self._nodes.__contains__)

    def build(self, outputs: Sequence[str], keys: tuple[str, ...] = ()) -> Graph:
        """Return the pruned graph with these outputs. Raises: IrError if one of them does not exist.

        Parameters
        ----------
        keys: keys of the outputs, if they are a dict.
        """
        for name in outputs:
            self.type_of(name)
        return Graph(self.name, tuple(self._nodes.values()), tuple(outputs), self._constants, keys).pruned()

    def _append(self, node: Node) -> str:
        self._nodes[node.name] = node
        return node.name


def free_name(name: str, is_taken: Callable[[str], bool]) -> str:
    """Return `name` if it is free, else the first free one of `name_2`, `name_3`, .."""
    number, tried = 1, name
    while is_taken(tried):
        number += 1
        tried = f"{name}_{number}"
    return tried


def infer(node: Node, operands: Sequence[Operand]) -> TensorType:
    """Return the type of a node by its op's type rule. An op that is not `along_steps` is applied to each step.

    Raises: IrError that names the node if the operands do not fit.
    """
    try:
        node.op.check_operands(operands)
        # Constants such as weights are the same in each step, and no sequences.
        values = [operand for operand in operands if operand.value is None]
        if node.op.along_steps or not any(operand.type.is_sequence for operand in values):
            return node.op.infer(operands)
        if not all(operand.type.is_sequence for operand in values):
            kinds = ", ".join(str(operand.type) for operand in values)
            raise IrError(f"{node.op.name} takes sequences alone, or none, got {kinds}")
        return node.op.infer([replace(operand, type=operand.type.step) for operand in operands]).sequence
    except IrError as error:
        raise IrError(f"{node}: {error}") from error


def inner_name(loop: str, name: str) -> str:
    """Return the name by which a node of a loop's body is known outside of the body."""
    return f"{loop}/{name}"


def with_body(graph: Graph, loop: str, body: Graph) -> Graph:
    """Return the graph in which a loop has another body with the same inputs and outputs."""
    nodes = [replace(node, op=Scan(body)) if node.name == loop else node for node in graph.nodes]
    return replace(graph, nodes=tuple(nodes))


def all_constants(graph: Graph) -> dict[str, np.ndarray]:
    """Return the arrays of a graph and of the bodies of its loops, the latter by `inner_name`."""
    return {prefix + name: array for prefix, part in levels(graph) for name, array in part.constants.items()}


def levels(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield the graph and all bodies of loops in it, each with the prefix that its names have outside."""
    yield "", graph
    for loop, scan in graph.loops:
        yield from ((inner_name(loop.name, prefix), body) for prefix, body in levels(scan.body))


def named(graph: Graph, name: str) -> Node:
    """Return the node with a name, which may be an `inner_name` of a loop's body. Raises: IrError if there is none."""
    for loop, scan in graph.loops:
        start = inner_name(loop.name, "")
        if name.startswith(start):
            return named(scan.body, name.removeprefix(start))
    return graph.node(name)


def _redirected(node: Node, names: Mapping[str, str]) -> Node:
    if not any(name in names for name in node.inputs):
        return node
    return dataclasses.replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))


def _frozen(array: np.ndarray) -> np.ndarray:
    """Return a read-only array; passes make many graphs with the same constants, which share them then."""
    # C order, as files and hashes take the bytes of an array.
    if not array.flags.writeable and array.flags.c_contiguous:
        return array
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy


def _identical(left: np.ndarray, right: np.ndarray) -> bool:
    # Bytes, so that NaN equals NaN, and -0.0 is not 0.0.
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
