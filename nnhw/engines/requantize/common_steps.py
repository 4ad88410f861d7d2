"""The requantizer whose channels share their steps, behind a multiply-add of each channel's own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nnhw.engines.requantize.channel_product import ConstantProduct, reject_wide
from nnhw.engines.requantize.ranked import RankedSteps, reaching
from nnhw.ir.types import IntType


@dataclass(frozen=True, eq=False)
class CommonSteps:
    """One function of all channels behind a multiply-add: code = codes[how many steps are at most the number], with

    number = (raw * multiplier + addend) >> drop

    Steps are found by rank, see `RankedSteps`.

    Parameters
    ----------
    multiplier, addend: int64 [outputs, 1].
    drop: lowest bits of the sums that do not count.
    steps, codes, cell_bits, cells_log2: of the `RankedSteps`.
    code: type of the codes.
    raw: range of the raw sums.
    dsp: multipliers in DSP blocks.
    logic: constants of the channels in logic; else in block RAM.
    fused: with `dsp`: one DSP block of the iCE40 multiplies and adds.
    registered: what a block RAM reads waits in a register, where it takes most of a cycle.
    logic_words: memories of at most so many words are constants in logic, the others block RAM.

    Timing: the product, one move each for the clamp, the first memory, the rank, the second memory, the comparison, and
    the count; two more if registered, one for codes that do not just count up: they come from a memory, or from the
    distance to the step at which they turn.
    """

    multiplier: np.ndarray
    addend: np.ndarray
    drop: int
    steps: np.ndarray
    codes: np.ndarray
    cell_bits: int
    cells_log2: int
    code: IntType
    raw: IntType
    dsp: bool = False
    logic: bool = True
    fused: bool = False
    registered: bool = False
    logic_words: int = 16

    def __post_init__(self) -> None:
        reject_wide(self.product)
        _ = self.ranked  # which checks the steps

    @property
    def outputs(self) -> int:
        """Channels."""
        return int(self.multiplier.shape[0])

    @cached_property
    def product(self) -> ConstantProduct:
        """The multiply-add."""
        return ConstantProduct(self.multiplier, self.addend, self.raw, self.dsp, self.fused)

    @cached_property
    def ranked(self) -> RankedSteps:
        """What is behind the multiply-add."""
        return RankedSteps(self.steps, self.codes, self.cell_bits, self.cells_log2)

    @property
    def counts_up(self) -> bool:
        """Whether each code is one more than the one before, so that no memory holds them."""
        # Then a code is its rank plus the lowest code; a bipolar one is a bit instead.
        return bool((np.diff(self.codes) == 1).all()) and not self.code.bipolar

    @cached_property
    def turn(self) -> tuple[int, int] | None:
        """(steps, sign) if code = codes[steps] + sign * |rank - steps|, so that no memory holds codes; else None.

        So it is with GELU and SiLU: codes fall by one with each step, and rise by one with each step from there on.
        """
        moves = np.diff(self.codes)
        turns = np.flatnonzero(np.diff(moves)) + 1
        if self.code.bipolar or len(turns) != 1 or (np.abs(moves) != 1).any():
            return None
        return int(turns[0]), int(moves[-1])

    @property
    def words(self) -> int:
        """Words of the memory of ranks, a power of two."""
        return 1 << (self.ranked.used_words - 1).bit_length()

    @property
    def word_range(self) -> tuple[int, int]:
        """(lowest, highest) word that numbers would have without a clamp."""
        shift = self.drop + self.ranked.word_bits
        return self.product.range[0] >> shift, self.product.range[1] >> shift

    @property
    def latency(self) -> int:
        """Moves from a raw sum to its code."""
        return self.product.latency + 6 + 2 * self.registered + (not self.counts_up)

    @property
    def borders(self) -> np.ndarray:
        """Raw sums at which codes of a channel may change, int64 [outputs, count]."""
        return reaching(self.multiplier, self.addend, self.steps << self.drop, self.raw.low)

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        # Numpy's shift of negative numbers rounds down, as that of the hardware does.
        number = (raw * self.multiplier[:, 0] + self.addend[:, 0]) >> self.drop
        return self.ranked.golden(number)
