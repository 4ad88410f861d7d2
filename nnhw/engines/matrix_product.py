"""Matrix product engine: cells that add the products of two streams, both of which were computed from the input.

The orders in which the two streams come make it a product of matrices: windows in front of it hold the rows of one
operand and all of the other one, and read them as often as they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.contract import ProductArray, RequantizingConfig
from nnhw.engines.join import JoinedPipelineModel
from nnhw.engines.requantize import Requantizer
from nnhw.errors import MappingError
from nnhw.ir.types import IntType


@dataclass(frozen=True)
class MatrixProductConfig(RequantizingConfig):
    """Parameters of a matrix product engine.

    Parameters
    ----------
    left, right: element types of the two streams; see `factor_type`.
    cells: sums that are added at a time.
    simd: products that a cell adds in a cycle.
    spread: neighbouring cells that multiply by the same elements of the left stream; divides `cells`.
    steps: beats of a sum.
    folds: of a frame: how often all cells have a sum.
    drain: sums that leave in one cycle; divides `cells`, and `cells / drain` is at most `steps`.
    period: number of results after which the channels of the requantizer begin again; a multiple of `drain`.
    requantizer: applied to the sums; None: raw sums leave.
    dsp: products are made in DSP blocks, where `can_use_dsp`.

    A beat of the right stream has `cells * simd` elements, those of a cell next to one another; one of the left stream
    has `cells / spread * simd`.

    Timing: a beat of both streams a cycle; the first result leaves `latency` cycles after the last beat of its sums.
    Range: sums have exactly the bits that the types of the factors need.
    """

    left: IntType
    right: IntType
    cells: int
    simd: int
    spread: int
    steps: int
    folds: int
    drain: int
    period: int
    requantizer: Requantizer | None = None
    dsp: bool = False

    def __post_init__(self) -> None:
        for name, part, of, whole in (
            ("spread", self.spread, "cells", self.cells),
            ("drain", self.drain, "cells", self.cells),
            ("drain", self.drain, "period", self.period),
            ("period", self.period, "sums of a frame,", self.folds * self.cells),
        ):
            if part < 1 or whole % part:
                raise MappingError(f"matrix product engine: {name} {part} must divide {of} {whole}")
        # The drain is loaded again after so many cycles, and must be empty then.
        if self.drains > self.steps:
            raise MappingError(
                f"matrix product engine: draining takes {self.drains} cycles but a sum has only {self.steps}; use a "
                "larger drain"
            )
        if self.arithmetic.kind != "product":
            raise MappingError(f"matrix product engine: no products of {self.left} and {self.right}; see factor_type")
        if self.dsp and not self.arithmetic.can_use_dsp:
            raise MappingError(
                f"DSP blocks make products of integers of at most 8 bits, given {self.left} and {self.right}; use logic"
            )

    @property
    def arithmetic(self) -> LaneArithmetic:
        """The lane arithmetic of the two number formats."""
        return LaneArithmetic(self.left, self.right)

    @property
    def lanes(self) -> tuple[int, int]:
        """Elements of a beat of the left and of the right stream."""
        return self.cells // self.spread * self.simd, self.cells * self.simd

    @property
    def drains(self) -> int:
        """Cycles in which the sums of all cells leave."""
        return self.cells // self.drain

    @property
    def i_beats(self) -> int:
        """Beats of one frame at each input."""
        return self.folds * self.steps

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.folds * self.drains

    @property
    def raw(self) -> IntType:
        """Type of a sum in front of the requantizer."""
        return sum_range(self.left, self.right, self.steps * self.simd)

    @property
    def tree_levels(self) -> int:
        """Register stages from factors to the sum of a beat."""
        return self.arithmetic.dsp_levels(self.simd) if self.dsp else self.arithmetic.tree_levels(self.simd)

    @property
    def raw_latency(self) -> int:
        """Moves from the last beat of a sum to the sum.

        A beat waits in a register, is added up, with those before it, and drained.
        """
        return 1 + self.tree_levels + (self.steps > 1) + 1

    @property
    def bursts(self) -> tuple[int, int]:
        """The sums of all cells leave one behind the other."""
        return self.drains, self.folds

    @property
    def product_array(self) -> ProductArray:
        """All of it; it has no weights."""
        return ProductArray(self.cells, self.simd, 0)

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats int64 [o_beats, drain] of the beats of both inputs (values)."""
        left, right = (np.asarray(x, dtype=np.int64).reshape(self.folds, self.steps, -1, self.simd) for x in beats)
        # Neighbouring cells take the same elements of the left stream.
        raw = (left.repeat(self.spread, axis=2) * right).sum(axis=(1, 3)).reshape(-1, self.period)
        return self.requantized(raw).reshape(-1, self.drain)

    def model(self) -> JoinedPipelineModel:
        """Return the cycle model: of the beats of a sum, the last one gives the results of all cells."""
        return JoinedPipelineModel(2, self.latency, self.steps, self.steps - 1, self.drains)


def sum_range(left: IntType, right: IntType, count: int) -> IntType:
    """Return the range of the sum of so many products of two types."""
    ends = [count * a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    return IntType(min(ends), max(ends))


def factor_type(kind: IntType) -> IntType:
    """Return the type as which a matrix product engine takes an element: bipolar ones and those from -1 on are numbers.

    A type from -1 to at most 1 would be taken for a ternary weight, whose sums are not plain ones.
    """
    return IntType(-2, 1) if kind.bipolar or (kind.low == -1 and kind.high <= 1) else kind
