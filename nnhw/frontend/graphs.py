"""The door for graphs of the IR: files that `nnhw ir --out` or a build wrote, or that were written by hand.

Nothing is traced: the graph itself is lowered. A graph whose input is codes gets a quantizer of scale 1 in front, so
that images are these codes, as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from nnhw.errors import InputError, IrError
from nnhw.ir import FLOAT, Graph, GraphBuilder, IntType, TensorType, run_in_chunks, verify
from nnhw.ir import load as load_graph
from nnhw.ir.ops import Quantize

from .evaluation import Evaluator
from .locations import Lines

_SEED = 0


class GraphModel(nn.Module):
    """A graph as a module: `nnhw.build(GraphModel(graph), example_input)` builds it.

    Parameters
    ----------
    graph: a graph with one input and one output. Its input is float64, or codes, which images contain as numbers.

    Raises: InputError for more inputs or outputs; IrError for a graph that breaks a rule.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        if len(graph.inputs) != 1 or len(graph.outputs) != 1:
            raise InputError(
                f"graph '{graph.name}' needs one input and one output to be a model, got {len(graph.inputs)} inputs "
                f"and {len(graph.outputs)} outputs; take the part between one of each"
            )
        self.given = verify(graph)
        self.graph = _from_floats(self.given)

    def __deepcopy__(self, memo: dict[int, object]) -> GraphModel:
        """Return a model of the same graph, which is immutable."""
        return GraphModel(self.given)

    @property
    def dtype(self) -> IntType | None:
        """The type of the codes that the graph takes; None for one that takes floats."""
        dtype = self.given.inputs[0].type.dtype
        return dtype if isinstance(dtype, IntType) else None

    def forward(self, images: Tensor) -> Tensor:
        """Return the graph's result of images [N, ..]: float64, or int64 for a graph of codes."""
        return torch.from_numpy(self.compute(images.detach().cpu().numpy()))

    def compute(self, images: np.ndarray) -> np.ndarray:
        """Compute `forward` in NumPy."""
        return run_in_chunks(self.graph, images.astype(np.float64))[0]

    def example(self) -> Tensor:
        """Return two images, float32, the same each time: of codes within their range, else of numbers within 0..1."""
        rng, shape = np.random.default_rng(_SEED), (2, *self.given.inputs[0].type.shape)
        if self.dtype is None:
            return torch.from_numpy(rng.uniform(0, 1, shape).astype(np.float32))
        codes = rng.integers(self.dtype.low, self.dtype.high, shape, endpoint=True)
        # Both ends occur, as samples of a build lie between the least and the greatest number of its example.
        codes.reshape(-1)[[0, -1]] = self.dtype.low, self.dtype.high
        return torch.from_numpy(codes.astype(np.float32))


def load(path: Path) -> tuple[nn.Module, Tensor]:
    """Return the graph of an .ir file, with the .npz beside it if there is one, and an example input.

    Raises: InputError for files that cannot be read; IrError, or ProblemList, for text that is no graph.
    """
    model = GraphModel(load_graph(path)).eval()
    return model, model.example()


def traceable(
    model: nn.Module | ExportedProgram, example_input: Tensor | None, lines: Lines
) -> nn.Module | ExportedProgram:
    """Return the model itself, which is a graph already."""
    return model


def evaluator(model: nn.Module | ExportedProgram) -> Evaluator:
    """Raise IrError: a graph is its own evaluation, and nothing compares it with another one."""
    raise IrError(f"a graph has no other evaluation than its own, got {type(model).__name__}")


def _from_floats(graph: Graph) -> Graph:
    """Return a graph that takes floats; one that takes codes gets a quantizer with scale 1 in front."""
    node = graph.inputs[0]
    if not isinstance(node.type.dtype, IntType):
        return graph
    dtype = node.type.dtype
    builder = GraphBuilder(graph.name)
    # Names of a file that somebody wrote may be any.
    taken = {other.name for other in graph.nodes}
    names = [next(name for name in _numbered(stem) if name not in taken) for stem in ("images", "images.scale")]
    images = builder.input(names[0], TensorType(node.type.shape, FLOAT), node.location)
    scale = builder.constant(names[1], np.array(1.0), TensorType((), FLOAT), node.location)
    builder.add(node.name, Quantize(dtype.low, dtype.high, dtype.bipolar), [images, scale], node.location)
    builder.copy((other for other in graph.nodes if other.name != node.name), graph)
    return verify(builder.build(graph.outputs))


def _numbered(stem: str) -> Sequence[str]:
    return [stem, *(f"{stem}_{number}" for number in range(2, 1000))]
