"""The requantizer of TFLite and CMSIS-NN, which rounds twice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nnhw.engines.requantize.base import codes_of
from nnhw.engines.requantize.channel_product import ConstantProduct, reject_wide
from nnhw.errors import MappingError
from nnhw.ir.types import IntType

HIGH_SHIFT = 31
"""Fraction bits of the multipliers of `DoubleScaler`."""


@dataclass(frozen=True, eq=False)
class DoubleScaler:
    """Fixed-point requantization that rounds twice.

    high  = (raw * multiplier + addend) >> 31
    index = round(high / 2**shift) + offset - code.low, clamped, where round takes halves away from zero

    Parameters
    ----------
    multiplier, addend: int64 [outputs]; the addend is bias * multiplier + 2**30, so that the first shift rounds.
    shift: int64 [outputs], bits of the second rounding, 0 to 31.
    offset: zero point of the codes.
    code: type of the codes, with the bounds of the fused activation.
    raw: range of the raw sums.
    dsp: multipliers in DSP blocks.
    logic: constants in logic; else in block RAM.

    Timing: the product, one move for the rounding, one for each of `spread_bits`, two for the clamp.
    Source: gemmlowp fixedpoint.h (SaturatingRoundingDoublingHighMul, RoundingDivideByPOT), as TFLite's reference
    kernels and CMSIS-NN use it; saturation cannot happen, because multipliers are positive.

    Raises
    ------
    MappingError: a shift is out of range, or the product takes more than 64 bits.
    """

    multiplier: np.ndarray
    addend: np.ndarray
    shift: np.ndarray
    offset: int
    code: IntType
    raw: IntType
    dsp: bool = False
    logic: bool = True

    def __post_init__(self) -> None:
        if self.shift.min() < 0 or self.shift.max() > HIGH_SHIFT:
            raise MappingError(
                f"double rounding needs right shifts of 0..{HIGH_SHIFT}, "
                f"given {self.shift.min()}..{self.shift.max()}; put a left shift into the multiplier"
            )
        reject_wide(self.product)

    @classmethod
    def of(
        cls, multiplier: np.ndarray, exponent: np.ndarray, bias: np.ndarray, offset: int, code: IntType, raw: IntType
    ) -> DoubleScaler:
        """Return the requantizer for the parameters of quantized files, with scales multiplier * 2**(exponent - 31).

        Parameters
        ----------
        multiplier, exponent, bias: int64 [outputs].
        offset, code: see the class.
        raw: range of the sums without their bias.
        """
        # A left shift goes into the multiplier; a right shift is that of the second rounding.
        scaled = np.asarray(multiplier, dtype=np.int64) << np.maximum(exponent, 0)
        addend = np.asarray(bias, dtype=np.int64) * scaled + (1 << (HIGH_SHIFT - 1))
        return cls(scaled, addend, np.maximum(-np.asarray(exponent, dtype=np.int64), 0), offset, code, raw)

    @property
    def outputs(self) -> int:
        """Channels."""
        return int(self.multiplier.shape[0])

    @cached_property
    def product(self) -> ConstantProduct:
        """The multiply-add of the first rounding."""
        return ConstantProduct(self.multiplier[:, None], self.addend[:, None], self.raw, self.dsp)

    @property
    def high_range(self) -> tuple[int, int]:
        """(lowest, highest) result of the first rounding."""
        low, high = self.product.range
        return low >> HIGH_SHIFT, high >> HIGH_SHIFT

    @property
    def index_range(self) -> tuple[int, int]:
        """(lowest, highest) index before the clamp."""
        # Multipliers are positive, so the index rises with the sum.
        ends = np.array([[self.raw.low], [self.raw.high]]).repeat(self.outputs, axis=1)
        index = self._index(ends)
        return int(index.min()), int(index.max())

    @property
    def spread_bits(self) -> int:
        """Bits of the difference between the largest and the smallest shift: levels of the shifter in hardware."""
        return int(self.shift.max() - self.shift.min()).bit_length()

    @property
    def latency(self) -> int:
        """Moves from a raw sum to its code."""
        # The smallest shift costs nothing: it is a choice of wires. Only what others shift more takes levels.
        return self.product.latency + 1 + self.spread_bits + 2

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        return codes_of(self._index(raw), self.code)

    def _index(self, raw: np.ndarray) -> np.ndarray:
        """Return the indices [n, outputs] of raw sums [n, outputs], not yet clamped."""
        high = (raw * self.multiplier + self.addend) >> HIGH_SHIFT
        # A shift rounds down, so half of a unit in front of it rounds halves up; one less rounds those below 0 down.
        half = (np.int64(1) << self.shift) >> 1
        rounded = (high + half - ((high < 0) & (self.shift > 0))) >> self.shift
        return rounded + self.offset - self.code.low
