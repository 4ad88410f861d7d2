"""The cost of a shared engine: block RAMs exactly, logic by the parts of which it is made."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.shared import ArrayConfig, StepMemory
from nnhw.engines.shared.array import CELLS_LOG2, Requantizing
from nnhw.families import Cost, Family
from nnhw.families.logic import Logic
from nnhw.mapping.cost.arithmetic import dsp_blocks, dsp_sums, lane_products

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
    """Return the cost of an array's hardware.

    Parameters
    ----------
    spram: whether its memory is in large RAM; else it is in block RAM.
    """
    logic = family.logic
    total = _products(array, family) + _operands(array, logic) + array.lanes * _sums(array, logic)
    total += array.drains * requantizer_cost(array, logic) + _words(array, logic) + _collector(array, logic)
    total += Cost(dsp=array.drains * (array.requantizing == Requantizing.DSP))
    if array.step_memory is not None:
        total += _steps(array, array.step_memory, family)
    control = logic.luts(CONTROL_LUTS) + logic.register(CONTROL_REGISTERS) + logic.state(CONTROL_STATE)
    return total + control + _block_rams(array, family, spram)


def _products(array: ArrayConfig, family: Family) -> Cost:
    """Return the cost of the products of all lanes, and of the trees that add those of a lane."""
    arithmetic, lanes = LaneArithmetic(array.activation, array.weight), array.lanes
    if array.dsp:
        sums = lanes * dsp_sums(arithmetic, array.simd, array.sum_bits, family)
        return sums + Cost(dsp=dsp_blocks(arithmetic, array.products, family))
    # A tree adds the products of one cycle, which are narrower than an accumulated sum.
    narrow = min(array.sum_bits, array.activation_bits + array.weight_bits + array.simd.bit_length())
    mixed = array.dsp_lanes
    trees = (lanes - mixed) * lane_products(arithmetic, array.simd, narrow, family)
    if not mixed:
        return trees
    # Sums from DSP blocks wait for those from logic.
    waits = arithmetic.tree_levels(array.simd) - arithmetic.dsp_levels(array.simd)
    trees += mixed * (dsp_sums(arithmetic, array.simd, narrow, family) + family.logic.register(narrow * waits))
    return trees + Cost(dsp=mixed * dsp_blocks(arithmetic, array.simd, family))


def _operands(array: ArrayConfig, logic: Logic) -> Cost:
    """Return the cost of choosing the code of each product: one of the word, or the border; DSP blocks register it."""
    if array.dsp:
        return logic.luts(array.activation_bits * array.lanes)
    bits = array.activation_bits * (array.lanes + array.simd)
    return logic.luts(bits) + logic.state(bits)


def _sums(array: ArrayConfig, logic: Logic) -> Cost:
    """Return the cost of one lane's accumulator, and of the register from which its sum drains."""
    bits = array.sum_bits
    return logic.sum(bits) + logic.luts(bits) + logic.state(bits)


def _words(array: ArrayConfig, logic: Logic) -> Cost:
    """Return the cost of the register of a word from memory, and of the one in front of the memory's input.

    The latter takes codes of a granule, parts of a beat, or zeros. Where weights are streamed, codes have a register of
    their own.
    """
    written = logic.luts(2 * array.word_bits) + logic.state(max(array.word_bits, array.granule_bits))
    streamed = logic.register(array.word_bits) + logic.luts(STREAM_LC) if array.weight_stream else Cost()
    return logic.register(array.word_bits) + written + streamed


def _collector(array: ArrayConfig, logic: Logic) -> Cost:
    """Return the cost of the shift register of the codes of a granule, with the maximum of codes that come in."""
    bits = array.activation_bits
    most = logic.luts(2 * bits) + logic.comparison(bits) + logic.state(bits)
    return logic.register(array.granule_bits - array.drains * bits) + array.drains * most


def requantizer_cost(array: ArrayConfig, logic: Logic) -> Cost:
    """Return the cost of one requantizer, without block RAMs and DSP blocks."""
    if array.requantizing == Requantizing.STEPS:
        return array.steps * (logic.comparison(array.sum_bits + 1) + logic.state(1)) + logic.luts(STEPS_LC)
    number = max(array.sum_bits + array.factor_bits, array.addend_bits) + 1
    own = logic.luts(_ties_lc(array)) + _finish(array, number, logic)
    if array.requantizing == Requantizing.DSP:
        return own + logic.luts(array.is_magnitude * array.sum_bits)
    return own + _multiply_add(array, number, logic)


@dataclass(frozen=True)
class _Term:
    """A partial sum of a multiply-add: `bits` bits, of which the lowest one counts 2**shift."""

    shift: int
    bits: int


def _multiply_add(array: ArrayConfig, number: int, logic: Logic) -> Cost:
    """Return the cost of sum * factor + addend, `number` bits wide: partial products, their tree, the addend."""
    multiple = array.sum_bits + 1
    total = array.digits * (logic.luts(multiple) + logic.state(multiple))
    terms = [_Term(2 * digit, multiple) for digit in range(array.digits)]
    while len(terms) > 2:
        following = []
        for index in range(0, len(terms), 2):
            low, *high = terms[index : index + 2]
            # The bits below the higher term pass by the adder.
            passed = high[0].shift - low.shift if high else low.bits
            added = max(low.bits - passed, high[0].bits) + 1 if high else 0
            total += logic.register(passed) + (logic.sum(added) if added else Cost())
            following.append(_Term(low.shift, passed + added))
        terms = following
    # Of the last two terms the bits that only the lower one has are added to the addend at once, the others to each
    # other first. Of bits below all shifts only whether there is a one matters.
    passed = terms[-1].shift
    total += logic.sum(min(max(terms[0].bits - passed, terms[-1].bits) + 1, number - passed))
    total += logic.sum(passed + 1) + logic.sum(number - passed)
    return total + logic.register(max(0, passed - array.shifts[0])) + logic.luts(min(passed, array.shifts[0]) / 3)


def _finish(array: ArrayConfig, number: int, logic: Logic) -> Cost:
    """Return the cost of shifting, rounding and clamping a number of `number` bits."""
    code, shifts = array.activation_bits, len(array.shifts)
    chosen = logic.luts(code * (shifts - 1 if shifts <= 2 else 2)) + logic.state(code)
    # Whether the bits above and below a code are all equal: three bits a LUT.
    looked_at = logic.luts((number - array.shifts[0]) / 3) + logic.state(2 * shifts + 1)
    rounded = logic.register(2 * code) + logic.sum(code + 1)
    clamped = 2 * logic.chain(code + 2) + logic.luts(code + 8) + logic.state(8)
    return chosen + looked_at + rounded + clamped


def _ties_lc(array: ArrayConfig) -> float:
    """Return the logic cells with which one requantizer tells ties that round away from zero."""
    if array.tie_bits is None:
        return 0
    least, most = array.tie_bits
    return TIE_LC + TIE_BIT_LC * (most - least + 1) + TIE_SHIFT_LC * len(array.shifts)


def _steps(array: ArrayConfig, memory: StepMemory, family: Family) -> Cost:
    """Return the cost of what fills the step memory, and looks up the steps of all requantizers, without memories."""
    logic, lookups = family.logic, array.drains * _lookup_registers(array, memory)
    held = (array.entry_words - 1) * (array.word_bits + 1)
    control = STEP_CONTROL_LC + memory.word_address_bits + (memory.rows - 1).bit_length()
    index, place, cells = memory.place_address_bits, memory.place_bits, 1 << CELLS_LOG2
    chosen = memory.low_bits * len(array.shifts) / 2 + max(place, array.activation_bits) + array.activation_bits
    added = memory.word_address_bits + 2 * index + place + RANK_LC + cells
    own = control + array.drains * (chosen + added)
    return logic.register(held + lookups) + logic.luts(own) + logic.state(own)


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
