"""All steps of loops behind layers of whole values, as the positions of maps: an ordinary graph, states apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnhw.errors import IrError

from .graph import Graph, Location, Node, free_name, infer
from .ops import (
    AsSteps,
    Broadcast,
    Concat,
    Constant,
    Conv2d,
    Flatten,
    Input,
    IntegerNorm,
    IntegerSoftmax,
    LastStep,
    Linear,
    Maximum,
    Minimum,
    Op,
    Operand,
    Permute,
    Product,
    Rescale,
    Reshape,
    ReverseSteps,
    Slice,
    StepTable,
    Threshold,
    WeightedSum,
)
from .steps import OneStep, Unroller
from .types import TensorType

_CHANNELS = (Threshold, StepTable, Rescale, WeightedSum, Product, Maximum, Minimum)
"""Ops of which each channel or element of a position is computed as that of a vector."""
_ORDERS = (Flatten, Reshape, Permute)
"""Ops that leave the one axis of a vector as it is."""


def steps_as_positions(graph: Graph) -> OneStep:
    """Return a graph whose loops get their steps from a whole value, with all steps side by side.

    A vector of each step, [elements], becomes a map [elements, steps, 1], and layers compute its positions one after
    the other, as they do those of an image: a linear layer is a convolution with a kernel of 1 x 1. The states are
    inputs, with the state in front of each step, and the next states are outputs. The last step is the last position.

    Raises
    ------
    IrError: a loop reads its steps from the last one to the first; a step is no vector, or has an op that is not of
        vectors; sequences of two lengths; or the initial state of a loop is computed.
    """
    sizes = {graph.node(node.inputs[0]).type.shape[0] for node in graph.nodes if isinstance(node.op, AsSteps)}
    if len(sizes) != 1:
        raise IrError(f"graph '{graph.name}' needs loops of one number of steps, got {sorted(sizes)}")
    unroller = _Positions(graph, *sizes)
    for node in graph.nodes:
        unroller.add(node)
    return unroller.finish(unroller.steps)


class _Positions(Unroller):
    def __init__(self, graph: Graph, steps: int) -> None:
        super().__init__(graph)
        self.steps = steps
        self.types: dict[str, TensorType] = {}

    def add(self, node: Node) -> None:
        """Add one node of the graph of sequences, as what it does in all steps."""
        source = self._name(node.inputs[0]) if node.inputs else ""
        if isinstance(node.op, AsSteps):
            self._check_vector(node, node.type)
            turned = self._made(self._free(f"{node.name}.turned"), Permute((1, 0)), [source], node.location)
            self._made(node.name, Reshape(self._map(node.type)), [turned], node.location)
        elif isinstance(node.op, LastStep):
            last = self._made(node.name, Slice(1, self.steps - 1, self.steps), [source], node.location)
            vector = self._free(f"{node.name}.vector")
            self.names[node.name] = self._made(vector, Reshape(node.type.shape), [last], node.location)
        elif isinstance(node.op, ReverseSteps):
            raise IrError(
                f"{node} reads the steps that layers compute from the last one to the first, and no memory holds all "
                f"of them; read them in one direction, or build these layers and the loop as two models, of which the "
                f"second gets the results of the first as sequences [batch, steps, features]"
            )
        else:
            super().add(node)

    def _copy(self, node: Node, name: str, graph: Graph) -> None:
        # All that a body computes is of one step.
        of_steps = node.type.is_sequence or graph is not self.graph
        if isinstance(node.op, Constant) or not of_steps:
            super()._copy(node, name, graph)
            self.types[name] = node.type
            return
        self._check_vector(node, node.type)
        if isinstance(node.op, Input):
            kind = TensorType(self._map(node.type), node.type.dtype)
            self.nodes.append(replace(node, name=name, type=kind))
            self.types[name] = kind
        elif isinstance(node.op, _ORDERS):
            self.names[node.name] = self._name(node.inputs[0])
        else:
            self._made(name, *self._of_positions(node), node.location)

    def _of_positions(self, node: Node) -> tuple[Op, list[str]]:
        """Return the op of all positions that does what a node does in each step, and its operands."""
        op, inputs = node.op, [self._name(operand) for operand in node.inputs]
        if isinstance(op, Linear):
            return Conv2d(), [inputs[0], self._spread(inputs[1], (1, 1))]
        if isinstance(op, Broadcast):
            return op, [inputs[0], self._spread(inputs[1], (self.steps, 1))]
        if isinstance(op, IntegerSoftmax) and self.constants[inputs[2]].ndim:
            return op, [*inputs[:2], self._spread(inputs[2], (1, 1))]
        if isinstance(op, (*_CHANNELS, Concat, Slice, IntegerNorm, IntegerSoftmax)):
            return op, inputs
        raise IrError(
            f"{node} is no operation of vectors: behind layers of whole images, a loop takes linear layers, gates and "
            f"sums of vectors; build these layers and the loop as two models"
        )

    def _spread(self, name: str, sides: tuple[int, int]) -> str:
        """Add a constant [.., elements] as one of maps with these sides."""
        kind, array = self.types[name], self.constants[name]
        spread = np.broadcast_to(array[..., None, None], (*array.shape, *sides))
        added = self._free(f"{name}.map")
        self.types[added] = kind = TensorType(spread.shape, kind.dtype)
        self.constants[added] = spread
        self.nodes.append(Node(added, Constant(), (), kind))
        return added

    def _free(self, name: str) -> str:
        return free_name(name, lambda tried: tried in self.types or tried in self.graph)

    def _made(self, name: str, op: Op, inputs: list[str], location: Location) -> str:
        node = Node(name, op, tuple(inputs), TensorType((), self.types[inputs[0]].dtype), location)
        operands = [Operand(self.types[operand], self.constants.get(operand)) for operand in inputs]
        self.types[name] = kind = infer(node, operands)
        self.nodes.append(replace(node, type=kind))
        return name

    def _map(self, kind: TensorType) -> tuple[int, int, int]:
        return kind.shape[0], self.steps, 1

    def _check_vector(self, node: Node, kind: TensorType) -> None:
        if len(kind.shape) != 1:
            raise IrError(
                f"{node} gives {list(kind.shape)} in each step; behind layers of whole images, the steps of a loop are "
                f"vectors: flatten each step, or build these layers and the loop as two models"
            )
