"""Pass: max pooling of integers goes behind the functions that read it: fewer bits to pool.

threshold(max_pool2d(sums))  --> max_pool2d(threshold(sums)), where no channel falls
threshold(max_pool2d(sums))  --> threshold(max_pool2d(threshold(sums))), where some fall: ranks are pooled
step_table(max_pool2d(sums)) --> step_table(max_pool2d(threshold(sums)))
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnhw.ir import BIT, Graph, IntType, Node, TensorType
from nnhw.ir.ops import Input, MaxPool2d, Op, StepTable, Threshold

from .edit import SHAPE_OPS, Edit, sole_names
from .offsets import FUNCTIONS


def sink_integer_pooling(graph: Graph) -> Graph:
    """Move each max pooling of integers behind the thresholds or the table that reads it.

    What is pooled then is the rank of a sum: how many steps it reaches. A rank rises with the sum in every channel,
    whatever the code does, and the code is a function of it. In front of a function that falls somewhere, a pooling of
    codes stays: it pools few bits already. So does a pooling that another node reads as well.
    """
    for function in [node for node in graph.nodes if isinstance(node.op, Threshold | StepTable)]:
        while (pool := _pool_before(graph, function)) is not None:
            rising = _rises(graph, function)
            edit = Edit(graph, sole_names(graph, [pool], function))
            op, falls = (function.op, function.inputs[2]) if rising else _rank(edit, graph, function)
            ranks = edit.add(function, op, [pool.inputs[0], function.inputs[1], falls])
            pooled = edit.add(pool, pool.op, [ranks])
            if not rising:
                _codes_of_ranks(edit, graph, function, pooled)
            graph = edit.apply(function.name)
            function = graph.node(ranks)
    return graph


def _pool_before(graph: Graph, function: Node) -> Node | None:
    """Return the pooling in front of a function, if it may move behind it."""
    pool = graph.node(function.inputs[0])
    # Its other readers would still need it, so there would be two poolings.
    if not isinstance(pool.op, MaxPool2d) or pool.name not in sole_names(graph, [pool], function):
        return None
    source = graph.node(pool.inputs[0])
    while isinstance(source.op, SHAPE_OPS):
        source = graph.node(source.inputs[0])
    return None if isinstance(source.op, (*FUNCTIONS, Input)) and not _rises(graph, function) else pool


def _rises(graph: Graph, function: Node) -> bool:
    """Return whether a function is a threshold that falls in no channel."""
    return isinstance(function.op, Threshold) and not graph.constants[function.inputs[2]].any()


def _rank(edit: Edit, graph: Graph, function: Node) -> tuple[Op, str]:
    """Return the op that ranks the sums that a function reads, and its constant: no channel falls."""
    channels = len(graph.constants[function.inputs[1]])
    falls = edit.constant(f"{function.name}.rising", np.zeros(channels, bool), TensorType((channels,), BIT))
    # The ranks of a threshold have the type of its codes: in a channel that rises they are the codes.
    return function.op if isinstance(function.op, Threshold) else Threshold(0), falls


def _codes_of_ranks(edit: Edit, graph: Graph, function: Node, ranks: str) -> None:
    """Add the function from pooled ranks to codes, which has a step at every rank."""
    kind = edit.type_of(ranks).int_dtype
    channels, steps = graph.constants[function.inputs[1]].shape
    row = np.array([1]) if kind.bipolar else kind.low + 1 + np.arange(steps)
    array = np.tile(row, (channels, 1))
    places = edit.constant(f"{function.name}.ranks", array, TensorType(array.shape, IntType(kind.low, kind.high)))
    name = edit.add(function, function.op, [ranks, places, function.inputs[2]], f"{function.name}.of_ranks")
    assert edit.type_of(name) == replace(function.type, shape=edit.type_of(ranks).shape)
