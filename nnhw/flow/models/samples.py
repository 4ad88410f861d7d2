"""Inputs on which a build compares PyTorch, IR and RTL, and PyTorch's results for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nnhw.errors import BuildError
from nnhw.ir import Graph
from nnhw.ir.graph import levels
from nnhw.ir.ops import Constant, Conv2d, Linear
from nnhw.reading import load_npz

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.export import ExportedProgram

    from nnhw.frontend import Source

RANDOM_SAMPLES = 56
MOST_WORK = 4 * 10**9
"""Work of all samples together, in products: PyTorch and the graphs evaluate each sample some ten times, at 5 to 10
billion products per second. Only networks with more than 70 million per sample have fewer samples for it."""
VALUE_PRODUCTS = 64
"""Products that take as long as one value of a layer: quantizers and comparisons pass over it some ten times."""
LEAST_SAMPLES = 4
SEED = 1
EVALUATED = 250  # images at a time, so that memory does not grow with their number


def samples_of(example: torch.Tensor | None, graph: Graph) -> np.ndarray:
    """Return the samples with which a captured graph is compared; fewer where each takes long.

    Parameters
    ----------
    example: the model's example input [n, *shape]; see `example_of`.
    """
    rows = example_of(example, graph)
    steps = rows.shape[1] if graph.inputs[0].type.is_sequence else 1
    most = max(LEAST_SAMPLES, MOST_WORK // max(1, steps * work_of(graph)))
    # Half of them are the example's, which look like what the model is for.
    rows = rows[: max(1, most // 2)] if len(rows) + RANDOM_SAMPLES > most else rows
    return make_samples(rows, min(RANDOM_SAMPLES, most - len(rows)))


def work_of(graph: Graph) -> int:
    """Return how long a graph takes for an image, or for a step of a sequence, in products with weights."""
    nodes = (node for _, part in levels(graph) for node in part.nodes)
    values = sum(node.type.size for node in nodes if not isinstance(node.op, Constant))
    return VALUE_PRODUCTS * values + sum(
        node.type.size * part.constants[node.inputs[1]][0].size
        for _, part in levels(graph)
        for node in part.nodes
        if isinstance(node.op, Linear | Conv2d)
    )


def make_samples(example: np.ndarray, count: int = RANDOM_SAMPLES) -> np.ndarray:
    """Return the rows of an example input, and after them random rows that stay within its range.

    Parameters
    ----------
    example: [n, *shape].
    count: number of random rows, uniform between the least and the greatest element of the example, seeded.

    Returns
    -------
    [n + count, *shape], the dtype of the example.
    """
    rng = np.random.default_rng(SEED)
    random = rng.uniform(example.min(), example.max(), (count, *example.shape[1:]))
    return np.concatenate([example, random.astype(example.dtype)])


def load_samples(path: Path) -> dict[str, np.ndarray]:
    """Return what the stage `capture` saved.

    These are `inputs`, PyTorch's results for them, `torch` and `torch_float64`, and, where they are known, `usual`
    inputs; see `usual_inputs`.

    Raises
    ------
    BuildError: the file is missing or damaged.
    """
    try:
        samples = load_npz(path)
        if {array.dtype.kind for array in samples.values()} - set("biuf"):
            raise ValueError("it holds something else than numbers")
        if not samples.keys() >= {"inputs", "torch"} or not samples["inputs"].ndim:
            raise ValueError("inputs or answers are missing")
    except (OSError, ValueError) as error:
        raise BuildError(f"build file '{path}' cannot be read ({error}); run 'nnhw build' again") from None
    return samples


def example_of(example: torch.Tensor | None, graph: Graph) -> np.ndarray:
    """Return the example input [n, *shape]; without one, an image of zeros and one of ones: values lie in [0, 1]."""
    if example is not None:
        array: np.ndarray = example.detach().cpu().numpy()
        return array
    shape = graph.inputs[0].type.shape
    return np.stack([np.zeros(shape, np.float32), np.ones(shape, np.float32)])


def usual_inputs(source: Source, graph: Graph) -> np.ndarray | None:
    """Return images that a model is made for, [n, *shape]: some of its calibration data, or else its example input.

    None where the example input is random numbers.
    """
    from nnhw.nn.quantized import calibration_sample

    calibrated = calibration_sample(source.model)
    if calibrated is None and source.is_random:
        return None
    return example_of(source.example_input if calibrated is None else calibrated, graph)


def with_example(source: Source, images: np.ndarray) -> Source:
    """Return a source whose example input is the first of some images [n, *shape], if it is random numbers."""
    import torch

    count = len(source.example_input)
    # A program may take only so many images.
    if not source.is_random or len(images) < count:
        return source
    example = torch.from_numpy(images[:count]).to(source.example_input.dtype)
    return replace(source, example_input=example, is_random=False)


def evaluate(model: nn.Module | ExportedProgram, samples: np.ndarray, double: bool = False) -> np.ndarray:
    """Return PyTorch's own results, computed in eval mode; the model is not changed.

    Parameters
    ----------
    samples: [N, *shape].
    double: compute in float64 instead of the model's own dtype.

    Returns
    -------
    [N, *shape], float.
    """
    from nnhw.frontend.evaluation import Evaluator

    own = Evaluator(model, double=double)
    return np.concatenate([own(part).result for part in own.parts(samples, EVALUATED)])


def differing_rows(left: np.ndarray, right: np.ndarray) -> int:
    """Return how many rows differ in any element, by `==`; NaN differs from everything."""
    if left.shape != right.shape:
        return max(len(left), len(right))
    return int((left != right).reshape(len(left), -1).any(axis=1).sum())
