"""Images on which two evaluations of a model are compared, chosen to show differences."""

from __future__ import annotations

import numpy as np

from nnhw.ir import Graph, run
from nnhw.ir.interpreter import images_at_a_time
from nnhw.ir.ops import Quantize

_COUNT = 16  # images of each kind
_VALUES = 2**25  # of all layers, for the images of a kind: several evaluations of large images would take minutes
_SEED = 20_260_101


def probes(graph: Graph, example: np.ndarray) -> np.ndarray:
    """Return images: those of the example, random ones in its range, and numbers on edges of the first quantizer.

    Edges are the numbers at which rounding decides: half-way points between two codes, or integers. The neighbouring
    numbers in the example's dtype are among the images, too.

    Parameters
    ----------
    example: [N, *shape].
    """
    generator = np.random.default_rng(_SEED)
    count = images_at_a_time(graph, _COUNT, _VALUES)
    shape = (count, *example.shape[1:])
    kinds = [example[:count]]
    if example.dtype.kind == "f":
        kinds.append(generator.uniform(example.min(), example.max(), shape))
        # Conventions of rounding differ at ties alone, which random images do not meet.
        edges = _edges(graph, example)
        if edges.size:
            ends = np.array([-np.inf, np.inf], dtype=example.dtype)
            numbers = edges.astype(example.dtype)
            near = [np.nextafter(numbers, end) for end in ends]
            kinds += [generator.choice(some, shape) for some in (numbers, np.concatenate(near))]
    elif example.dtype.kind in "iu":
        kinds.append(generator.integers(example.min(), example.max(), shape, endpoint=True))
    return np.concatenate([images.astype(example.dtype) for images in kinds])


def _edges(graph: Graph, example: np.ndarray) -> np.ndarray:
    """Return the input numbers that lie on an edge of the first quantizer.

    That is the first quantizer behind a scaling that is the same for all numbers of an image; empty if there is none.
    """
    constant = np.broadcast_to(np.reshape([0.0, 1.0, 2.0], (3, *(1,) * (example.ndim - 1))), (3, *example.shape[1:]))
    values: dict[str, np.ndarray] = {}
    run(graph, constant.astype(example.dtype), values.__setitem__)
    for node in graph.nodes:
        if not isinstance(node.op, Quantize) or node.inputs[0] not in values:
            continue
        # Images of all 0, all 1 and all 2 show whether the scaling is linear, and its offset and slope.
        levels = values[node.inputs[0]].reshape(3, -1)
        offset, slope = levels[0, 0], levels[1, 0] - levels[0, 0]
        if slope and np.allclose(levels, offset + slope * np.arange(3.0)[:, None]):
            scales = np.unique(graph.constants[node.inputs[1]])
            edges: np.ndarray = (np.multiply.outer(scales, _steps(node.op)).ravel() - offset) / slope
            return edges
    return np.empty(0)


def _steps(op: Quantize) -> np.ndarray:
    """Return the numbers, in steps of the scale, at which codes can change with any rounding: halves and integers."""
    return np.zeros(1) if op.bipolar else np.arange(2 * op.low - 2, 2 * op.high + 3) / 2
