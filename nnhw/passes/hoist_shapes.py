"""Pass: shape ops that cannot move behind the quantizer move in front of the elementwise ops before it.

quantize(add(upsample(relu(dequantize(a))), y))  --> quantize(add(relu(dequantize(upsample(a))), y))
quantize(neg(max_pool2d(add(dequantize(a), b)))) --> quantize(neg(add(dequantize(max_pool2d(a)), b)))
"""

from __future__ import annotations

import numpy as np

from nnhw.errors import LoweringError, NnhwError, raise_all
from nnhw.ir import Graph, Node
from nnhw.ir.ops import Concat, Dequantize, MaxPool2d, Op, Pad

from .edit import SHAPE_OPS, Edit, sole_names, without_twins
from .regions import Region, find_region, listed, quantizers
from .shapes import constants_behind, falls, joined_constants, moved_inputs, never_falls


def hoist_shapes(graph: Graph) -> Graph:
    """Move each shape op of a region in front of the elementwise ops that it reads, as far as the integers.

    Exact by the rules of `shapes`. Equal shape ops on the same integers become one.

    Raises: LoweringError, or a ProblemList of several, for shape ops that can move neither way.
    """
    # By shape op: one that is given up is not tried again, and those that wait for it are no problems of their own.
    problems: dict[str, NnhwError] = {}
    while (found := _next(graph, set(problems))) is not None:
        region, shape = found
        moved = _hoisted(graph, shape)
        if moved is None:
            problems[shape.name] = LoweringError(_stuck(region, shape))
        else:
            graph = moved
    raise_all(list(problems.values()))
    return without_twins(graph)


def _next(graph: Graph, given_up: set[str]) -> tuple[Region, Node] | None:
    """Return a region and its shape op closest to the integers, but for those given up and those that wait for them."""
    for quantizer in quantizers(graph):
        region = find_region(graph, quantizer)
        for node in region.nodes if region else ():
            waits = {name for name in node.inputs if isinstance(graph.node(name).op, SHAPE_OPS)} & given_up
            if isinstance(node.op, SHAPE_OPS) and node.name not in given_up and not waits:
                return region, node  # type: ignore[return-value]
    return None


def _hoisted(graph: Graph, shape: Node) -> Graph | None:
    nodes = graph.data_inputs(shape)
    if any(isinstance(node.op, SHAPE_OPS) for node in nodes):
        return None
    if isinstance(shape.op, Concat):
        return _hoisted_concat(graph, shape, nodes)
    (node,) = nodes
    constants = constants_behind(graph, shape, node)
    op: Op | None = shape.op
    if constants is None or (isinstance(op, MaxPool2d) and not never_falls(graph, node)):
        return None
    if isinstance(op, Pad):
        op = _border_before(graph, op, node)
    if op is None:
        return None
    edit = Edit(graph, sole_names(graph, nodes, shape))
    moved = [edit.add(shape, op, [data.name]) for data in graph.data_inputs(node)]
    edit.add(node, node.op, moved_inputs(edit, graph, node, moved, constants))
    return edit.apply(shape.name)


def _hoisted_concat(graph: Graph, shape: Node, nodes: tuple[Node, ...]) -> Graph | None:
    assert isinstance(shape.op, Concat)
    rows = [graph.data_inputs(node) for node in nodes]
    if len({(node.op, len(row)) for node, row in zip(nodes, rows, strict=True)}) != 1:
        return None
    constants = joined_constants(graph, nodes, shape.op.axis)
    if constants is None:
        return None
    edit = Edit(graph, sole_names(graph, nodes, shape))
    moved = [edit.add(shape, shape.op, [row[index].name for row in rows]) for index in range(len(rows[0]))]
    edit.add(nodes[0], nodes[0].op, moved_inputs(edit, graph, nodes[0], moved, constants))
    return edit.apply(shape.name)


def _border_before(graph: Graph, op: Pad, node: Node) -> Pad | None:
    """Return a padding in front of `node` whose border `node` turns into that of `op`; None if none is found."""
    operands = [graph.constants.get(name) for name in node.inputs]
    # Candidates: most functions keep 0, clamps keep the value itself, and a dequantize has a code for it. Each is
    # evaluated.
    values = [0.0, op.value]
    if isinstance(node.op, Dequantize):
        values.append(float(np.rint(op.value / graph.constants[node.inputs[1]].flat[0])))
    rank = len(node.type.shape)
    for value in values:
        border = np.full((1, node.type.shape[0], *[1] * (rank - 1)), value)
        results = node.op.evaluate(*(border if operand is None else operand for operand in operands))
        if (results == op.value).all():
            return Pad(op.before, op.after, value)
    return None


def _stuck(region: Region, shape: Node) -> str:
    where = f"{shape} stands before quantizer '{region.quantizer.name}' and cannot move"
    places = [text for node in region.nodes if (text := _falling(region, node))]
    if not isinstance(shape.op, MaxPool2d) or not places:
        return (
            f"{where} behind it, nor in front of {' and '.join(map(str, region.graph.data_inputs(shape)))}; put a "
            f"quantizer directly in front of it, or the {shape.op.name} directly behind the quantizer"
        )
    return f"{where}: {'; '.join(places)}; put the pooling behind the quantizer, or directly behind the linear layer"


def _falling(region: Region, node: Node) -> str:
    """Return why max pooling cannot pass `node`, as part of a message; empty if it can."""
    graph, total = region.graph, region.sources[0].type.shape[0]
    if isinstance(node.op, SHAPE_OPS) or never_falls(graph, node):
        return ""
    if len(graph.data_inputs(node)) > 1:
        return f"{node} joins branches"
    falling = falls(graph, node)
    if falling is None:
        return f"{node} is not monotone"
    channels = np.flatnonzero(np.broadcast_to(falling.reshape(-1), total))
    return f"{node} falls in {len(channels)} of {total} channels ({listed(channels)})"
