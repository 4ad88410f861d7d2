"""The layout of a graph's values in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from nnhw.ir.types import IntType, TensorType

from .c_text import BYTES, c_type


@dataclass(frozen=True)
class Storage:
    """The layout of a value: rows of pixels, with the channels of a pixel side by side.

    Parameters
    ----------
    type: type of the value.
    channels, height, width: of a map [channels, height, width], or of the map whose flat form the value is. A vector is
        one pixel with its elements as channels. Other shapes are in C order, with 1 channel, 1 row and all their
        elements.
    bits: eight bipolar values are in a byte, 1 for +1; a pixel starts with a new byte, and unused bits are 0.
    pitch: pixels from one row to the next.
    origin: pixels in front of the first one.
    """

    type: TensorType
    channels: int
    height: int
    width: int
    bits: bool = False
    pitch: int = 0
    origin: int = 0

    @classmethod
    def of(cls, type: TensorType, bits: bool = False) -> Storage:
        """Return the storage of a type without a border."""
        shape = type.shape
        if len(shape) == 3:
            return cls(type, *shape, bits, shape[2])
        if len(shape) == 1:
            return cls(type, shape[0], 1, 1, bits, 1)
        return cls(type, 1, 1, math.prod(shape), bits, math.prod(shape))

    @property
    def dtype(self) -> IntType:
        """Range of the elements."""
        return self.type.int_dtype

    @property
    def ctype(self) -> str:
        """C type of an array element: a byte with bits, or one value."""
        return "uint8_t" if self.bits else c_type(self.dtype)

    @property
    def cells(self) -> int:
        """Number of array elements of a pixel."""
        return -(-self.channels // 8) if self.bits else self.channels

    @property
    def count(self) -> int:
        """Number of array elements, for a layout without a border."""
        return self.cells * self.height * self.width

    @property
    def bytes(self) -> int:
        """Size in bytes, for a layout without a border."""
        return self.count * BYTES[self.ctype]

    @property
    def in_c_order(self) -> bool:
        """Whether the elements are in the order of NumPy's default arrays."""
        # Pixels with channels side by side are in C order [channels, height, width] if there is one of either.
        return not self.bits and (self.channels == 1 or self.height * self.width == 1) and not self.bordered

    @property
    def bordered(self) -> bool:
        """Whether the value is the inner part of a larger map, with other pixels around it."""
        return self.origin != 0 or self.pitch != self.width

    def inside(self, outer: Storage, top: int, left: int) -> Storage:
        """Return the storage of a map that is the inner part of a padded one."""
        return replace(self, pitch=outer.width, origin=top * outer.width + left)

    def flat(self, type: TensorType) -> Storage:
        """Return the layout of the same memory, read as a vector of another type."""
        return replace(self, type=type)

    def pixel(self, row: str, column: str) -> str:
        """Return the offset of a pixel, in array elements, as a C expression."""
        if self.height * self.width == 1 and not self.origin:
            return "0"
        place = f"({row}) * {self.pitch} + {column}" + (f" + {self.origin}" if self.origin else "")
        return f"({place}) * {self.cells}" if self.cells != 1 else place

    def strides(self) -> list[int]:
        """Return the distance of neighbours along each axis of the value, in array elements; not for bits."""
        if len(self.type.shape) == 3:
            return [1, self.pitch * self.channels, self.channels]
        return list(c_strides(self.type.shape))

    @property
    def base(self) -> int:
        """Number of array elements in front of the first one."""
        return self.origin * self.cells

    def slots(self) -> np.ndarray:
        """Return for each place in memory the index of its element in C order; -1 where there is none."""
        index = np.arange(self.channels * self.height * self.width)
        pixels = index.reshape(self.channels, -1).T
        if self.bits:
            pixels = np.pad(pixels, ((0, 0), (0, self.cells * 8 - self.channels)), constant_values=-1)
        return pixels.reshape(-1)


def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the distance of neighbours along each axis in C order."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
