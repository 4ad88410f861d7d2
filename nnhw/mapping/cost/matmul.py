"""The cost of a systolic engine."""

from __future__ import annotations

from collections.abc import Iterator

from nnhw.engines.encoding import encode
from nnhw.engines.matmul import LOGIC_ROM_WORDS, MatmulConfig
from nnhw.families import Cost, Family
from nnhw.families.logic import Logic, counter_bits
from nnhw.mapping.cost.arithmetic import drained_sum, dsp_blocks, dsp_sums, lane_products
from nnhw.mapping.cost.constants import Rom
from nnhw.mapping.cost.requantizer import requantizer_cost


def matmul_cost(config: MatmulConfig, family: Family) -> Cost:
    """Return the cost of a systolic engine: products, accumulators, weights, control, and the requantizer."""
    depth, logic = config.folds * config.steps, family.logic
    o_bits = config.thresholds.code.bits if config.thresholds else config.raw.bits
    total = _products(config, depth, family)
    total += config.pe * drained_sum(config.raw.bits, config.drain / config.pe, config.steps, logic) + logic.buffer(
        config.drain * o_bits
    )
    for part in (*_ways(config, depth, logic), *_counters(config, depth, logic)):
        total += part
    if config.dsp_pe < config.pe and config.dsp_pe:
        # Cells in logic and in DSP blocks have trees of different depths; the sums of the shallower ones wait in
        # registers.
        waits = (
            config.tree_levels - config.arithmetic.tree_levels(config.simd),
            config.tree_levels - config.arithmetic.dsp_levels(config.simd),
        )
        total += logic.register(config.raw.bits * (waits[0] * (config.pe - config.dsp_pe) + waits[1] * config.dsp_pe))
    blocks = config.dsp_pe * dsp_blocks(config.arithmetic, config.simd, family) - len(config.pairs)
    total += Cost(dsp=blocks)
    total += _matmul_weights(config, depth, family)
    return total + requantizer_cost(config.thresholds, config.raw, config.drain, config.logic_thresholds, family)


def _products(config: MatmulConfig, depth: int, family: Family) -> Cost:
    """Return the cost of the products of all cells, and of the trees that add them."""
    cells, raw = config.pe - config.dsp_pe, config.raw.bits
    each = lane_products(config.arithmetic, config.simd, raw, family)
    own = Cost(_kept(config, depth, family.logic) * cells * each.lc, ff=cells * each.ff)
    return own + config.dsp_pe * dsp_sums(config.arithmetic, config.simd, raw, family)


def _kept(config: MatmulConfig, depth: int, logic: Logic) -> float:
    """Return the share of the products' logic that synthesis leaves if the weights are constants."""
    # With more than one word of weights, they come from a memory, and are no constants.
    if depth > 1:
        return 1.0
    return logic.constant_chain if config.arithmetic.kind in ("gate", "product", "select") else logic.constant_lut


def _ways(config: MatmulConfig, depth: int, logic: Logic) -> Iterator[Cost]:
    """Yield the cost of passing activations, addresses of weights and control signals from group to group.

    Parameters
    ----------
    depth: words of weights of a cell.
    """
    beat, address = config.simd * config.activation.bits, counter_bits(depth)
    hop = logic.through(beat + address) + logic.luts(3)
    yield config.groups * hop + logic.through(2 * (config.groups + config.tree_levels))
    yield config.late * logic.through(beat + 2)
    # The last group passes nothing on, but needs the address of its weights once more where they are late.
    yield logic.state(beat * (config.late + config.groups) + (config.groups - 1 + (config.late > 0)) * address)
    stages = config.groups + config.late + config.tree_levels
    yield logic.state((2 * stages + 1 + config.groups if config.steps > 1 else stages) + 1)


def _counters(config: MatmulConfig, depth: int, logic: Logic) -> Iterator[Cost]:
    """Yield the cost of the counters of steps, of words of weights, and of drained sums."""
    words = logic.counter(depth)
    # With one fold, one counter serves for both steps and words.
    yield (words if depth > config.steps else logic.luts(words.lc)) + logic.counter(config.steps) + logic.luts(3)
    if config.drains > 1:
        count = counter_bits(config.drains)
        yield logic.luts(2 * count + 2) + logic.state(1 + count)


def _late_weights(config: MatmulConfig, depth: int, family: Family) -> Cost:
    """Return the cost of registers behind memories of weights that are not part of a block RAM or a LUT's cell.

    A registered word is in the block RAM's own output register, unless there is a multiplexer of several block RAMs.
    """
    word = config.simd * config.weight.bits
    in_block = config.pe - config.logic_pe
    parts = -(-depth // LOGIC_ROM_WORDS) if config.split_logic else 0
    # Words in logic have no output register of a block RAM: each part of a ROM has flip-flops of its own.
    late = in_block * -(-config.tail_words // LOGIC_ROM_WORDS)
    if config.registered and not config.tail_words:
        groups = [min(config.hop, in_block - start) for start in range(0, in_block, config.hop)]
        late = sum(cells for cells in groups if family.rom_banks(depth, cells * word) > 1)
    return family.logic.state(word * (config.logic_pe * parts + late))


def _matmul_weights(config: MatmulConfig, depth: int, family: Family) -> Cost:
    """Return the cost of the weights: a memory for each group of cells, or constants in logic."""
    if depth == 1:
        return Cost()
    patterns = encode(config.weights, config.weight).reshape(config.folds, config.pe, config.steps, config.simd)
    words = patterns.transpose(0, 2, 1, 3).reshape(depth, config.pe, config.simd)
    in_block, head = config.pe - config.logic_pe, depth - config.tail_words
    total = _late_weights(config, depth, family)
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
