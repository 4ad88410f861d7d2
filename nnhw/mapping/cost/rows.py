"""What engines for rows cost: normalization."""

from __future__ import annotations

from nnhw.engines.normalize import QUOTIENT_BITS, NormConfig
from nnhw.engines.rows import RowConfig
from nnhw.families import Cost, Family
from nnhw.families.logic import Logic, counter_bits
from nnhw.ir.ops.normalization import RECIPROCAL_BITS, ROOT_BITS
from nnhw.ir.types import IntType
from nnhw.mapping.cost.branches import fifo_cost
from nnhw.mapping.cost.pairwise import operations_cost
from nnhw.mapping.cost.requantizer import requantizer_cost


def norm_cost(config: NormConfig, family: Family) -> Cost:
    """Return the cost of a normalization: sums and squares, the spread, its root, products with it, the requantizer."""
    logic, lanes, centered = family.logic, config.lanes, config.op.centered
    total, squared, spread = config.total.bits, config.squared.bits, config.spread_bits
    collected = operations_cost(config.squares, family) + _sum(config, config.squares.raw.bits, squared, logic)
    collected += logic.register(2 * (config.squares.levels + config.tree_levels)) + logic.register(squared)
    term = logic.register(squared) if not centered else logic.luts(squared + total) + logic.sum(squared + 2)
    solved = term + logic.luts(spread) + logic.sum(spread) + _root(logic)
    if centered:
        collected += _sum(config, config.source.bits, total, logic) + logic.register(total)
        solved += logic.luts(config.spread_steps) + logic.state(config.spread_steps)
    constants = RECIPROCAL_BITS * (2 + config.scale_levels) + (total if centered else 0)
    constants += config.shift_levels * (2 + config.scale_levels + config.factor.levels + config.shift_levels // 2)
    distances = lanes * (len(config.factor_digits) - 1 + centered) * logic.sum(config.distance.bits)
    applied = distances + operations_cost(config.factor, family)
    applied += lanes * _rounded(config.factor.raw.bits, config.most_shifts, config.raw, logic)
    return (
        _row_cost(config, config.raw.bits if config.requantizer is None else config.requantizer.code.bits, family)
        + collected
        + solved
        + logic.register(constants)
        + applied
        + logic.register(config.raw_levels)
        + requantizer_cost(config.requantizer, config.raw, lanes, True, family)
    )


def _row_cost(config: RowConfig, o_bits: int, family: Family) -> Cost:
    """Return the cost of the buffer, its control, the steps of what is solved, and the output buffer."""
    logic = family.logic
    control = 2 * logic.counter(config.chunks) + logic.counter(config.waiting + 2) + logic.luts(6) + logic.state(2)
    return fifo_cost(config.buffer, family) + control + logic.buffer(config.lanes * o_bits)


def _sum(config: RowConfig, bits: int, total: int, logic: Logic) -> Cost:
    """Return the cost of a sum over a row: a tree over the lanes, and what accumulates."""
    tree = Cost()
    for level in range(config.tree_levels):
        tree += (config.lanes >> level + 1) * logic.sum(bits + level + 1)
    return tree + logic.sum(total) + logic.through(total)


def _root(logic: Logic) -> Cost:
    """Return the cost of the division and of the root of its quotient."""
    divided = logic.sum(ROOT_BITS + 2) + logic.through(ROOT_BITS)
    rooted = logic.sum(RECIPROCAL_BITS + 3) + logic.through(RECIPROCAL_BITS + 1) + logic.luts(RECIPROCAL_BITS)
    return divided + rooted + logic.state(RECIPROCAL_BITS) + logic.luts(counter_bits(QUOTIENT_BITS))


def _rounded(bits: int, most: int, result: IntType, logic: Logic) -> Cost:
    """Return the cost of the shift of one product and of its rounding."""
    total = logic.sum(result.bits)
    for place in range(most.bit_length()):
        width = min(bits, result.bits + (1 << place))
        total += logic.luts(width) + logic.state(width)
    return total
