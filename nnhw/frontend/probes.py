"""Images on which two evaluations of a model are compared: what is likely to tell them apart."""

from __future__ import annotations

import numpy as np

from nnhw.ir import Graph, run
from nnhw.ir.ops import Quantize

_COUNT = 16  # images of each kind
_SEED = 20_260_101


def probes(graph: Graph, example: np.ndarray) -> np.ndarray:
    """Return images: of the example, random ones in its range, and random half-way points of the first quantizer.

    Parameters
    ----------
    example: [N, *shape].
    """
    generator = np.random.default_rng(_SEED)
    shape = (_COUNT, *example.shape[1:])
    kinds = [example[:_COUNT]]
    if example.dtype.kind == "f":
        kinds.append(generator.uniform(example.min(), example.max(), shape))
        ties = _ties(graph, example)
        if ties.size:
            kinds.append(generator.choice(ties, shape))
    elif example.dtype.kind in "iu":
        kinds.append(generator.integers(example.min(), example.max(), shape, endpoint=True))
    return np.concatenate([images.astype(example.dtype) for images in kinds])


def _ties(graph: Graph, example: np.ndarray) -> np.ndarray:
    """Return the inputs that lie half-way between two codes of the first quantizer.

    It is the first one behind the same scaling of all numbers of an image, if there is one at all.
    """
    constant = np.broadcast_to(np.reshape([0.0, 1.0, 2.0], (3, *(1,) * (example.ndim - 1))), (3, *example.shape[1:]))
    values: dict[str, np.ndarray] = {}
    run(graph, constant.astype(example.dtype), values.__setitem__)
    for node in graph.nodes:
        operand = values.get(node.inputs[0]) if isinstance(node.op, Quantize) else None
        if operand is None:
            continue
        levels = operand.reshape(3, -1)
        offset, slope = levels[0, 0], levels[1, 0] - levels[0, 0]
        if slope and np.allclose(levels, offset + slope * np.arange(3.0)[:, None]):
            codes = np.zeros(1) if node.op.bipolar else np.arange(node.op.low - 1, node.op.high + 1) + 0.5
            ties: np.ndarray = (codes * graph.constants[node.inputs[1]].flat[0] - offset) / slope
            return ties
    return np.empty(0)
