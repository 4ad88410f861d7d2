"""A constant that is taken out of a layer's sums is made up for, exactly, in the functions behind them."""

from __future__ import annotations

import dataclasses

import numpy as np

from nnhw.ir import Graph, IntType, Node, TensorType
from nnhw.ir.graph import free_name
from nnhw.ir.ops import MaxPool2d, Rescale, StepTable, SumPool2d, Threshold, Upsample, WeightedSum

FUNCTIONS = (Threshold, StepTable, Rescale)
_PASSING = (MaxPool2d, SumPool2d, Upsample, WeightedSum)
"""Ops through which a constant of each channel can be followed. Max pooling never takes the value of its border."""

Arrays = dict[str, np.ndarray]
"""New constants, by the name of the node that reads them: thresholds, biases of rescalings, or weights of layers."""


def can_absorb(graph: Graph, name: str) -> bool:
    """Return whether all readers of a value are functions that can take an offset, or ops that pass it on to such."""
    if name in graph.outputs:
        return False
    users = graph.users()[name]
    return all(
        isinstance(user.op, FUNCTIONS) or (isinstance(user.op, _PASSING) and can_absorb(graph, user.name))
        for user in users
    )


def absorb(graph: Graph, name: str, offset: np.ndarray, arrays: Arrays) -> None:
    """Compute new constants of the functions behind a value, so that their results stay if the value loses an offset.

    Parameters
    ----------
    name: the value; see `can_absorb`.
    offset: what is subtracted from the value, int64 [channels].
    arrays: receives the new constants; a constant that is in it is shifted again.
    """
    for user in graph.users()[name]:
        if isinstance(user.op, FUNCTIONS):
            _absorb_here(graph, user, offset, arrays)
        elif isinstance(user.op, WeightedSum):
            # The sum may take the value several times.
            factor = sum(k for k, operand in zip(user.op.factors, user.inputs, strict=True) if operand == name)
            absorb(graph, user.name, factor * offset, arrays)
        elif isinstance(user.op, SumPool2d):
            absorb(graph, user.name, user.op.kernel[0] * user.op.kernel[1] * offset, arrays)
        else:
            absorb(graph, user.name, offset, arrays)


def with_constants(graph: Graph, arrays: Arrays) -> Graph:
    """Return the graph in which nodes read new thresholds, biases or weights. The caller has to infer types again."""
    nodes: list[Node] = []
    constants = dict(graph.constants)
    # The old constant may have other readers, so the new one gets a name of its own; `pruned` drops what nobody reads.
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
    """Return the position of the operand to replace: the bias of a rescaling, else thresholds or weights."""
    return 3 if isinstance(node.op, Rescale) else 1
