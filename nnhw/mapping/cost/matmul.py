"""What a systolic engine costs."""

from __future__ import annotations

from nnhw.engines.encoding import encode
from nnhw.engines.matmul import MatmulConfig
from nnhw.families import Cost, Family
from nnhw.mapping.cost.arithmetic import dsp_blocks, dsp_lc, tree_lc
from nnhw.mapping.cost.constants import Rom
from nnhw.mapping.cost.flip_flops import array_flip_flops, sequence_flip_flops
from nnhw.mapping.cost.requantizer import requantizer_cost
from nnhw.mapping.resources import adder_lc, buffer_lc, chain_lc, counter_bits, counter_lc, register_lc

CONSTANT_WEIGHTS = 0.45
"""Share of the products' logic that is left where each lane has a single weight."""
CONSTANT_IN_CHAIN, CONSTANT_IN_LUT = 0.7, 0.25
"""The same on ECP5, where carry cells that the hardware asks for by name stay."""


def matmul_cost(config: MatmulConfig, family: Family) -> Cost:
    """Return the cost of a systolic engine."""
    depth = config.folds * config.steps
    raw, o_bits = config.raw.bits, config.thresholds.code.bits if config.thresholds else config.raw.bits
    lc = (
        _kept(config, depth, family)
        * (config.pe - config.dsp_pe)
        * tree_lc(config.arithmetic, config.simd, raw, family)
    )
    lc += config.dsp_pe * dsp_lc(config.arithmetic, config.simd, raw, family)
    lc += config.pe * _sum_lc(config, family) + buffer_lc(config.drain * o_bits, family)
    hop = register_lc(config.simd * config.activation.bits + counter_bits(depth), family) + 3
    lc += config.groups * hop + register_lc(2 * (config.groups + config.tree_levels), family)
    lc += config.late * register_lc(config.simd * config.activation.bits + 2, family)
    lc += counter_lc(depth, family) + counter_lc(config.steps, family) + 3
    lc += 2 * counter_bits(config.drains) + 2 if config.drains > 1 else 0
    if config.dsp_pe < config.pe and config.dsp_pe:
        waits = (
            config.tree_levels - config.arithmetic.tree_levels(config.simd),
            config.tree_levels - config.arithmetic.dsp_levels(config.simd),
        )
        lc += register_lc(raw * (waits[0] * (config.pe - config.dsp_pe) + waits[1] * config.dsp_pe), family)
    blocks = config.dsp_pe * dsp_blocks(config.arithmetic, config.simd, family) - len(config.pairs)
    ff = array_flip_flops(config, depth, family) + sequence_flip_flops(config, depth)
    total = Cost(lc, 0, blocks, ff=ff) + _matmul_weights(config, depth, family)
    return total + requantizer_cost(config.thresholds, config.raw, config.drain, config.logic_thresholds, family)


def _kept(config: MatmulConfig, depth: int, family: Family) -> float:
    """Return the share of the products' logic that is left after synthesis knows the weights of a lane."""
    if depth > 1:
        return 1.0
    if family.logic.flip_flop_packs:
        return CONSTANT_WEIGHTS
    return CONSTANT_IN_CHAIN if config.arithmetic.kind in ("gate", "product", "select") else CONSTANT_IN_LUT


def _sum_lc(config: MatmulConfig, family: Family) -> float:
    """Return the logic cells of one cell's accumulator and of its place in the drain.

    The first product of a sum replaces it in the cells of the carry chain. The last cells of the drain have
    no follower, whose sums they would take.
    """
    raw, last = config.raw.bits, config.drain / config.pe
    drain = raw * (1 - last) + register_lc(raw * last, family)
    if config.steps == 1:
        return drain
    return drain + (adder_lc if family.logic.flip_flop_packs else chain_lc)(raw, family)


def _matmul_weights(config: MatmulConfig, depth: int, family: Family) -> Cost:
    """Return the cost of the weights: a memory for each group of cells, or constants in logic."""
    if depth == 1:
        return Cost()
    patterns = encode(config.weights, config.weight).reshape(config.folds, config.pe, config.steps, config.simd)
    words = patterns.transpose(0, 2, 1, 3).reshape(depth, config.pe, config.simd)
    in_block, head = config.pe - config.logic_pe, depth - config.tail_words
    total = Cost()
    for start in range(0, config.pe, config.hop):
        end = start + config.hop
        in_logic = words[:, max(start, in_block) : end].reshape(depth, -1)
        if in_logic.shape[1]:
            total += Rom(in_logic, True).cost(family)
        if start < in_block:
            block = words[:, start : min(end, in_block)].reshape(depth, -1)
            total += Rom(block[:head], False).cost(family)
            if config.tail_words:
                bits = block.shape[1] * config.weight.bits
                total += Rom(block[head:], True).cost(family) + Cost(bits)
    return total
