"""What a sliding window costs."""

from __future__ import annotations

from nnhw.engines.loops import LoopNest
from nnhw.engines.window import WindowConfig
from nnhw.families import Cost, Family
from nnhw.mapping.cost.flip_flops import window_flip_flops
from nnhw.mapping.cost.memories import lut_ram_cost, memory_cost
from nnhw.mapping.resources import adder_lc, counter_lc, register_lc


def window_cost(config: WindowConfig, family: Family) -> Cost:
    """Return the cost of a sliding window: memories, address walk, row bookkeeping."""
    depth, bits = 1 << config.address_bits, config.channel_lanes * config.bits
    memory = lut_ram_cost(depth, bits, family) if config.in_luts else memory_cost(depth, bits, config.large, family)
    own = _walk_lc(config, family) + counter_lc(config.row_words, family)
    own += _rows_lc(config) if family.logic.flip_flop_packs else _rows_chains_lc(config, family)
    pause = counter_lc(config.reads, family) + 3 if config.large else 0
    return sum((memory for _ in range(config.row_lanes)), Cost(own + pause, ff=window_flip_flops(config)))


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
