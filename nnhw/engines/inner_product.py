"""Winograd's inner product: one multiplication for two lanes, for factors of many bits.

    (c0 + w1) * (c1 + w0) = c0 * w0 + c1 * w1 + c0 * c1 + w0 * w1

`c` is an activation, made signed (see `nnhw.engines.arithmetic`). A cell adds the left sides of its pairs of lanes.
What they have too much is taken away behind the array: the sum of all `w0 * w1` is a constant of each output, and the
sum of all `c0 * c1` is the same for all outputs that are computed from a beat, so it is made once for all cells. All of
this is added modulo the width of the raw sum, so nothing needs more bits than the result.

Source: S. Winograd, A New Algorithm for Inner Product, IEEE Transactions on Computers C-17, 1968.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.ir.types import IntType

LEAST_BITS = 4
"""Bits of the narrower factor from which on products of pairs may be made together."""


@dataclass(frozen=True)
class InnerProduct:
    """The number formats of the pairs of one engine's lanes.

    Parameters
    ----------
    lanes: the formats of the lanes; see `serves`.
    """

    lanes: LaneArithmetic

    @classmethod
    def serves(cls, lanes: LaneArithmetic, simd: int) -> bool:
        """Return whether products of pairs of lanes can be made together: lanes come in pairs, of integers."""
        narrow = min(lanes.activation.bits, lanes.weight.bits)
        return simd % 2 == 0 and lanes.can_use_dsp and lanes.weight.signed and narrow >= LEAST_BITS

    @cached_property
    def activation(self) -> IntType:
        """Type of an activation that is made signed: of an unsigned one half of its range is taken away."""
        given = self.lanes.activation
        return IntType(given.low - self.lanes.center, given.high - self.lanes.center)

    @cached_property
    def factors(self) -> LaneArithmetic:
        """Formats of the two factors of a pair, each the sum of an activation and a weight."""
        a, w = self.activation, self.lanes.weight
        factor = IntType(a.low + w.low, a.high + w.high)
        return LaneArithmetic(factor, factor)

    @cached_property
    def crossed(self) -> LaneArithmetic:
        """Formats of `c0 * c1`."""
        return LaneArithmetic(self.activation, self.activation)

    def tree_levels(self, simd: int) -> int:
        """Return the register stages from activations and weights to the sum of `simd` lanes, products in logic."""
        return 1 + self.factors.tree_levels(simd // 2)

    def dsp_levels(self, simd: int) -> int:
        """Return the register stages to the sum of `simd` lanes, with products in DSP blocks.

        Adders have registers of their own in front of those of the blocks: weights come from block RAM, and both kinds
        of blocks have their columns of the device, so an adder lies far from one of them.
        """
        return 1 + self.factors.dsp_levels(simd // 2)

    def crossed_levels(self, simd: int) -> int:
        """Return the register stages from activations to the sum of all `c0 * c1`, which are made in logic."""
        return self.crossed.tree_levels(simd // 2)

    def constants(self, weights: np.ndarray) -> np.ndarray:
        """Return what is added to the sum of pairs, int64 [outputs], beside what is taken away for all outputs alike.

        Parameters
        ----------
        weights: int64 [outputs, inputs]; neighbouring inputs are a pair.
        """
        pairs = np.asarray(weights, dtype=np.int64).reshape(len(weights), -1, 2)
        return self.lanes.center * pairs.sum(axis=(1, 2)) - pairs.prod(axis=2).sum(axis=1)
