"""Pass: reshapes move behind the quantizer, so that chains see channels.

quantize(mul(flatten(x), 0.5)) --> flatten(quantize(mul(x, 0.5)))
"""

from __future__ import annotations

from nnhw.ir import Graph, Node
from nnhw.ir.ops import BatchNorm, Flatten, Reshape

from .chains import find_chain, quantizers, swap


def sink_reshapes(graph: Graph) -> Graph:
    """Move each flatten and reshape of a chain behind its elementwise ops, as far as constants allow it.

    Exact: the same numbers go through the same ops, in another order of places.
    """
    while (pair := _next_pair(graph)) is not None:
        graph = swap(graph, *pair)
    return graph


def _next_pair(graph: Graph) -> tuple[Node, Node] | None:
    for quantizer in quantizers(graph):
        chain = find_chain(graph, quantizer)
        for first, second in zip(chain.nodes, chain.nodes[1:], strict=False) if chain else ():
            if isinstance(first.op, Flatten | Reshape) and _commute(graph, first, second):
                return first, second
    return None


def _commute(graph: Graph, reshape: Node, node: Node) -> bool:
    before, after = graph.data_inputs(reshape)[0].type.shape, reshape.type.shape
    if isinstance(node.op, BatchNorm):
        return before[:1] == after[:1]
    if node.op.arity == 1:
        return not isinstance(node.op, Flatten | Reshape) and node.type.shape == after
    constants = [graph.constants[name] for name in node.inputs if name in graph.constants]
    return all(constant.ndim == 0 for constant in constants)
