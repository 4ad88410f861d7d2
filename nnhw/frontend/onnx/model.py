"""The module that an ONNX file becomes: one layer for each of the file's nodes, and the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor, nn


@dataclass(frozen=True)
class Step:
    """One call of a layer.

    Parameters
    ----------
    layer: the name of the submodule.
    operands: keys of the values that it takes.
    result: the key of what it makes.
    """

    layer: str
    operands: tuple[str, ...]
    result: str


@dataclass(frozen=True, eq=False)
class Tap:
    """Where the file has the codes of a quantizer of the module: (tensor - offset) * factor is what that makes.

    Parameters
    ----------
    layer: the name of the submodule that quantizes.
    tensor: the name in the file.
    offset, factor: they broadcast to the tensor.
    constant: the tensor has no batch.
    part: the codes are a part of the tensor: axis, start and end.
    reads: the file's tensor of floats that the module's quantizer reads, too; nothing where it reads other numbers.
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
    """A checked file, as its own framework takes it.

    Parameters
    ----------
    content: the model with its weights, serialized.
    batch: the number of images that it takes at once; None for any number.
    taps: in the order in which the module quantizes.
    integers: the result is integers in the file.
    """

    content: bytes
    input: str
    output: str
    batch: int | None
    taps: tuple[Tap, ...]
    integers: bool


class OnnxModel(nn.Module):
    """Computes what a file's graph does, with layers that are named after its nodes.

    Parameters
    ----------
    layers: by the names that they are to have.
    result: the key of the value that is returned.
    """

    def __init__(self, layers: dict[str, nn.Module], steps: tuple[Step, ...], result: str, file: OnnxFile) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.steps, self.result, self.file = steps, result, file
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """[N, *shape] --> [N, *shape of the result]."""
        values = {self.file.input: x}
        for step in self.steps:
            values[step.result] = getattr(self, step.layer)(*(values[key] for key in step.operands))
        return values[self.result]
