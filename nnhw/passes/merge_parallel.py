"""Pass: layers of one kind that read the same value become one layer with the outputs of all of them.

concat(threshold(conv2d(x, v)), threshold(conv2d(x, w)))  -->  threshold(conv2d(x, [v; w]))

One layer reads the value once, and has one window over it instead of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

import numpy as np

from nnhw.ir import Graph, IntType, Node, TensorType
from nnhw.ir.ops import Concat, Conv2d, Linear, Rescale, StepTable, Threshold

from .edit import Edit, sole_names

_FUNCTIONS = (Threshold, StepTable, Rescale)


def merge_parallel(graph: Graph) -> Graph:
    """Merge neighbouring branches of a concatenation of channels where that saves an engine.

    A branch is a layer and a function behind it. The layers must have the same kind, kernel, stride, dilation and type
    of weights, and the functions the same op and number of steps. Branches that something else reads, too, stay apart:
    it would need a slice, which is an engine of its own.
    """
    for name in [node.name for node in graph.nodes if isinstance(node.op, Concat) and node.op.axis == 0]:
        while isinstance(graph.node(name).op, Concat) and (merged := _merged_once(graph, graph.node(name))) is not None:
            graph = merged
    return graph


def _merged_once(graph: Graph, concat: Node) -> Graph | None:
    """Return the graph with the first run of neighbours of a concatenation merged; None if there is none."""
    users = graph.users()
    keys = [_key(graph, users, name) for name in concat.inputs]
    start = 0
    for key, run in groupby(keys):
        count = len(list(run))
        # A branch that the concatenation takes twice would be merged with itself.
        if key is not None and count > 1 and len(set(concat.inputs)) == len(concat.inputs):
            return _merged(graph, concat, start, start + count)
        start += count
    return None


def _key(graph: Graph, users: dict[str, tuple[Node, ...]], name: str) -> object:
    """Return a key that is equal for branches that can be merged; None if the value is no such branch."""
    function = graph.node(name)
    if not isinstance(function.op, _FUNCTIONS) or len(users[name]) != 1 or name in graph.outputs:
        return None
    layer = graph.node(function.inputs[0])
    whole = isinstance(layer.op, Linear) or (isinstance(layer.op, Conv2d) and layer.op.groups == 1)
    if not whole or len(users[layer.name]) != 1 or layer.name in graph.outputs:
        return None
    weight = graph.node(layer.inputs[1]).type
    steps = [graph.node(operand).type.shape[1:] for operand in function.inputs[1:]]
    return layer.inputs[0], layer.op, weight.shape[1:], weight.dtype, function.op, tuple(steps)


def _merged(graph: Graph, concat: Node, start: int, stop: int) -> Graph:
    functions = [graph.node(name) for name in concat.inputs[start:stop]]
    layers = [graph.node(function.inputs[0]) for function in functions]
    free = {node.name for pair in zip(functions, layers, strict=True) for node in pair}
    edit = Edit(graph, free | sole_names(graph, (), concat))
    weight = _stacked(graph, edit, [layer.inputs[1] for layer in layers])
    sums = edit.add(layers[0], layers[0].op, [layers[0].inputs[0], weight])
    places = range(1, len(functions[0].inputs))
    constants = [_stacked(graph, edit, [function.inputs[place] for function in functions]) for place in places]
    alone = stop - start == len(concat.inputs)
    codes = edit.add(functions[0], functions[0].op, [sums, *constants], concat.name if alone else "")
    if not alone:
        edit.add(concat, concat.op, [*concat.inputs[:start], codes, *concat.inputs[stop:]])
    return edit.apply(concat.name)


def _stacked(graph: Graph, edit: Edit, names: Sequence[str]) -> str:
    """Add the concatenation of constants along the channels; return its name."""
    array = np.concatenate([graph.constants[name] for name in names])
    kinds = [graph.node(name).type.int_dtype for name in names]
    same = all(left == right for left, right in pairwise(kinds))
    kind = kinds[0] if same else IntType(min(kind.low for kind in kinds), max(kind.high for kind in kinds))
    return edit.constant(names[0], array, TensorType(array.shape, kind))
