"""Values of a file's tensors while its module is built: constants, and what steps compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

BATCH = -(1 << 40)
"""Stands for the open size of the batch in shapes that a file computes with; no axis has this size."""


@dataclass(frozen=True, eq=False)
class Known:
    """Numbers that do not depend on the model's input.

    Parameters
    ----------
    name: of the file's tensor.
    array: the numbers.
    kind: the name of their type in the file where NumPy does not have it, such as INT4; else empty.
    """

    name: str
    array: np.ndarray
    kind: str = ""

    @property
    def type(self) -> str:
        """The name of their type in the file, such as INT8."""
        return self.kind or self.array.dtype.name.upper()

    @property
    def depends_on_batch(self) -> bool:
        """Whether `BATCH` is among the numbers."""
        return self.array.dtype.kind == "i" and bool((self.array == BATCH).any())


@dataclass(frozen=True, eq=False)
class TensorCoding:
    """What the integers of a file's tensor stand for: (integer - zero_point) * scale.

    Parameters
    ----------
    scale: float32, one or one for each index of `axis`; None for integers that stand for themselves.
    zero_point: as many as scales, or one.
    low, high: least and greatest integer in the file.
    axis: along which scales or zero points differ; -1 for none.
    real: the module computes with (integer - zero_point) * scale; otherwise with integer - zero_point.
    """

    scale: np.ndarray | None
    zero_point: np.ndarray
    low: int
    high: int
    axis: int = -1
    real: bool = False

    @property
    def unit(self) -> np.ndarray:
        """The difference of the module's numbers for neighbouring integers: the scale, or 1."""
        return self.scale if self.real and self.scale is not None else np.ones(1, np.float32)

    def same(self, scale: np.ndarray, zero_point: np.ndarray) -> bool:
        """Return whether another scale and zero point are the same as these."""
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
    key: its name in the module's table of values.
    like: a fake tensor of its dtype, and of its shape for a batch of `EXAMPLES` images.
    constant: it is computed from the file's constants alone, such as quantized weights; it has no batch.
    coding: of a value that is of integers in the file; None for floats.
    positive: no element of it is ever below 0.
    bare: in the file it has no axis of the batch, which is of one image there.
    """

    key: str
    like: Tensor
    constant: bool = False
    coding: TensorCoding | None = None
    positive: bool = False
    bare: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; the first axis is the batch, of `EXAMPLES` images, unless it is constant."""
        return tuple(self.like.shape)

    @property
    def file_shape(self) -> tuple[int, ...]:
        """Its shape in the file if that takes one image at once; that of the module if it is constant."""
        return self.shape if self.constant else self.shape[1:] if self.bare else (1, *self.shape[1:])


Value = Known | Traced

EXAMPLES = 1009
"""Images of the batch by which shapes are found: a size that no other axis is likely to have."""
