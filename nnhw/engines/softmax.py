"""Softmax engines: one makes powers of the distances from the greatest element of a row, one behind it their shares."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nnhw.engines.contract import RequantizingConfig
from nnhw.engines.pairwise import PairConfig
from nnhw.engines.requantize import Requantizer
from nnhw.engines.rows import RowConfig
from nnhw.errors import MappingError
from nnhw.ir.ops.normalization import RECIPROCAL_BITS, IntegerSoftmax
from nnhw.ir.types import IntType

LOGIC_POWERS = 32
"""Most words of a table of powers that is made of logic; a longer one takes a block RAM."""


@dataclass(frozen=True, eq=False)
class PowersConfig(RowConfig):
    """Parameters of the first half of a softmax: the power of each element's distance from the greatest one of its row.

    Parameters
    ----------
    table: int64 [distances], powers that never rise; the last one holds for all greater distances.
    keep: bool [rows, length]: the elements that a mask keeps. The power of any other is 0, and it does not count as the
        greatest one of its row. None: all are kept.

    Timing: see `RowConfig`.
    """

    table: np.ndarray
    keep: np.ndarray | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep is not None and (self.keep.shape != (self.rows, self.length) or not self.keep.any(axis=1).all()):
            raise MappingError(
                f"a mask needs the shape [rows, elements], here [{self.rows}, {self.length}], and must keep an element "
                f"of each row; given is one of the shape {list(self.keep.shape)}"
            )

    @property
    def collect_levels(self) -> int:
        """Cycles from a beat to the greatest element."""
        return self.masked + self.tree_levels + 1

    @property
    def solve_cycles(self) -> int:
        """The greatest element is the constant of its row."""
        return 0

    @property
    def span(self) -> int:
        """The greatest distance of two elements."""
        return self.source.high - self.source.low

    @property
    def clamped(self) -> bool:
        """Whether there are distances beyond the table."""
        # Distances beyond the table have its last power.
        return self.span > len(self.words) - 1

    @property
    def words(self) -> np.ndarray:
        """The part of the table for distances that can occur, int64."""
        return self.table[: self.span + 1]

    @property
    def in_logic(self) -> bool:
        """Whether the table is constants in logic."""
        return len(self.words) <= LOGIC_POWERS

    @property
    def masked(self) -> bool:
        """Whether there are elements that are not kept."""
        return self.keep is not None and not bool(self.keep.all())

    @property
    def flags(self) -> np.ndarray:
        """`keep` by beats, 0 or 1, int64 [beats, lanes]: one period of it, where it is periodic."""
        assert self.keep is not None
        beats = self.keep.reshape(-1, self.lanes).astype(np.int64)
        # Whole rows: the counter of flags then begins anew with a row.
        periods = (rows * self.chunks for rows in range(1, self.rows + 1) if self.rows % rows == 0)
        return next(beats[:count] for count in periods if (beats.reshape(-1, count, self.lanes) == beats[:count]).all())

    @property
    def element(self) -> IntType:
        """Type of the powers."""
        return IntType(0, int(self.table[0]))

    @property
    def latency(self) -> int:
        """Moves from the reading of a word to its powers in the output buffer."""
        # The word that is read, the distance, its clamp, the table, the output buffer.
        return 1 + 1 + self.clamped + 1 + 1

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats int64 [rows * chunks, lanes] of the input beats (values)."""
        rows = np.asarray(beats[0], dtype=np.int64).reshape(self.rows, self.length)
        keep = np.ones_like(rows) if self.keep is None else self.keep
        return IntegerSoftmax(0).powers(rows, self.table, keep).reshape(-1, self.lanes)


@dataclass(frozen=True)
class SharesConfig(RequantizingConfig, RowConfig):
    """Parameters of the second half of a softmax: of the powers of a row, the share of each one in their sum.

    Parameters
    ----------
    op: what it computes.
    requantizer: applied to the shares, one row of it for each channel; None: they leave as they are.
    dsp: products are made in DSP blocks.

    Timing: see `RowConfig`. The sum is shifted up, one place a cycle, until its highest bit is 1. Then a constant is
    divided by it, with one bit of the quotient in each cycle.
    Range: the greatest of the powers of each row is 2**15 or more.
    """

    op: IntegerSoftmax
    requantizer: Requantizer | None = None
    dsp: bool = False

    @property
    def factor(self) -> PairConfig:
        """The products of all lanes with the reciprocal of the row."""
        right = IntType(0, (1 << RECIPROCAL_BITS) - 1)
        return PairConfig("product", self.source, right, self.lanes, self.chunks, self.rows, dsp=self.dsp)

    @property
    def total(self) -> IntType:
        """Type of the sum of a row."""
        return IntType(0, self.length * self.source.high)

    @property
    def most_shifts(self) -> int:
        """Most places by which the sum is shifted up, until its highest bit is 1: the sum has 16 bits or more."""
        return self.total.bits - RECIPROCAL_BITS

    @property
    def collect_levels(self) -> int:
        """Cycles from a beat to the sum."""
        return self.tree_levels + 1

    @property
    def solve_cycles(self) -> int:
        """Cycles from the sum to its reciprocal."""
        return self.most_shifts + RECIPROCAL_BITS

    @property
    def shift_levels(self) -> int:
        """Register stages of the shift of a product, which differs from row to row."""
        return self.most_shifts.bit_length()

    @property
    def clamped(self) -> bool:
        """Whether a share can be greater than `op.high`, so that it must be clamped."""
        # A share of 1 is 2**bits, which no limit above it has to clamp.
        return self.op.high < 1 << self.op.bits

    @property
    def raw(self) -> IntType:
        """Type of a share in front of the requantizer."""
        return IntType(0, self.op.high)

    @property
    def raw_latency(self) -> int:
        """Moves from the reading of a word to its shares."""
        return 1 + self.factor.levels + self.shift_levels + 1 + self.clamped

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats int64 [rows * chunks, lanes] of the input beats (values)."""
        rows = np.asarray(beats[0], dtype=np.int64).reshape(-1, self.length)
        # Rows lie along the first axis behind the batch here, whatever the axis of the tensor.
        raw = replace(self.op, axis=0).shares(rows)
        outputs = self.length if self.requantizer is None else self.requantizer.outputs
        return self.requantized(raw.reshape(-1, outputs)).reshape(-1, self.lanes)
