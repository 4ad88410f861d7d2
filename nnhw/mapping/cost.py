"""What an engine costs: block RAM exactly, logic by a model calibrated on place and route.

The logic model counts what the hardware is made of, register by register; its few factors were fitted to
`yosys` and `nextpnr` runs, see `benchmarks/`.
"""

from __future__ import annotations

from dataclasses import dataclass

from nnhw.engines.convert import ConvertConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.window import WindowConfig

EBR_MODES = ((256, 16), (512, 8), (1024, 4), (2048, 2))
"""(words, bits) of an iCE40 block RAM. Source: Lattice, iCE40 memory usage guide (TN-02002)."""


@dataclass(frozen=True)
class Cost:
    """Resources: logic cells and block RAMs."""

    lc: float = 0
    ebr: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.lc + other.lc, self.ebr + other.ebr)


def block_rams(depth: int, bits: int) -> int:
    """Return the block RAMs of a memory, at the aspect ratio that takes fewest; a single word is a constant."""
    if depth == 1:
        return 0
    return min(-(-depth // mode_depth) * -(-bits // mode_bits) for mode_depth, mode_bits in EBR_MODES)


def rom_lc(depth: int, bits: int) -> float:
    """Return the logic cells of a ROM in LUTs: 16 words a LUT4, and their multiplexer."""
    tables = -(-depth // 16)
    return bits * (tables + max(0, tables - 1) * 0.7)


def counter_bits(count: int) -> int:
    """Return the bits of a counter that runs to `count` - 1."""
    return (count - 1).bit_length()


def convert_cost(config: ConvertConfig) -> Cost:
    """Return the cost of a width converter."""
    ratio = max(config.i_lanes, config.o_lanes) // min(config.i_lanes, config.o_lanes)
    return Cost(lc=max(config.i_lanes, config.o_lanes) * config.bits + counter_bits(ratio) * 2 + 3)


def pool_cost(config: PoolConfig) -> Cost:
    """Return the cost of max pooling: ring and output register, a comparison for each lane."""
    bits = config.lanes * config.element.bits
    compare = 0 if config.element.bipolar else bits * 2
    return Cost(lc=bits * (config.chunks + 1) + compare + counter_bits(config.chunks) + counter_bits(config.taps) + 6)


def window_cost(config: WindowConfig) -> Cost:
    """Return the cost of a sliding window: memories, address walk, row bookkeeping."""
    depth = 1 << config.address_bits
    memories = config.row_lanes * block_rams(depth, config.channel_lanes * config.bits)
    counters = sum(2 * counter_bits(count) + 2 for count in config.nest().counts if count > 1)
    address = 3 * config.address_bits
    rows = 4 * counter_bits(config.rows + 1)
    words = 2 * counter_bits(config.row_words) + config.row_lanes * config.address_bits
    return Cost(lc=counters + address + rows + words + 4, ebr=memories)


def cell_lc(config: MatmulConfig) -> float:
    """Return the logic cells of one cell: the tree of its lanes, its accumulator, its place in the drain."""
    kind, simd = config.arithmetic.kind, config.simd
    if kind == "xnor":
        widths = [1] * simd
        selects = 0.0
    elif kind == "select":
        bits = config.activation.bits + (not config.activation.signed)
        widths = [bits] * simd
        selects = bits * simd
    else:
        widths = [config.activation.bits + config.weight.bits] * simd
        selects = simd * config.activation.bits * config.weight.bits * 1.1
    tree = 0.0
    while len(widths) > 1 or tree == 0:
        sums = [
            max(pair) + 1 if len(pair) == 2 else pair[0]
            for pair in (widths[k : k + 2] for k in range(0, len(widths), 2))
        ]
        tree += sum(sums)
        widths = sums
    raw = config.raw_bits[0]
    return tree + selects + raw * (2 if config.steps > 1 else 1)


def matmul_cost(config: MatmulConfig) -> Cost:
    """Return the cost of a systolic engine."""
    depth = config.folds * config.steps
    width = config.simd * config.weight.bits
    address = counter_bits(depth)
    lc = config.pe * cell_lc(config)
    lc += config.groups * (config.simd * config.activation.bits + address + 4)
    lc += 2 * address + 2 * counter_bits(config.steps) + 3 * config.arithmetic.tree_levels(config.simd) + 12
    lc += rom_lc(depth, width) * config.logic_pe
    ebr = 0
    for group in range(config.groups):
        in_logic = min(config.hop, max(0, (group + 1) * config.hop - (config.pe - config.logic_pe)))
        if in_logic < config.hop:
            ebr += block_rams(depth, (config.hop - in_logic) * width)
    return Cost(lc, ebr) + threshold_cost(config)


def threshold_cost(config: MatmulConfig) -> Cost:
    """Return the cost of the thresholds of a systolic engine."""
    if config.thresholds is None:
        return Cost()
    levels = config.thresholds.steps.shape[1]
    depth, raw = config.folds * config.drains, config.raw_bits[0]
    bits = config.drain * (levels * raw + bool(config.thresholds.descending.any()))
    lc = config.drain * (levels * raw + (levels - 1) * 2 + config.thresholds.code.bits) + 3 * counter_bits(depth) + 2
    if config.logic_thresholds:
        return Cost(lc + rom_lc(depth, bits))
    return Cost(lc, block_rams(depth, bits))


def cost(config: ConvertConfig | MatmulConfig | PoolConfig | WindowConfig) -> Cost:
    """Return the cost of any engine."""
    if isinstance(config, MatmulConfig):
        return matmul_cost(config)
    if isinstance(config, WindowConfig):
        return window_cost(config)
    if isinstance(config, PoolConfig):
        return pool_cost(config)
    return convert_cost(config)
