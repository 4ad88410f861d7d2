"""Requantizers: exact integer functions from a raw sum to a code, each with its hardware's latency.

All of them count an *index* from the lowest code up: code = `code.low` + index, or -1 and +1 if the code is bipolar.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from nnhw.engines.encoding import bits_for_range
from nnhw.errors import MappingError
from nnhw.ir.types import IntType

ADDER_BITS = 32
"""Bits that one registered adder adds; a wider sum takes two moves for each addition."""
LOWER_BITS = 24
"""Bits that are added first where an addition takes two moves, and the sum is not much wider than an adder."""
DSP_PIECE_BITS = 15
"""Bits of a factor that one DSP block takes beside a sign: 16 x 16 signed multipliers serve both families."""
FUSED_FACTOR_BITS, FUSED_BITS, FUSED_MOVES = 16, 32, 4
"""Of a DSP block of the iCE40 that multiplies and adds: bits of its factors and of its result, moves that it takes."""


class Requantizer(Protocol):
    """What all requantizers have in common.

    Members
    -------
    code: type of the codes.
    outputs: channels.
    latency: moves from a raw sum to its code; one sum a lane enters in every move.
    """

    @property
    def code(self) -> IntType: ...

    @property
    def outputs(self) -> int: ...

    @property
    def latency(self) -> int: ...

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums int64 [n, outputs]."""
        ...


def codes_of(index: np.ndarray, code: IntType) -> np.ndarray:
    """Return the codes of indices that count from the lowest code up, clamped to the codes there are."""
    index = np.clip(index, 0, index_span(code))
    return 2 * index - 1 if code.bipolar else index + code.low


def index_span(code: IntType) -> int:
    """Return the highest index of a code."""
    return 1 if code.bipolar else code.high - code.low


@dataclass(frozen=True)
class Thresholds:
    """Comparisons that turn a raw sum into a code, all at once, in the cycle of the sum.

    Parameters
    ----------
    steps: int64 [outputs, levels - 1], ascending, in raw sums: how many are reached is the index of the code.
    descending: bool [outputs]: the index counts from the highest code down.
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
        """No register between a sum and its code."""
        return 0

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        count = count_reached(self.steps, raw)
        index = np.where(self.descending[None], self.steps.shape[1] - count, count)
        return 2 * index - 1 if self.code.bipolar else index + self.code.low


def count_reached(steps: np.ndarray, raw: np.ndarray) -> np.ndarray:
    """Return how many steps [outputs, levels - 1] of its channel each raw sum [n, outputs] reaches."""
    columns = [np.searchsorted(row, column, side="right") for row, column in zip(steps, raw.T, strict=True)]
    return np.stack(columns, axis=1).astype(np.int64)


@dataclass(frozen=True)
class ThresholdSearch:
    """Binary search among sorted steps: one level of the tree, and one memory, for each move.

    Parameters
    ----------
    steps: int64 [outputs, levels - 1], ascending, in raw sums.
    descending: bool [outputs]: the index counts from the highest code down; all False where there is a table.
    code: type of the codes.
    raw: range of the raw sums.
    table: code of each count of steps, int64 [outputs, levels]; None: the count is the index of the code.
    logic_words: memories of at most so many words are constants in logic, the others block RAM.

    Timing: one move for each level, one before, and one for the table.
    """

    steps: np.ndarray
    descending: np.ndarray
    code: IntType
    raw: IntType
    table: np.ndarray | None = None
    logic_words: int = 64

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
        """Levels of the search: comparisons of one sum."""
        return int(self.steps.shape[1]).bit_length()

    @property
    def latency(self) -> int:
        """Moves from a raw sum to its code."""
        return self.levels + 1 + (self.table is not None)

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        count = count_reached(self.steps, raw)
        if self.table is not None:
            return np.take_along_axis(self.table.T, count, axis=0)
        return codes_of(np.where(self.descending[None], self.steps.shape[1] - count, count), self.code)


def radix4_digits(values: np.ndarray) -> np.ndarray:
    """Return the digits -1, 0, 1, 2 of integers to the base 4, lowest first: int64 [*shape, digits], at least one.

    Each of these multiples of a number is one LUT4 a bit, and no multiple needs an adder.
    """
    rest = np.asarray(values, dtype=np.int64)
    digits: list[np.ndarray] = []
    while not digits or rest.any():
        digit = ((rest + 1) & 3) - 1
        digits.append(digit)
        rest = (rest - digit) >> 2
    return np.stack(digits, axis=-1)


def tree_depth(operands: int) -> int:
    """Return the levels of a tree of adders."""
    return (operands - 1).bit_length()


def lower_bits(bits: int) -> int:
    """Return how many bits of an addition in two moves are added first; the others are at most `ADDER_BITS`."""
    return min(bits, max(LOWER_BITS, bits - ADDER_BITS))


def pieces(bits: int) -> int:
    """Return into how many pieces a signed factor is cut for DSP blocks."""
    return max(1, -(-(bits - 1) // DSP_PIECE_BITS))


@dataclass(frozen=True)
class Product:
    """The pipelined sum `raw * multiplier[channel] + addend[channel]`, as all multiplying requantizers compute it.

    Parameters
    ----------
    multiplier, addend: int64 [outputs, segments].
    raw: range of the raw sums.
    dsp: multipliers in DSP blocks; else adders in logic, one partial product for each radix-4 digit.
    fused: one DSP block of the iCE40 multiplies and adds.

    Range: no sum exceeds `bits`, so the adders work modulo 2**bits.
    """

    multiplier: np.ndarray = field(repr=False)
    addend: np.ndarray = field(repr=False)
    raw: IntType
    dsp: bool
    fused: bool = False

    @property
    def can_be_fused(self) -> bool:
        """Whether one DSP block of the iCE40 can do all of it."""
        most = int(np.abs(self.multiplier).max())
        fits = self.raw_bits <= FUSED_FACTOR_BITS and most < 1 << FUSED_FACTOR_BITS
        return fits and bits_for_range(min(self.range[0], -1), self.range[1])[0] <= FUSED_BITS

    @property
    def is_magnitude(self) -> bool:
        """Whether a fused product has the multiplier as sign and magnitude: it is wider than the block takes.

        A negative one comes with the complement of the sum, which lacks one multiplier: the addend has it.
        """
        return self.fused and self.multiplier_bits > FUSED_FACTOR_BITS

    @property
    def constants(self) -> tuple[np.ndarray, np.ndarray]:
        """(multipliers, addends), int64 [outputs, segments], as DSP blocks get them: bit patterns."""
        multiplier, addend = self.multiplier, self.addend
        if self.is_magnitude:
            negative = multiplier < 0
            addend = addend - np.where(negative, multiplier, 0)
            multiplier = np.abs(multiplier) | negative.astype(np.int64) << FUSED_FACTOR_BITS
        return multiplier & ((1 << self.multiplier_bits) - 1), addend & ((1 << self.bits) - 1)

    @cached_property
    def range(self) -> tuple[int, int]:
        """(lowest, highest) result over the whole raw range."""
        pairs = set(zip(self.multiplier.ravel().tolist(), self.addend.ravel().tolist(), strict=True))
        ends = [m * x + b for m, b in pairs for x in (self.raw.low, self.raw.high)]
        return min(ends), max(ends)

    @cached_property
    def bits(self) -> int:
        """Width of the result, two's complement."""
        low, high = self.range
        top = self.top_shift + 1
        return max(bits_for_range(min(low, -1), high)[0], top)

    @property
    def top_shift(self) -> int:
        """Weight, as a power of two, of the highest partial product."""
        if self.fused:
            return 0
        if self.dsp:
            return DSP_PIECE_BITS * (pieces(self.raw_bits) + pieces(self.multiplier_bits) - 2)
        return 2 * self.digits.shape[-1] - 2

    @property
    def raw_bits(self) -> int:
        """Width of a raw sum, two's complement."""
        return bits_for_range(min(self.raw.low, -1), self.raw.high)[0]

    @property
    def multiplier_bits(self) -> int:
        """Width of a multiplier, two's complement."""
        return bits_for_range(min(int(self.multiplier.min()), -1), int(self.multiplier.max()))[0]

    @cached_property
    def digits(self) -> np.ndarray:
        """Radix-4 digits [outputs, segments, n] of the multipliers."""
        return radix4_digits(self.multiplier)

    @cached_property
    def operands(self) -> int:
        """Partial products; digits that are zero in every channel have none."""
        if self.fused:
            return 1
        if self.dsp:
            return pieces(self.raw_bits) * pieces(self.multiplier_bits)
        return max(1, int(self.digits.any(axis=(0, 1)).sum()))

    @property
    def levels(self) -> int:
        """Levels of the tree of partial products."""
        return tree_depth(self.operands)

    @cached_property
    def level_moves(self) -> tuple[int, ...]:
        """Moves of each level of the tree: the first ones, in logic, are narrow."""
        widest = [self.raw.bits + 1 + 3 * self.operands_span(1 << level) for level in range(1, self.levels + 1)]
        return tuple(self.moves if self.dsp or bits > ADDER_BITS else 1 for bits in widest)

    def operands_span(self, operands: int) -> int:
        """Return an upper bound of how many digits apart neighbours so many operands from one another lie."""
        used = np.flatnonzero(self.digits.any(axis=(0, 1)))
        return min(operands, len(used)) if len(used) == used.max(initial=-1) - used.min(initial=0) + 1 else 64

    @property
    def moves(self) -> int:
        """Moves of one wide addition."""
        return 1 if self.bits <= ADDER_BITS else 2

    @property
    def latency(self) -> int:
        """Moves: constants, (DSP inputs,) partial products, their tree, the addend; or constants and the DSP block."""
        if self.fused:
            return 1 + FUSED_MOVES
        return 1 + self.dsp + 1 + sum(self.level_moves) + self.moves


@dataclass(frozen=True)
class Scaler:
    """Multiply, add, shift: index = floor((raw * multiplier + addend) / 2**shift) + floor, clamped to floor..ceiling.

    Parameters
    ----------
    multiplier, addend: int64 [outputs, segments].
    shift: of all channels.
    code: type of the codes; the addend holds -((code.low + floor) << shift), so that the result counts from 0.
    raw: range of the raw sums.
    borders: int64 [outputs, segments - 1], ascending: how many are reached chooses the segment.
    dsp: multipliers in DSP blocks.
    logic: constants in logic; else in block RAM.
    floor, ceiling: added to the index, and where it ends, of codes of which not all occur; None: the highest code.
    even, parity: a number without fraction whose sum with the parity is odd counts as one less: the addend holds half
        a unit, so these are the ties of rounding half to even.
    fused: with `dsp`: one DSP block of the iCE40 multiplies and adds.

    Timing: constants and product (two moves more with segments, two with ties), two moves for the clamp.
    """

    multiplier: np.ndarray
    addend: np.ndarray
    shift: int
    code: IntType
    raw: IntType
    borders: np.ndarray
    dsp: bool = False
    logic: bool = True
    floor: int = 0
    ceiling: int | None = None
    even: bool = False
    parity: int = 0
    fused: bool = False

    def __post_init__(self) -> None:
        shape = self.multiplier.shape
        if self.addend.shape != shape or self.borders.shape != (shape[0], shape[1] - 1):
            raise MappingError(
                f"scaler needs multipliers and addends [outputs, segments] and one border less, "
                f"given {shape}, {self.addend.shape} and {self.borders.shape}"
            )
        reject_wide(self.product)
        if self.fused and not self.product.can_be_fused:
            raise MappingError(
                f"one DSP block multiplies and adds numbers of up to {FUSED_FACTOR_BITS} and {FUSED_BITS} bits, given "
                f"{self.product.raw_bits} x {self.product.multiplier_bits} and {self.product.bits}; use several blocks"
            )

    @property
    def outputs(self) -> int:
        """Channels."""
        return int(self.multiplier.shape[0])

    @property
    def span(self) -> int:
        """Highest result of the clamp, which starts from 0."""
        return (index_span(self.code) if self.ceiling is None else self.ceiling) - self.floor

    @property
    def segments(self) -> int:
        """Straight pieces of the function."""
        return int(self.multiplier.shape[1])

    @cached_property
    def product(self) -> Product:
        """The multiply-add."""
        return Product(self.multiplier, self.addend, self.raw, self.dsp, self.fused)

    @property
    def latency(self) -> int:
        """Moves from a raw sum to its code."""
        return 2 * (self.segments > 1) + self.product.latency + 2 * self.even + 2

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        segment = count_reached(self.borders, raw)
        multiplier = np.take_along_axis(self.multiplier.T, segment, axis=0)
        addend = np.take_along_axis(self.addend.T, segment, axis=0)
        total = raw * multiplier + addend
        index = total >> self.shift
        if self.even:
            ties = (total & ((1 << self.shift) - 1)) == 0
            index = index - (ties & ((index + self.parity) % 2 == 1))
        return codes_of(np.clip(index, 0, self.span) + self.floor, self.code)


def reject_wide(product: Product) -> None:
    """Refuse a product beyond 64 bits: neither the golden function nor the adders hold it."""
    if product.bits > 2 * ADDER_BITS:
        raise MappingError(f"scaler needs sums of at most {2 * ADDER_BITS} bits, given {product.bits}; use fewer bits")


HIGH_SHIFT = 31
"""Fraction bits of a multiplier of `DoubleScaler`."""


@dataclass(frozen=True)
class DoubleScaler:
    """Fixed-point requantization that rounds twice.

    high  = (raw * multiplier + addend) >> 31                     the addend holds bias * multiplier + 2**30
    index = high / 2**shift, half away from zero, + offset - code.low, clamped

    Parameters
    ----------
    multiplier, addend: int64 [outputs].
    shift: int64 [outputs], of the second rounding, not negative.
    offset: zero point of the codes.
    code: type of the codes, with the bounds of the fused activation.
    raw: range of the raw sums.
    dsp: multipliers in DSP blocks.
    logic: constants in logic; else in block RAM.

    Timing: product, rounding, one move for each bit of the spread of the shifts, two moves for the clamp.
    Source: gemmlowp fixedpoint.h (SaturatingRoundingDoublingHighMul, RoundingDivideByPOT), as TFLite's reference
    kernels and CMSIS-NN use it; saturation cannot happen, because multipliers are positive.
    """

    multiplier: np.ndarray
    addend: np.ndarray
    shift: np.ndarray
    offset: int
    code: IntType
    raw: IntType
    dsp: bool = False
    logic: bool = True

    def __post_init__(self) -> None:
        if self.shift.min() < 0 or self.shift.max() > HIGH_SHIFT:
            raise MappingError(
                f"double rounding needs right shifts of 0..{HIGH_SHIFT}, "
                f"given {self.shift.min()}..{self.shift.max()}; put a left shift into the multiplier"
            )
        reject_wide(self.product)

    @classmethod
    def of(
        cls, multiplier: np.ndarray, exponent: np.ndarray, bias: np.ndarray, offset: int, code: IntType, raw: IntType
    ) -> DoubleScaler:
        """Return the requantizer of a quantized file's parameters: 2**exponent * multiplier / 2**31, positive = left.

        Parameters
        ----------
        raw: range of the sums to which the bias is not yet added.
        """
        scaled = np.asarray(multiplier, dtype=np.int64) << np.maximum(exponent, 0)
        addend = np.asarray(bias, dtype=np.int64) * scaled + (1 << (HIGH_SHIFT - 1))
        return cls(scaled, addend, np.maximum(-np.asarray(exponent, dtype=np.int64), 0), offset, code, raw)

    @property
    def outputs(self) -> int:
        """Channels."""
        return int(self.multiplier.shape[0])

    @cached_property
    def product(self) -> Product:
        """The multiply-add of the first rounding."""
        return Product(self.multiplier[:, None], self.addend[:, None], self.raw, self.dsp)

    @property
    def high_range(self) -> tuple[int, int]:
        """(lowest, highest) result of the first rounding."""
        low, high = self.product.range
        return low >> HIGH_SHIFT, high >> HIGH_SHIFT

    @property
    def index_range(self) -> tuple[int, int]:
        """(lowest, highest) index before the clamp."""
        ends = np.array([[self.raw.low], [self.raw.high]]).repeat(self.outputs, axis=1)
        index = self._index(ends)
        return int(index.min()), int(index.max())

    @property
    def spread_bits(self) -> int:
        """Bits of the difference between the largest and the smallest shift."""
        return int(self.shift.max() - self.shift.min()).bit_length()

    @property
    def latency(self) -> int:
        """Moves from a raw sum to its code."""
        return self.product.latency + 1 + self.spread_bits + 2

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        return codes_of(self._index(raw), self.code)

    def _index(self, raw: np.ndarray) -> np.ndarray:
        """Return the index, not yet clamped."""
        high = (raw * self.multiplier + self.addend) >> HIGH_SHIFT
        half = (np.int64(1) << self.shift) >> 1
        rounded = (high + half - ((high < 0) & (self.shift > 0))) >> self.shift
        return rounded + self.offset - self.code.low


@dataclass(frozen=True)
class Table:
    """A code for each raw sum, looked up.

    Parameters
    ----------
    codes: int64 [outputs, raw.high - raw.low + 1], or [1, ..] where all channels share one table.
    code: type of the codes.
    raw: range of the raw sums.
    channels: how many there are.
    logic: the table is constants in logic; else in block RAM.

    Timing: one move for the address, one for the memory.
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
        rows = np.zeros(self.channels, dtype=np.int64) if self.shared else np.arange(self.channels)
        return self.codes[rows[None], raw - self.raw.low]
