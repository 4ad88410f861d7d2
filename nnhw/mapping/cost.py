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
from nnhw.mapping.resources import (
    Cost,
    adder_lc,
    buffer_lc,
    chain_lc,
    counter_bits,
    counter_lc,
    register_lc,
    tree_adder_lc,
    tree_widths,
)

CONSTANT_WEIGHTS = 0.45
"""Share of the products' logic that is left where each lane has a single weight."""
CONSTANT_IN_CHAIN, CONSTANT_IN_LUT = 0.7, 0.25
"""The same on ECP5, where carry cells that the hardware asks for by name stay."""

LUT_RAM_CHOICE = 0.8
"""Logic cells of a bit of a memory in LUTs for each 16 words, if there are more: what chooses among them."""


def cost(config: EngineConfig, family: Family = ICE40) -> Cost:
    """Return the cost of any engine."""
    return _COSTS[type(config)](config, family)


def convert_cost(config: ConvertConfig, family: Family) -> Cost:
    """Return the cost of a width converter."""
    ratio = max(config.i_lanes, config.o_lanes) // min(config.i_lanes, config.o_lanes)
    bits, count = max(config.i_lanes, config.o_lanes) * config.bits, counter_bits(ratio)
    if family.flip_flop_packs:
        return Cost(lc=bits + 2 * count + (3 if config.o_lanes > config.i_lanes else 4))
    if config.o_lanes > config.i_lanes:
        return Cost(lc=count + 3)
    # Measured: the condition to load ends up in the multiplexer of each bit.
    return Cost(lc=bits + 4 if ratio == 2 else 3 * bits + 4 * count - 2)


def pool_cost(config: PoolConfig, family: Family) -> Cost:
    """Return the cost of max pooling: ring and output register, a comparison for each lane."""
    bits = config.lanes * config.element.bits
    compare = 0.0
    if not config.element.bipolar:
        compare = config.lanes * (adder_lc(config.element.bits, family) + register_lc(config.element.bits, family))
    ring = bits + register_lc(bits * config.chunks, family)
    counters = counter_lc(config.chunks, family) + counter_lc(config.taps, family)
    return Cost(lc=ring + compare + counters + 4)


def window_cost(config: WindowConfig, family: Family) -> Cost:
    """Return the cost of a sliding window: memories, address walk, row bookkeeping."""
    depth, bits = 1 << config.address_bits, config.channel_lanes * config.bits
    memory = lut_ram_cost(depth, bits, family) if config.in_luts else _memory_cost(depth, bits, config.large, family)
    own = _walk_lc(config, family) + counter_lc(config.row_words, family)
    own += _rows_lc(config) if family.flip_flop_packs else _rows_chains_lc(config, family)
    pause = counter_lc(config.reads, family) + 3 if config.large else 0
    return sum((memory for _ in range(config.row_lanes)), Cost(lc=own + pause))


def _walk_lc(config: WindowConfig, family: Family) -> float:
    """Return the logic cells of both sides' addresses and of the loops that the reader walks."""
    nest = config.nest()
    counters = sum(counter_lc(count, family) + 2 for count in nest.counts if count > 1)
    addresses = (1 + config.row_lanes) * adder_lc(config.address_bits, family)
    return counters + addresses + register_lc(_set_bits(config), family) + _jump_lc(nest)


def _rows_lc(config: WindowConfig) -> int:
    """Return iCE40's logic cells of the counts of rows and words that keep the two sides apart."""
    freed = max(config.rows_left, config.rows_step)
    return 4 * (config.rows + config.block_rows + freed).bit_length() + 2 * freed.bit_length() + 9


def _rows_chains_lc(config: WindowConfig, family: Family) -> float:
    """Return the same of ECP5."""
    freed = max(config.rows_left, config.rows_step)
    rows = (config.rows + config.block_rows + freed).bit_length() + 1
    return adder_lc(config.address_bits + 3, family) + adder_lc(rows, family) + (12 if freed > 1 else 6)


def _memory_cost(depth: int, bits: int, large: bool, family: Family) -> Cost:
    """Return the cost of a memory that is written and read.

    A large RAM has a multiplexer in front of its address, and registers behind a multiplexer keep what was read.
    """
    if not large:
        return Cost(ebr=family.block_rams(depth, bits))
    return Cost(lc=counter_bits(depth) + 2 * bits + 4, spram=family.large_rams(depth, bits) or 0)


def lut_ram_cost(depth: int, bits: int, family: Family) -> Cost:
    """Return the cost of a memory in LUTs that can be written.

    Measured with 32 to 128 words of 4 to 32 bits: beside the memories, 2 LUTs a bit of 32 words, 3 of 64, 6.7 of 128.
    """
    banks = -(-depth // family.lut_ram_words)
    chosen = LUT_RAM_CHOICE * bits * banks + banks if banks > 1 else 0
    return Cost(lc=banks * -(-bits // 4) * family.lut_ram_lc + chosen)


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
    own = 2 * config.outputs if family.flip_flop_packs else 2 * config.outputs**2 - 2
    return Cost(lc=register_lc(config.lanes * config.bits, family) + own)


def fifo_cost(config: FifoConfig, family: Family) -> Cost:
    """Return the cost of a FIFO: a memory with two addresses and a level, or registers."""
    words, width = config.words, config.width
    if config.depth == 1:
        return Cost(lc=register_lc(width, family) + 2)
    if config.depth == 2:
        return Cost(lc=buffer_lc(width, family))
    level = counter_bits(words + 1)
    if family.flip_flop_packs:
        counters = 2 * counter_lc(words) + 3 * level + 9
    else:
        counters = max(23.0, 2 * counter_lc(words, family) + adder_lc(level, family) + 2 * level + 3)
    if config.in_block_ram or config.large:
        return Cost(lc=counters) + _memory_cost(words, width, config.large, family)
    if family.flip_flop_packs:
        return Cost(lc=counters + words * (2 * width + 1) - width)
    return Cost(lc=counters + (words + 1) // 2 * width)


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
    adders = lanes * _terms_lc(terms, raw, family)
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    own = Cost(
        lc=adders + buffer_lc(lanes * o_bits, family) + register_lc(config.tree_levels, family) + len(config.inputs)
    )
    return own + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def _terms_lc(terms: list[tuple[int, int, int]], raw: int, family: Family) -> float:
    """Return the logic cells of a tree that adds numbers; on iCE40 what is subtracted takes an inverter a bit.

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
            bits = min(width, raw) - min(low, raw)
            total += adder_lc(bits, family) if len(pair) == 2 or pair[0][2] < 0 else register_lc(bits, family)
            total += register_lc(subtracted[1] - subtracted[0] if mixed else 0, family)
            results.append((low, width, 1 if mixed else pair[0][2]))
        terms = results
        if len(terms) == 1:
            return total


def channelwise_cost(config: ChannelwiseConfig, family: Family) -> Cost:
    """Return the cost of a channelwise engine: products, their tree, the ring of results, the requantizer."""
    lanes, raw = config.lanes, config.raw.bits
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    lc = (
        buffer_lc(lanes * o_bits, family)
        + register_lc(config.raw_latency, family)
        + lanes * _channel_lc(config, family)
    )
    total = Cost(lc)
    if config.steps > 1:
        counters = counter_lc(config.chunks, family) + counter_lc(config.steps, family) + 3
        total += Cost(lanes * _running_lc(config, family) + counters)
        if config.ring_in_memory:
            addresses = counter_lc(config.chunks, family) + register_lc(2 * counter_bits(config.chunks), family) + 1
            total += Cost(addresses, family.block_rams(config.chunks, lanes * raw))
        else:
            total += Cost(register_lc(lanes * raw * max(0, config.chunks - 1), family))
    if config.weight is not None:
        depth = config.steps * config.chunks
        total += Cost(counter_lc(depth, family) + register_lc(config.i_lanes * config.activation.bits, family))
        total += Rom(_channel_words(config), config.logic_weights).cost(family)
    dsp = lanes * dsp_blocks(config.arithmetic, config.row_lanes, family.name) if config.dsp else 0
    return total + Cost(0, 0, dsp) + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def _running_lc(config: ChannelwiseConfig, family: Family) -> float:
    """Return the logic cells of one lane's running result: the operation, and the choice of the first term."""
    raw = config.raw.bits
    if family.flip_flop_packs:
        return raw * (2 if config.op == "max" else 1)
    return adder_lc(raw, family) + raw * (2 if config.op == "max" else 1)


def _channel_lc(config: ChannelwiseConfig, family: Family) -> float:
    """Return the logic cells of the tree over the taps of one beat, for one lane."""
    raw, taps = config.raw.bits, config.row_lanes
    if config.op == "dot":
        return (dsp_lc if config.dsp else tree_lc)(config.arithmetic, taps, raw, family)
    bits = config.activation.bits
    if config.op == "max":
        return float((adder_lc(bits, family) + bits) * (taps - 1))
    return _tree_lc([bits] * taps, raw, family)


def _channel_words(config: ChannelwiseConfig) -> np.ndarray:
    """Return the words of weights: patterns [steps * chunks, i_lanes]."""
    assert config.weight is not None
    shape = (config.chunks, config.lanes, config.steps, config.row_lanes)
    patterns = encode(config.factors, config.weight).reshape(shape).transpose(2, 0, 3, 1)
    return patterns.reshape(config.steps * config.chunks, config.i_lanes)


def tree_lc(arithmetic: LaneArithmetic, simd: int, raw: int, family: Family = ICE40) -> float:
    """Return the logic cells of the products of one cell's lanes and of the tree that adds them.

    The operands of iCE40's carry chain are signals, so that what gates or inverts the first of the two takes LUTs
    of its own; the gate of the second one is in the cells of the chain (see `nnhw.hdl.carry`). On ECP5 both are.

    Parameters
    ----------
    raw: bits of the raw sum: what lies above is left out.
    """
    kind, a, w = arithmetic.kind, arithmetic.activation.bits, arithmetic.weight.bits
    pairs = simd // 2
    if kind == "xnor" or (a == 1 and w == 1):
        return _tree_lc([1] * simd, raw, family, counts=True) or 1.0
    if kind == "select":
        return register_lc(pairs * (a + 2), family) + _plane_lc(a, simd, raw, family)
    if kind == "ternary":
        return 2 * pairs * a + (_tree_lc([a] * simd, raw, family) or a)
    if arithmetic.has_tables and not family.flip_flop_packs:
        return _tables_lc(simd, raw, family)
    planes, bits = arithmetic.planes, w if w >= a else a
    total = sum(
        register_lc(pairs * min(bits, raw - plane), family) + _plane_lc(bits, simd, raw - plane, family)
        for plane in range(planes)
    )
    narrow = arithmetic.weight if w < a else arithmetic.activation
    # What the highest plane of a signed factor gives is subtracted: a LUT inverts each bit for the carry chain.
    inverted = bits + (simd - 1).bit_length() if planes > 1 and narrow.signed and not narrow.bipolar else 0
    return total + register_lc(inverted, family) + _join_lc(planes, bits + (simd - 1).bit_length(), raw, family)


def _tables_lc(simd: int, raw: int, family: Family) -> float:
    """Return the logic cells of products that are looked up, and of the tree that adds what is two more than each."""
    pairs, alone = divmod(simd, 2)
    widths = [4] * pairs + [3] * alone
    looked_up = 2 * simd + alone + pairs * chain_lc(4, family)
    top = (6 * simd).bit_length() - ((2 * simd) & -(2 * simd)).bit_length() + 2
    return looked_up + _tree_lc(widths, raw + 1, family) + top


def _plane_lc(bits: int, simd: int, raw: int, family: Family) -> float:
    """Return the adders of one plane's lanes, in the first level of which the gates of both operands are.

    A lane that is alone in the first level takes a LUT a bit.
    """
    first = [bits + 1] * (simd // 2) + [bits] * (simd % 2)
    alone = min(bits, raw) * (simd % 2)
    own = sum(chain_lc(min(width, raw), family) for width in first[: simd // 2])
    return own + alone + _tree_lc(first, raw, family)


def _tree_lc(widths: list[int], raw: int, family: Family, counts: bool = False) -> float:
    """Return the adders of a tree; a term that is alone in its level is a register.

    Parameters
    ----------
    counts: the terms are counts of bits, of whose sums the top bit is a LUT of its own.
    """
    total, top = 0.0, int(counts)
    while len(widths) > 1:
        following = tree_widths(widths)[0]
        total += sum(tree_adder_lc(min(width, raw) - top, family) + top for width in following[: len(widths) // 2])
        if len(widths) % 2:
            total += register_lc(min(following[-1], raw), family)
        widths = following
    return total


def _join_lc(planes: int, bits: int, raw: int, family: Family) -> float:
    """Return the tree that joins the sums of planes, each bit of which counts twice the one before."""
    widths, shift, total = [bits] * planes, 1, 0.0
    while len(widths) > 1:
        following = []
        for index in range(0, len(widths), 2):
            low, *high = widths[index : index + 2]
            width = shift + max(low - shift, high[0]) + 1 if high else low
            passed = min(shift if high else width, raw)
            total += register_lc(passed, family) + adder_lc(min(width, raw) - passed, family)
            following.append(width)
        widths = following
        shift *= 2
    return total


def dsp_lc(arithmetic: LaneArithmetic, simd: int, raw: int, family: Family = ICE40) -> float:
    """Return the logic cells of a cell whose products are made in DSP blocks: the tree that adds them."""
    return _tree_lc([arithmetic.activation.bits + arithmetic.weight.bits] * simd, raw, family)


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
    total = Cost(lc, 0, config.dsp_pe * dsp_blocks(config.arithmetic, config.simd, family.name))
    total += _matmul_weights(config, depth, family)
    return total + requantizer_cost(config.thresholds, config.raw, config.drain, config.logic_thresholds, family)


def _kept(config: MatmulConfig, depth: int, family: Family) -> float:
    """Return the share of the products' logic that is left after synthesis knows the weights of a lane."""
    if depth > 1:
        return 1.0
    if family.flip_flop_packs:
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
    return drain + (adder_lc if family.flip_flop_packs else chain_lc)(raw, family)


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
