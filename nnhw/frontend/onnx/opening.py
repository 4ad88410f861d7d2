"""From the path of an ONNX file to a module that computes what the file does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from nnhw.frontend.archive import random_like
from nnhw.frontend.locations import Lines

from . import constant_folding, elementwise, layout, linear, pooling, qdq, qonnx, qoperator
from .building import ModuleBuilder
from .finn import input_quantizer
from .module import OnnxModel
from .node import Build
from .parsing import MICROSOFT, QONNX, OnnxGraph, read
from .patterns import with_functions

_STANDARD: Mapping[str, Build] = {
    **linear.TABLE,
    **elementwise.TABLE,
    **layout.TABLE,
    **pooling.TABLE,
    **constant_folding.TABLE,
    **qdq.TABLE,
    **qoperator.STANDARD,
}
TABLE: Mapping[tuple[str, str], Build] = {
    **{("", op): build for op, build in _STANDARD.items()},
    **{(MICROSOFT, op): build for op, build in {**qdq.TABLE, **qoperator.MICROSOFT}.items()},
    **{(domain, op): build for domain in QONNX[:-1] for op, build in qonnx.TABLE.items()},
    **{(QONNX[-1], op): build for op, build in qonnx.CHANNELS_LAST.items()},
}
"""Builders by (domain, operator)."""


def load(path: str | Path) -> tuple[nn.Module, Tensor]:
    """Return an ONNX file as a module in eval mode, and an example input [N, *shape]: the same numbers each time.

    The file is checked first. Nothing in it is run, nothing is written, and no file outside of its folder is read.

    Raises
    ------
    InputError for a file that cannot be read; CaptureError, or ProblemList with all of them at once, for operators
    that have no counterpart.
    """
    graph = read(Path(path))
    quantizer = input_quantizer(graph)
    model = module_of(graph)
    if quantizer is not None:
        model = model.with_quantizers({"": quantizer})
    # A size that the file leaves open can only be the batch (`ModuleBuilder._add_input`): two images are enough for an
    # example.
    shape = [size or 2 for size in graph.input_shape]
    # On the device 'meta', which has shapes and no memory: only shape and dtype are read of it.
    like = torch.empty(shape, dtype=torch.from_numpy(np.empty(0, graph.input_dtype)).dtype, device="meta")
    return model, random_like(like)


def module_of(graph: OnnxGraph) -> OnnxModel:
    """Return the module that computes what a graph does. Raises: CaptureError, or ProblemList with all of them."""
    return ModuleBuilder(with_functions(graph), TABLE, constant_folding.folded).build()


def traceable(
    model: nn.Module | ExportedProgram, example_input: Tensor | None, lines: Lines
) -> nn.Module | ExportedProgram:
    """Return the model itself: `load` has made it of layers of PyTorch, which can be traced as they are."""
    return model
