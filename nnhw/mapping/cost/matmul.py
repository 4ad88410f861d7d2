"""The parts of a systolic engine."""

from __future__ import annotations

from nnhw.engines.encoding import encode
from nnhw.engines.matmul import LOGIC_ROM_WORDS, MatmulConfig
from nnhw.families.parts import (
    NOTHING,
    Inventory,
    Share,
    counter,
    counter_bits,
    counting,
    dsp_blocks,
    gates,
    listed,
    luts,
    register,
    rom_output,
    state,
    stream_buffer,
)
from nnhw.mapping.cost.arithmetic import drained_sum, dsp_sums, lane_products, products_in_dsp
from nnhw.mapping.cost.constants import rom_parts
from nnhw.mapping.cost.inner_product import cell_products, correction_parts
from nnhw.mapping.cost.requantizer import requantizer_parts


def matmul_parts(config: MatmulConfig) -> Inventory:
    """List products, accumulators, weights, control, and the requantizer."""
    depth = config.folds * config.steps
    o_bits = config.thresholds.code.bits if config.thresholds else config.raw.bits
    return listed(
        (
            _products(config, depth),
            config.pe * drained_sum(config.raw.bits, config.drain / config.pe, config.steps),
            stream_buffer(config.drain * o_bits),
            _ways(config, depth),
            _counters(config, depth),
            _waits(config),
            correction_parts(config),
            # Two cells whose products are in one block.
            -len(config.pairs) * dsp_blocks(1),
            _matmul_weights(config, depth),
            requantizer_parts(config.thresholds, config.raw, config.drain, config.logic_thresholds),
        )
    )


def _products(config: MatmulConfig, depth: int) -> Inventory:
    """List the products of all cells, and the trees that add them."""
    raw, in_logic, pairs = config.raw.bits, config.pe - config.dsp_pe, config.pair_products
    if pairs:
        in_dsp = config.dsp_pe * cell_products(pairs, config.simd, raw, dsp=True)
        return in_dsp + in_logic * cell_products(pairs, config.simd, raw, dsp=False)
    own = in_logic * lane_products(config.arithmetic, config.simd, raw)
    # With more than one word of weights, they come from a memory, and are no constants.
    if depth == 1:
        chained = config.arithmetic.kind in ("gate", "product", "select")
        own = own.reduced(Share.CONSTANT_CHAIN if chained else Share.CONSTANT_LUT)
    blocks = dsp_sums(config.arithmetic, config.simd, raw) + products_in_dsp(config.arithmetic, config.simd)
    return own + config.dsp_pe * blocks


def _ways(config: MatmulConfig, depth: int) -> Inventory:
    """List what passes activations, addresses of weights and control signals from group to group.

    Parameters
    ----------
    depth: words of weights of a cell.
    """
    beat, address = config.simd * config.activation.bits, counter_bits(depth)
    stages = config.groups + config.late + config.tree_levels
    hops = gates(config.groups * (beat + address)) + luts(3 * config.groups)
    hops += gates(2 * (config.groups + config.tree_levels)) + gates(config.late * (beat + 2))
    # The last group passes nothing on, but needs the address of its weights once more where they are late.
    hops += state(beat * (config.late + config.groups) + (config.groups - 1 + (config.late > 0)) * address)
    return hops + state((2 * stages + 1 + config.groups if config.steps > 1 else stages) + 1)


def _counters(config: MatmulConfig, depth: int) -> Inventory:
    """List the counters of steps, of words of weights, and of drained sums."""
    # With one fold, one counter serves for both steps and words.
    words = counter(depth) if depth > config.steps else counting(depth)
    total = words + counter(config.steps) + luts(3)
    if config.drains > 1:
        count = counter_bits(config.drains)
        total += luts(2 * count + 2) + state(1 + count)
    return total


def _waits(config: MatmulConfig) -> Inventory:
    """List the registers in which sums wait: cells in logic and in DSP blocks have trees of different depths."""
    in_logic, in_dsp = config.pe - config.dsp_pe, config.dsp_pe
    if not (in_logic and in_dsp):
        return NOTHING
    waits = (config.tree_levels - config.logic_levels) * in_logic + (config.tree_levels - config.dsp_levels) * in_dsp
    return register(config.raw.bits * waits)


def _late_weights(config: MatmulConfig, depth: int) -> Inventory:
    """List registers behind memories of weights that are not part of a block RAM or a LUT's cell."""
    word = config.simd * config.weight.bits
    in_block = config.pe - config.logic_pe
    # Words in logic have no output register of a block RAM: each part of a ROM has flip-flops of its own.
    parts = -(-depth // LOGIC_ROM_WORDS) if config.split_logic else 0
    late = state(word * (config.logic_pe * parts + in_block * -(-config.tail_words // LOGIC_ROM_WORDS)))
    if not config.registered or config.tail_words:
        return late
    groups = (min(config.hop, in_block - start) for start in range(0, in_block, config.hop))
    return late + listed(rom_output(depth, cells * word) for cells in groups)


def _matmul_weights(config: MatmulConfig, depth: int) -> Inventory:
    """List the weights: a memory for each group of cells, or constants in logic."""
    if depth == 1:
        return NOTHING
    patterns = encode(config.weights, config.weight).reshape(config.folds, config.pe, config.steps, config.simd)
    # A word for each fold and step, which has the weights of all cells.
    words = patterns.transpose(0, 2, 1, 3).reshape(depth, config.pe, config.simd)
    in_block, head = config.pe - config.logic_pe, depth - config.tail_words
    found = [_late_weights(config, depth)]
    for start in range(0, config.pe, config.hop):
        end = start + config.hop
        in_logic = words[:, max(start, in_block) : end].reshape(depth, -1)
        if in_logic.shape[1]:
            found.append(rom_parts(in_logic, True))
        if start < in_block:
            block = words[:, start : min(end, in_block)].reshape(depth, -1)
            found.append(rom_parts(block[:head], False))
            if config.tail_words:
                # The LUTs choose between both memories.
                found += [rom_parts(block[head:], True), luts(block.shape[1] * config.weight.bits)]
    return listed(found)
