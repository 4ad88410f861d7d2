"""Pairwise engine: the product, the maximum or the minimum of two streams, element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from nnhw.engines.arithmetic import DSP_LEVELS, DSP_OPERAND_BITS, WIDE_DSP_BITS
from nnhw.engines.contract import RequantizingConfig
from nnhw.engines.join import JoinedPipelineModel
from nnhw.engines.requantize import Requantizer
from nnhw.errors import MappingError
from nnhw.ir.ops.product import product_range
from nnhw.ir.types import BIPOLAR, IntType

OPERATIONS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "product": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
"""The meaning of each operation, element by element."""


@dataclass(frozen=True)
class PairConfig(RequantizingConfig):
    """Parameters of a pairwise engine.

    Parameters
    ----------
    op: 'product', 'maximum' or 'minimum'.
    left, right: element types of the two streams.
    lanes: elements of one beat.
    chunks: beats of one pixel.
    pixels: pixels of one frame.
    requantizer: applied to the results, with constants of its own for each channel of a pixel; None: they leave raw.
    dsp: products are made in DSP blocks, which needs `can_use_dsp`.

    Timing: one beat a cycle; a beat leaves `latency` cycles after both of its inputs are there.
    Range: results have exactly the bits that the types of the operands need.

    Raises
    ------
    MappingError: there is no such op, or a DSP block cannot make it.
    """

    op: str
    left: IntType
    right: IntType
    lanes: int
    chunks: int
    pixels: int
    requantizer: Requantizer | None = None
    dsp: bool = False

    def __post_init__(self) -> None:
        if self.op not in OPERATIONS:
            raise MappingError(f"a pairwise engine has one of the ops {', '.join(OPERATIONS)}, given '{self.op}'")
        if self.dsp and not (self.op == "product" and can_use_dsp(self.left, self.right)):
            raise MappingError(
                f"DSP blocks make products of integers of at most {WIDE_DSP_BITS} bits, given '{self.op}' of "
                f"{self.left} and {self.right}; use logic"
            )

    @property
    def channels(self) -> int:
        """Elements of one pixel."""
        return self.chunks * self.lanes

    @property
    def i_beats(self) -> int:
        """Beats of one frame at each input."""
        return self.pixels * self.chunks

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.i_beats

    @property
    def raw(self) -> IntType:
        """Type of a result in front of the requantizer."""
        return pair_range(self.op, self.left, self.right)

    @property
    def planes(self) -> int:
        """Rows from which a product in logic is added up: the bits of its narrower factor."""
        return min(number_bits(self.left), number_bits(self.right))

    @property
    def levels(self) -> int:
        """Register stages from the elements to a raw result."""
        # The first stage adds the rows in pairs, so a single row takes one stage as well.
        if self.op != "product":
            return 1
        return DSP_LEVELS if self.dsp else max(1, (self.planes - 1).bit_length())

    @property
    def raw_latency(self) -> int:
        """Moves from a beat to its raw results."""
        return self.levels

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats of the beats of both inputs, int64 [pixels * chunks, lanes] (values)."""
        left, right = (np.asarray(x, dtype=np.int64).reshape(-1, self.channels) for x in beats)
        raw = OPERATIONS[self.op](left, right)
        return self.requantized(raw).reshape(-1, self.lanes)

    def model(self) -> JoinedPipelineModel:
        """Return the cycle model."""
        return JoinedPipelineModel(2, self.latency)


def pair_range(op: str, left: IntType, right: IntType) -> IntType:
    """Return the type of the raw results of a pairwise engine, for an op and the types of its operands."""
    if op == "product":
        return product_range(left, right)
    # One bit: the maximum is OR of both, the minimum AND.
    if left.bipolar and right.bipolar:
        return BIPOLAR
    # Maximum and minimum rise with both operands, so the ends of their ranges give the ends of the result's.
    pick = OPERATIONS[op]
    return IntType(int(pick(left.low, right.low)), int(pick(left.high, right.high)))  # type: ignore[arg-type]


def number_bits(element: IntType) -> int:
    """Return the bits of an element as a number: two for a bipolar one, which is -1 or +1."""
    return element.bits + element.bipolar


def can_use_dsp(left: IntType, right: IntType) -> bool:
    """Return whether a DSP block can make products of two types."""
    return max(number_bits(left), number_bits(right)) <= WIDE_DSP_BITS


def needs_whole_dsp(left: IntType, right: IntType) -> bool:
    """Return whether each product of two types takes a DSP block of its own."""
    return max(number_bits(left), number_bits(right)) > DSP_OPERAND_BITS
