"""What an engine costs: block RAM exactly, logic by a model calibrated on place and route.

The logic model counts what the hardware is made of, register by register; its few factors were fitted to
`yosys` and `nextpnr` runs, see `benchmarks/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnhw.accelerator import EngineConfig
from nnhw.engines.arithmetic import LaneArithmetic, dsp_blocks
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.encoding import encode
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.loops import LoopNest
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.window import WindowConfig
from nnhw.mapping.constants import Rom
from nnhw.mapping.family import ICE40, Family
from nnhw.mapping.requantizer_cost import requantizer_cost
from nnhw.mapping.resources import Cost, buffer_lc, counter_bits, counter_lc, tree_widths

CONSTANT_WEIGHTS = 0.45
"""Share of the products' logic that is left where each lane has a single weight."""


def cost(config: EngineConfig, family: Family = ICE40) -> Cost:
    """Return the cost of any engine."""
    counted = _COSTS[type(config)](config, family)
    return Cost(counted.lc * family.lc_share, counted.ebr, counted.dsp)


def convert_cost(config: ConvertConfig, family: Family) -> Cost:
    """Return the cost of a width converter."""
    ratio = max(config.i_lanes, config.o_lanes) // min(config.i_lanes, config.o_lanes)
    return Cost(
        lc=max(config.i_lanes, config.o_lanes) * config.bits
        + counter_bits(ratio) * 2
        + (3 if config.o_lanes > config.i_lanes else 4)
    )


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
    address = config.address_bits * (1 + config.row_lanes) + _set_bits(config)
    freed = max(config.rows_left, config.rows_step)
    rows = (config.rows + config.block_rows + freed).bit_length() + 1
    own = counters + address + _jump_lc(nest) + 4 * rows + 2 * freed.bit_length() + counter_lc(config.row_words) + 5
    return Cost(lc=own, ebr=memories)


def _set_bits(config: WindowConfig) -> int:
    """Return the bits of write addresses that begin as 1: iCE40 has no such flip-flops, each takes an inverter."""
    words = 1 << config.address_bits
    begins = (lane * config.dilation[0] * config.row_words for lane in range(config.row_lanes))
    return sum((-begin % words).bit_count() for begin in begins)


def _jump_lc(nest: LoopNest) -> float:
    """Return the LUTs that choose the next jump of an address from the flags of the loops; equal bits are one."""
    jumps = [jump for jump, count in zip(nest.jumps(), (*nest.counts, 2), strict=True) if count > 1]
    columns = {tuple(jump >> bit & 1 for jump in jumps) for bit in range(nest.address_bits)}
    inputs = len(jumps) - 1
    return sum(0 < sum(column) < len(column) for column in columns) * (1 if inputs <= 4 else 1.5)


def pad_cost(config: PadConfig, family: Family) -> Cost:
    """Return the cost of a border: the output register, counters of rows and of beats of a row, each with its flags."""
    chunks, (top, left) = config.chunks, config.before
    spans = ((top, config.height, config.o_height), (left * chunks, config.width * chunks, config.o_width * chunks))
    counters = sum(
        counter_lc(total)
        + 2
        + sum(_limit_lc(limit, counter_bits(total)) for limit in (before, before + size) if limit < total)
        for before, size, total in spans
        if total > 1
    )
    return Cost(lc=config.lanes * config.bits + counters + 5)


def _limit_lc(limit: int, bits: int) -> int:
    """Return the logic cells of a comparison with a constant: a LUT where it asks for a few bits, or a carry chain."""
    lowest = limit & -limit
    if limit == 0:
        return 0
    return 1 if bits <= 4 or lowest == limit or limit + lowest == 1 << bits else bits + 3


def fork_cost(config: ForkConfig, family: Family) -> Cost:
    """Return the cost of a fork: one register, and a bit for each output."""
    return Cost(lc=config.lanes * config.bits + 2 * config.outputs)


def fifo_cost(config: FifoConfig, family: Family) -> Cost:
    """Return the cost of a FIFO: a memory with two addresses and a level, or registers."""
    if config.depth == 1:
        return Cost(lc=config.width + 2)
    if config.depth == 2:
        return Cost(lc=buffer_lc(config.width))
    counters = 2 * counter_lc(config.words) + 3 * counter_bits(config.words + 1) + 9
    if config.in_block_ram:
        return Cost(lc=counters, ebr=family.block_rams(config.words, config.width))
    return Cost(lc=counters + config.words * (2 * config.width + 1) - config.width)


def concat_cost(config: ConcatConfig, family: Family) -> Cost:
    """Return the cost of a concatenation: a register behind a multiplexer, a counter."""
    inputs = len(config.chunks)
    return Cost(
        lc=config.lanes * config.bits * (inputs + 1) / 2 + 2 * counter_bits(max(config.chunks)) + 3 * inputs + 4
    )


def sum_cost(config: SumConfig, family: Family) -> Cost:
    """Return the cost of a weighted sum: an adder for each term, the output buffer, the requantizer."""
    raw, lanes = config.raw.bits, config.lanes
    inputs = config.inputs
    terms = [(shift, shift + inputs[index].bits + inputs[index].bipolar, sign) for index, shift, sign in config.terms]
    adders = lanes * _terms_lc(terms, raw)
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    own = Cost(lc=adders + buffer_lc(lanes * o_bits) + config.tree_levels + len(config.inputs))
    return own + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def _terms_lc(terms: list[tuple[int, int, int]], raw: int) -> float:
    """Return the logic cells of a tree that adds numbers; what is subtracted takes an inverter a bit.

    Parameters
    ----------
    terms: (lowest bit, width with the zeros below it, sign).
    """
    total = 0.0
    while True:
        results = []
        for index in range(0, len(terms), 2):
            pair = terms[index : index + 2]
            low, width = min(term[0] for term in pair), max(term[1] for term in pair) + len(pair) - 1
            subtracted = pair[1] if len(pair) == 2 and pair[0][2] > pair[1][2] else pair[0]
            mixed = len({term[2] for term in pair}) == 2
            total += min(width, raw) - min(low, raw) + (subtracted[1] - subtracted[0] if mixed else 0)
            results.append((low, width, 1 if mixed else pair[0][2]))
        terms = results
        if len(terms) == 1:
            return total


def channelwise_cost(config: ChannelwiseConfig, family: Family) -> Cost:
    """Return the cost of a channelwise engine: products, their tree, the ring of results, the requantizer."""
    lanes, raw = config.lanes, config.raw.bits
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    lc = buffer_lc(lanes * o_bits) + config.raw_latency + lanes * _channel_lc(config)
    total = Cost(lc)
    if config.steps > 1:
        total += Cost(
            lanes * raw * (2 if config.op == "max" else 1) + counter_lc(config.chunks) + counter_lc(config.steps) + 3
        )
        if config.ring_in_memory:
            addresses = counter_lc(config.chunks) + 2 * counter_bits(config.chunks) + 1
            total += Cost(addresses, family.block_rams(config.chunks, lanes * raw))
        else:
            total += Cost(lanes * raw * max(0, config.chunks - 1))
    if config.weight is not None:
        depth = config.steps * config.chunks
        total += Cost(counter_lc(depth) + config.i_lanes * config.activation.bits)
        total += Rom(_channel_words(config), config.logic_weights).cost(family)
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


def _channel_words(config: ChannelwiseConfig) -> np.ndarray:
    """Return the words of weights: patterns [steps * chunks, i_lanes]."""
    assert config.weight is not None
    shape = (config.chunks, config.lanes, config.steps, config.row_lanes)
    patterns = encode(config.factors, config.weight).reshape(shape).transpose(2, 0, 3, 1)
    return patterns.reshape(config.steps * config.chunks, config.i_lanes)


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
    narrow = arithmetic.weight if w < a else arithmetic.activation
    # What the highest plane of a signed factor gives is subtracted: a LUT inverts each bit for the carry chain.
    inverted = bits + (simd - 1).bit_length() if planes > 1 and narrow.signed and not narrow.bipolar else 0
    return total + inverted + _join_lc(planes, bits + (simd - 1).bit_length(), raw)


def _plane_lc(bits: int, simd: int, raw: int) -> float:
    """Return the registers of a tree that adds the lanes of one plane; a single lane has one level, too."""
    levels = tree_widths([bits] * simd) or [[bits]]
    return float(sum(min(width, raw) for level in levels for width in level))


def _join_lc(planes: int, bits: int, raw: int) -> float:
    """Return the registers of the tree that joins the sums of planes, each bit of which counts twice the one before."""
    widths, shift, total = [bits] * planes, 1, 0
    while len(widths) > 1:
        couples = [widths[index : index + 2] for index in range(0, len(widths), 2)]
        widths = [
            shift + max(couple[0] - shift, couple[1]) + 1 if len(couple) == 2 else couple[0] for couple in couples
        ]
        total += sum(min(width, raw) for width in widths)
        shift *= 2
    return float(total)


def dsp_lc(arithmetic: LaneArithmetic, simd: int, raw: int) -> float:
    """Return the logic cells of a cell whose products are made in DSP blocks: the tree that adds them."""
    levels = tree_widths([arithmetic.activation.bits + arithmetic.weight.bits] * simd)
    return float(sum(min(width, raw) for level in levels for width in level))


def matmul_cost(config: MatmulConfig, family: Family) -> Cost:
    """Return the cost of a systolic engine."""
    depth = config.folds * config.steps
    raw, o_bits = config.raw.bits, config.thresholds.code.bits if config.thresholds else config.raw.bits
    kept = 1.0 if depth > 1 else CONSTANT_WEIGHTS
    lc = kept * (config.pe - config.dsp_pe) * tree_lc(config.arithmetic, config.simd, raw)
    lc += config.dsp_pe * dsp_lc(config.arithmetic, config.simd, raw)
    lc += config.pe * raw * (2 if config.steps > 1 else 1) + buffer_lc(config.drain * o_bits)
    lc += config.groups * (config.simd * config.activation.bits + counter_bits(depth) + 3)
    lc += 2 * (config.groups + config.tree_levels) + counter_lc(depth) + counter_lc(config.steps) + 3
    lc += 2 * counter_bits(config.drains) + 2 if config.drains > 1 else 0
    if config.dsp_pe < config.pe and config.dsp_pe:
        waits = (
            config.tree_levels - config.arithmetic.tree_levels(config.simd),
            config.tree_levels - config.arithmetic.dsp_levels(config.simd),
        )
        lc += raw * (waits[0] * (config.pe - config.dsp_pe) + waits[1] * config.dsp_pe)
    total = Cost(lc, 0, config.dsp_pe * dsp_blocks(config.arithmetic, config.simd, family.name))
    total += _matmul_weights(config, depth, family)
    return total + requantizer_cost(config.thresholds, config.raw, config.drain, config.logic_thresholds, family)


def _matmul_weights(config: MatmulConfig, depth: int, family: Family) -> Cost:
    """Return the cost of the weights: a memory for each group of cells, or constants in logic."""
    in_block = config.pe - config.logic_pe
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
