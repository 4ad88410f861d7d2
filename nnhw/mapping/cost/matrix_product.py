"""The parts of a matrix product engine."""

from __future__ import annotations

from nnhw.engines.matrix_product import MatrixProductConfig
from nnhw.families.parts import NOTHING, Inventory, counter, counter_bits, luts, register, state, stream_buffer
from nnhw.mapping.cost.arithmetic import drained_sum, dsp_sums, lane_products, products_in_dsp
from nnhw.mapping.cost.requantizer import requantizer_parts


def matrix_product_parts(config: MatrixProductConfig) -> Inventory:
    """List registers of both operands, cells, drain, requantizer."""
    raw = config.raw.bits
    left, right = config.lanes
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    sums = dsp_sums if config.dsp else lane_products
    kept = drained_sum(raw, config.drain / config.cells, config.steps)
    blocks = products_in_dsp(config.arithmetic, config.simd) if config.dsp else NOTHING
    total = config.cells * (sums(config.arithmetic, config.simd, raw) + kept + blocks)
    total += register(left * config.left.bits + right * config.right.bits)
    total += stream_buffer(config.drain * o_bits) + _control(config)
    return total + requantizer_parts(config.requantizer, config.raw, config.drain)


def _control(config: MatrixProductConfig) -> Inventory:
    """List the valid bits and the counters of steps and of what drains."""
    total = register(config.tree_levels + 2 + (config.steps > 1)) + counter(config.steps) + luts(4)
    if config.drains > 1:
        total += luts(2 * counter_bits(config.drains) + 1) + state(counter_bits(config.drains))
    return total
