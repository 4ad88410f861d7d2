"""The parts of engines for rows: normalization, and the two of a softmax."""

from __future__ import annotations

import numpy as np

from nnhw.engines.normalize import QUOTIENT_BITS, NormConfig
from nnhw.engines.pairwise import PairConfig
from nnhw.engines.rows import RowConfig
from nnhw.engines.softmax import LOGIC_POWERS, PowersConfig, SharesConfig
from nnhw.families.parts import (
    NOTHING,
    Inventory,
    comparison,
    constant_comparison,
    counter,
    counter_bits,
    gates,
    luts,
    register,
    registered_sum,
    state,
    stream_buffer,
)
from nnhw.ir.ops.normalization import MOST_FRACTION_BITS, RECIPROCAL_BITS, ROOT_BITS
from nnhw.ir.types import IntType
from nnhw.mapping.cost.branches import fifo_parts
from nnhw.mapping.cost.constants import rom_parts
from nnhw.mapping.cost.pairwise import operation_parts
from nnhw.mapping.cost.requantizer import requantizer_parts


def norm_parts(config: NormConfig) -> Inventory:
    """List sums and squares, the spread, its root, products with it, the requantizer."""
    lanes, centered = config.lanes, config.op.centered
    total, squared, spread = config.total.bits, config.squared.bits, config.spread_bits
    collected = operation_parts(config.squares) + _sum(config, config.squares.raw.bits, squared)
    collected += register(2 * (config.squares.levels + config.tree_levels)) + register(squared)
    term = register(squared) if not centered else luts(squared + total) + registered_sum(squared + 2)
    # A comparison of the steps for each end of a phase, and for each bit of the constants.
    steps = 10 + config.length.bit_count() + (config.op.epsilon & ((1 << config.spread_steps) - 1)).bit_count()
    solved = term + luts(spread) + registered_sum(spread) + _root() + luts(2 * steps)
    if centered:
        collected += _sum(config, config.source.bits, total) + register(total)
        solved += luts(config.spread_steps) + state(config.spread_steps)
    constants = RECIPROCAL_BITS * (2 + config.scale_levels) + (total if centered else 0)
    # The shift belongs to the row and is used level by level: on the way, fewer and fewer of its bits are kept.
    constants += config.shift_levels * (2 + config.scale_levels + config.factor.levels + config.shift_levels // 2)
    distances = lanes * (len(config.factor_digits) - 1 + centered) * registered_sum(config.distance.bits)
    applied = distances + operation_parts(config.factor)
    applied += _unread(config.factor, MOST_FRACTION_BITS - config.op.fraction_bits)
    applied += lanes * _rounded(config.factor.raw.bits + config.even_bits, config.most_shifts, config.raw)
    return _requantizing_parts(config, constants) + collected + solved + applied


def powers_parts(config: PowersConfig) -> Inventory:
    """List the greatest element, distances, a table for each lane."""
    lanes = config.lanes
    bits = config.source.bits + config.source.bipolar
    joined = (lanes - 1) * (comparison(bits) + luts(bits) + state(bits))
    greatest = comparison(bits) + luts(1) + register(3 * bits)
    distance = registered_sum(config.span.bit_length())
    if config.clamped:
        distance += constant_comparison(config.span.bit_length())
        distance += luts(len(config.words).bit_length()) + state(len(config.words).bit_length())
    table = rom_parts(config.words[:, None] >> np.arange(config.element.bits) & 1, config.in_logic)
    masks = 2 * _flags_parts(config) if config.masked else NOTHING
    moved = register(config.latency - 1 + 2 * config.tree_levels)
    each = distance + table
    return _row_parts(config, config.element.bits) + joined + greatest + moved + lanes * each + masks


def _flags_parts(config: PowersConfig) -> Inventory:
    """List the flags of the elements that are kept, and of where they act."""
    lanes = config.lanes
    read = rom_parts(config.flags, len(config.flags) <= LOGIC_POWERS) + counter(len(config.flags))
    return read + lanes * (luts((config.source.bits + config.element.bits) / 2) + register(4))


def shares_parts(config: SharesConfig) -> Inventory:
    """List a sum, its reciprocal, products with it, the requantizer."""
    lanes, total = config.lanes, config.total.bits
    collected = _sum(config, config.source.bits, total) + register(2 * config.tree_levels)
    divided = registered_sum(total + 2) + 2 * luts(total) + state(total)
    divided += register(RECIPROCAL_BITS) + counter(config.most_shifts + 1) + luts(6) + state(2)
    constants = RECIPROCAL_BITS + config.shift_levels * (1 + config.factor.levels + config.shift_levels // 2)
    shares = IntType(0, 1 << config.op.bits)
    applied = operation_parts(config.factor)
    applied += _unread(config.factor, 2 * MOST_FRACTION_BITS - config.op.bits)
    applied += lanes * _rounded(config.factor.raw.bits, config.most_shifts, shares)
    if config.clamped:
        applied += lanes * (luts(config.op.bits) + state(config.op.bits))
    return _requantizing_parts(config, constants) + collected + divided + applied


def _requantizing_parts(config: NormConfig | SharesConfig, constants: int) -> Inventory:
    """List what rows with a requantizer have in common.

    Parameters
    ----------
    constants: bits of the registers in which a row's constants wait for its elements.
    """
    kept = register(constants + config.raw_latency)
    requantized = requantizer_parts(config.requantizer, config.raw, config.lanes)
    return _row_parts(config, config.element.bits) + kept + requantized


def _row_parts(config: RowConfig, o_bits: int) -> Inventory:
    """List the buffer, its control, the steps of what is solved, and the output buffer."""
    control = 2 * counter(config.chunks) + counter(config.waiting + 2) + luts(6) + state(5)
    return fifo_parts(config.buffer) + control + stream_buffer(config.lanes * o_bits)


def _sum(config: RowConfig, bits: int, total: int) -> Inventory:
    """List a sum over a row: a tree over the lanes, and what accumulates."""
    # Each level of the tree halves the numbers, and adds a bit to them.
    tree = NOTHING
    for level in range(config.tree_levels):
        tree += (config.lanes >> level + 1) * registered_sum(bits + level + 1)
    return tree + registered_sum(total) + gates(total)


def _root() -> Inventory:
    """List the division and the root of its quotient."""
    divided = registered_sum(ROOT_BITS + 2) + luts(ROOT_BITS)
    rooted = registered_sum(RECIPROCAL_BITS + 3) + luts(RECIPROCAL_BITS + 1) + luts(RECIPROCAL_BITS)
    return divided + rooted + state(RECIPROCAL_BITS) + luts(counter_bits(QUOTIENT_BITS))


def _unread(products: PairConfig, bits: int) -> Inventory:
    """List, with a negative count, what synthesis leaves out of products in logic whose lowest bits nobody reads.

    The lowest bits of a sum pass by its adder, on each level of the tree twice as many: these are not kept. In adders,
    carries are read all the same.
    """
    if products.dsp:
        return NOTHING
    passed = sum(min(bits, 1 << level) for level in range(products.levels))
    return -products.lanes * (register(passed) + state(max(0, bits - (1 << products.levels - 1))))


def _rounded(bits: int, most: int, result: IntType) -> Inventory:
    """List the shift of one product and its rounding."""
    total = registered_sum(result.bits)
    for place in range(most.bit_length()):
        width = min(bits, result.bits + (1 << place))
        total += luts(width) + state(width)
    return total
