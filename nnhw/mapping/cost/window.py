"""The parts of a sliding window."""

from __future__ import annotations

from nnhw.engines.loop_nest import LoopNest
from nnhw.engines.window import WindowConfig
from nnhw.families.parts import (
    NOTHING,
    Inventory,
    LogicFact,
    adder,
    counter,
    counting,
    gates,
    listed,
    lut_ram,
    luts,
    registered_sum,
    state,
    where,
)
from nnhw.mapping.cost.memories import memory_parts


def window_parts(config: WindowConfig) -> Inventory:
    """List memories, addresses, and the bookkeeping of rows."""
    depth, bits = 1 << config.address_bits, config.channel_lanes * config.bits
    memory = lut_ram(depth, bits) if config.in_luts else memory_parts(depth, bits, config.large)
    # A large RAM's single port takes logic to share it, but no more flip-flops.
    pause = counting(config.reads) + luts(3) if config.large else NOTHING
    rows = where(LogicFact.PACKS, _rows(config), _rows_in_chains(config))
    return _walk(config) + counter(config.row_words) + rows + pause + config.row_lanes * memory


def _walk(config: WindowConfig) -> Inventory:
    """List the addresses of writer and reader, and the reader's loops."""
    nest = config.nest()
    loops = listed(counter(count) + luts(2) + state(1) for count in nest.counts if count > 1)
    addresses = (1 + config.row_lanes) * registered_sum(config.address_bits)
    # In families whose flip-flops begin as 0, a bit that begins as 1 takes an inverter.
    return loops + addresses + gates(_set_bits(config)) + luts(_jump_lc(nest))


def _rows(config: WindowConfig) -> Inventory:
    """List the counts of rows and words that keep the writer ahead of the reader, if flip-flops pack. Measured."""
    freed = max(config.rows_left, config.rows_step)
    return luts(4 * (config.rows + config.block_rows + freed).bit_length() + 2 * freed.bit_length() + 9)


def _rows_in_chains(config: WindowConfig) -> Inventory:
    """List the counts of rows and words for families in which flip-flops are counted apart. Measured."""
    freed = max(config.rows_left, config.rows_step)
    rows = (config.rows + config.block_rows + freed).bit_length() + 1
    words = ((1 << config.address_bits) + freed * config.row_words).bit_length() + 1
    read = config.row_lanes * config.channel_lanes * config.bits if config.in_luts else 0
    adders = adder(config.address_bits + 3) + adder(rows) + luts(12 if freed > 1 else 6)
    return adders + state(words + rows + 4 + read)


def _set_bits(config: WindowConfig) -> int:
    """Return the number of bits of write addresses that begin as 1."""
    words = 1 << config.address_bits
    # Each row lane has a copy of the memory, written so far in front that one read address serves all of them.
    begins = (lane * config.dilation[0] * config.row_words for lane in range(config.row_lanes))
    return sum((-begin % words).bit_count() for begin in begins)


def _jump_lc(nest: LoopNest) -> float:
    """Return the LUTs that choose the next jump of the read address from the flags of the loops.

    Bits with the same values in all jumps share a LUT; bits that are the same in every jump take none.
    """
    jumps = [jump for jump, count in zip(nest.jumps(), (*nest.counts, 2), strict=True) if count > 1]
    columns = {tuple(jump >> bit & 1 for jump in jumps) for bit in range(nest.address_bits)}
    inputs = len(jumps) - 1
    # Up to four flags are the inputs of one LUT.
    return sum(0 < sum(column) < len(column) for column in columns) * (1 if inputs <= 4 else 1.5)
