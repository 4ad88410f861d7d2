"""What a TFLite file holds, checked: the tensors and operators of its one graph, as plain Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnhw.ir import IntType

CODES = {"INT8": IntType(-128, 127), "UINT8": IntType(0, 255)}
"""Types of tensors that hold codes --> their range."""


@dataclass(frozen=True)
class Quantization:
    """How codes stand for numbers: (code - zero_point) * scale.

    Parameters
    ----------
    scale: float32 [1], or one for each index of an axis.
    zero_point: int64 of the same shape.
    axis: that has one scale for each index.
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
    type: such as 'INT8' or 'FLOAT32'.
    data: of constants.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    type: str
    quantization: Quantization | None = None
    data: np.ndarray | None = None

    @property
    def place(self) -> str:
        """How messages name it."""
        return f"'{self.name}'"

    @property
    def scale(self) -> float:
        """The one scale, as the float32 number that it is; only of tensors that are known to have one."""
        assert self.quantization is not None
        return float(self.quantization.scale[0])

    @property
    def zero_point(self) -> int:
        """The one zero point; only of tensors that are known to have one."""
        assert self.quantization is not None
        return int(self.quantization.zero_point[0])

    @property
    def codes(self) -> IntType:
        """The range of its codes."""
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
    kind: such as 'CONV_2D'.
    inputs: numbers of tensors; None for an optional one that is not given.
    outputs: numbers of tensors.
    options: by the names of the format.
    """

    kind: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelFile:
    """A graph with one input and one output, whose operators come behind what they read.

    Parameters
    ----------
    title: the file's name, for messages.
    """

    title: str
    tensors: tuple[FileTensor, ...]
    operators: tuple[FileOperator, ...]
    input: int
    output: int

    def given(self, operator: FileOperator) -> list[FileTensor | None]:
        """Return the tensors that an operator reads."""
        return [None if index is None else self.tensors[index] for index in operator.inputs]

    def made(self, operator: FileOperator) -> FileTensor:
        """Return the first tensor that an operator makes."""
        return self.tensors[operator.outputs[0]]

    def label(self, operator: FileOperator) -> str:
        """Return how messages name an operator: by its kind and its result."""
        return f"{operator.kind} {self.made(operator).place} of {self.title}"


def identifiers(model: ModelFile) -> dict[int, str]:
    """Return for each result an identifier: its name, letters, digits and underscores alone, all different."""
    found: dict[int, str] = {}
    for operator in model.operators:
        name = model.made(operator).name.split(";")[-1]
        base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or operator.kind.lower()
        base = base if base[0].isalpha() else f"t_{base}"
        candidate, number = base, 1
        while candidate in found.values():
            number += 1
            candidate = f"{base}_{number}"
        found[operator.outputs[0]] = candidate
    return found
