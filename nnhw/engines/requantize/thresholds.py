"""Requantizers that compare a raw sum with steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.engines.requantize.base import codes_of
from nnhw.errors import MappingError
from nnhw.ir.types import IntType


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Comparisons of a raw sum with all steps of its channel at once, in the cycle of the sum.

    Parameters
    ----------
    steps: int64 [outputs, levels - 1], ascending raw sums: how many of them a sum reaches (>=) is its index.
    descending: bool [outputs]: in these channels the index is the number of steps that are not reached.
    code: type of the codes; `code.low` (or -1) is the code of index 0.
    """

    steps: np.ndarray
    descending: np.ndarray
    code: IntType

    @property
    def outputs(self) -> int:
        """Channels."""
        return int(self.steps.shape[0])

    @property
    def latency(self) -> int:
        """0: there is no register between a sum and its code."""
        return 0

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        count = count_reached(self.steps, raw)
        index = np.where(self.descending[None], self.steps.shape[1] - count, count)
        return 2 * index - 1 if self.code.bipolar else index + self.code.low


def count_reached(steps: np.ndarray, raw: np.ndarray) -> np.ndarray:
    """Return int64 [n, outputs]: how many of its channel's ascending steps each raw sum reaches (>=).

    Parameters
    ----------
    steps: int64 [outputs, levels - 1].
    raw: int64 [n, outputs].
    """
    # side="right" counts a sum that equals a step as one that reaches it.
    columns = [np.searchsorted(row, column, side="right") for row, column in zip(steps, raw.T, strict=True)]
    return np.stack(columns, axis=1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class ThresholdSearch:
    """Binary search among the sorted steps of a channel: each level of the search tree has a memory of its own.

    Parameters
    ----------
    steps: int64 [outputs, levels - 1], ascending raw sums.
    descending: bool [outputs]: in these channels the index is the number of steps not reached; all False with a table.
    code: type of the codes.
    raw: range of the raw sums.
    table: code for each count of steps, int64 [outputs, levels]; None: the count is the index of the code.
    logic_words: memories of at most so many words are constants in logic, the others are in block RAM.
    registered: a step waits in a register before it is compared, for where a block RAM takes most of a cycle.

    Timing: `level_moves` for each level of the tree, one move for the result, and one for the table.

    Raises
    ------
    MappingError: the table has another shape, or there is one although a channel descends.
    """

    steps: np.ndarray
    descending: np.ndarray
    code: IntType
    raw: IntType
    table: np.ndarray | None = None
    logic_words: int = 64
    registered: bool = False

    def __post_init__(self) -> None:
        if self.table is not None and (self.table.shape[1] != self.steps.shape[1] + 1 or self.descending.any()):
            raise MappingError(
                f"threshold search with a table needs {self.steps.shape[1] + 1} codes a channel and no channel that "
                f"descends, given {self.table.shape[1]} codes and {int(self.descending.sum())} channels that do"
            )

    @property
    def outputs(self) -> int:
        """Channels."""
        return int(self.steps.shape[0])

    @property
    def levels(self) -> int:
        """Levels of the search tree: comparisons for one sum."""
        # A tree of n levels has room for 2**n - 1 steps.
        return int(self.steps.shape[1]).bit_length()

    @property
    def latency(self) -> int:
        """Moves from a raw sum to its code."""
        return self.levels * self.level_moves + 1 + (self.table is not None)

    @property
    def level_moves(self) -> int:
        """Moves of one level of the tree, 1 or 2."""
        return 1 + self.registered

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        count = count_reached(self.steps, raw)
        if self.table is not None:
            return np.take_along_axis(self.table.T, count, axis=0)
        # A falling channel counts what it has not reached.
        return codes_of(np.where(self.descending[None], self.steps.shape[1] - count, count), self.code)
