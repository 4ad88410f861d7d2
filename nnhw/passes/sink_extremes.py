"""Pass: a maximum or minimum of two values moves behind the quantizer that reads it, and compares codes there.

quantize(relu(maximum(x, y))) --> maximum(quantize(relu(x)), quantize(relu(y)))
quantize(neg(maximum(x, y)))  --> minimum(quantize(neg(x)), quantize(neg(y)))
"""

from __future__ import annotations

from nnhw.ir import Graph, Node
from nnhw.ir.ops import Maximum, Minimum, Op

from .edit import Edit, sole_names
from .regions import find_region, quantizers
from .shapes import falls


def sink_extremes(graph: Graph) -> Graph:
    """Move each maximum and minimum of functions of several integers behind the elementwise ops that read it.

    The last of these is the quantizer. Exact: an op that never falls gives the greater result for the greater operand;
    one that never rises gives the lesser one, and turns a maximum into a minimum. In front of an op that falls in some
    channels only, it stays.
    """
    while (moved := _next(graph)) is not None:
        graph = moved
    return graph


def _next(graph: Graph) -> Graph | None:
    for quantizer in quantizers(graph):
        region = find_region(graph, quantizer)
        for node in region.nodes if region else ():
            moved = _sunk(graph, node)
            if moved is not None:
                return moved
    return None


def _sunk(graph: Graph, node: Node) -> Graph | None:
    """Return the graph with the maximum or minimum that `node` reads behind `node`; None if that is not possible."""
    operands = graph.data_inputs(node)
    if len(operands) != 1 or not _joins(graph, operands[0]):
        return None
    (extreme,) = operands
    falling = falls(graph, node)
    # In one op it cannot be a maximum in some channels and a minimum in others.
    if falling is None or falling.any() != falling.all():
        return None
    op = _OTHER[type(extreme.op)] if falling.all() else extreme.op
    edit = Edit(graph, sole_names(graph, operands, node))
    branches = [
        edit.add(
            node, node.op, [side if name == extreme.name else name for name in node.inputs], f"{node.name}.{place}"
        )
        for place, side in enumerate(extreme.inputs)
    ]
    edit.add(extreme, op, branches)
    return edit.apply(node.name)


def _joins(graph: Graph, node: Node) -> bool:
    """Return whether a node is a float maximum or minimum of functions of several integers."""
    if type(node.op) not in _OTHER or len(graph.data_inputs(node)) < 2 or node.type.is_int:
        return False
    region = find_region(graph, node)
    # With one source the region is a function of one integer, which `collapse_chains` takes as it is.
    return region is not None and len(region.sources) > 1


_OTHER: dict[type[Op], Op] = {Maximum: Minimum(), Minimum: Maximum()}
"""What an extreme becomes behind an op that falls."""
