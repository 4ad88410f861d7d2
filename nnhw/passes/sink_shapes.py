"""Pass: shape ops move behind the quantizer, so that the ops before it see the layer's channels, and fewer bits move.

quantize(mul(flatten(x), 0.5))     --> flatten(quantize(mul(x, 0.5)))
quantize(relu(max_pool2d(x)))      --> max_pool2d(quantize(relu(x)))
quantize(add(concat(x, y), bias))  --> concat(quantize(add(x, bias_x)), quantize(add(y, bias_y)))
quantize(pad(x, 0.0))              --> pad(quantize(x), 0)
quantize(add(slice(x), bias))      --> slice(quantize(add(x, bias)))
concat(permute(x), permute(y))     --> permute(concat(x, y))
product(permute(x), permute(y))    --> permute(product(x, y)), and so maximum and minimum of integers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnhw.ir import Graph, Node
from nnhw.ir.ops import Concat, Dequantize, Maximum, MaxPool2d, Minimum, Op, Pad, Permute, Product, Slice

from .cancel_permutes import cancel_permutes
from .edit import ORDER_OPS, SHAPE_OPS, Edit, sole_names
from .regions import find_region, quantizers
from .shapes import constants_before, moved_inputs, never_falls, split_constants


def sink_shapes(graph: Graph) -> Graph:
    """Move each shape op of a region behind the elementwise op that reads it, as far as the rules of `shapes` allow.

    Reorderings of integers move as well, even behind the last dequantize, where the host computes. Those that meet and
    undo each other are removed.
    """
    before = None
    while graph is not before:
        before = graph
        while (moved := _next(graph)) is not None:
            graph = moved
        # What goes away here may have stood in the way of others.
        graph = cancel_permutes(graph)
    return graph


def _next(graph: Graph) -> Graph | None:
    for node in graph.nodes:
        sunk = next((rule for ops, rule in _RULES if isinstance(node.op, ops)), None)
        moved = sunk(graph, node) if sunk else None
        if moved is not None:
            return moved
    for quantizer in quantizers(graph):
        region = find_region(graph, quantizer)
        for node in region.nodes if region else ():
            moved = None if isinstance(node.op, SHAPE_OPS) else _sunk(graph, node)
            if moved is not None:
                return moved
    return None


def _sunk(graph: Graph, node: Node) -> Graph | None:
    """Return the graph with the shape ops that `node` reads behind `node`; None if that is not exact."""
    shapes = graph.data_inputs(node)
    # Borders, pools and joins of integers stay in front of a dequantize: behind it they would be the host's, in float.
    ops = (*ORDER_OPS, Slice) if isinstance(node.op, Dequantize) else SHAPE_OPS
    if not shapes or not all(isinstance(shape.op, ops) for shape in shapes):
        return None
    if isinstance(shapes[0].op, Concat):
        return _sunk_concat(graph, shapes, node)
    sources = [graph.data_inputs(shape)[0] for shape in shapes]
    alike = len({(shape.op, source.type) for shape, source in zip(shapes, sources, strict=True)}) == 1
    constants = constants_before(graph, shapes[0], node)
    if not alike or constants is None:
        return None
    op: Op | None = shapes[0].op
    if isinstance(op, MaxPool2d) and not never_falls(graph, node):
        return None
    if isinstance(op, Pad):
        op = _passed_pad(op, node, shapes, constants)
    if op is None:
        return None
    edit = Edit(graph, sole_names(graph, shapes, node))
    inner = edit.add(node, node.op, moved_inputs(edit, graph, node, [source.name for source in sources], constants))
    edit.add(shapes[0], op, [inner])
    return edit.apply(node.name)


def _sunk_concat(graph: Graph, shapes: Sequence[Node], node: Node) -> Graph | None:
    parts = [graph.data_inputs(shape) for shape in shapes]
    alike = {(shape.op, *(part.type for part in row)) for shape, row in zip(shapes, parts, strict=True)}
    constants = split_constants(graph, shapes[0], node) if len(alike) == 1 else None
    if constants is None:
        return None
    edit = Edit(graph, sole_names(graph, shapes, node))
    branches = []
    for index, values in enumerate(constants):
        inputs = moved_inputs(edit, graph, node, [row[index].name for row in parts], values)
        branches.append(edit.add(node, node.op, inputs, f"{node.name}.{index}"))
    edit.add(shapes[0], shapes[0].op, branches)
    return edit.apply(node.name)


def _joined(graph: Graph, node: Node) -> Graph | None:
    """Return the graph with one permutation behind a concat in place of those of its inputs; None if these differ."""
    shapes = graph.data_inputs(node)
    (op, *others) = {shape.op for shape in shapes}
    if others or not isinstance(op, Permute):
        return None
    assert isinstance(node.op, Concat)
    edit = Edit(graph, sole_names(graph, shapes, node))
    inner = edit.add(node, Concat(op.axes[node.op.axis]), [shape.inputs[0] for shape in shapes])
    edit.add(shapes[0], op, [inner])
    return edit.apply(node.name)


def _paired(graph: Graph, node: Node) -> Graph | None:
    """Return the graph with one reordering behind an op of two integers, for the same one on both inputs; else None."""
    shapes = [graph.node(name) for name in node.inputs]
    if not node.type.is_int or len({shape.op for shape in shapes}) > 1 or not isinstance(shapes[0].op, ORDER_OPS):
        return None
    sources = [graph.node(shape.inputs[0]) for shape in shapes]
    if len({source.type.shape for source in sources}) > 1:
        return None
    edit = Edit(graph, sole_names(graph, shapes, node))
    inner = edit.add(node, node.op, [source.name for source in sources])
    edit.add(shapes[0], shapes[0].op, [inner])
    return edit.apply(node.name)


def _passed_pad(op: Pad, node: Node, shapes: Sequence[Node], constants: Sequence[np.ndarray]) -> Pad | None:
    """Return a padding whose border is `node` of the old border; None if that differs from channel to channel."""
    channels = shapes[0].type.shape[0]
    border = np.full((1, channels, *[1] * (len(shapes[0].type.shape) - 1)), op.value)
    waiting, arrays = iter([border] * len(shapes)), iter(constants)
    data = {shape.name for shape in shapes}
    results = node.op.evaluate(*(next(waiting) if name in data else next(arrays) for name in node.inputs))
    # A pad has one value for all channels.
    values = np.unique(results)
    return Pad(op.before, op.after, float(values[0])) if len(values) == 1 and np.isfinite(values[0]) else None


_RULES: tuple[tuple[type[Op] | tuple[type[Op], ...], Callable[[Graph, Node], Graph | None]], ...] = (
    (Dequantize, _sunk),
    (Concat, _joined),
    ((Product, Minimum, Maximum), _paired),
)
"""Ops outside of regions behind which reorderings move, and the function that moves them."""
