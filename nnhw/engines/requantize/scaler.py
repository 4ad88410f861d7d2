"""The requantizer that multiplies, adds and shifts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nnhw.engines.requantize.base import codes_of, index_span
from nnhw.engines.requantize.channel_product import FUSED_BITS, FUSED_FACTOR_BITS, ConstantProduct, reject_wide
from nnhw.engines.requantize.multiply_shift import MultiplyShift
from nnhw.engines.requantize.thresholds import count_reached
from nnhw.errors import MappingError
from nnhw.ir.types import IntType


@dataclass(frozen=True, eq=False)
class Scaler:
    """Multiply, add, shift: index = floor((raw * multiplier + addend) / 2**shift) + floor, clamped to floor..ceiling.

    Parameters
    ----------
    multiplier, addend: int64 [outputs, segments]: the function is a straight line in each segment.
    shift: bits, the same in all channels.
    code: type of the codes; the addend holds -((code.low + floor) << shift), so that the shifted result counts from 0.
    raw: range of the raw sums.
    borders: int64 [outputs, segments - 1], ascending raw sums: how many of them a sum reaches is its segment.
    dsp: multipliers in DSP blocks.
    logic: constants in logic; else in block RAM.
    floor, ceiling: lowest and highest index, if not all codes occur; None: that of the highest code.
    even, parity: see `MultiplyShift`: the addend holds half a unit, so these are the ties of rounding half to even.
    fused: with `dsp`: one DSP block of the iCE40 multiplies and adds.

    Timing: the product, two moves more with several segments, two more if `even`, and two for the clamp.

    Raises
    ------
    MappingError: shapes do not go together, or the product is too wide.
    """

    multiplier: np.ndarray
    addend: np.ndarray
    shift: int
    code: IntType
    raw: IntType
    borders: np.ndarray
    dsp: bool = False
    logic: bool = True
    floor: int = 0
    ceiling: int | None = None
    even: bool = False
    parity: int = 0
    fused: bool = False

    def __post_init__(self) -> None:
        shape = self.multiplier.shape
        if self.addend.shape != shape or self.borders.shape != (shape[0], shape[1] - 1):
            raise MappingError(
                f"scaler needs multipliers and addends [outputs, segments] and one border less, "
                f"given {shape}, {self.addend.shape} and {self.borders.shape}"
            )
        reject_wide(self.product)
        if self.fused and not self.product.can_be_fused:
            raise MappingError(
                f"one DSP block multiplies and adds numbers of up to {FUSED_FACTOR_BITS} and {FUSED_BITS} bits, given "
                f"{self.product.raw_bits} x {self.product.multiplier_bits} and {self.product.bits}; use several blocks"
            )

    @property
    def outputs(self) -> int:
        """Channels."""
        return int(self.multiplier.shape[0])

    @property
    def span(self) -> int:
        """Highest result of the clamp, whose lowest is 0: ceiling - floor."""
        return (index_span(self.code) if self.ceiling is None else self.ceiling) - self.floor

    @property
    def segments(self) -> int:
        """Straight segments of the function."""
        return int(self.multiplier.shape[1])

    @cached_property
    def product(self) -> ConstantProduct:
        """The multiply-add."""
        return ConstantProduct(self.multiplier, self.addend, self.raw, self.dsp, self.fused)

    @property
    def latency(self) -> int:
        """Moves from a raw sum to its code."""
        return 2 * (self.segments > 1) + self.product.latency + 2 * self.even + 2

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        segment = count_reached(self.borders, raw)
        # Constants of the segment that each sum lies in, int64 [n, outputs].
        multiplier = np.take_along_axis(self.multiplier.T, segment, axis=0)
        addend = np.take_along_axis(self.addend.T, segment, axis=0)
        # The addend has subtracted the floor already, so the clamp begins at 0.
        index = MultiplyShift(multiplier, addend, self.shift, 0, self.span, self.even, self.parity).golden(raw)
        return codes_of(index + self.floor, self.code)
