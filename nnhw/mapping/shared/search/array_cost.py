"""The parts of a shared engine, and what they cost."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.shared import ArrayConfig, StepMemory
from nnhw.engines.shared.array import CELLS_LOG2, Requantizing
from nnhw.families import Cost, Family
from nnhw.families.parts import (
    NOTHING,
    Inventory,
    chain,
    comparison,
    dsp_blocks,
    lane_memory,
    large_ram,
    listed,
    luts,
    memory,
    register,
    registered_sum,
    state,
)
from nnhw.mapping.cost.arithmetic import dsp_sums, lane_products, products_in_dsp

STEP_ENTRIES, STEP_BITS = 11, 22
"""Entries of the table of address increments, and bits of an entry in addition to those of an address."""
CONTROL_LUTS, CONTROL_REGISTERS, CONTROL_STATE = 1020, 70, 635
"""What hardly depends on the array: LUTs, flip-flops that no LUT drives, and flip-flops behind LUTs, of the loader with
its checksum, the descriptor's fields, counters of loops, addresses, the sequencer and transfers.

Measured as what synthesis makes beside all other parts: on the iCE40 1,037 to 1,122 logic cells for six arrays of 2 to
8 bits, on the ECP5 949 and 1,084 LUTs with 689 and 727 flip-flops for two.
"""
TIE_LC, TIE_BIT_LC, TIE_SHIFT_LC = 4, 1, 4
"""Logic cells that tell ties which round away from zero: a constant, per bit that not all lanes count, per shift."""
STREAM_LC = 80
"""Logic cells that read weights between the activations while a record runs; measured with one array of 4 bits."""
STEP_CONTROL_LC = 25
"""Logic cells of descriptor and sequencer for a step memory."""
RANK_LC = 50
"""Logic cells that count the steps of a word below a cell, and say whether the cell has one."""
STEPS_LC = 5
"""Logic cells that count the steps which a sum has reached."""


def array_cost(array: ArrayConfig, family: Family, spram: bool) -> Cost:
    """Return the cost of an array's hardware; see `array_parts`."""
    return family.price(array_parts(array, spram))


def array_parts(array: ArrayConfig, spram: bool) -> Inventory:
    """List the parts of an array.

    Parameters
    ----------
    spram: whether its memory is in large RAM; else it is in block RAM.
    """
    return parts_beside_memory(array) + main_memory(array, array.words, spram)


def parts_beside_memory(array: ArrayConfig) -> Inventory:
    """List the parts of an array without its main memory: they depend on how many words that has by its address."""
    return listed(
        (
            _products(array),
            _operands(array),
            array.lanes * _sums(array),
            array.drains * requantizer_parts(array),
            _words(array),
            _collector(array),
            dsp_blocks(array.drains * (array.requantizing == Requantizing.DSP)),
            NOTHING if array.step_memory is None else _steps(array, array.step_memory),
            luts(CONTROL_LUTS) + register(CONTROL_REGISTERS) + state(CONTROL_STATE),
            _memories(array),
        )
    )


def _products(array: ArrayConfig) -> Inventory:
    """List the products of all lanes, and the trees that add those of a lane."""
    arithmetic, lanes = LaneArithmetic(array.activation, array.weight), array.lanes
    if array.dsp:
        return lanes * dsp_sums(arithmetic, array.simd, array.sum_bits) + products_in_dsp(arithmetic, array.products)
    # A tree adds the products of one cycle, which are narrower than an accumulated sum.
    narrow = min(array.sum_bits, array.activation_bits + array.weight_bits + array.simd.bit_length())
    mixed = array.dsp_lanes
    trees = (lanes - mixed) * lane_products(arithmetic, array.simd, narrow)
    if not mixed:
        return trees
    # Sums from DSP blocks wait for those from logic.
    waits = arithmetic.tree_levels(array.simd) - arithmetic.dsp_levels(array.simd)
    sums = dsp_sums(arithmetic, array.simd, narrow) + register(narrow * waits)
    return trees + mixed * (sums + products_in_dsp(arithmetic, array.simd))


def _operands(array: ArrayConfig) -> Inventory:
    """List the choice of the code of each product: one of the word, or the border; DSP blocks register it."""
    if array.dsp:
        return luts(array.activation_bits * array.lanes)
    bits = array.activation_bits * (array.lanes + array.simd)
    return luts(bits) + state(bits)


def _sums(array: ArrayConfig) -> Inventory:
    """List one lane's accumulator, and the register from which its sum drains."""
    bits = array.sum_bits
    return registered_sum(bits) + luts(bits) + state(bits)


def _words(array: ArrayConfig) -> Inventory:
    """List the register of a word from memory, and the one in front of the memory's input.

    The latter takes codes of a granule, parts of a beat, or zeros. Where weights are streamed, codes have a register of
    their own.
    """
    written = luts(2 * array.word_bits) + state(max(array.word_bits, array.granule_bits))
    streamed = register(array.word_bits) + luts(STREAM_LC) if array.weight_stream else NOTHING
    return register(array.word_bits) + written + streamed


def _collector(array: ArrayConfig) -> Inventory:
    """List the shift register of the codes of a granule, with the maximum of codes that come in."""
    bits = array.activation_bits
    most = luts(2 * bits) + comparison(bits) + state(bits)
    return register(array.granule_bits - array.drains * bits) + array.drains * most


def requantizer_parts(array: ArrayConfig) -> Inventory:
    """List one requantizer, without block RAMs and DSP blocks."""
    if array.requantizing == Requantizing.STEPS:
        return array.steps * (comparison(array.sum_bits + 1) + state(1)) + luts(STEPS_LC)
    number = max(array.sum_bits + array.factor_bits, array.addend_bits) + 1
    own = luts(_ties_lc(array)) + _finish(array, number)
    if array.requantizing == Requantizing.DSP:
        return own + luts(array.is_magnitude * array.sum_bits)
    return own + _multiply_add(array.sum_bits, array.digits, array.shifts[0], number)


@dataclass(frozen=True)
class _Term:
    """A partial sum of a multiply-add: `bits` bits, of which the lowest one counts 2**shift."""

    shift: int
    bits: int


@cache
def _multiply_add(sum_bits: int, digits: int, shift: int, number: int) -> Inventory:
    """List a multiply-add, sum * factor + addend, `number` bits wide: partial products, their tree, the addend.

    Parameters
    ----------
    sum_bits, digits: bits of a sum; digits of a factor, of two bits each.
    shift: the least shift of its result.
    """
    multiple = sum_bits + 1
    total = digits * (luts(multiple) + state(multiple))
    terms = [_Term(2 * digit, multiple) for digit in range(digits)]
    while len(terms) > 2:
        following = []
        for index in range(0, len(terms), 2):
            low, *high = terms[index : index + 2]
            # The bits below the higher term pass by the adder.
            passed = high[0].shift - low.shift if high else low.bits
            added = max(low.bits - passed, high[0].bits) + 1 if high else 0
            total += register(passed) + (registered_sum(added) if added else NOTHING)
            following.append(_Term(low.shift, passed + added))
        terms = following
    # Of the last two terms the bits that only the lower one has are added to the addend at once, the others to each
    # other first. Of bits below all shifts only whether there is a one matters.
    passed = terms[-1].shift
    total += registered_sum(min(max(terms[0].bits - passed, terms[-1].bits) + 1, number - passed))
    total += registered_sum(passed + 1) + registered_sum(number - passed)
    return total + register(max(0, passed - shift)) + luts(min(passed, shift) / 3)


def _finish(array: ArrayConfig, number: int) -> Inventory:
    """List what shifts, rounds and clamps a number of `number` bits."""
    code, shifts = array.activation_bits, len(array.shifts)
    chosen = luts(code * (shifts - 1 if shifts <= 2 else 2)) + state(code)
    # Whether the bits above and below a code are all equal: three bits a LUT.
    looked_at = luts((number - array.shifts[0]) / 3) + state(2 * shifts + 1)
    rounded = register(2 * code) + registered_sum(code + 1)
    clamped = 2 * chain(code + 2) + luts(code + 8) + state(8)
    return chosen + looked_at + rounded + clamped


def _ties_lc(array: ArrayConfig) -> float:
    """Return the logic cells with which one requantizer tells ties that round away from zero."""
    if array.tie_bits is None:
        return 0
    least, most = array.tie_bits
    return TIE_LC + TIE_BIT_LC * (most - least + 1) + TIE_SHIFT_LC * len(array.shifts)


def _steps(array: ArrayConfig, memory: StepMemory) -> Inventory:
    """List what fills the step memory, and looks up the steps of all requantizers, without memories."""
    lookups = array.drains * _lookup_registers(array, memory)
    held = (array.entry_words - 1) * (array.word_bits + 1)
    control = STEP_CONTROL_LC + memory.word_address_bits + (memory.rows - 1).bit_length()
    index, place, cells = memory.place_address_bits, memory.place_bits, 1 << CELLS_LOG2
    chosen = memory.low_bits * len(array.shifts) / 2 + max(place, array.activation_bits) + array.activation_bits
    added = memory.word_address_bits + 2 * index + place + RANK_LC + cells
    own = control + array.drains * (chosen + added)
    return register(held + lookups) + luts(own) + state(own)


def _lookup_registers(array: ArrayConfig, memory: StepMemory) -> int:
    """Return the registers of a lookup that nothing but another register or a memory is in front of.

    They hold the bits below a word, a cell, its place or a line's code, whether there is a step, the index; and what
    was read. Where no step memory is, the lowest bits of a number are joined to one.
    """
    place, code, index = memory.place_bits, array.activation_bits, memory.place_address_bits
    number = min(array.shifts[0], memory.low_bits)
    waiting = 3 * memory.low_bits + 3 * CELLS_LOG2 + 6 * max(place, code) + 4 * code + 4 + 4 * index
    return number + waiting + memory.rank_bits + place + code


def _step_memories(array: ArrayConfig) -> Inventory:
    """List the block RAMs of ranks, places and codes of all requantizers."""
    steps = array.step_memory
    if steps is None:
        return NOTHING
    sizes = (steps.words, steps.rank_bits), (steps.places, steps.place_bits), (steps.places, array.activation_bits)
    return array.drains * listed(memory(*size) for size in sizes)


def main_memory(array: ArrayConfig, words: int, spram: bool) -> Inventory:
    """List the memory for program, weights and activations, of so many words; see `array_parts`."""
    if spram:
        return large_ram(words, array.word_bits)
    # Each slice of a word is written by itself, with the granule that it holds.
    return memory(words, array.word_bits, array.slices)


def _memories(array: ArrayConfig) -> Inventory:
    """List the memories beside the main one: constants, weight cache, address increments."""
    constants = listed(_piece(low, high, array) for low, high in itertools.pairwise(_constants(array)))
    cache = _wide(array.rows, array.products * array.weight_bits, array)
    increments = _wide(STEP_ENTRIES, array.address_bits + STEP_BITS, array)
    return constants + cache + increments + _step_memories(array)


def _constants(array: ArrayConfig) -> tuple[int, ...]:
    """Return the bits of a lane's constants at which its pieces begin, and the end; each piece has its own memories."""
    addend = array.addend_bits
    if array.requantizing == Requantizing.STEPS:
        return 0, array.constant_bits
    ties = (array.constant_bits,) if array.tie_bits else ()
    if array.requantizing == Requantizing.DSP:
        return 0, addend, addend + array.factor_bits, *ties
    return 0, 1 << (array.digits - 1).bit_length(), array.stored_addend_bits, array.line_bits, *ties


def _piece(low: int, high: int, array: ArrayConfig) -> Inventory:
    """List the memories of bits low..high - 1 of all constants, of all lanes that drain together."""
    return lane_memory(array.drain_cycles, low, high, array.word_bits, array.drains)


def _wide(rows: int, bits: int, array: ArrayConfig) -> Inventory:
    """List the block RAMs of rows that are written word by word, with one memory per word."""
    starts = range(0, bits, array.word_bits)
    return listed(memory(rows, min(array.word_bits, bits - start)) for start in starts)
