"""What an engine costs: block RAM exactly, logic by a model calibrated on place and route.

The logic model counts what the hardware is made of, register by register; its few factors were fitted to
`yosys` and `nextpnr` runs, see `benchmarks/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnhw.accelerator import EngineConfig
from nnhw.engines.arithmetic import LaneArithmetic, dsp_blocks
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.encoding import encode
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.window import WindowConfig
from nnhw.mapping.family import ICE40, Family
from nnhw.mapping.requantize import requantizer_cost
from nnhw.mapping.resources import Cost, buffer_lc, counter_bits, counter_lc, rom_lc, tree_widths, varying_columns


def cost(config: EngineConfig, family: Family = ICE40) -> Cost:
    """Return the cost of any engine."""
    return _COSTS[type(config)](config, family)


def convert_cost(config: ConvertConfig, family: Family) -> Cost:
    """Return the cost of a width converter."""
    ratio = max(config.i_lanes, config.o_lanes) // min(config.i_lanes, config.o_lanes)
    return Cost(lc=max(config.i_lanes, config.o_lanes) * config.bits + counter_bits(ratio) * 2 + 3)


def pool_cost(config: PoolConfig, family: Family) -> Cost:
    """Return the cost of max pooling: ring and output register, a comparison for each lane."""
    bits = config.lanes * config.element.bits
    compare = 0 if config.element.bipolar else bits * 2
    return Cost(lc=bits * (config.chunks + 1) + compare + counter_lc(config.chunks) + counter_lc(config.taps) + 4)


def window_cost(config: WindowConfig, family: Family) -> Cost:
    """Return the cost of a sliding window: memories, address walk, row bookkeeping."""
    memories = config.row_lanes * family.block_rams(1 << config.address_bits, config.channel_lanes * config.bits)
    nest = config.nest()
    loops = [count for count in nest.counts if count > 1]
    counters = sum(counter_lc(count) + 2 for count in loops)
    address = config.address_bits * (1 + config.row_lanes)
    # A bit of the jump is a function of the flags of the loops.
    kinds = len(set(nest.jumps()))
    jump = config.address_bits * (0.0 if kinds == 1 else 0.5 if kinds == 2 else 0.8)
    freed = max(config.rows_left, config.rows_step)
    rows = (config.rows + config.block_rows + freed).bit_length() + 1
    return Cost(lc=counters + address + jump + 2 * rows + 2 * freed.bit_length() + counter_lc(config.row_words) + 8, ebr=memories)


def pad_cost(config: PadConfig, family: Family) -> Cost:
    """Return the cost of a border: the output register, counters of rows and of beats of a row, each with its flags."""
    counters = sum(
        2 * counter_lc(count) + 4 for count in (config.o_height, config.o_width * config.chunks) if count > 1
    )
    return Cost(lc=config.lanes * config.bits + counters + 6)


def fork_cost(config: ForkConfig, family: Family) -> Cost:
    """Return the cost of a fork: one register, and a bit for each output."""
    return Cost(lc=config.lanes * config.bits + 2 * config.outputs + 2)


def fifo_cost(config: FifoConfig, family: Family) -> Cost:
    """Return the cost of a FIFO: a memory with two addresses and a level, or registers."""
    if config.depth == 1:
        return Cost(lc=config.width + 2)
    if config.depth == 2:
        return Cost(lc=buffer_lc(config.width))
    counters = 2 * counter_lc(config.words) + 3 * counter_bits(config.words + 1) + 6
    if config.in_block_ram:
        return Cost(lc=counters, ebr=family.block_rams(config.words, config.width))
    return Cost(lc=counters + config.words * (config.width * 1.5 + 1) + config.width)


def concat_cost(config: ConcatConfig, family: Family) -> Cost:
    """Return the cost of a concatenation: a register behind a multiplexer, a counter."""
    inputs = len(config.chunks)
    return Cost(lc=config.lanes * config.bits * (inputs + 1) / 2 + 2 * counter_bits(max(config.chunks)) + 3 * inputs + 4)


def sum_cost(config: SumConfig, family: Family) -> Cost:
    """Return the cost of a weighted sum: an adder for each term, the output buffer, the requantizer."""
    raw, lanes = config.raw.bits, config.lanes
    widths = [config.inputs[index].bits + config.inputs[index].bipolar + shift for index, shift, _ in config.terms]
    adders = lanes * sum(min(width, raw) for level in tree_widths(widths) for width in level)
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    own = Cost(lc=adders + buffer_lc(lanes * o_bits) + config.tree_levels + len(config.inputs))
    return own + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def channelwise_cost(config: ChannelwiseConfig, family: Family) -> Cost:
    """Return the cost of a channelwise engine: products, their tree, the ring of results, the requantizer."""
    lanes, raw = config.lanes, config.raw.bits
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    lc = buffer_lc(lanes * o_bits) + config.raw_latency + lanes * _channel_lc(config)
    total = Cost(lc)
    if config.steps > 1:
        total += Cost(lanes * raw * (2 if config.op == "max" else 1) + counter_lc(config.chunks) + counter_lc(config.steps) + 3)
        if config.ring_in_memory:
            addresses = counter_lc(config.chunks) + 2 * counter_bits(config.chunks) + 1
            total += Cost(addresses, family.block_rams(config.chunks, lanes * raw))
        else:
            total += Cost(lanes * raw * max(0, config.chunks - 1))
    if config.weight is not None:
        depth, width = config.steps * config.chunks, config.i_lanes * config.weight.bits
        total += Cost(counter_lc(depth) + config.i_lanes * config.activation.bits)
        if config.logic_weights:
            total += Cost(rom_lc(depth, width))
        else:
            total += Cost(0, family.block_rams(depth, _channel_columns(config), rom=True))
    dsp = lanes * dsp_blocks(config.arithmetic, config.row_lanes, family.name) if config.dsp else 0
    return total + Cost(0, 0, dsp) + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def _channel_lc(config: ChannelwiseConfig) -> float:
    """Return the logic cells of the tree over the taps of one beat, for one lane."""
    raw, taps = config.raw.bits, config.row_lanes
    if config.op == "dot":
        return (dsp_lc if config.dsp else tree_lc)(config.arithmetic, taps, raw)
    bits = config.activation.bits
    if config.op == "max":
        return 2.0 * bits * (taps - 1)
    return float(sum(min(width, raw) for level in tree_widths([bits] * taps) for width in level))


def _channel_columns(config: ChannelwiseConfig) -> int:
    """Return the bits of a word of weights that are not constant."""
    assert config.weight is not None
    shape = (config.chunks, config.lanes, config.steps, config.row_lanes)
    patterns = encode(config.factors, config.weight).reshape(shape).transpose(2, 0, 3, 1)
    return varying_columns(patterns.reshape(config.steps * config.chunks, config.i_lanes))


def tree_lc(arithmetic: LaneArithmetic, simd: int, raw: int) -> float:
    """Return the logic cells of the products of one cell's lanes and of the tree that adds them.

    The operands of an adder's carry chain are signals, so that what gates or inverts the first of the two takes LUTs
    of its own; the gate of the second one is in the cells of the chain (see `nnhw.hdl.carry`).

    Parameters
    ----------
    raw: bits of the raw sum: what lies above is left out.
    """
    kind, a, w = arithmetic.kind, arithmetic.activation.bits, arithmetic.weight.bits
    pairs = simd // 2
    if kind == "xnor" or (a == 1 and w == 1):
        return _plane_lc(1, simd, raw)
    if kind == "select":
        return pairs * (a + 2) + _plane_lc(a, simd, raw)
    if kind == "ternary":
        return 2 * pairs * a + _plane_lc(a, simd, raw)
    planes, bits = arithmetic.planes, w if w >= a else a
    total = sum(pairs * min(bits, raw - plane) + _plane_lc(bits, simd, raw - plane) for plane in range(planes))
    return total + _join_lc(planes, bits + (simd - 1).bit_length(), raw)


def _plane_lc(bits: int, simd: int, raw: int) -> float:
    """Return the registers of a tree that adds the lanes of one plane; a single lane has one level, too."""
    levels = tree_widths([bits] * simd) or [[bits]]
    return float(sum(min(width, raw) for level in levels for width in level))


def _join_lc(planes: int, bits: int, raw: int) -> float:
    """Return the registers of the tree that joins the sums of planes, each bit of which counts twice the one before."""
    widths, shift, total = [bits] * planes, 1, 0
    while len(widths) > 1:
        couples = [widths[index : index + 2] for index in range(0, len(widths), 2)]
        widths = [shift + max(couple[0] - shift, couple[1]) + 1 if len(couple) == 2 else couple[0] for couple in couples]
        total += sum(min(width, raw) for width in widths)
        shift *= 2
    return float(total)


def dsp_lc(arithmetic: LaneArithmetic, simd: int, raw: int) -> float:
    """Return the logic cells of a cell whose products are made in DSP blocks: the tree that adds them."""
    levels = tree_widths([arithmetic.activation.bits + arithmetic.weight.bits] * simd)
    return float(sum(min(width, raw) for level in levels for width in level))


def matmul_cost(config: MatmulConfig, family: Family) -> Cost:
    """Return the cost of a systolic engine."""
    depth, width = config.folds * config.steps, config.simd * config.weight.bits
    raw, o_bits = config.raw.bits, config.thresholds.code.bits if config.thresholds else config.raw.bits
    lc = (config.pe - config.dsp_pe) * tree_lc(config.arithmetic, config.simd, raw)
    lc += config.dsp_pe * dsp_lc(config.arithmetic, config.simd, raw)
    lc += config.pe * raw * (2 if config.steps > 1 else 1) + buffer_lc(config.drain * o_bits)
    lc += config.groups * (config.simd * config.activation.bits + counter_bits(depth) + 3)
    lc += 2 * (config.groups + config.tree_levels) + counter_lc(depth) + counter_lc(config.steps) + 3
    lc += 2 * counter_bits(config.drains) + 2 if config.drains > 1 else 0
    if config.dsp_pe < config.pe and config.dsp_pe:
        waits = config.tree_levels - config.arithmetic.tree_levels(config.simd), config.tree_levels - config.arithmetic.dsp_levels(config.simd)
        lc += raw * (waits[0] * (config.pe - config.dsp_pe) + waits[1] * config.dsp_pe)
    total = Cost(lc, 0, config.dsp_pe * dsp_blocks(config.arithmetic, config.simd, family.name))
    total += _matmul_weights(config, depth, width, family)
    return total + requantizer_cost(config.thresholds, config.raw, config.drain, config.logic_thresholds, family)


def _matmul_weights(config: MatmulConfig, depth: int, width: int, family: Family) -> Cost:
    """Return the cost of the weights: a memory for each group of cells, or constants in logic."""
    in_block = config.pe - config.logic_pe
    total = Cost(rom_lc(depth, width * config.logic_pe))
    if depth == 1 or not in_block:
        return total
    patterns = encode(config.weights, config.weight).reshape(config.folds, config.pe, config.steps, config.simd)
    head = depth - config.tail_words
    for start in range(0, in_block, config.hop):
        cells = patterns[:, start : min(start + config.hop, in_block)]
        words = cells.transpose(0, 2, 1, 3).reshape(depth, -1)
        total += Cost(0, family.block_rams(head, varying_columns(words[:head]), rom=True))
        if config.tail_words:
            bits = words.shape[1] * config.weight.bits
            total += Cost(rom_lc(config.tail_words, bits) + bits)
    return total


_COSTS: dict[type, Callable[[Any, Family], Cost]] = {
    ChannelwiseConfig: channelwise_cost,
    ConcatConfig: concat_cost,
    ConvertConfig: convert_cost,
    FifoConfig: fifo_cost,
    ForkConfig: fork_cost,
    MatmulConfig: matmul_cost,
    PadConfig: pad_cost,
    PoolConfig: pool_cost,
    SumConfig: sum_cost,
    WindowConfig: window_cost,
}
