"""The requantizer whose channels share their steps, behind a multiply-add of each channel's own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nnhw.engines.requantize.product import Product, reject_wide
from nnhw.errors import MappingError
from nnhw.ir.types import IntType


@dataclass(frozen=True, eq=False)
class CommonSteps:
    """One function of all channels behind a multiply-add: code = codes[how many steps are at most the number], with

    number = (raw * multiplier + addend) >> drop

    Steps are found by rank. A number's lowest `cell_bits` bits are its place in a cell, which has at most one step, so
    the number is compared with one. A word of a first memory is for 2**cells_log2 cells: how many steps lie below them,
    and a bit for each cell that has a step. That count and the bits below the cell add up to the address of the step in
    a second memory, which has the lowest `cell_bits` bits of each.

    Parameters
    ----------
    multiplier, addend: int64 [outputs, 1].
    drop: lowest bits of the sums that do not count.
    steps: int64 [count], ascending; no two in one cell, none in the first word.
    codes: int64 [count + 1].
    cell_bits, cells_log2: see above.
    code: type of the codes.
    raw: range of the raw sums.
    dsp: multipliers in DSP blocks.
    logic: constants of the channels in logic; else in block RAM.
    fused: with `dsp`: one DSP block of the iCE40 multiplies and adds.
    registered: what a block RAM reads waits in a register, where it takes most of a cycle.
    logic_words: memories of at most so many words are constants in logic, the others block RAM.

    Timing: the product, one move each for the clamp, the first memory, the rank, the second memory, the comparison, and
    the count; two more if registered, one for codes that do not just count up.
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
        cells = self.steps >> self.cell_bits
        if len(self.codes) != len(self.steps) + 1:
            raise MappingError(
                f"common steps need a code more than steps, given {len(self.codes)} codes for {len(self.steps)} steps"
            )
        if not 1 <= self.cells_log2 <= 3 or self.cell_bits < 1:
            raise MappingError(
                f"common steps need cells of at least a bit and 2, 4 or 8 of them in a word, "
                f"given {self.cell_bits} bits and {1 << self.cells_log2}"
            )
        if (np.diff(cells) <= 0).any() or cells[0] >> self.cells_log2 < 1:
            raise MappingError(
                f"common steps need at most one step in each cell and none in the first {1 << self.cells_log2} cells, "
                f"given steps in cells {cells.tolist()}; use smaller cells, or move the steps up"
            )

    @property
    def outputs(self) -> int:
        """Channels."""
        return int(self.multiplier.shape[0])

    @cached_property
    def product(self) -> Product:
        """The multiply-add."""
        return Product(self.multiplier, self.addend, self.raw, self.dsp, self.fused)

    @property
    def counts_up(self) -> bool:
        """Whether each code is one more than the one before, so that no memory holds them."""
        return bool((np.diff(self.codes) == 1).all()) and not self.code.bipolar

    @property
    def words(self) -> int:
        """Words of the memory of ranks, a power of two: the first and the last hold what lies beyond all steps."""
        return 1 << (int(self.steps[-1] >> self.cell_bits >> self.cells_log2) + 1).bit_length()

    @property
    def word_range(self) -> tuple[int, int]:
        """(lowest, highest) word that numbers would have without a clamp."""
        shift = self.drop + self.cell_bits + self.cells_log2
        return self.product.range[0] >> shift, self.product.range[1] >> shift

    @property
    def rank_bits(self) -> int:
        """Bits of a count of steps."""
        return len(self.steps).bit_length()

    def ranks(self) -> np.ndarray:
        """Return the memory of ranks, int64 [words]: a bit for each cell, and above them the steps below the word."""
        cells = self.steps >> self.cell_bits
        starts = np.arange(self.words) << self.cells_log2
        bits = np.zeros(self.words, dtype=np.int64)
        np.bitwise_or.at(bits, cells >> self.cells_log2, 1 << (cells & ((1 << self.cells_log2) - 1)))
        return np.searchsorted(cells, starts).astype(np.int64) << (1 << self.cells_log2) | bits

    def places(self) -> np.ndarray:
        """Return the memory of the steps' places in their cells, int64 [count + 1]; the last one is not compared."""
        return np.append(self.steps & ((1 << self.cell_bits) - 1), 0)

    @property
    def latency(self) -> int:
        """Moves from a raw sum to its code."""
        return self.product.latency + 6 + 2 * self.registered + (not self.counts_up)

    @property
    def borders(self) -> np.ndarray:
        """Raw sums at which codes of a channel may change, int64 [outputs, count]."""
        needed = (self.steps << self.drop)[None] - self.addend
        factor = np.where(self.multiplier == 0, 1, self.multiplier)
        rising = -(-needed // factor)  # rounds up
        falling = -needed // -factor + 1
        places = np.where(factor > 0, rising, falling)
        return np.where(self.multiplier == 0, self.raw.low, places)

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        number = (raw * self.multiplier[:, 0] + self.addend[:, 0]) >> self.drop
        return self.codes[np.searchsorted(self.steps, number, side="right")]
