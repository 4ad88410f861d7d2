"""What engines for rows cost: normalization, and the two of a softmax."""

from __future__ import annotations

import numpy as np

from nnhw.engines.normalize import QUOTIENT_BITS, NormConfig
from nnhw.engines.pairwise import PairConfig
from nnhw.engines.rows import RowConfig
from nnhw.engines.softmax import LOGIC_POWERS, PowersConfig, SharesConfig
from nnhw.families import Cost, Family
from nnhw.families.logic import Logic, counter_bits
from nnhw.ir.ops.normalization import MOST_FRACTION_BITS, RECIPROCAL_BITS, ROOT_BITS
from nnhw.ir.types import IntType
from nnhw.mapping.cost.branches import fifo_cost
from nnhw.mapping.cost.constants import Rom
from nnhw.mapping.cost.pairwise import operations_cost
from nnhw.mapping.cost.requantizer import requantizer_cost


def norm_cost(config: NormConfig, family: Family) -> Cost:
    """Return the cost of a normalization: sums and squares, the spread, its root, products with it, the requantizer."""
    logic, lanes, centered = family.logic, config.lanes, config.op.centered
    total, squared, spread = config.total.bits, config.squared.bits, config.spread_bits
    collected = operations_cost(config.squares, family) + _sum(config, config.squares.raw.bits, squared, logic)
    collected += logic.register(2 * (config.squares.levels + config.tree_levels)) + logic.register(squared)
    term = logic.register(squared) if not centered else logic.luts(squared + total) + logic.sum(squared + 2)
    # A comparison of the steps for each end of a phase, and for each bit of the constants.
    steps = 10 + config.length.bit_count() + (config.op.epsilon & ((1 << config.spread_steps) - 1)).bit_count()
    solved = term + logic.luts(spread) + logic.sum(spread) + _root(logic) + logic.luts(2 * steps)
    if centered:
        collected += _sum(config, config.source.bits, total, logic) + logic.register(total)
        solved += logic.luts(config.spread_steps) + logic.state(config.spread_steps)
    constants = RECIPROCAL_BITS * (2 + config.scale_levels) + (total if centered else 0)
    constants += config.shift_levels * (2 + config.scale_levels + config.factor.levels + config.shift_levels // 2)
    distances = lanes * (len(config.factor_digits) - 1 + centered) * logic.sum(config.distance.bits)
    applied = distances + operations_cost(config.factor, family)
    applied += _unread(config.factor, MOST_FRACTION_BITS - config.op.fraction_bits, logic)
    applied += lanes * _rounded(config.factor.raw.bits + config.even_bits, config.most_shifts, config.raw, logic)
    return _requantizing_cost(config, constants, family) + collected + solved + applied


def powers_cost(config: PowersConfig, family: Family) -> Cost:
    """Return the cost of powers: the greatest element, distances, a table for each lane."""
    logic, lanes = family.logic, config.lanes
    bits = config.source.bits + config.source.bipolar
    joined = (lanes - 1) * (logic.comparison(bits) + logic.luts(bits) + logic.state(bits))
    greatest = logic.comparison(bits) + logic.luts(1) + logic.register(3 * bits)
    distance = logic.sum(config.span.bit_length())
    if config.clamped:
        distance += logic.comparison(config.span.bit_length(), constant=True)
        distance += logic.luts(len(config.words).bit_length()) + logic.state(len(config.words).bit_length())
    table = Rom(config.words[:, None] >> np.arange(config.element.bits) & 1, config.in_logic)
    masks = 2 * _flags_cost(config, family) if config.masked else Cost()
    moved = logic.register(config.latency - 1 + 2 * config.tree_levels)
    each = distance + table.cost(family)
    return _row_cost(config, config.element.bits, family) + joined + greatest + moved + lanes * each + masks


def _flags_cost(config: PowersConfig, family: Family) -> Cost:
    """Return the cost of the flags of the elements that are kept, and of where they act."""
    logic, lanes = family.logic, config.lanes
    read = Rom(config.flags, len(config.flags) <= LOGIC_POWERS).cost(family) + logic.counter(len(config.flags))
    return read + lanes * (logic.luts((config.source.bits + config.element.bits) / 2) + logic.register(4))


def shares_cost(config: SharesConfig, family: Family) -> Cost:
    """Return the cost of shares: a sum, its reciprocal, products with it, the requantizer."""
    logic, lanes, total = family.logic, config.lanes, config.total.bits
    collected = _sum(config, config.source.bits, total, logic) + logic.register(2 * config.tree_levels)
    divided = logic.sum(total + 2) + 2 * logic.luts(total) + logic.state(total)
    divided += logic.register(RECIPROCAL_BITS) + logic.counter(config.most_shifts + 1) + logic.luts(6) + logic.state(2)
    constants = RECIPROCAL_BITS + config.shift_levels * (1 + config.factor.levels + config.shift_levels // 2)
    shares = IntType(0, 1 << config.op.bits)
    applied = operations_cost(config.factor, family)
    applied += _unread(config.factor, 2 * MOST_FRACTION_BITS - config.op.bits, logic)
    applied += lanes * _rounded(config.factor.raw.bits, config.most_shifts, shares, logic)
    if config.clamped:
        applied += lanes * (logic.luts(config.op.bits) + logic.state(config.op.bits))
    return _requantizing_cost(config, constants, family) + collected + divided + applied


def _requantizing_cost(config: NormConfig | SharesConfig, constants: int, family: Family) -> Cost:
    """Return the cost of what rows with a requantizer have in common.

    Parameters
    ----------
    constants: bits of the registers in which a row's constants wait for its elements.
    """
    kept = family.logic.register(constants + config.raw_latency)
    requantized = requantizer_cost(config.requantizer, config.raw, config.lanes, True, family)
    return _row_cost(config, config.element.bits, family) + kept + requantized


def _row_cost(config: RowConfig, o_bits: int, family: Family) -> Cost:
    """Return the cost of the buffer, its control, the steps of what is solved, and the output buffer."""
    logic = family.logic
    control = 2 * logic.counter(config.chunks) + logic.counter(config.waiting + 2) + logic.luts(6) + logic.state(5)
    return fifo_cost(config.buffer, family) + control + logic.buffer(config.lanes * o_bits)


def _sum(config: RowConfig, bits: int, total: int, logic: Logic) -> Cost:
    """Return the cost of a sum over a row: a tree over the lanes, and what accumulates."""
    tree = Cost()
    for level in range(config.tree_levels):
        tree += (config.lanes >> level + 1) * logic.sum(bits + level + 1)
    return tree + logic.sum(total) + logic.through(total)


def _root(logic: Logic) -> Cost:
    """Return the cost of the division and of the root of its quotient."""
    divided = logic.sum(ROOT_BITS + 2) + logic.luts(ROOT_BITS)
    rooted = logic.sum(RECIPROCAL_BITS + 3) + logic.luts(RECIPROCAL_BITS + 1) + logic.luts(RECIPROCAL_BITS)
    return divided + rooted + logic.state(RECIPROCAL_BITS) + logic.luts(counter_bits(QUOTIENT_BITS))


def _unread(products: PairConfig, bits: int, logic: Logic) -> Cost:
    """Return, as a negative cost, what is left out of products in logic whose lowest bits nobody reads.

    The lowest bits of a sum pass by its adder, on each level of the tree twice as many: these are not kept. In adders,
    carries are read all the same.
    """
    if products.dsp:
        return Cost()
    passed = sum(min(bits, 1 << level) for level in range(products.levels))
    return -products.lanes * (logic.register(passed) + logic.state(max(0, bits - (1 << products.levels - 1))))


def _rounded(bits: int, most: int, result: IntType, logic: Logic) -> Cost:
    """Return the cost of the shift of one product and of its rounding."""
    total = logic.sum(result.bits)
    for place in range(most.bit_length()):
        width = min(bits, result.bits + (1 << place))
        total += logic.luts(width) + logic.state(width)
    return total
