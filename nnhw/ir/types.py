"""Types of the values in a graph: ranges of integers, float64, and tensors of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from nnhw.errors import IrError


@dataclass(frozen=True)
class IntType:
    """Integers from `low` to `high`, both included. Widths follow from the range, never the other way round.

    Parameters
    ----------
    low, high: least and greatest value.
    bipolar: whether only -1 and +1 occur, so that one bit is enough; 1 encodes +1.

    Raises
    ------
    IrError for an empty range, for one beyond int64, and for bipolar with a range other than -1..1.
    """

    low: int
    high: int
    bipolar: bool = False

    def __post_init__(self) -> None:
        if not -(2**63) <= self.low <= self.high < 2**63:
            raise IrError(f"an integer type needs low <= high, both within 64 bits, got {self.low}..{self.high}")
        if self.bipolar and (self.low, self.high) != (-1, 1):
            raise IrError(f"a bipolar type has the range -1..1, got {self.low}..{self.high}")

    @property
    def signed(self) -> bool:
        """Whether negative numbers occur."""
        return self.low < 0

    @property
    def bits(self) -> int:
        """Width in bits: 1 if bipolar, else two's complement if negative numbers occur, else unsigned; at least 1."""
        if self.bipolar:
            return 1
        if self.signed:
            # Two's complement of b bits reaches from -2**(b-1) to 2**(b-1) - 1, hence the - 1 on the negative side
            # only.
            return max((-self.low - 1).bit_length(), max(self.high, 0).bit_length()) + 1
        return max(self.high.bit_length(), 1)

    def holds(self, values: np.ndarray) -> bool:
        """Return whether all `values` (integers, any shape) belong to the type."""
        if values.size == 0:
            return True
        inside = int(values.min()) >= self.low and int(values.max()) <= self.high
        return inside and not (self.bipolar and bool(np.any(values == 0)))

    def __str__(self) -> str:
        return "bipolar" if self.bipolar else f"int {self.low}..{self.high}"


BIPOLAR = IntType(-1, 1, bipolar=True)
"""-1 and +1, in one bit."""
BIT = IntType(0, 1)
"""0 and 1; constants of it may also be arrays of booleans."""


@dataclass(frozen=True)
class FloatType:
    """IEEE double precision, the only floating-point type of the IR."""

    def __str__(self) -> str:
        return "float64"


FLOAT = FloatType()


@dataclass(frozen=True)
class TensorType:
    """A tensor's shape and element type.

    Parameters
    ----------
    shape: sizes without the batch axis, which all arrays but constants have in front at run time.
    dtype: type of the elements.
    is_sequence: whether there is such a tensor for each step of a sequence. The number of steps, 1 or more, comes with
        the input: arrays have an axis of steps behind the batch axis at run time.
    """

    shape: tuple[int, ...]
    dtype: IntType | FloatType
    is_sequence: bool = False

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.shape):
            raise IrError(f"a tensor needs sizes of at least 1, got {self.shape}")

    @property
    def size(self) -> int:
        """Number of elements of one image, or of one step of a sequence."""
        return math.prod(self.shape)

    @property
    def int_dtype(self) -> IntType:
        """The element type, which has to be integer. Raises: IrError for float64."""
        if not isinstance(self.dtype, IntType):
            raise IrError(f"an integer tensor is needed here, got {self}")
        return self.dtype

    @property
    def is_int(self) -> bool:
        """Whether the elements are integers."""
        return isinstance(self.dtype, IntType)

    @property
    def step(self) -> TensorType:
        """The type of one step of a sequence; the type itself if it is none."""
        return replace(self, is_sequence=False)

    @property
    def sequence(self) -> TensorType:
        """The type of a sequence of such values."""
        return replace(self, is_sequence=True)

    def __str__(self) -> str:
        sizes = [*(["steps"] if self.is_sequence else []), *map(str, self.shape)]
        return f"{self.dtype} [{', '.join(sizes)}]"
