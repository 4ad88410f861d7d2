"""The cost of a sliding window."""

from __future__ import annotations

from nnhw.engines.loop_nest import LoopNest
from nnhw.engines.window import WindowConfig
from nnhw.families import Cost, Family
from nnhw.families.logic import Logic
from nnhw.mapping.cost.memories import lut_ram_cost, memory_cost


def window_cost(config: WindowConfig, family: Family) -> Cost:
    """Return the cost of a sliding window: memories, addresses, and the bookkeeping of rows."""
    depth, bits, logic = 1 << config.address_bits, config.channel_lanes * config.bits, family.logic
    memory = lut_ram_cost(depth, bits, family) if config.in_luts else memory_cost(depth, bits, config.large, family)
    own = _walk(config, logic) + logic.counter(config.row_words)
    own += (_rows if logic.flip_flop_packs else _rows_in_chains)(config, logic)
    # A large RAM's single port takes logic to share it, but no more flip-flops.
    pause = logic.luts(logic.counter(config.reads).lc + 3) if config.large else Cost()
    return sum((memory for _ in range(config.row_lanes)), own + pause)


def _walk(config: WindowConfig, logic: Logic) -> Cost:
    """Return the cost of the addresses of writer and reader, and of the reader's loops."""
    nest = config.nest()
    loops = [logic.counter(count) + logic.luts(2) + logic.state(1) for count in nest.counts if count > 1]
    addresses = (1 + config.row_lanes) * logic.sum(config.address_bits)
    # In families whose flip-flops begin as 0, a bit that begins as 1 takes an inverter.
    return sum(loops, Cost()) + addresses + logic.through(_set_bits(config)) + logic.luts(_jump_lc(nest))


def _rows(config: WindowConfig, logic: Logic) -> Cost:
    """Return the cost of the counts of rows and words that keep the writer ahead of the reader, if flip-flops pack."""
    freed = max(config.rows_left, config.rows_step)
    return logic.luts(4 * (config.rows + config.block_rows + freed).bit_length() + 2 * freed.bit_length() + 9)


def _rows_in_chains(config: WindowConfig, logic: Logic) -> Cost:
    """Return the cost of the counts of rows and words for families in which flip-flops are counted apart."""
    freed = max(config.rows_left, config.rows_step)
    rows = (config.rows + config.block_rows + freed).bit_length() + 1
    words = ((1 << config.address_bits) + freed * config.row_words).bit_length() + 1
    read = config.row_lanes * config.channel_lanes * config.bits if config.in_luts else 0
    adders = logic.adder(config.address_bits + 3) + logic.adder(rows) + logic.luts(12 if freed > 1 else 6)
    return adders + logic.state(words + rows + 4 + read)


def _set_bits(config: WindowConfig) -> int:
    """Return the number of bits of write addresses that begin as 1."""
    words = 1 << config.address_bits
    begins = (lane * config.dilation[0] * config.row_words for lane in range(config.row_lanes))
    return sum((-begin % words).bit_count() for begin in begins)


def _jump_lc(nest: LoopNest) -> float:
    """Return the LUTs that choose the next jump of the read address from the flags of the loops.

    Bits with the same values in all jumps share a LUT; bits that are the same in every jump take none.
    """
    jumps = [jump for jump, count in zip(nest.jumps(), (*nest.counts, 2), strict=True) if count > 1]
    columns = {tuple(jump >> bit & 1 for jump in jumps) for bit in range(nest.address_bits)}
    inputs = len(jumps) - 1
    return sum(0 < sum(column) < len(column) for column in columns) * (1 if inputs <= 4 else 1.5)
