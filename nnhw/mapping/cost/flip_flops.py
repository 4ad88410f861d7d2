"""Flip-flops of engines, register by register, for families that count them apart from LUTs.

Those of requantizers and of what memories of constants give are counted beside these.
"""

from __future__ import annotations

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import LOGIC_ROM_WORDS, MatmulConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.slice import SliceConfig
from nnhw.engines.window import WindowConfig
from nnhw.families import Family
from nnhw.mapping.resources import buffer_flip_flops, counter_bits, tree_widths


def array_flip_flops(config: MatmulConfig, depth: int, family: Family) -> float:
    """Return the flip-flops of an array: trees, accumulators, drain, activations on their way, late words of weights.

    Parameters
    ----------
    depth: words of weights.
    """
    raw, arithmetic, lanes = config.raw.bits, config.arithmetic, config.simd * config.activation.bits
    logic, dsp = config.pe - config.dsp_pe, config.dsp_pe
    waits = raw * (config.tree_levels - arithmetic.tree_levels(config.simd)) if logic and dsp else 0
    products = logic * (tree_flip_flops(arithmetic, config.simd, raw) + waits)
    if dsp:
        waits = raw * (config.tree_levels - arithmetic.dsp_levels(config.simd))
        products += dsp * (dsp_flip_flops(arithmetic, config.simd, raw) + waits)
    sums = config.pe * raw * (1 + (config.steps > 1))
    # The last group hands its activations to nobody, and the address of its weights only where they are late.
    ways = lanes * (config.late + config.groups)
    ways += (config.groups - 1 + (config.late > 0)) * counter_bits(depth)
    return products + sums + ways + _late_weights(config, depth, family)


def sequence_flip_flops(config: MatmulConfig, depth: int) -> int:
    """Return the flip-flops of an array's control: beats and ends of folds on their way, counters, the output."""
    summed = int(config.steps > 1)
    stages = config.groups + config.late + config.tree_levels
    ways = (2 * stages + 1 + config.groups if summed else stages) + 1
    drain = 1 + counter_bits(max(config.drains, 2)) if config.drains > 1 else 0
    o_bits = config.thresholds.code.bits if config.thresholds else config.raw.bits
    counters = counter_bits(config.steps) + (counter_bits(depth) if depth > config.steps else 0)
    return ways + drain + counters + buffer_flip_flops(config.drain * o_bits)


def tree_flip_flops(arithmetic: LaneArithmetic, simd: int, raw: int) -> int:
    """Return the flip-flops of the tree of a cell whose products are made of LUTs: one behind each adder's bit.

    Parameters
    ----------
    raw: bits of the raw sum: what lies above is left out.
    """
    kind, a, w = arithmetic.kind, arithmetic.activation.bits, arithmetic.weight.bits
    if kind == "xnor" or (a == 1 and w == 1):
        return _tree([1] * simd, raw)
    if kind in ("select", "ternary"):
        return _tree([a] * simd, raw)
    if arithmetic.has_tables:
        return _tree([3] * simd, raw + 1) + raw
    bits = max(a, w)
    total = sum(_tree([bits] * simd, raw - plane) for plane in range(arithmetic.planes))
    widths, shift = [bits + (simd - 1).bit_length()] * arithmetic.planes, 1
    while len(widths) > 1:
        pairs = [widths[index : index + 2] for index in range(0, len(widths), 2)]
        widths = [max(pair[0], pair[1] + shift) + 1 if len(pair) == 2 else pair[0] for pair in pairs]
        total, shift = total + sum(min(width, raw) for width in widths), 2 * shift
    return total


def dsp_flip_flops(arithmetic: LaneArithmetic, simd: int, raw: int) -> int:
    """Return the flip-flops of the tree of a cell whose products are made in DSP blocks, which have their own."""
    return _sum_of(tree_widths([arithmetic.activation.bits + arithmetic.weight.bits] * simd), raw)


def _tree(widths: list[int], raw: int) -> int:
    """Return the flip-flops behind the levels of a tree; a number alone has one behind it, too."""
    return _sum_of(tree_widths(widths) or [widths], raw)


def _sum_of(levels: list[list[int]], raw: int) -> int:
    return sum(min(width, raw) for level in levels for width in level)


def _late_weights(config: MatmulConfig, depth: int, family: Family) -> int:
    """Return the flip-flops behind memories of weights, beside those that are in block RAMs or behind LUTs.

    A word that waits is in the block RAM's output register, unless a multiplexer stands between.
    """
    if depth == 1:
        return 0
    word = config.simd * config.weight.bits
    in_block = config.pe - config.logic_pe
    parts = -(-depth // LOGIC_ROM_WORDS) if config.split_logic else 0
    late = in_block * -(-config.tail_words // LOGIC_ROM_WORDS)
    if config.registered and not config.tail_words:
        groups = [min(config.hop, in_block - start) for start in range(0, in_block, config.hop)]
        late = sum(cells for cells in groups if family.rom_banks(depth, cells * word) > 1)
    return word * (config.logic_pe * parts + late)


def channelwise_flip_flops(config: ChannelwiseConfig) -> int:
    """Return the flip-flops of a channelwise engine: operands, trees, running results, counters, the output."""
    lanes, raw, chunks = config.lanes, config.raw.bits, counter_bits(config.chunks)
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    total = buffer_flip_flops(lanes * o_bits) + config.raw_latency - (config.steps > 1)
    total += lanes * _channel_flip_flops(config)
    if config.weight is not None:
        total += config.i_lanes * config.activation.bits + counter_bits(config.steps * config.chunks)
    if config.steps > 1:
        total += chunks + counter_bits(config.steps) + 2 + lanes * raw
        total += 3 * chunks + 1 if config.ring_in_memory else lanes * raw * (config.chunks - 1)
    return total


def _channel_flip_flops(config: ChannelwiseConfig) -> int:
    """Return the flip-flops of the tree over the taps of one beat, for one lane."""
    raw, taps, bits = config.raw.bits, config.row_lanes, config.activation.bits
    if config.op == "dot":
        return (dsp_flip_flops if config.dsp else tree_flip_flops)(config.arithmetic, taps, raw)
    if config.op == "max":
        return bits * sum(len(level) for level in tree_widths([bits] * taps) or [[bits]])
    return _tree([bits] * taps, raw)


def convert_flip_flops(config: ConvertConfig) -> int:
    """Return the flip-flops of a width converter: the word, what is left of it, and whether it is there."""
    most, least = max(config.i_lanes, config.o_lanes), min(config.i_lanes, config.o_lanes)
    return most * config.bits + counter_bits(most // least) + 1


def fifo_flip_flops(config: FifoConfig) -> int:
    """Return the flip-flops of a FIFO: a beat or two; or two addresses, a level, and three flags."""
    width, words = config.width, config.words
    if config.depth == 1:
        return width + 1
    if config.depth == 2:
        return buffer_flip_flops(width)
    counters = 2 * counter_bits(words) + counter_bits(words + 1) + 3
    return counters + (0 if config.in_block_ram else width * (words + 1))


def concat_flip_flops(config: ConcatConfig) -> int:
    """Return the flip-flops of a concatenation: the beat, whose turn it is, a counter."""
    return config.lanes * config.bits + 1 + len(config.chunks) + counter_bits(max(config.chunks))


def sum_flip_flops(config: SumConfig) -> int:
    """Return the flip-flops of a weighted sum: a tree with shifted terms, and the output."""
    raw, lanes = config.raw.bits, config.lanes
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    inputs = config.inputs
    terms = [(shift, shift + inputs[index].bits + inputs[index].bipolar) for index, shift, _ in config.terms]
    tree = 0
    for _ in range(config.tree_levels):
        pairs = [terms[index : index + 2] for index in range(0, len(terms), 2)]
        terms = [(min(low for low, _ in pair), max(top for _, top in pair) + len(pair) - 1) for pair in pairs]
        tree += sum(min(top, raw) - min(low, raw) for low, top in terms)
    return lanes * tree + config.tree_levels + buffer_flip_flops(lanes * o_bits)


def pool_flip_flops(config: PoolConfig) -> int:
    """Return the flip-flops of max pooling: ring, output, counters."""
    bits = config.lanes * config.element.bits
    return bits * (config.chunks + 1) + counter_bits(config.chunks) + counter_bits(config.taps) + 1


def pad_flip_flops(config: PadConfig) -> int:
    """Return the flip-flops of a border: the output, counters of rows and of beats of a row, each with two flags."""
    totals = (config.o_height, config.o_width * config.chunks)
    return config.lanes * config.bits + 2 + sum(counter_bits(total) + 2 for total in totals if total > 1)


def slice_flip_flops(config: SliceConfig) -> int:
    """Return the flip-flops of a slice: the output, a counter, a flag."""
    counter = counter_bits(config.period) + 1 if config.period > config.count else 0
    return config.lanes * config.bits + 1 + counter


def window_flip_flops(config: WindowConfig) -> int:
    """Return the flip-flops of a sliding window: addresses of both sides, loops, what keeps the two sides apart."""
    freed, nest = max(config.rows_left, config.rows_step), config.nest()
    loops = sum(counter_bits(count) + 1 for count in nest.counts if count > 1)
    excess = ((1 << config.address_bits) + freed * config.row_words).bit_length() + 1
    surplus = (config.rows + config.block_rows + freed).bit_length() + 1
    read = config.row_lanes * config.channel_lanes * config.bits if config.in_luts else 0
    addresses = (1 + config.row_lanes) * config.address_bits
    return loops + addresses + excess + surplus + counter_bits(config.row_words) + 4 + read
