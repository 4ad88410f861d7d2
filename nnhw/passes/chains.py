"""Chains: the elementwise ops between an integer accumulator and the quantizer that reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nnhw.errors import LoweringError
from nnhw.ir import FLOAT, Graph, GraphBuilder, IntType, Node, Operand, TensorType, run
from nnhw.ir.ops import BatchNorm, Dequantize, Input, Quantize


@dataclass(frozen=True)
class Chain:
    """A path of ops, each reading the one before and constants.

    Parameters
    ----------
    source: the integer value that it starts from, such as the sums of a linear operator.
    nodes: from dequantize to quantize.
    """

    graph: Graph
    source: Node
    nodes: tuple[Node, ...]

    @property
    def quantizer(self) -> Node:
        """The last op."""
        return self.nodes[-1]

    @property
    def codes(self) -> IntType:
        """The type of its results."""
        return self.quantizer.type.int_dtype

    def trend(self, node: Node) -> np.ndarray:
        """Return how `node` moves with the chain's value, per channel: 1 rising, -1 falling, 0 constant.

        Returns: [channels], or [] for an op that treats all channels alike.

        Raises: LoweringError for an op that is not monotone.
        """
        position = self._position(node)
        trend = node.op.trend(position, self.graph.operands(node))
        if trend is None:
            raise LoweringError(
                f"{node} stands before quantizer '{self.quantizer.name}' and is not monotone, which is not supported "
                f"yet; put a quantizer in front of it, or leave it out"
            )
        return self._per_channel(node, trend)

    def direction(self) -> np.ndarray:
        """Return the trend of the whole chain, [channels]. Follows from signs, never from samples."""
        product = np.ones(self.channels, dtype=np.int64)
        for node in self.nodes:
            product = product * np.nan_to_num(self.trend(node)).astype(np.int64)
        return product

    @property
    def channels(self) -> int:
        """Size of the channel axis. Raises: LoweringError if the value has none."""
        shape = self.source.type.shape
        if not shape:
            raise LoweringError(f"{self.source} has no channel axis; use a layer with a list of outputs")
        return shape[0]

    def flat(self) -> Graph:
        """Return the chain as a graph [N, channels] --> codes [N, channels]: each row is one accumulator value.

        All evaluation of chains goes through it, by the ops' one meaning.
        """
        builder = GraphBuilder(f"{self.graph.name}.{self.quantizer.name}")
        codes = self.source.type.int_dtype
        # Every integer of the range, also those that bipolar sums of one parity cannot take.
        value = builder.input(self.source.name, TensorType((self.channels,), IntType(codes.low, codes.high)))
        before = self.source.name
        for node in self.nodes:
            names = [value if name == before else self._flat_constant(builder, node, name) for name in node.inputs]
            value, before = builder.add(node.name, node.op, names, node.location), node.name
        return builder.build([value])

    def evaluator(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return the function from accumulators, int64 [N, channels], to codes of the same shape."""
        graph = self.flat()
        return lambda values: run(graph, values)[0]

    def _flat_constant(self, builder: GraphBuilder, node: Node, name: str) -> str:
        array = self._per_channel(node, self.graph.constants[name])
        return builder.constant(name, array, TensorType(array.shape, FLOAT))

    def _position(self, node: Node) -> int:
        return next(index for index, name in enumerate(node.inputs) if name not in self.graph.constants)

    def _per_channel(self, node: Node, array: np.ndarray) -> np.ndarray:
        rank = len(self.source.type.shape)
        # Parameters of batch norm are lists of channels; everything else broadcasts from the right.
        if array.ndim == 1 and (rank == 1 or isinstance(node.op, BatchNorm)):
            return array
        if array.size == 1:
            return array.reshape(())
        if array.shape == (self.channels,) + (1,) * (rank - 1):
            return array.reshape(-1)
        raise LoweringError(
            f"{node} has a constant of shape {list(array.shape)}, which differs from position to position; "
            f"use one number, or one per channel: shape {[self.channels] + [1] * (rank - 1)}"
        )


def find_chain(graph: Graph, quantizer: Node) -> Chain | None:
    """Return the chain that ends in `quantizer`, or None if that reads the model's input.

    Raises: LoweringError if two values meet on the way.
    """
    nodes = [quantizer]
    while True:
        data = graph.data_inputs(nodes[0])
        if len(data) != 1:
            raise LoweringError(_meeting(graph, nodes[0], quantizer))
        if isinstance(nodes[0].op, Dequantize):
            return Chain(graph, data[0], tuple(nodes))
        if isinstance(data[0].op, Input):
            return None
        nodes.insert(0, data[0])


def quantizers(graph: Graph) -> tuple[Node, ...]:
    """Return the quantize nodes in order."""
    return tuple(node for node in graph.nodes if isinstance(node.op, Quantize))


def swap(graph: Graph, first: Node, second: Node) -> Graph:
    """y = second(first(x)) --> y = first(second(x)): an elementwise op and one that only moves or picks elements.

    Both keep their names, unless somebody else reads `first`: that one then stays, and the moved copy gets a new name.
    """
    data = graph.data_inputs(first)[0]
    shared = len(graph.users()[first.name]) > 1 or first.name in graph.outputs
    name = unique_name(graph, first.name) if shared else first.name
    inner = _reading(graph, second, first.name, data)
    outer = dataclasses.replace(_reading(graph, first, data.name, inner), name=name)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name == second.name:
            nodes += [inner, outer]
        elif node.name != first.name or shared:
            nodes.append(dataclasses.replace(node, inputs=_renamed(node, second.name, name)))
    outputs = tuple(name if output == second.name else output for output in graph.outputs)
    return Graph(graph.name, tuple(nodes), outputs, graph.constants).pruned()


def unique_name(graph: Graph, name: str) -> str:
    """Return `name` with the first number behind it that makes it new."""
    number = 2
    while f"{name}_{number}" in graph:
        number += 1
    return f"{name}_{number}"


def _reading(graph: Graph, node: Node, old: str, new: Node) -> Node:
    """Return `node` with another operand, and the type that follows from it."""
    operands = [
        Operand(new.type) if name == old else Operand(graph.node(name).type, graph.constants.get(name))
        for name in node.inputs
    ]
    type = node.op.infer(operands)
    return Node(node.name, node.op, _renamed(node, old, new.name), type, node.location)


def _renamed(node: Node, old: str, new: str) -> tuple[str, ...]:
    return tuple(new if name == old else name for name in node.inputs)


def _meeting(graph: Graph, node: Node, quantizer: Node) -> str:
    names = " and ".join(f"'{data.name}'" for data in graph.data_inputs(node))
    return (
        f"{node} joins {names} before quantizer '{quantizer.name}'; joining branches is not supported yet; "
        f"use a model without residual or parallel branches"
    )
