"""The cost of a shared engine: block RAM exactly, logic by a coarse count of its registers and adders."""

from __future__ import annotations

import itertools
from dataclasses import replace

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.shared import ArrayConfig, StepMemory
from nnhw.engines.shared.array import CELLS_LOG2, Requantizing
from nnhw.families import Cost, Family
from nnhw.mapping.cost.arithmetic import dsp_blocks, dsp_sums, lane_products

STEP_ENTRIES, STEP_BITS = 11, 22
"""Entries of the table of address increments, and bits of an entry in addition to those of an address."""
SEQUENCER_LC = 1110
"""Logic cells of descriptor, counters, addresses and loading; fitted to four arrays of 2 to 8 bits with 2,600 to 4,000
logic cells."""
DIGIT_LC = 2.2
"""Logic cells of a requantizer per digit of a factor and bit of a sum: the product and its share of the tree."""
FINISH_LC = 145
"""Logic cells of rounding, clamping and shifting in one requantizer."""
BLOCK_FINISH_LC, CODE_BIT_LC = 15, 12
"""The same behind a DSP block: a constant, and logic cells per bit of a code. Measured with 4 bits: 54 with three
shifts, 72 with four."""
FLIP_FLOPS = 1.0
"""Flip-flops per logic cell, for families that count them apart."""
TIE_LC, TIE_BIT_LC, TIE_SHIFT_LC = 4, 1, 4
"""Logic cells that tell ties which round away from zero: a constant, per bit that not all lanes count, per shift."""
STEP_CONTROL_LC = 25
"""Logic cells of descriptor and sequencer for a step memory."""
RANK_LC = 50
"""Logic cells that count the steps of a word below a cell, and say whether the cell has one."""
STEPS_LC = 5
"""Logic cells that count the steps which a sum has reached."""


ROW_STEP_LC = 30
"""Logic cells that count columns and choose the step to the next row, beside two for each bit of an address: packed, a
descriptor takes 54 more with addresses of 12 bits, and 57 to 60 with 14."""


def array_cost(array: ArrayConfig, family: Family, spram: bool) -> Cost:
    """Return the cost of an array's hardware.

    Parameters
    ----------
    spram: whether its memory is in large RAM; else it is in block RAM.
    """
    total = _lanes(array, family) + _block_rams(array, family, spram) + _sequencing(array, family)
    if family.logic.flip_flop_packs:
        return replace(total, ff=0.0)
    waiting = 0 if array.step_memory is None else array.drains * _lookup_registers(array, array.step_memory)
    return replace(total, ff=FLIP_FLOPS * total.lc + waiting)


def _lanes(array: ArrayConfig, family: Family) -> Cost:
    """Return the cost of products and accumulators, and of the registers of operands and drained sums."""
    arithmetic = LaneArithmetic(array.activation, array.weight)
    lanes, raw = array.lanes, array.sum_bits
    sums = 2 * lanes * raw
    if array.dsp:
        chosen = lanes * array.activation_bits
        blocks = dsp_blocks(arithmetic, array.products, family)
        return Cost(lanes * dsp_sums(arithmetic, array.simd, raw, family).lc + sums + chosen, dsp=blocks)
    # A tree adds the products of one cycle, which are narrower than an accumulated sum.
    narrow = min(raw, array.activation_bits + array.weight_bits + array.simd.bit_length())
    chosen = array.activation_bits * (lanes + array.simd)
    mixed = array.dsp_lanes
    trees = (lanes - mixed) * lane_products(arithmetic, array.simd, narrow, family).lc
    if not mixed:
        return Cost(trees + sums + chosen)
    trees += mixed * (
        dsp_sums(arithmetic, array.simd, narrow, family).lc + _waits_lc(arithmetic, array, narrow, family)
    )
    return Cost(trees + sums + chosen, dsp=mixed * dsp_blocks(arithmetic, array.simd, family))


def _waits_lc(arithmetic: LaneArithmetic, array: ArrayConfig, bits: int, family: Family) -> float:
    """Return the logic cells of the registers in which a sum from DSP blocks waits for those from logic."""
    waits = arithmetic.tree_levels(array.simd) - arithmetic.dsp_levels(array.simd)
    return family.logic.through(bits * waits).lc


def _sequencing(array: ArrayConfig, family: Family) -> Cost:
    """Return the cost of the sequencer, the requantizers and the registers of words from and to memory."""
    words = array.word_bits + family.logic.through(array.granule_bits + array.word_bits).lc
    blocks = array.drains * (array.requantizing == Requantizing.DSP)
    steps = 0.0 if array.step_memory is None else _steps_lc(array, array.step_memory, family)
    rows = array.row_steps * (ROW_STEP_LC + 2 * array.address_bits)
    return Cost(SEQUENCER_LC + array.drains * requantizer_lc(array) + words + steps + rows, dsp=blocks)


def requantizer_lc(array: ArrayConfig) -> float:
    """Return the logic cells of one requantizer."""
    if array.requantizing == Requantizing.STEPS:
        return array.steps * (array.sum_bits + 1) + STEPS_LC
    ties = _ties_lc(array)
    if array.requantizing == Requantizing.DSP:
        return ties + BLOCK_FINISH_LC + CODE_BIT_LC * array.activation_bits + array.is_magnitude * array.sum_bits
    return ties + DIGIT_LC * array.digits * (array.sum_bits + 2) + FINISH_LC


def _ties_lc(array: ArrayConfig) -> float:
    """Return the logic cells with which one requantizer tells ties that round away from zero."""
    if array.tie_bits is None:
        return 0
    least, most = array.tie_bits
    return TIE_LC + TIE_BIT_LC * (most - least + 1) + TIE_SHIFT_LC * len(array.shifts)


def _steps_lc(array: ArrayConfig, memory: StepMemory, family: Family) -> float:
    """Return the logic cells that fill the step memory, and look up the steps of all requantizers."""
    held = (array.entry_words - 1) * (array.word_bits + 1)
    control = STEP_CONTROL_LC + memory.word_address_bits + (memory.rows - 1).bit_length()
    waiting = family.logic.through(held + array.drains * _lookup_registers(array, memory)).lc
    index, place, cells = memory.place_address_bits, memory.place_bits, 1 << CELLS_LOG2
    chosen = memory.low_bits * len(array.shifts) / 2 + max(place, array.activation_bits) + array.activation_bits
    added = memory.word_address_bits + 2 * index + place + RANK_LC + cells
    return waiting + control + array.drains * (chosen + added)


def _lookup_registers(array: ArrayConfig, memory: StepMemory) -> int:
    """Return the registers of a lookup that nothing but another register or a memory is in front of.

    They hold the bits below a word, a cell, its place or a line's code, whether there is a step, the index; and what
    was read. Where no step memory is, the lowest bits of a number are joined to one.
    """
    place, code, index = memory.place_bits, array.activation_bits, memory.place_address_bits
    number = min(array.shifts[0], memory.low_bits)
    waiting = 3 * memory.low_bits + 3 * CELLS_LOG2 + 6 * max(place, code) + 4 * code + 4 + 4 * index
    return number + waiting + memory.rank_bits + place + code


def _step_memories(array: ArrayConfig, family: Family) -> int:
    """Return the block RAMs of ranks, places and codes of all requantizers."""
    memory = array.step_memory
    if memory is None:
        return 0
    sizes = (memory.words, memory.rank_bits), (memory.places, memory.place_bits), (memory.places, array.activation_bits)
    return array.drains * sum(family.block_rams(*size) for size in sizes)


def _block_rams(array: ArrayConfig, family: Family, spram: bool) -> Cost:
    """Return the cost of all memories: constants, weight cache, address increments, and the main memory."""
    constants = sum((_piece(low, high, array, family) for low, high in itertools.pairwise(_constants(array))), Cost())
    cache = _wide(array.rows, 0, array.products * array.weight_bits, array, family)
    steps = _wide(STEP_ENTRIES, 0, array.address_bits + STEP_BITS, array, family)
    if spram:
        memory = Cost(spram=family.large_rams(array.words, array.word_bits) or 0)
    else:
        memory = Cost(ebr=family.block_rams(array.words, array.word_bits, parts=array.slices))
    return constants + Cost(ebr=cache + steps + _step_memories(array, family)) + memory


def _constants(array: ArrayConfig) -> tuple[int, ...]:
    """Return the bits of a lane's constants at which its pieces begin, and the end; each piece has its own memories."""
    addend = array.addend_bits
    if array.requantizing == Requantizing.STEPS:
        return 0, array.constant_bits
    ties = (array.constant_bits,) if array.tie_bits else ()
    if array.requantizing == Requantizing.DSP:
        return 0, addend, addend + array.factor_bits, *ties
    return 0, 1 << (array.digits - 1).bit_length(), array.stored_addend_bits, array.line_bits, *ties


def _piece(low: int, high: int, array: ArrayConfig, family: Family) -> Cost:
    """Return the cost of the memories of bits low..high - 1 of all constants; small ones are in LUTs if possible."""
    if array.drain_cycles == 1:
        return Cost(lc=array.drains * family.logic.through(high - low).lc)
    if array.drain_cycles <= family.lut_ram.words:
        return Cost(lc=array.drains * -(-(high - low) // 4) * family.lut_ram.lc)
    # If single bits can be written, the constants of all lanes that drain together share a memory.
    side, apart = (array.drains, 1) if family.block_ram.write_mask_bits == 1 else (1, array.drains)
    return Cost(ebr=apart * _wide(array.drain_cycles, low, high, array, family, side))


def _wide(rows: int, low: int, high: int, array: ArrayConfig, family: Family, side: int = 1) -> int:
    """Return the block RAMs of bits low..high - 1 of rows that are written word by word, with one memory per word.

    Parameters
    ----------
    side: number of such rows side by side.
    """
    edges = sorted({low, high, *range(0, high, array.word_bits)} - set(range(low)))
    return sum(family.block_rams(rows, side * (end - start)) for start, end in itertools.pairwise(edges))
