"""The reference: a model's results, computed exactly."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

from nnhw.errors import InputError, raise_all
from nnhw.frontend.capture import capture
from nnhw.frontend.evaluation import tensors_of
from nnhw.ir import Graph, run_in_chunks
from nnhw.ir.interpreter import joined
from nnhw.nn.given import class_name, copied, dense, unready
from nnhw.notebook import facts_table


class Reference:
    """A model as its captured graph computes it: linear operators on integer codes, all else in float64.

    Scales are applied after the sums, so that no sum is ever rounded; hardware is compared with these results. Threads
    may share a reference.

    Parameters
    ----------
    model: a module or an exported program; it is not changed, and later changes of it have no effect.
    example_input: [batch, ..]; without it, the model is captured with the first images.
    """

    def __init__(self, model: nn.Module | ExportedProgram, example_input: torch.Tensor | None = None) -> None:
        self._name = class_name(model)
        raise_all(list(unready(model)))
        self._model = model if isinstance(model, ExportedProgram) else copied(model)
        self._graph: Graph | None = None
        self._first = threading.Lock()
        if example_input is not None or isinstance(self._model, ExportedProgram):
            self._graph = capture(self._model, example_input)

    def __repr__(self) -> str:
        if self._graph is None:
            return f"<Reference of {self._name}: captured with its first images>"
        shapes = [[*node.type.shape] for node in (self._graph.inputs[0], self._graph.node(self._graph.outputs[0]))]
        layers = sum(node.op.name in ("linear", "conv2d") for node in self._graph.nodes)
        return f"<Reference of {self._name}: {shapes[0]} --> {shapes[1]}, {layers} layers of integers, exact>"

    def _repr_html_(self) -> str:
        if self._graph is None:
            return facts_table(f"Reference of {self._name}", {"captured": "with its first images"})
        shapes = [[*node.type.shape] for node in (self._graph.inputs[0], self._graph.node(self._graph.outputs[0]))]
        layers = sum(node.op.name in ("linear", "conv2d") for node in self._graph.nodes)
        facts = {"images": shapes[0], "results": shapes[1], "layers of integers": layers}
        return facts_table(f"Reference of {self._name}", facts)

    @overload
    def __call__(self, images: torch.Tensor) -> Any: ...

    @overload
    def __call__(self, images: np.ndarray) -> Any: ...

    def __call__(self, images: torch.Tensor | np.ndarray) -> Any:
        """Return float64 [N, ..] (int64 if the model ends in argmax), torch for torch and NumPy for NumPy.

        A model that returns a tuple or a dict gives one of these; a list comes as a tuple.
        """
        if isinstance(images, torch.Tensor):
            graph = self.graph(dense(images).numpy())
            return graph.in_form([torch.from_numpy(made) for made in run_in_chunks(graph, dense(images).numpy())])
        if not isinstance(images, np.ndarray):
            raise InputError(f"images must be a torch tensor or a NumPy array, got {type(images).__name__}")
        graph = self.graph(images)
        return graph.in_form(run_in_chunks(graph, images))

    def graph(self, images: np.ndarray | None = None) -> Graph:
        """Return the captured graph; if it was not captured yet, it is with `images`."""
        # One thread captures; the others wait for its graph.
        with self._first:
            if self._graph is None:
                if images is None:
                    raise InputError("a reference without example_input has no graph before its first images")
                self._graph = capture(self._model, torch.from_numpy(images[:2]))
            return self._graph


def reference(model: nn.Module | ExportedProgram, example_input: torch.Tensor | None = None) -> Reference:
    """Return the function that computes a model exactly; see `Reference`."""
    return Reference(model, example_input)


@dataclass(frozen=True)
class Differences:
    """Rows (images) in which PyTorch's plain evaluation differs from the reference, rounded to the same precision.

    Parameters
    ----------
    samples: number of rows compared.
    float32, float64: rows that differ when the model runs in that precision.
    """

    samples: int
    float32: int
    float64: int


def count_differences(model: nn.Module, images: torch.Tensor, chunk: int = 250) -> Differences:
    """Compare the model's own forward, in float32 and float64, with the reference."""
    reference = Reference(model, images[:2])
    exact = torch.from_numpy(joined(run_in_chunks(reference.graph(), images.cpu().numpy())))
    counts = {}
    for dtype in (torch.float32, torch.float64):
        own = copied(model).to(dtype)
        with torch.no_grad():
            results = [own(images[start : start + chunk].cpu().to(dtype)) for start in range(0, len(images), chunk)]
        plain = torch.from_numpy(np.concatenate([joined(tensors_of(result)) for result in results]))
        # NaN differs from everything, itself included.
        counts[dtype] = int((plain != exact.to(plain.dtype)).reshape(len(images), -1).any(dim=1).sum())
    return Differences(len(images), counts[torch.float32], counts[torch.float64])
