"""Steps of a function, of which a number is compared with one only: a memory says with which one, by its rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.errors import MappingError


@dataclass(frozen=True, eq=False)
class RankedSteps:
    """A function of one number: code = codes[how many steps are at most the number].

    A number's lowest `cell_bits` bits are its place in a cell, which has at most one step, so the number is compared
    with one. A word of a first memory is for 2**cells_log2 cells: how many steps lie below them, and a bit for each
    cell that has a step. That count and the bits below the cell add up to the address of the step in a second memory,
    which has the lowest `cell_bits` bits of each.

    Parameters
    ----------
    steps: int64 [count], ascending; no two in one cell, none in the first word.
    codes: int64 [count + 1].
    cell_bits, cells_log2: see above.
    """

    steps: np.ndarray
    codes: np.ndarray
    cell_bits: int
    cells_log2: int

    def __post_init__(self) -> None:
        cells = self.steps >> self.cell_bits
        if len(self.codes) != len(self.steps) + 1:
            raise MappingError(
                f"common steps need a code more than steps, given {len(self.codes)} codes for {len(self.steps)} steps"
            )
        if not 1 <= self.cells_log2 <= 4 or self.cell_bits < 1:
            raise MappingError(
                f"common steps need cells of at least a bit and 2, 4, 8 or 16 of them in a word, "
                f"given {self.cell_bits} bits and {1 << self.cells_log2}"
            )
        # The first word stands for all numbers below the steps: where a number is clamped to it, no step must be found.
        if (np.diff(cells) <= 0).any() or cells[0] >> self.cells_log2 < 1:
            raise MappingError(
                f"common steps need at most one step in each cell and none in the first {1 << self.cells_log2} cells, "
                f"given steps in cells {cells.tolist()}; use smaller cells, or move the steps up"
            )

    @property
    def used_words(self) -> int:
        """Words of the memory of ranks; the first and the last hold what lies beyond all steps."""
        return int(self.steps[-1] >> self.word_bits) + 2

    @property
    def word_bits(self) -> int:
        """Bits of a number below those that say its word."""
        return self.cell_bits + self.cells_log2

    @property
    def rank_bits(self) -> int:
        """Bits of a count of steps."""
        return len(self.steps).bit_length()

    def ranks(self, words: int, first: int = 0) -> np.ndarray:
        """Return the memory of ranks, int64 [words]: a bit for each cell, and above them the steps below the word.

        Parameters
        ----------
        first: added to each count.
        """
        cells = self.steps >> self.cell_bits
        starts = np.arange(words) << self.cells_log2
        bits = np.zeros(words, dtype=np.int64)
        # `bitwise_or.at`, as several cells of one word have steps.
        np.bitwise_or.at(bits, cells >> self.cells_log2, 1 << (cells & ((1 << self.cells_log2) - 1)))
        return (np.searchsorted(cells, starts).astype(np.int64) + first) << (1 << self.cells_log2) | bits

    def places(self) -> np.ndarray:
        """Return the memory of the steps' places in their cells, int64 [count + 1]; the last one is not compared."""
        return np.append(self.steps & ((1 << self.cell_bits) - 1), 0)

    def golden(self, numbers: np.ndarray) -> np.ndarray:
        """Return the codes of numbers, int64 of the same shape."""
        found: np.ndarray = self.codes[np.searchsorted(self.steps, numbers, side="right")]
        return found


def reaching(multiplier: np.ndarray, addend: np.ndarray, heights: np.ndarray, lowest: int) -> np.ndarray:
    """Return the sums at which sum * multiplier + addend reaches heights; where it falls, falls below them.

    Parameters
    ----------
    multiplier, addend: int64 [channels, 1].
    heights: int64 [count].
    lowest: what stands for channels whose multiplier is 0.

    Returns
    -------
    int64 [channels, count]: the first sum at or above the height, or below it.
    """
    needed = heights[None] - addend
    factor = np.where(multiplier == 0, 1, multiplier)
    rising, falling = -(-needed // factor), -needed // -factor + 1  # the first rounds up
    return np.where(multiplier == 0, lowest, np.where(factor > 0, rising, falling))
