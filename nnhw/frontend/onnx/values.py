"""What a value of a file is while a module is made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

BATCH = -(1 << 40)
"""Stands for the size of the batch among the sizes that a file computes with; no file has an axis of this size."""


@dataclass(frozen=True, eq=False)
class Known:
    """Numbers that do not depend on the model's input.

    Parameters
    ----------
    name: of the file's tensor.
    kind: the file's name of its type where NumPy has no such one, such as INT4.
    """

    name: str
    array: np.ndarray
    kind: str = ""

    @property
    def type(self) -> str:
        """The file's name of its type, such as INT8."""
        return self.kind or self.array.dtype.name.upper()

    @property
    def depends_on_batch(self) -> bool:
        """Whether the size of the batch is among the numbers."""
        return self.array.dtype.kind == "i" and bool((self.array == BATCH).any())


@dataclass(frozen=True, eq=False)
class TensorCoding:
    """What the integers of a file's tensor stand for: (integer - zero_point) * scale.

    Parameters
    ----------
    scale: float32, one number or one for each index of `axis`; None for integers that stand for themselves.
    low, high: of the file's integers.
    real: the module computes with the numbers that the integers stand for, and not with integer - zero_point.
    """

    scale: np.ndarray | None
    zero_point: np.ndarray
    low: int
    high: int
    axis: int = -1
    real: bool = False

    @property
    def unit(self) -> np.ndarray:
        """What one step of the integers is in the module's numbers."""
        return self.scale if self.real and self.scale is not None else np.ones(1, np.float32)

    def same(self, scale: np.ndarray, zero_point: np.ndarray) -> bool:
        """Return whether integers stand for the same numbers by another scale and zero point."""
        return (
            self.scale is not None
            and np.array_equal(self.scale.reshape(-1), scale.reshape(-1))
            and np.array_equal(self.zero_point.reshape(-1), zero_point.reshape(-1))
        )


@dataclass(frozen=True, eq=False)
class Traced:
    """A value that a step of the module computes.

    Parameters
    ----------
    key: in the module's table of values.
    like: a tensor without numbers, of its shape for a batch of `EXAMPLES` images.
    constant: it is made of the file's numbers alone, such as quantized weights.
    coding: of values that are integers in the file; None for floats.
    positive: it is known to be nowhere below 0.
    """

    key: str
    like: Tensor
    constant: bool = False
    coding: TensorCoding | None = None
    positive: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; the batch comes first unless it is constant."""
        return tuple(self.like.shape)


Value = Known | Traced

EXAMPLES = 1009
"""The batch with which shapes are found: a size that no other axis is likely to have."""
