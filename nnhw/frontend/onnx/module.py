"""The module that an ONNX file becomes: one layer for each of the file's nodes, and the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from nnhw.nn.quantizers import Quantizer


@dataclass(frozen=True)
class Step:
    """One call of a layer.

    Parameters
    ----------
    layer: the name of the submodule.
    operands: keys of the values that it is called with.
    result: the key of the value that it returns.
    """

    layer: str
    operands: tuple[str, ...]
    result: str


@dataclass(frozen=True, eq=False)
class Tap:
    """The tensor of the file that corresponds to a quantizer of the module, which returns (tensor - offset) * factor.

    Parameters
    ----------
    layer: the name of the submodule that quantizes.
    tensor: its name in the file.
    offset, factor: they broadcast to the tensor.
    constant: the tensor has no batch.
    part: axis, start and end of the part of the tensor that corresponds; None for all of it.
    reads: the file's tensor of floats that the module's quantizer reads; empty where the file has none such.
    """

    layer: str
    tensor: str
    offset: np.ndarray = field(default_factory=lambda: np.zeros(()))
    factor: np.ndarray = field(default_factory=lambda: np.ones(()))
    constant: bool = False
    part: tuple[int, int, int] | None = None
    reads: str = ""


@dataclass(frozen=True)
class OnnxFile:
    """A checked file, as ONNX Runtime takes it.

    Parameters
    ----------
    content: the model with its weights, serialized.
    input, output: names of the tensors.
    batch: images that it takes at once; None for any number.
    taps: in the order in which the module quantizes.
    integers: the file's result is of an integer type.
    bare: the file's result has no axis of the batch, which is of one image.
    tensors: the file's tensors, by the keys of the values that they are in the module.
    """

    content: bytes
    input: str
    output: str
    batch: int | None
    taps: tuple[Tap, ...]
    integers: bool
    bare: bool
    tensors: Mapping[str, str]


class OnnxModel(nn.Module):
    """Computes what a file's graph does, with layers that are named after its nodes.

    Parameters
    ----------
    layers: submodules by their names.
    steps: calls of layers, in the order in which they run.
    result: the key of the value that is returned.
    file: the file, for its evaluation.

    Members
    -------
    accuracy: before and after quantization, if `nnhw.quantize` has measured it.
    added: the quantizers that `nnhw.quantize` has put into it, in words.
    """

    accuracy: Any = None
    added: Any = ""

    def __init__(self, layers: dict[str, nn.Module], steps: tuple[Step, ...], result: str, file: OnnxFile) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.steps, self.result, self.file = steps, result, file
        self.eval()

    def with_quantizers(self, quantizers: Mapping[str, Quantizer]) -> OnnxModel:
        """Return the model of a file with nodes of QONNX that quantize what layers make; '' is the model's input.

        The file's own framework evaluates these nodes with the others.
        """
        from .requantizing import with_quantizers  # which builds such modules

        tensors = {f"{layer}()" if layer else self.file.input: quantizer for layer, quantizer in quantizers.items()}
        named = {self.file.tensors[key]: quantizer for key, quantizer in tensors.items()}
        return with_quantizers(self.file.content, named)

    def forward(self, x: Tensor) -> Tensor:
        """[N, *shape] --> [N, *shape of the result]."""
        values = {self.file.input: x}
        for step in self.steps:
            values[step.result] = getattr(self, step.layer)(*(values[key] for key in step.operands))
        return values[self.result]
