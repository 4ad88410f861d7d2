"""What a shared engine costs: block RAM exactly, logic by a coarse count of its registers and adders."""

from __future__ import annotations

import itertools

from nnhw.engines.arithmetic import LaneArithmetic, dsp_blocks
from nnhw.engines.shared import ArrayConfig
from nnhw.mapping.cost import dsp_lc, tree_lc
from nnhw.mapping.family import Family
from nnhw.mapping.resources import Cost, register_lc

STEP_ENTRIES, STEP_BITS = 11, 22
"""Entries of the table of what is added to addresses, and bits of an entry beside the address."""
SEQUENCER_LC = 1180
"""Descriptor, counters, addresses, loading; fitted to two packed arrays, of 3,103 and 3,798 logic cells."""
DIGIT_LC = 2.3
"""Logic cells of the requantizer for each digit of a factor and bit of a sum: the product and its share of the tree."""
FINISH_LC = 170
"""Rounding, clamping and shifting of one requantizer."""


def array_cost(array: ArrayConfig, family: Family, spram: bool) -> Cost:
    """Return what the hardware of an array takes.

    Parameters
    ----------
    spram: the memory is in large RAM.
    """
    return _lanes(array, family) + _block_rams(array, family, spram) + _sequencing(array, family)


def _lanes(array: ArrayConfig, family: Family) -> Cost:
    """Return the products, accumulators, and the registers of what is multiplied and of what is drained."""
    arithmetic = LaneArithmetic(array.activation, array.weight)
    lanes, raw = array.lanes, array.sum_bits
    sums = 2 * lanes * raw
    if array.dsp:
        chosen = lanes * array.activation_bits
        blocks = dsp_blocks(arithmetic, array.products, family.name)
        return Cost(lanes * dsp_lc(arithmetic, array.simd, raw, family) + sums + chosen, dsp=blocks)
    narrow = min(raw, array.activation_bits + array.weight_bits + array.simd.bit_length())
    chosen = array.activation_bits * (lanes + array.simd)
    return Cost(lanes * tree_lc(arithmetic, array.simd, narrow, family) + sums + chosen)


def _sequencing(array: ArrayConfig, family: Family) -> Cost:
    """Return the sequencer, the requantizers and the way of words from and to memory."""
    requantizer = DIGIT_LC * (array.factor_bits // 2 + 1) * (array.sum_bits + 2) + FINISH_LC
    words = array.word_bits + register_lc(array.granule_bits + array.word_bits, family)
    return Cost(SEQUENCER_LC + array.drains * requantizer + words)


def _block_rams(array: ArrayConfig, family: Family, spram: bool) -> Cost:
    """Return the memories."""
    digits, addend = array.factor_bits // 2 + 1, array.addend_bits
    ends = (0, min(1 << (digits - 1).bit_length(), addend), addend, addend + array.factor_bits)
    pieces = sum(_wide(array.drain_cycles, low, high, array, family) for low, high in itertools.pairwise(ends))
    constants = array.drains * pieces
    cache = _wide(array.rows, 0, array.products * array.weight_bits, array, family)
    steps = _wide(STEP_ENTRIES, 0, array.address_bits + STEP_BITS, array, family)
    memory = Cost(spram=family.large_rams(array.words, array.word_bits) or 0) if spram else None
    return Cost(ebr=cache + constants + steps) + (memory or Cost(ebr=family.block_rams(array.words, array.word_bits)))


def _wide(rows: int, low: int, high: int, array: ArrayConfig, family: Family) -> int:
    """Return the block RAMs of bits low to high - 1 of what is written a word at a time: one memory for each word."""
    edges = sorted({low, high, *range(0, high, array.word_bits)} - set(range(low)))
    return sum(family.block_rams(rows, end - start) for start, end in itertools.pairwise(edges))
