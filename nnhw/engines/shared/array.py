"""The array of a shared engine: the parameters of its hardware, and with them every limit that programs must keep."""

from __future__ import annotations

import dataclasses
import enum
import json
import zlib
from dataclasses import dataclass
from functools import cached_property

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.errors import MappingError
from nnhw.ir.types import IntType

ENGINE_VERSION = 2
"""Version of the form and meaning of records: it is part of `ArrayConfig.id`, so older programs are refused."""
MOST_SHIFTS = 4
"""Most shifts of an array: a record says with two bits which one it takes."""
MOST_PRODUCT_BITS = 64
"""Most bits of a sum times a factor: the golden functions compute with int64."""
POWERS_OF_TWO = {"lanes": 64, "simd": 64, "weight_bits": 8, "activation_bits": 8, "word_bits": 512}
"""Parameters that must be powers of two, with their highest values."""
DSP_FACTOR_BITS, DSP_NUMBER_BITS = 16, 32
"""Bits of a factor, and of the result, of a DSP block that makes a requantizer's multiplication and addition."""
MOST_TIE_BITS = 31
"""Most fraction bits that tell a tie: as many as the greatest shift of a `DoubleScaler`."""
MOST_PLACE_BITS = 24
"""Most bits of the place of a number in its cell: for arrays from a file, and for what reusable ones have to spare."""
MOST_STEP_BITS = 2
"""Bits of the widest codes of a requantizer that compares a sum with a step for each code."""

CELLS_LOG2 = 4
"""Bits of the number of cells in a word of ranks, see `RankedSteps`: with fewer, some functions need more words than
codes, such as LeakyReLU with a slope of 0.01; and words of 25 bits take no more block RAMs than those of 17."""


@dataclass(frozen=True)
class StepMemory:
    """Memories of steps, into which a program loads functions that are no lines; see `RankedSteps`.

    Parameters
    ----------
    words: of the memory of ranks; a power of two.
    places: steps of all functions, and one more for each; a power of two.
    place_bits: of the place of a number in its cell.
    """

    words: int
    places: int
    place_bits: int

    @property
    def rank_bits(self) -> int:
        """Bits of a word of ranks: the place of the first step from its cells on, and a bit for each cell."""
        return self.place_address_bits + (1 << CELLS_LOG2)

    @property
    def word_address_bits(self) -> int:
        """Bits of the address of a word of ranks."""
        return (self.words - 1).bit_length()

    @property
    def place_address_bits(self) -> int:
        """Bits of the address of a place."""
        return (self.places - 1).bit_length()

    @property
    def low_bits(self) -> int:
        """Bits of a number below its word."""
        return CELLS_LOG2 + self.place_bits

    @property
    def rows(self) -> int:
        """Words of the longer one of the memories."""
        return max(self.words, self.places)

    def misfits(self) -> list[str]:
        """Return what is wrong, in words."""
        sizes = {"words": self.words, "places": self.places}
        problems = [
            f"step memory: {name} must be a power of two of at least 2, given {size}"
            for name, size in sizes.items()
            if size < 2 or size & (size - 1)
        ]
        if not 1 <= self.place_bits <= MOST_PLACE_BITS:
            problems.append(f"step memory: places have 1 to {MOST_PLACE_BITS} bits, given {self.place_bits}")
        return problems


class Requantizing(enum.StrEnum):
    """How hardware makes codes from sums; the codes are those that `Compute` defines in any case."""

    LOGIC = "logic"
    DSP = "dsp"
    STEPS = "steps"


@dataclass(frozen=True)
class ArrayConfig:
    """Parameters of the hardware of a shared engine.

    Parameters
    ----------
    lanes: output channels computed at once; a power of two.
    simd: products of one lane in a cycle, over input channels; a power of two.
    weight_bits, activation_bits: bits of weights and of stored codes, two's complement; powers of two up to 8.
    word_bits, words: bits of a word, and words, of the memory for program, weights and activations, which has one port.
    rows: rows of the weight cache in block RAM; a row has a weight for each product of a cycle.
    sum_bits: bits of an accumulator.
    factor_bits, addend_bits: bits of the requantizer's constants, two's complement.
    shifts: right shifts from which a record chooses, one to four, ascending.
    drains: sums requantized in a cycle; divides `lanes`.
    i_lanes: elements of an input beat.
    dsp: products are made in DSP blocks.
    dsp_lanes: without `dsp`: how many lanes have their products in DSP blocks nevertheless; it does not matter to
        programs.
    requantizing: multiplication and addition in logic or in a DSP block of the iCE40, or comparisons with the steps.
    weight_stream: records of one position may multiply while their weights come, which need no cache then.
    tie_bits: (least, most) fraction bits that tell ties of lanes that round them away from zero; None: no lane does.
    step_memory: of functions that are no lines; None: there are none.
    row_steps: records may store pixels that are apart from one another in a map: there is a step of its own from the
        last pixel of a row to the next row. Upsampling and transposed convolutions need it.
    partial_sums: records may leave their sums in the lanes, where the next one adds to them. Loops need it.

    Raises
    ------
    MappingError: parameters that do not go together; all of them at once.
    """

    lanes: int
    simd: int
    weight_bits: int
    activation_bits: int
    word_bits: int
    words: int
    rows: int
    sum_bits: int
    factor_bits: int
    addend_bits: int
    shifts: tuple[int, ...]
    drains: int = 1
    i_lanes: int = 1
    dsp: bool = False
    requantizing: Requantizing = Requantizing.LOGIC
    dsp_lanes: int = 0
    weight_stream: bool = False
    tie_bits: tuple[int, int] | None = None
    step_memory: StepMemory | None = None
    row_steps: bool = False
    partial_sums: bool = False

    def __hash__(self) -> int:
        """Return the hash of all parameters, which is kept: a search looks arrays up in tables hundreds of times."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in dataclasses.fields(self)))

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be a power of two up to {most}, given {value}"
            for name, most in POWERS_OF_TWO.items()
            if not 0 < (value := getattr(self, name)) <= most or value & (value - 1)
        ]
        # The other checks divide by these parameters.
        if not problems:
            problems = self._misfits()
        if problems:
            raise MappingError("shared engine: " + "; ".join(problems))

    def _misfits(self) -> list[str]:
        problems = []
        if self.simd > self.codes_per_word:
            problems.append(f"simd {self.simd} is more than the {self.codes_per_word} codes of a word")
        # A beat that crossed the end of a word would have to be cut.
        if self.word_bits % (self.i_lanes * self.activation_bits):
            problems.append(f"input beats of {self.i_lanes} elements must divide a word of {self.codes_per_word}")
        if self.lanes % self.drains:
            problems.append(f"drains {self.drains} must divide lanes {self.lanes}")
        problems += self._misfit_shifts() + self._misfit_steps()
        if self.sum_bits + self.factor_bits > MOST_PRODUCT_BITS or self.addend_bits > MOST_PRODUCT_BITS:
            problems.append(
                f"a sum of {self.sum_bits} bits times a factor of {self.factor_bits}, and an addend of "
                f"{self.addend_bits}, must stay within {MOST_PRODUCT_BITS} bits"
            )
        # Each code takes a comparison of its own: 15 for codes of 4 bits.
        if self.requantizing == Requantizing.STEPS and self.activation_bits > MOST_STEP_BITS:
            problems.append(f"requantizers that compare make codes of up to {MOST_STEP_BITS} bits")
        if self.requantizing == Requantizing.DSP and not self.fits_dsp:
            problems.append(
                f"requantizers in DSP blocks take sums of {DSP_FACTOR_BITS} bits, factors of {DSP_FACTOR_BITS + 1}, "
                f"and results of {DSP_NUMBER_BITS}"
            )
        if self.dsp_lanes and (self.dsp or self.dsp_lanes > self.lanes or not self.can_mix):
            problems.append(f"{self.dsp_lanes} of {self.lanes} lanes cannot be in DSP blocks beside others in logic")
        # Streamed weights need two rows: one is used while the next one comes in.
        least = 1 + self.weight_stream
        if self.words < 2 or self.rows < least or self.sum_bits < 2:
            problems.append(f"it needs at least 2 words, {least} row{'s' * (least - 1)} and sums of 2 bits")
        return problems

    def _misfit_shifts(self) -> list[str]:
        problems, shifts = [], self.shifts
        if not 1 <= len(shifts) <= MOST_SHIFTS or list(shifts) != sorted(set(shifts)) or shifts[0] < 0:
            problems.append(f"shifts must be one to {MOST_SHIFTS} ascending numbers, given {shifts}")
        if self.tie_bits and not 1 <= self.tie_bits[0] <= self.tie_bits[1] <= MOST_TIE_BITS:
            problems.append(f"tie bits must be two ascending numbers of 1..{MOST_TIE_BITS}, given {self.tie_bits}")
        return problems

    def _misfit_steps(self) -> list[str]:
        if self.step_memory is None:
            return []
        problems = self.step_memory.misfits()
        if self.requantizing == Requantizing.STEPS:
            problems.append("requantizers that compare have no step memory")
        return problems

    @property
    def weight(self) -> IntType:
        """Type of the weights."""
        return _signed(self.weight_bits)

    @property
    def activation(self) -> IntType:
        """Type of the stored codes."""
        return _signed(self.activation_bits)

    @property
    def products(self) -> int:
        """Products of a cycle."""
        return self.lanes * self.simd

    @property
    def address_bits(self) -> int:
        """Bits of the address of a word."""
        return (self.words - 1).bit_length()

    @property
    def codes_per_word(self) -> int:
        """Activations of a word."""
        return self.word_bits // self.activation_bits

    @property
    def steps_per_word(self) -> int:
        """Steps that the array makes with a full word of activations, in a dense record."""
        return self.codes_per_word // self.simd

    @property
    def granule_bits(self) -> int:
        """Bits of a granule, the codes of all lanes: as much as is stored at once."""
        return self.lanes * self.activation_bits

    @property
    def parts(self) -> int:
        """Words of a granule, if it is longer than a word; else 1."""
        # Both are powers of two, so one of `parts` and `slices` is always 1.
        return max(1, self.granule_bits // self.word_bits)

    @property
    def slices(self) -> int:
        """Granules of a word, if it is longer than a granule; else 1."""
        return max(1, self.word_bits // self.granule_bits)

    @property
    def row_words(self) -> int:
        """Memory words of a row of weights; a row begins with a new word."""
        return -(-self.products * self.weight_bits // self.word_bits)

    @property
    def channelwise_words(self) -> int:
        """Memory words of a row in a channelwise record, which needs the first weight of each lane only."""
        return -(-self.lanes * self.weight_bits // self.word_bits)

    @cached_property
    def constant_lanes(self) -> int:
        """Lanes whose constants share a memory word; they are requantized in the same cycle."""
        # The highest power of two of them that fits a word.
        return min(self.drains, 1 << (max(1, self.word_bits // self.constant_bits).bit_length() - 1))

    @cached_property
    def constant_words(self) -> int:
        """Memory words of the constants of a lane, or of `constant_lanes` lanes that share one."""
        return -(-self.constant_bits // self.word_bits)

    @cached_property
    def constant_bits(self) -> int:
        """Bits of the constants of a lane."""
        if self.requantizing == Requantizing.STEPS:
            return self.steps * (self.sum_bits + 1)
        return self.line_bits + self.tie_code_bits

    @cached_property
    def line_bits(self) -> int:
        """Bits of factor and addend of a lane."""
        if self.requantizing == Requantizing.LOGIC:
            return 2 * self.digits + self.stored_addend_bits
        return self.factor_bits + self.addend_bits

    @cached_property
    def tie_code_bits(self) -> int:
        """Bits of the code for how many fraction bits tell a lane's ties; see `tie_code`."""
        return 0 if self.tie_bits is None else (self.tie_bits[1] - self.tie_bits[0] + 1).bit_length()

    @cached_property
    def digits(self) -> int:
        """Radix-4 digits of the factor of a requantizer in logic, each in -1..2."""
        # One more than in plain radix 4: digits of -1 carry into the next one.
        return self.factor_bits // 2 + 1

    @cached_property
    def stored_addend_bits(self) -> int:
        """Bits of the addend of a requantizer in logic, with the correction for digits of -1; see `records.recode`."""
        return max(self.addend_bits, 2 * self.digits) + 1

    @property
    def steps(self) -> int:
        """Steps of a function that takes every code: one less than there are codes."""
        return (1 << self.activation_bits) - 1

    @property
    def entry_bits(self) -> int:
        """Bits of what a program loads into a row of the step memory: a word of ranks, a place, a code."""
        memory = self.step_memory
        return 0 if memory is None else memory.rank_bits + memory.place_bits + self.activation_bits

    @property
    def entry_words(self) -> int:
        """Memory words of that."""
        return -(-self.entry_bits // self.word_bits)

    @cached_property
    def is_magnitude(self) -> bool:
        """Whether a factor is stored as sign and magnitude: it has a bit more than a DSP block takes."""
        return self.requantizing == Requantizing.DSP and self.factor_bits > DSP_FACTOR_BITS

    @property
    def fits_dsp(self) -> bool:
        """Whether a DSP block may multiply sums with factors and add addends."""
        # The product of two signed numbers has a bit less than both together, unless both are the least ones; the sum
        # with the addend has one more.
        bits = max(self.sum_bits + self.factor_bits - 1, self.addend_bits) + 1
        factors = self.sum_bits <= DSP_FACTOR_BITS and self.factor_bits <= DSP_FACTOR_BITS + 1
        return factors and bits <= DSP_NUMBER_BITS

    @property
    def can_mix(self) -> bool:
        """Whether lanes in DSP blocks can be mixed with lanes in logic: their sums come no later."""
        arithmetic = LaneArithmetic(self.activation, self.weight)
        return arithmetic.can_use_dsp and arithmetic.dsp_levels(self.simd) <= arithmetic.tree_levels(self.simd)

    @property
    def drain_cycles(self) -> int:
        """Cycles in which the sums of all lanes are requantized."""
        return self.lanes // self.drains

    @property
    def id(self) -> int:
        """CRC-32 of all parameters that matter to programs, which name the array that they are made for."""
        fields = dataclasses.asdict(self)
        # It says where products are made, not which: no program sees it.
        del fields["dsp_lanes"]
        for name in ("weight_stream", "tie_bits", "step_memory", "row_steps", "partial_sums"):
            if not fields[name]:  # programs are those of arrays that know nothing of it
                del fields[name]
        # Sorted keys: the order of the fields in this class does not matter.
        document = json.dumps([ENGINE_VERSION, fields], sort_keys=True)
        return zlib.crc32(document.encode())

    def tie_code(self, bits: int) -> int | None:
        """Return the code for the number of bits that tell a lane's ties: 0 for none; None if the array has no code."""
        if not bits:
            return 0
        least, most = self.tie_bits or (1, 0)
        return bits - least + 1 if least <= bits <= most else None

    def chunks(self, channels: int) -> int:
        """Return the memory words of a pixel of `channels` channels."""
        return -(-channels // self.codes_per_word)


def _signed(bits: int) -> IntType:
    return IntType(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
