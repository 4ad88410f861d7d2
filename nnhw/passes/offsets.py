"""How a constant that is missing from a layer's sums goes into the functions behind them, exactly."""

from __future__ import annotations

import dataclasses

import numpy as np

from nnhw.ir import Graph, IntType, Node, TensorType
from nnhw.ir.ops import MaxPool2d, Rescale, StepTable, SumPool2d, Threshold, Upsample, WeightedSum

from .edit import free_name

FUNCTIONS = (Threshold, StepTable, Rescale)
_PASSING = (MaxPool2d, SumPool2d, Upsample, WeightedSum)
"""What a constant passes; the border of a max pooling belongs to no window."""

Arrays = dict[str, np.ndarray]
"""New constants, by the name of the node that reads them: thresholds, the bias of a rescaling, weights of a layer."""


def can_absorb(graph: Graph, name: str) -> bool:
    """Return whether every reader of a value's sums is a function, or leads to functions alone."""
    if name in graph.outputs:
        return False
    users = graph.users()[name]
    return all(
        isinstance(user.op, FUNCTIONS) or (isinstance(user.op, _PASSING) and can_absorb(graph, user.name))
        for user in users
    )


def absorb(graph: Graph, name: str, offset: np.ndarray, arrays: Arrays) -> None:
    """Note what the functions behind a value have to be if the value lacks an offset.

    Parameters
    ----------
    offset: int64 [channels], what the value no longer has.
    arrays: takes the new constants; those that it has are shifted again.
    """
    for user in graph.users()[name]:
        if isinstance(user.op, FUNCTIONS):
            _absorb_here(graph, user, offset, arrays)
        elif isinstance(user.op, WeightedSum):
            factor = sum(k for k, operand in zip(user.op.factors, user.inputs, strict=True) if operand == name)
            absorb(graph, user.name, factor * offset, arrays)
        elif isinstance(user.op, SumPool2d):
            absorb(graph, user.name, user.op.kernel[0] * user.op.kernel[1] * offset, arrays)
        else:
            absorb(graph, user.name, offset, arrays)


def with_constants(graph: Graph, arrays: Arrays) -> Graph:
    """Return the graph in which nodes have other thresholds, biases or weights. Types are to be inferred anew."""
    nodes: list[Node] = []
    constants = dict(graph.constants)
    taken = {node.name for node in graph.nodes}
    for node in graph.nodes:
        if node.name in arrays:
            place = _place_of(node)
            name, array = free_name(node.inputs[place], taken.__contains__), arrays[node.name]
            taken.add(name)
            kind = IntType(int(array.min()), int(array.max()))
            old = graph.node(node.inputs[place])
            nodes.append(dataclasses.replace(old, name=name, type=TensorType(array.shape, kind)))
            constants[name] = array
            inputs = (*node.inputs[:place], name, *node.inputs[place + 1 :])
            node = dataclasses.replace(node, inputs=inputs)
        nodes.append(node)
    return dataclasses.replace(graph, nodes=tuple(nodes), constants=constants).pruned()


def _absorb_here(graph: Graph, function: Node, offset: np.ndarray, arrays: Arrays) -> None:
    now = arrays.get(function.name, graph.constants[function.inputs[_place_of(function)]])
    moved = now + offset if isinstance(function.op, Rescale) else now - offset[:, None]
    arrays[function.name] = moved.astype(np.int64)


def _place_of(node: Node) -> int:
    """Return which operand of a node the new constant is: the bias of a rescaling, else thresholds or weights."""
    return 3 if isinstance(node.op, Rescale) else 1
