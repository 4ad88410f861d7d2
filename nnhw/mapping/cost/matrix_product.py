"""What a matrix product engine costs."""

from __future__ import annotations

from nnhw.engines.matrix_product import MatrixProductConfig
from nnhw.families import Cost, Family
from nnhw.families.logic import Logic, counter_bits
from nnhw.mapping.cost.arithmetic import drained_sum, dsp_blocks, dsp_sums, lane_products
from nnhw.mapping.cost.requantizer import requantizer_cost


def matrix_product_cost(config: MatrixProductConfig, family: Family) -> Cost:
    """Return the cost of a matrix product engine: registers of both operands, cells, drain, requantizer."""
    logic, raw = family.logic, config.raw.bits
    left, right = config.lanes
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    sums = dsp_sums if config.dsp else lane_products
    kept = drained_sum(raw, config.drain / config.cells, config.steps, logic)
    total = config.cells * (sums(config.arithmetic, config.simd, raw, family) + kept)
    if config.dsp:
        total += Cost(dsp=config.cells * dsp_blocks(config.arithmetic, config.simd, family))
    total += logic.register(left * config.left.bits + right * config.right.bits)
    total += logic.buffer(config.drain * o_bits) + _control(config, logic)
    return total + requantizer_cost(config.requantizer, config.raw, config.drain, True, family)


def _control(config: MatrixProductConfig, logic: Logic) -> Cost:
    """Return the cost of the valid bits and of the counters of steps and of what drains."""
    total = logic.register(config.tree_levels + 2 + (config.steps > 1)) + logic.counter(config.steps) + logic.luts(4)
    if config.drains > 1:
        total += logic.luts(2 * counter_bits(config.drains) + 1) + logic.state(counter_bits(config.drains))
    return total
