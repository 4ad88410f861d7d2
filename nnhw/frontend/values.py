"""Kinds of traced values during the translation to a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import fx

from nnhw.ir import IntType


@dataclass(frozen=True)
class TracedConstant:
    """A tensor that does not depend on the model's input: a parameter, a buffer, or computed from these.

    Parameters
    ----------
    tensor: in the model's own dtype.
    label: name that the user knows, such as 'features.0.weight'.
    codes: int64 codes, if the last op was a quantizer; 0 stands for 0.0.
    scale: float64, broadcasts to `codes`.
    dtype: range of the codes.
    precise: the tensor computed in float64, if it was computed from other constants.
    """

    tensor: torch.Tensor
    label: str
    codes: np.ndarray | None = None
    scale: np.ndarray | None = None
    dtype: IntType | None = None
    precise: torch.Tensor | None = None

    @property
    def doubles(self) -> torch.Tensor:
        """The tensor that the model has if all of it computes in float64."""
        return self.tensor.to(torch.float64) if self.precise is None else self.precise


@dataclass(frozen=True)
class Codes:
    """Integers in the graph that stand for code * scale; they become floats only where floats are needed.

    Parameters
    ----------
    name: name of the graph's node.
    scale: float64; a scalar, or broadcasts to the node's shape.
    quantized: made by a quantizer; False for sums of a linear operator.
    """

    name: str
    scale: np.ndarray
    quantized: bool


@dataclass(frozen=True)
class Float:
    """A float64 value in the graph.

    Parameters
    ----------
    spoiled: message about the operation that turned codes into floats, and what to do; empty if there was none.
    """

    name: str
    spoiled: str = ""


@dataclass(frozen=True)
class Integers:
    """Integers that stand for themselves, such as the result of argmax."""

    name: str


@dataclass(frozen=True)
class Batch:
    """The size of the batch axis, as a number in the traced code."""


@dataclass(frozen=True)
class Turned:
    """A value whose first axis is not the batch, until one index of that axis is selected.

    Parameters
    ----------
    value: the value with the batch as its first axis.
    axes: for each axis the axis of `value` that it is, with 0 for the batch.
    """

    value: Codes | Float
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Unknown:
    """The result of an operation that is not supported; operations that read it report no problems of their own."""


@dataclass(frozen=True)
class StepsFirst:
    """A sequence whose traced tensor has its steps as the first axis, and the batch behind them.

    Parameters
    ----------
    value: the sequence; in the graph the batch is always first.
    """

    value: Codes | Float


@dataclass(frozen=True)
class PerImage:
    """The same numbers for each image of the batch, such as the start value of a loop's state.

    Parameters
    ----------
    constant: the numbers of one image.
    axis: the axis of the batch, which `constant` does not have.
    """

    constant: TracedConstant
    axis: int = 0

    def repeated(self, images: int) -> TracedConstant:
        """Return the numbers of so many images, with the axis of the batch."""
        tensor = self.constant.tensor.unsqueeze(self.axis)
        return TracedConstant(tensor.repeat_interleave(images, dim=self.axis), self.constant.label)


@dataclass(frozen=True)
class Block:
    """A block of traced code, such as the body of a loop."""

    module: fx.GraphModule


@dataclass(frozen=True)
class Stacked:
    """Values stacked along a new axis in front of the batch, such as the last states of several layers."""

    parts: tuple[Codes | Float, ...]


# Handlers test for these classes; numbers and lists of a call's arguments are none of them.
Value = TracedConstant | Codes | Float | Integers | Batch | Turned | Unknown | StepsFirst | PerImage | Block | Stacked
