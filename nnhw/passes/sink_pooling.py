"""Pass: max pooling moves to where the values are codes.

quantize(max_pool2d(x))               --> max_pool2d(quantize(x))
quantize(neg(max_pool2d(add(codes)))) --> quantize(neg(add(max_pool2d(codes))))
"""

from __future__ import annotations

import numpy as np

from nnhw.errors import LoweringError, raise_all
from nnhw.ir import Graph, Node
from nnhw.ir.ops import MaxPool2d, Threshold

from .chains import Chain, find_chain, quantizers, swap

_LISTED = 8


def sink_pooling(graph: Graph) -> Graph:
    """Move each max pooling of floats behind its quantizer, or in front of its chain, whichever is exact.

    The greatest of some values, sent through a function that never falls, is the greatest of the function's
    results: so pooling may pass an op that rises (or is constant) in every channel, and no other.

    Raises: LoweringError that lists the falling channels if there is no such way.
    """
    problems: list[LoweringError] = []
    for quantizer in quantizers(graph):
        chain = find_chain(graph, quantizer)
        pools = [node for node in chain.nodes if isinstance(node.op, MaxPool2d)] if chain else []
        try:
            for pool in pools:
                graph = _moved(graph, graph.node(quantizer.name), pool.name)
        except LoweringError as error:
            problems.append(error)
    raise_all(problems)
    return graph


def sink_integer_pooling(graph: Graph) -> Graph:
    """Move each max pooling of accumulators behind thresholds that rise in every channel: fewer bits to pool.

    threshold(max_pool2d(sums)) --> max_pool2d(threshold(sums))
    """
    for threshold in [node for node in graph.nodes if isinstance(node.op, Threshold)]:
        pool = graph.node(threshold.inputs[0])
        if isinstance(pool.op, MaxPool2d) and not graph.constants[threshold.inputs[2]].any():
            graph = swap(graph, pool, threshold)
    return graph


def _moved(graph: Graph, quantizer: Node, pool: str) -> Graph:
    chain = find_chain(graph, quantizer)
    assert chain is not None
    place = next(index for index, node in enumerate(chain.nodes) if node.name == pool)
    before, after = chain.nodes[:place], chain.nodes[place + 1 :]
    if all(_never_falls(chain, node) for node in after):
        for node in after:
            graph = swap(graph, graph.node(pool), graph.node(node.name))
    elif all(_never_falls(chain, node) for node in before):
        for node in reversed(before):
            graph = swap(graph, graph.node(node.name), graph.node(pool))
    else:
        raise LoweringError(_falling(chain, chain.nodes[place], before, after))
    return graph


def _never_falls(chain: Chain, node: Node) -> bool:
    return isinstance(node.op, MaxPool2d) or not (chain.trend(node) < 0).any()


def _falling(chain: Chain, pool: Node, before: tuple[Node, ...], after: tuple[Node, ...]) -> str:
    places = []
    for node in (*before, *after):
        if not _never_falls(chain, node):
            channels = np.flatnonzero(np.broadcast_to(chain.trend(node), chain.channels) < 0)
            listed = ", ".join(map(str, channels[:_LISTED])) + (", .." if len(channels) > _LISTED else "")
            places.append(f"{node} falls in {len(channels)} of {chain.channels} channels ({listed})")
    return (
        f"{pool} stands before quantizer '{chain.quantizer.name}' and cannot move: {'; '.join(places)}; "
        f"put the pooling behind the quantizer, or directly behind the linear layer"
    )
