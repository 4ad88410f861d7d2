"""The requantizer that looks its codes up in a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.errors import MappingError
from nnhw.ir.types import IntType


@dataclass(frozen=True, eq=False)
class Table:
    """A table with a code for each raw sum.

    Parameters
    ----------
    codes: int64 [outputs, raw.high - raw.low + 1], or [1, ..] if all channels share one table; the first column is for
        the lowest sum.
    code: type of the codes.
    raw: range of the raw sums.
    channels: number of channels.
    logic: the table is constants in logic; else in block RAM.

    Timing: one move for the address, one for the memory.

    Raises
    ------
    MappingError: the codes have another shape.
    """

    codes: np.ndarray
    code: IntType
    raw: IntType
    channels: int
    logic: bool = False

    def __post_init__(self) -> None:
        needed = self.raw.high - self.raw.low + 1
        if self.codes.shape not in ((1, needed), (self.channels, needed)):
            raise MappingError(
                f"table of raw sums {self.raw} needs codes [1 or {self.channels}, {needed}], given {self.codes.shape}"
            )

    @property
    def outputs(self) -> int:
        """Channels."""
        return self.channels

    @property
    def shared(self) -> bool:
        """Whether all channels read one table."""
        return len(self.codes) == 1

    @property
    def latency(self) -> int:
        """Moves from a raw sum to its code."""
        return 2

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        # A table for all channels has a single row, which each of them reads.
        rows = np.zeros(self.channels, dtype=np.int64) if self.shared else np.arange(self.channels)
        return self.codes[rows[None], raw - self.raw.low]
