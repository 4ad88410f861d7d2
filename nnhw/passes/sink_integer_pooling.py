"""Pass: max pooling of integers goes behind thresholds that rise in every channel: fewer bits to pool.

threshold(max_pool2d(sums)) --> max_pool2d(threshold(sums))
"""

from __future__ import annotations

from nnhw.ir import Graph
from nnhw.ir.ops import MaxPool2d, Threshold

from .edit import Edit, sole_names


def sink_integer_pooling(graph: Graph) -> Graph:
    """Move each max pooling of integers behind the thresholds that read it, where no channel falls.

    A pooling that another node reads as well stays.
    """
    for threshold in [node for node in graph.nodes if isinstance(node.op, Threshold)]:
        pool = graph.node(threshold.inputs[0])
        while isinstance(pool.op, MaxPool2d) and not graph.constants[threshold.inputs[2]].any():
            free = sole_names(graph, [pool], threshold)
            # Its other readers would still need it, so there would be two poolings.
            if pool.name not in free:
                break
            edit = Edit(graph, free)
            codes = edit.add(threshold, threshold.op, [pool.inputs[0], *threshold.inputs[1:]])
            edit.add(pool, pool.op, [codes])
            graph = edit.apply(threshold.name)
            threshold = graph.node(codes)
            pool = graph.node(threshold.inputs[0])
    return graph
