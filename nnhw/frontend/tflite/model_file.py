"""The content of a TFLite file after its checks: tensors and operators of its one graph, as plain Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnhw.ir import IntType

CODES = {"INT8": IntType(-128, 127), "UINT8": IntType(0, 255)}
"""Types of tensors that may hold codes --> the codes' range."""


@dataclass(frozen=True)
class Quantization:
    """How codes stand for numbers: (code - zero_point) * scale.

    Parameters
    ----------
    scale: float32 [1], or one for each index of an axis.
    zero_point: int64 of the same shape.
    axis: the one that has a scale for each index, where there are several.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int = 0


@dataclass(frozen=True)
class FileTensor:
    """A tensor of a file.

    Parameters
    ----------
    index: its number in the file.
    name: as the file has it.
    shape: with the batch in front, where it has one.
    type: the format's name, such as 'INT8' or 'FLOAT32'.
    quantization: None where the file states none.
    data: the numbers of a constant; None for a tensor that is computed.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    type: str
    quantization: Quantization | None = None
    data: np.ndarray | None = None

    @property
    def place(self) -> str:
        """The name of the tensor in messages."""
        return f"'{self.name}'"

    @property
    def scale(self) -> float:
        """Its one scale, a float32 number. The tensor must be known to have one (`Site.check_codes`)."""
        assert self.quantization is not None
        return float(self.quantization.scale[0])

    @property
    def zero_point(self) -> int:
        """Its one zero point. The tensor must be known to have one (`Site.check_codes`)."""
        assert self.quantization is not None
        return int(self.quantization.zero_point[0])

    @property
    def codes(self) -> IntType:
        """The range of its codes, as its type has it."""
        return CODES[self.type]

    @property
    def distances(self) -> IntType:
        """The range of its codes' distances from the zero point."""
        return IntType(self.codes.low - self.zero_point, self.codes.high - self.zero_point)


@dataclass(frozen=True)
class FileOperator:
    """An operator of a file.

    Parameters
    ----------
    kind: the format's name, such as 'CONV_2D'.
    inputs: indices of tensors; None for an optional one that is not given.
    outputs: indices of tensors.
    options: by the names of the format.
    """

    kind: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelFile:
    """A graph with one input and one output.

    Parameters
    ----------
    title: the file's name, for messages.
    tensors: by their indices.
    operators: in an order in which they can run.
    input, output: indices of tensors.
    """

    title: str
    tensors: tuple[FileTensor, ...]
    operators: tuple[FileOperator, ...]
    input: int
    output: int

    def given(self, operator: FileOperator) -> list[FileTensor | None]:
        """Return the tensors that an operator reads; None for an optional one that is not given."""
        return [None if index is None else self.tensors[index] for index in operator.inputs]

    def made(self, operator: FileOperator) -> FileTensor:
        """Return the first tensor that an operator makes; only SPLIT makes several."""
        return self.tensors[operator.outputs[0]]

    def label(self, operator: FileOperator) -> str:
        """Return the name of an operator in messages: its kind, its result and the file."""
        return f"{operator.kind} {self.made(operator).place} of {self.title}"


def identifiers(model: ModelFile) -> dict[int, str]:
    """Return identifiers, all different, by the index of each operator's result: its name in ASCII word characters."""
    found: dict[int, str] = {}
    for operator in model.operators:
        # The converter joins names of fused operators by ';'.
        name = model.made(operator).name.split(";")[-1]
        base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or operator.kind.lower()
        base = base if base[0].isalpha() else f"t_{base}"
        candidate, number = base, 1
        # Names of the file may differ in characters alone that no identifier has.
        while candidate in found.values():
            number += 1
            candidate = f"{base}_{number}"
        found[operator.outputs[0]] = candidate
    return found
