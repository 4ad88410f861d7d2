"""Lane arithmetic: what one dot product of a cell computes, for each pair of number formats.

A cell adds `raw` sums, which are cheaper in logic than the products themselves; the true accumulator is
`multiplier * raw + offset[output]`, with constants that thresholds and drivers absorb.

| activation | weight  | raw                                   | multiplier | offset                 |
|------------|---------|---------------------------------------|------------|------------------------|
| bipolar    | bipolar | number of equal bits (XNOR, popcount) | 2          | -inputs                |
| integer    | bipolar | sum of a where w = +1, else of ~a     | 1          | number of -1 weights   |
| any other  | any     | sum of products                       | 1          | 0                      |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.ir.types import IntType


@dataclass(frozen=True)
class LaneArithmetic:
    """The number formats of one engine.

    Parameters
    ----------
    activation, weight: types of the two factors.
    """

    activation: IntType
    weight: IntType

    @property
    def kind(self) -> str:
        """One of 'xnor', 'select' (add or subtract) and 'product'."""
        if self.weight.bipolar:
            return "xnor" if self.activation.bipolar else "select"
        return "product"

    @property
    def multiplier(self) -> int:
        """The factor from a raw sum to the accumulator."""
        return 2 if self.kind == "xnor" else 1

    def offsets(self, weights: np.ndarray) -> np.ndarray:
        """Return what to add to `multiplier * raw`: int64 [outputs], of weights [outputs, inputs]."""
        if self.kind == "xnor":
            return np.full(len(weights), -weights.shape[1], dtype=np.int64)
        if self.kind == "select":
            return (weights < 0).sum(axis=1).astype(np.int64)
        return np.zeros(len(weights), dtype=np.int64)

    def raw_range(self, weights: np.ndarray) -> tuple[int, int]:
        """Return (lowest, highest) raw sum that any input can give, over all outputs."""
        weights = np.asarray(weights, dtype=np.int64)
        low, high = self.activation.low, self.activation.high
        highest = np.where(weights > 0, weights * high, weights * low).sum(axis=1)
        lowest = np.where(weights > 0, weights * low, weights * high).sum(axis=1)
        offsets = self.offsets(weights)
        return int(((lowest - offsets) // self.multiplier).min()), int(((highest - offsets) // self.multiplier).max())

    def raw_sums(self, activations: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the raw sums int64 [n, outputs] of activations [n, inputs] and weights [outputs, inputs]."""
        sums = np.asarray(activations, dtype=np.int64) @ np.asarray(weights, dtype=np.int64).T
        return (sums - self.offsets(weights)) // self.multiplier

    def tree_levels(self, simd: int) -> int:
        """Return the register stages from the factors to the sum of one beat's lanes."""
        return max(1, (simd - 1).bit_length())
