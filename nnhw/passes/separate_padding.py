"""Pass: the padding of convolutions becomes a separate op, so that its zeros count in the range of the input.

conv2d(x, padding=(1, 1)) --> conv2d(pad(x, 0))
"""

from __future__ import annotations

import dataclasses

from nnhw.ir import Graph
from nnhw.ir.ops import Conv2d, Pad

from .edit import Edit, retyped


def separate_padding(graph: Graph) -> Graph:
    """Put a pad op in front of each convolution that has padding; sums stay the same.

    A bipolar value, which is -1 or 1, becomes one of -1, 0 and 1 by the padding.
    """
    for conv in [node for node in graph.nodes if isinstance(node.op, Conv2d) and any(node.op.padding)]:
        assert isinstance(conv.op, Conv2d)
        edit = Edit(graph, {conv.name})
        padded = edit.add(conv, Pad(conv.op.padding, conv.op.padding), conv.inputs[:1], f"{conv.name}.pad")
        edit.add(conv, dataclasses.replace(conv.op, padding=(0, 0)), [padded, *conv.inputs[1:]])
        graph = edit.apply(conv.name)
    return retyped(graph)
