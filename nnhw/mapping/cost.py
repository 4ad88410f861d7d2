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
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.window import WindowConfig
from nnhw.mapping.family import ICE40, Family
from nnhw.mapping.requantize import requantizer_cost
from nnhw.mapping.resources import Cost, counter_bits, rom_lc

PAIR_LC = 12
"""Handshake of an engine: valid, ready, and the beat of two that cuts every path."""


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
    return Cost(lc=bits * (config.chunks + 1) + compare + counter_bits(config.chunks) + counter_bits(config.taps) + 6)


def window_cost(config: WindowConfig, family: Family) -> Cost:
    """Return the cost of a sliding window: memories, address walk, row bookkeeping."""
    depth = 1 << config.address_bits
    memories = config.row_lanes * family.block_rams(depth, config.channel_lanes * config.bits)
    counters = sum(2 * counter_bits(count) + 2 for count in config.nest().counts if count > 1)
    address = 3 * config.address_bits
    rows = 4 * counter_bits(config.rows + 1)
    words = 2 * counter_bits(config.row_words) + config.row_lanes * config.address_bits
    return Cost(lc=counters + address + rows + words + 4, ebr=memories)


def pad_cost(config: PadConfig, family: Family) -> Cost:
    """Return the cost of a border: the output register, counters of rows, columns and chunks."""
    counters = sum(2 * counter_bits(count) + 2 for count in (config.o_height, config.o_width, config.chunks))
    return Cost(lc=config.lanes * config.bits + counters + 8)


def fork_cost(config: ForkConfig, family: Family) -> Cost:
    """Return the cost of a fork: one register, and a bit for each output."""
    return Cost(lc=config.lanes * config.bits + 2 * config.outputs + 2)


def fifo_cost(config: FifoConfig, family: Family) -> Cost:
    """Return the cost of a FIFO: a memory with two addresses and a level, or registers."""
    if config.depth <= 2:
        return Cost(lc=config.depth * config.width + 3)
    counters = 5 * counter_bits(config.words + 1) + 8
    if config.in_block_ram:
        return Cost(lc=counters, ebr=family.block_rams(config.words, config.width))
    return Cost(lc=counters + config.words * config.width * 1.5 + config.width)


def concat_cost(config: ConcatConfig, family: Family) -> Cost:
    """Return the cost of a concatenation: a register behind a multiplexer, a counter."""
    return Cost(lc=config.lanes * config.bits * (len(config.chunks) + 1) / 2 + 2 * counter_bits(sum(config.chunks)) + 8)


def sum_cost(config: SumConfig, family: Family) -> Cost:
    """Return the cost of a weighted sum: an adder for each term, the output buffer, the requantizer."""
    raw = config.raw.bits
    adders = config.lanes * max(1, len(config.terms) - 1) * raw
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    own = Cost(lc=adders + 2 * config.lanes * o_bits + config.tree_levels + PAIR_LC)
    return own + requantizer_cost(config.requantizer, config.raw, config.lanes, True, family)


def channelwise_cost(config: ChannelwiseConfig, family: Family) -> Cost:
    """Return the cost of a channelwise engine: products, their tree, the ring of results, the requantizer."""
    lanes, raw = config.lanes, config.raw.bits
    lc = 2.0 * lanes * config.element.bits + PAIR_LC + 2 * counter_bits(config.chunks) + 2 * counter_bits(config.steps)
    ebr = 0
    tree = dsp_lc if config.dsp else tree_lc
    lc += lanes * (tree(config.arithmetic, config.row_lanes) if config.op != "max" else config.row_lanes * raw * 2)
    if config.steps > 1:
        lc += lanes * raw * 2
        if config.ring_in_memory:
            ebr += family.block_rams(config.chunks, lanes * raw)
            lc += 3 * counter_bits(config.chunks)
        else:
            lc += lanes * raw * max(0, config.chunks - 1)
    if config.weight is not None:
        depth, width = config.steps * config.chunks, config.i_lanes * config.weight.bits
        ebr += 0 if config.logic_weights else family.block_rams(depth, width)
        lc += rom_lc(depth, width) if config.logic_weights else 0
        lc += 2 * counter_bits(depth)
    dsp = lanes * dsp_blocks(config.arithmetic, config.row_lanes, family.name) if config.dsp else 0
    return Cost(lc, ebr, dsp) + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def tree_lc(arithmetic: LaneArithmetic, simd: int) -> float:
    """Return the logic cells of the products of one cell's lanes and of the tree that adds them, plane by plane."""
    if arithmetic.kind == "xnor":
        bits = 1
    elif arithmetic.kind == "product":
        bits = max(arithmetic.activation.bits, arithmetic.weight.bits)
    else:
        bits = arithmetic.activation.bits + (not arithmetic.activation.signed)
    planes = arithmetic.planes
    merge = sum((bits + simd.bit_length() + 1 + level) * (planes >> level + 1) for level in range(planes.bit_length()))
    return planes * adders_lc(bits, simd) + merge


def dsp_lc(arithmetic: LaneArithmetic, simd: int) -> float:
    """Return the logic cells of a cell whose products are made in DSP blocks: the tree that adds them."""
    return adders_lc(arithmetic.activation.bits + arithmetic.weight.bits, simd) if simd > 1 else 0.0


def adders_lc(bits: int, count: int) -> float:
    """Return the logic cells of a tree that adds so many numbers, a register behind every level; at least one level."""
    widths, total = [bits] * count, 0.0
    while len(widths) > 1 or total == 0:
        pairs = (widths[index : index + 2] for index in range(0, len(widths), 2))
        widths = [max(pair) + 1 if len(pair) == 2 else pair[0] for pair in pairs]
        total += sum(widths)
    return total


def matmul_cost(config: MatmulConfig, family: Family) -> Cost:
    """Return the cost of a systolic engine."""
    depth = config.folds * config.steps
    width = config.simd * config.weight.bits
    address = counter_bits(depth)
    raw = config.raw.bits
    lc = (config.pe - config.dsp_pe) * tree_lc(config.arithmetic, config.simd)
    lc += config.dsp_pe * dsp_lc(config.arithmetic, config.simd) + config.pe * raw * (2 if config.steps > 1 else 1)
    lc += config.groups * (config.simd * config.activation.bits + address + 4)
    lc += 2 * address + 2 * counter_bits(config.steps) + 3 * config.arithmetic.tree_levels(config.simd) + 12
    lc += rom_lc(depth, width) * config.logic_pe
    ebr = 0
    for group in range(config.groups):
        in_logic = min(config.hop, max(0, (group + 1) * config.hop - (config.pe - config.logic_pe)))
        if in_logic < config.hop:
            bits = (config.hop - in_logic) * width
            ebr += family.block_rams(depth - config.tail_words, bits, rom=True)
            lc += rom_lc(config.tail_words, bits) + bits if config.tail_words else 0
    dsp = config.dsp_pe * dsp_blocks(config.arithmetic, config.simd, family.name)
    return Cost(lc, ebr, dsp) + requantizer_cost(
        config.thresholds, config.raw, config.drain, config.logic_thresholds, family
    )


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
