"""What a systolic engine costs."""

from __future__ import annotations

from collections.abc import Iterator

from nnhw.engines.encoding import encode
from nnhw.engines.matmul import LOGIC_ROM_WORDS, MatmulConfig
from nnhw.families import Cost, Family
from nnhw.families.logic import Logic, counter_bits
from nnhw.mapping.cost.arithmetic import dsp_blocks, dsp_sums, lane_products
from nnhw.mapping.cost.constants import Rom
from nnhw.mapping.cost.requantizer import requantizer_cost


def matmul_cost(config: MatmulConfig, family: Family) -> Cost:
    """Return the cost of a systolic engine."""
    depth, logic = config.folds * config.steps, family.logic
    o_bits = config.thresholds.code.bits if config.thresholds else config.raw.bits
    total = _products(config, depth, family)
    total += config.pe * _accumulator(config, logic) + logic.buffer(config.drain * o_bits)
    for part in (*_ways(config, depth, logic), *_counters(config, depth, logic)):
        total += part
    if config.dsp_pe < config.pe and config.dsp_pe:
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
    """Return the share of the products' logic that is left after synthesis knows the weights of a lane."""
    if depth > 1:
        return 1.0
    return logic.constant_chain if config.arithmetic.kind in ("gate", "product", "select") else logic.constant_lut


def _accumulator(config: MatmulConfig, logic: Logic) -> Cost:
    """Return the cost of one cell's accumulator and of its place in the drain.

    The first product of a sum replaces it in the cells of the carry chain. The last cells of the drain have
    no follower, whose sums they would take.
    """
    raw, last = config.raw.bits, config.drain / config.pe
    drain = logic.luts(raw * (1 - last)) + logic.through(raw * last) + logic.state(raw)
    if config.steps == 1:
        return drain
    return drain + (logic.adder if logic.flip_flop_packs else logic.chain)(raw) + logic.state(raw)


def _ways(config: MatmulConfig, depth: int, logic: Logic) -> Iterator[Cost]:
    """Yield the cost of activations, addresses of weights and signals of the control on their way through an array.

    The last group hands its activations to nobody, and the address of its weights only where they are late.
    """
    beat, address = config.simd * config.activation.bits, counter_bits(depth)
    hop = logic.through(beat + address) + logic.luts(3)
    yield config.groups * hop + logic.through(2 * (config.groups + config.tree_levels))
    yield config.late * logic.through(beat + 2)
    yield logic.state(beat * (config.late + config.groups) + (config.groups - 1 + (config.late > 0)) * address)
    stages = config.groups + config.late + config.tree_levels
    yield logic.state((2 * stages + 1 + config.groups if config.steps > 1 else stages) + 1)


def _counters(config: MatmulConfig, depth: int, logic: Logic) -> Iterator[Cost]:
    """Yield the cost of the counters of steps, of words of weights, and of what drains."""
    words = logic.counter(depth)
    # With one fold, one counter says both.
    yield (words if depth > config.steps else logic.luts(words.lc)) + logic.counter(config.steps) + logic.luts(3)
    if config.drains > 1:
        count = counter_bits(config.drains)
        yield logic.luts(2 * count + 2) + logic.state(1 + count)


def _late_weights(config: MatmulConfig, depth: int, family: Family) -> Cost:
    """Return the flip-flops behind memories of weights, beside those that are in block RAMs or behind LUTs.

    A word that waits is in the block RAM's output register, unless a multiplexer stands between.
    """
    word = config.simd * config.weight.bits
    in_block = config.pe - config.logic_pe
    parts = -(-depth // LOGIC_ROM_WORDS) if config.split_logic else 0
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
