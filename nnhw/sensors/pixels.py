"""A part of a camera's image, averaged over squares of pixels, as exact integers: from bytes to codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.sensors.base import FrontParts

BLOCKS = (1, 2, 4, 8, 16)
"""Pixels of a side of a square: powers of two, so that the average is a shift."""
COLUMNS_MAX, FRAME_ELEMENTS_MAX = 512, 4096
"""Sums that the memory of a row may have; elements that the buffer of a frame may have."""
FRAMES_PER_S = 60.0
"""Images a second for which a network is mapped where the user asks for no rate: a usual rate of cameras."""
LOGIC_CELLS = 400
"""Of all that stands around the network, measured with `examples/mnist_camera.py`, see `docs/how-to/sensor.md`."""
PIXEL_CYCLES = 4
"""Fewest cycles of the design's clock from one pixel to the next: `pclk` is sampled by it, twice high and twice low."""


@dataclass(frozen=True)
class PixelsConfig:
    """Cropping and averaging: (sum of a square of block x block pixels + block**2 / 2) // block**2, of 8 bits.

    Of the average, the highest `bits` bits are the code; inverted, if `invert` says so, so that dark pixels count.

    Parameters
    ----------
    width, height: pixels of a row, and rows, that the camera sends.
    left, top: first column and row of the part that is used.
    rows, columns: of the frame of the network; the part has `block` times as many.
    block: pixels of a side of the square that is averaged: 1, 2, 4, 8 or 16.
    bits: of a code, 1, 2, 4 or 8.
    invert: code[r, c] = 2**bits - 1 - what it would be otherwise.
    """

    kind: ClassVar[str] = "pixels"
    inputs: ClassVar[tuple[str, ...]] = ("camera",)
    layer: ClassVar[str] = "AveragePixels"
    signal_axes: ClassVar[int] = 2
    low: ClassVar[int] = 0
    silence: ClassVar[int] = 0
    sample_rate_hz: ClassVar[int] = 0
    frames_per_s: ClassVar[float] = FRAMES_PER_S
    may_drop_frames: ClassVar[bool] = True

    width: int
    height: int
    left: int
    top: int
    rows: int
    columns: int
    block: int
    bits: int = 8
    invert: bool = False

    def __post_init__(self) -> None:
        if self.block not in BLOCKS:
            raise ValueError(f"block is one of {', '.join(map(str, BLOCKS))}, given {self.block}")
        if self.bits not in (1, 2, 4, 8):
            raise ValueError(f"bits is 1, 2, 4 or 8, given {self.bits}")
        if min(self.rows, self.columns) < 1 or self.columns > COLUMNS_MAX or self.elements > FRAME_ELEMENTS_MAX:
            raise ValueError(
                f"a frame has 1 to {COLUMNS_MAX} columns and 1 to {FRAME_ELEMENTS_MAX} elements, given "
                f"{self.rows} x {self.columns}"
            )
        sides = (("left", self.left, self.columns, self.width), ("top", self.top, self.rows, self.height))
        for name, first, count, side in sides:
            if first < 0 or first + count * self.block > side:
                raise ValueError(
                    f"the part that is used must lie in the image: {name}={first} and {count} squares of {self.block} "
                    f"pixels end at {first + count * self.block}, and the image has {side}"
                )

    @property
    def elements(self) -> int:
        """Elements of a frame."""
        return self.rows * self.columns

    @property
    def shape(self) -> tuple[int, ...]:
        """See `SensorFront`: one channel."""
        return (1, self.rows, self.columns)

    @property
    def high(self) -> int:
        """See `SensorFront`."""
        return (1 << self.bits) - 1

    @property
    def scale(self) -> float:
        """See `SensorFront`: codes are parts of 1."""
        return 2.0**-self.bits

    @property
    def area_log2(self) -> int:
        """Logarithm of the pixels of a square."""
        return 2 * (self.block.bit_length() - 1)

    @property
    def parts(self) -> FrontParts:
        """See `SensorFront`: the sums of a row of squares."""
        return FrontParts(((self.columns, 8 + self.area_log2),), (), 0, LOGIC_CELLS)

    def received(self, kind: str, signals: np.ndarray) -> np.ndarray:
        """See `SensorFront`: a camera sends the pixels as they are."""
        return signals

    def codes(self, signals: np.ndarray) -> np.ndarray:
        """See `SensorFront`: one frame of each image uint8 [N, height, width]."""
        given = np.asarray(signals)
        if given.shape[1:] != (self.height, self.width) or (given != np.rint(given)).any():
            raise ValueError(f"signals are [N, {self.height}, {self.width}] of whole numbers, given {given.shape}")
        if given.min(initial=0) < 0 or given.max(initial=0) > 255:
            raise ValueError(f"pixels are 0 to 255, given {given.min()} to {given.max()}")
        rows, columns = self.rows * self.block, self.columns * self.block
        part = given[:, self.top : self.top + rows, self.left : self.left + columns].astype(np.int64)
        squares = part.reshape(len(part), self.rows, self.block, self.columns, self.block).sum(axis=(2, 4))
        # Half a square is added first, as a shift alone would round down.
        averages = (squares + (1 << self.area_log2 >> 1)) >> self.area_log2
        codes = averages >> (8 - self.bits)
        return (self.high - codes if self.invert else codes)[:, None, None]

    def frame_cycles(self, clock_hz: float) -> int:
        """See `SensorFront`: the pixels of an image at the fastest pixel clock that the design samples."""
        return self.width * self.height * PIXEL_CYCLES

    def problems(self, clock_hz: float) -> list[str]:
        """See `SensorFront`: it takes a pixel in each cycle."""
        return []
