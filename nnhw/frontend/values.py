"""What a traced value is while a graph is made from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import fx

from nnhw.ir import IntType


@dataclass(frozen=True)
class TracedConstant:
    """A tensor that does not depend on the model's input: parameters, buffers and what is computed from them.

    Parameters
    ----------
    tensor: in the model's own dtype.
    label: the name that its user will know it by, such as 'features.0.weight'.
    codes: int64 codes, if the last op was a quantizer; 0 stands for 0.0.
    scale: float64, broadcasts to `codes`.
    dtype: range of the codes.
    precise: float64, if it was computed from other constants: the same computed in float64.
    """

    tensor: torch.Tensor
    label: str
    codes: np.ndarray | None = None
    scale: np.ndarray | None = None
    dtype: IntType | None = None
    precise: torch.Tensor | None = None

    @property
    def doubles(self) -> torch.Tensor:
        """The tensor as the model has it when all of it computes in float64."""
        return self.tensor.to(torch.float64) if self.precise is None else self.precise


@dataclass(frozen=True)
class Codes:
    """Integers in the graph and what they stand for: code * scale. Becomes floats only where floats are needed.

    Parameters
    ----------
    name: the graph's node.
    scale: float64; of no axes, or broadcasting to the node's shape.
    quantized: made by a quantizer; accumulators of a linear operator are not.
    """

    name: str
    scale: np.ndarray
    quantized: bool


@dataclass(frozen=True)
class Float:
    """A float64 value in the graph.

    Parameters
    ----------
    spoiled: what made floats of codes that a layer could have read, and what to do about it; nothing otherwise.
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
    """A value whose first axis is another one than the batch until one of its places is taken.

    Parameters
    ----------
    value: with the batch as its first axis.
    axes: which axis of the value each axis is, the batch being 0.
    """

    value: Codes | Float
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Unknown:
    """The result of something that is not supported: nothing may be concluded from it."""


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
    """The same numbers for each image of the batch, as states of a loop begin.

    Parameters
    ----------
    constant: the numbers of one image.
    """

    constant: TracedConstant


@dataclass(frozen=True)
class Block:
    """A block of traced code, such as the body of a loop."""

    module: fx.GraphModule


@dataclass(frozen=True)
class Stacked:
    """Values one behind the other along a first axis of their own, in front of the batch: last states of layers."""

    parts: tuple[Codes | Float, ...]


Value = TracedConstant | Codes | Float | Integers | Batch | Turned | Unknown | StepsFirst | PerImage | Block | Stacked
