"""Lane arithmetic: what the dot product of a cell computes, for each pair of number formats.

A cell adds up `raw` sums, which are cheaper in logic than sums of products; the true accumulator is
`multiplier * raw + offset[output]`, and requantizers and drivers take both constants into theirs. Raw sums depend
neither on the order of the inputs nor on how many of them are in one beat.

| kind    | activation | weight    | raw                                            | multiplier | offset              |
|-------|------------|-----------|------------------------------------------------|------------|---------------------|
| xnor    | bipolar    | bipolar   | number of equal bits (XNOR, popcount)          | 2          | -inputs             |
| select  | integer    | bipolar   | sum of c where w = +1, else of ~c              | 1          | negative + center   |
| ternary | integer    | -1, 0, +1 | sum of c where w = +1, of ~c where w = -1      | 1          | negative + center   |
| gate    | bipolar    | integer   | sum of w where a = +1                          | 2          | -sum of weights     |
| product | integer    | integer   | sum of products                                | 1          | 0                   |

`c` is the activation if that is signed; from an unsigned one of n bits 2**(n - 1) is subtracted, by inverting its top
bit, so that `~c` has n bits as well. `center` stands for 2**(n - 1) times the sum of the output's weights, which makes
up for that; `negative` is the number of its weights below zero, since `~c` is -c - 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.ir.types import IntType

DSP_OPERAND_BITS = 8
"""Bits of the widest factor of products that share a DSP block, in families whose block makes several."""
WIDE_DSP_BITS = 16
"""Bits of the widest factor of a product that takes a DSP block of its own, in any family."""
DSP_LEVELS = 2
"""Register stages of a product in a DSP block: one at its factors, one behind the multiplier."""


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
        """One of 'xnor', 'select' (add or subtract), 'ternary', 'gate' (add or not) and 'product'; see the module."""
        if self.weight.bipolar:
            return "xnor" if self.activation.bipolar else "select"
        if self.activation.bipolar:
            return "gate"
        # -1..0 is ternary as well, in which no weight happens to be +1.
        return "ternary" if self.weight.low == -1 and self.weight.high <= 1 else "product"

    @property
    def multiplier(self) -> int:
        """By what a raw sum is multiplied to get the accumulator, without its offset."""
        return 2 if self.activation.bipolar else 1

    @property
    def planes(self) -> int:
        """Bit planes in which products are added up: the bits of the narrower factor; 1 for kinds without products."""
        # Each lane gives one number here, of which there is only a sign or a complement to choose.
        if self.kind in ("xnor", "select", "ternary"):
            return 1
        return min(self.activation.bits, self.weight.bits)

    @property
    def center(self) -> int:
        """What is subtracted from each activation of 'select' and 'ternary' to make it signed: half of its range."""
        return 0 if self.activation.signed else 1 << (self.activation.bits - 1)

    @property
    def can_use_dsp(self) -> bool:
        """Whether a DSP block makes these products, with raw sums of the same meaning."""
        return self.kind == "product" and max(self.activation.bits, self.weight.bits) <= DSP_OPERAND_BITS

    @property
    def has_tables(self) -> bool:
        """Whether products are looked up: both factors are signed, of two bits, so a product's bit is one LUT4."""
        narrow = self.activation.bits == self.weight.bits == 2
        return self.kind == "product" and narrow and self.activation.signed and self.weight.signed

    def offsets(self, weights: np.ndarray) -> np.ndarray:
        """Return what to add to `multiplier * raw`, int64 [outputs], for weights [outputs, inputs]."""
        weights = np.asarray(weights, dtype=np.int64)
        if self.kind == "xnor":
            return np.full(len(weights), -weights.shape[1], dtype=np.int64)
        if self.kind in ("select", "ternary"):
            return ((weights < 0).sum(axis=1) + self.center * weights.sum(axis=1)).astype(np.int64)
        if self.kind == "gate":
            return -weights.sum(axis=1)
        return np.zeros(len(weights), dtype=np.int64)

    def raw_range(self, weights: np.ndarray) -> tuple[int, int]:
        """Return (lowest, highest) raw sum that any input can give, over all outputs of weights [outputs, inputs]."""
        weights = np.asarray(weights, dtype=np.int64)
        low, high = self.activation.low, self.activation.high
        positive = np.maximum(weights, 0).sum(axis=1)
        negative = weights.sum(axis=1) - positive
        highest, lowest = positive * high + negative * low, positive * low + negative * high
        offsets = self.offsets(weights)
        # The division is exact: with bipolar activations all sums of an output have the parity of its offset.
        return int(((lowest - offsets) // self.multiplier).min()), int(((highest - offsets) // self.multiplier).max())

    def raw_sums(self, activations: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the raw sums int64 [n, outputs] of activations [n, inputs] and weights [outputs, inputs]."""
        # Defined by the true sums, not by what the hardware adds: tests compare the two.
        sums = np.asarray(activations, dtype=np.int64) @ np.asarray(weights, dtype=np.int64).T
        return (sums - self.offsets(weights)) // self.multiplier

    def tree_levels(self, simd: int) -> int:
        """Return the register stages from the factors to the sum of one beat's lanes.

        The levels in which `simd` lanes are added come first, those in which planes are joined follow.
        """
        # A single lane passes one register as well.
        return max(1, (simd - 1).bit_length()) + (self.planes - 1).bit_length()

    def dsp_levels(self, simd: int) -> int:
        """Return the register stages from the factors to the sum of `simd` lanes, with products in DSP blocks."""
        return DSP_LEVELS + (simd - 1).bit_length()
