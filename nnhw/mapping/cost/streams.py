"""What engines on a single stream cost: width converters, borders, slices, max pooling."""

from __future__ import annotations

import math

from nnhw.engines.convert import ConvertConfig
from nnhw.engines.pack import BYTE_BITS, PackConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.slice import SliceConfig
from nnhw.engines.unpack import UnpackConfig
from nnhw.families import Cost, Family
from nnhw.mapping.cost.flip_flops import (
    convert_flip_flops,
    pad_flip_flops,
    pool_flip_flops,
    slice_flip_flops,
)
from nnhw.mapping.resources import adder_lc, counter_bits, counter_lc, register_lc


def convert_cost(config: ConvertConfig, family: Family) -> Cost:
    """Return the cost of a width converter."""
    ratio = max(config.i_lanes, config.o_lanes) // min(config.i_lanes, config.o_lanes)
    bits, count = max(config.i_lanes, config.o_lanes) * config.bits, counter_bits(ratio)
    if family.logic.flip_flop_packs:
        lc = bits + 2 * count + (3 if config.o_lanes > config.i_lanes else 4)
    else:
        lc = count + 3 if config.o_lanes > config.i_lanes else bits + 4
    return Cost(lc, ff=convert_flip_flops(config))


def unpack_cost(config: UnpackConfig, family: Family) -> Cost:
    """Return the cost of making beats of bytes: a word, the choice of where a beat begins in it, two counters."""
    word, places = config.steps * config.step, config.i_steps
    inputs = 4 if family.logic.wide_luts == 1 else 6
    choice = config.o_bits * -(-(places + counter_bits(places) - 1) // (inputs - 1)) if places > 1 else 0
    counters = 4 * counter_bits(config.steps + 1) + (counter_lc(config.o_beats, family) if config.pads else 0)
    kept = word if family.logic.flip_flop_packs else 0
    ff = word + counter_bits(config.steps + 1) + (counter_bits(config.o_beats) if config.pads else 0)
    return Cost(lc=kept + choice + counters + 4, ff=ff)


def pack_cost(config: PackConfig, family: Family) -> Cost:
    """Return the cost of packing elements into bytes: a word, the choices of what comes in and leaves, counters."""
    places = counter_bits(BYTE_BITS // math.gcd(config.bits, BYTE_BITS) + 1)
    counters = counter_lc(config.element_bytes, family) + 4 * (places + 1)
    counters += counter_lc(config.elements, family) if config.pad_bits else 0
    ways = 1 + (config.element_bytes > 1) + (config.pad_bits > 0)
    ff = 2 * BYTE_BITS + places + 1 + counter_bits(config.elements)
    return Cost(lc=2 * BYTE_BITS * ways + 3 * BYTE_BITS + counters + 4, ff=ff)


def pool_cost(config: PoolConfig, family: Family) -> Cost:
    """Return the cost of max pooling: ring and output register, a comparison for each lane."""
    bits = config.lanes * config.element.bits
    compare = 0.0
    if not config.element.bipolar:
        compare = config.lanes * (adder_lc(config.element.bits, family) + register_lc(config.element.bits, family))
    ring = bits + register_lc(bits * config.chunks, family)
    counters = counter_lc(config.chunks, family) + counter_lc(config.taps, family)
    return Cost(lc=ring + compare + counters + 4, ff=pool_flip_flops(config))


def pad_cost(config: PadConfig, family: Family) -> Cost:
    """Return the cost of a border: the output register, counters of rows and of beats of a row, each with its flags."""
    chunks, (top, left) = config.chunks, config.before
    spans = ((top, config.height, config.o_height), (left * chunks, config.width * chunks, config.o_width * chunks))
    counters = sum(
        counter_lc(total, family)
        + 2
        + sum(_limit_lc(limit, counter_bits(total)) for limit in (before, before + size) if limit < total)
        for before, size, total in spans
        if total > 1
    )
    bits = config.lanes * config.bits
    # What stands for a pixel of the border is in the reset of ECP5's flip-flops.
    return Cost(register_lc(bits, family) + counters + 5, ff=pad_flip_flops(config))


def slice_cost(config: SliceConfig, family: Family) -> Cost:
    """Return the cost of a slice: the register of a beat, a counter of those of a turn, a flag."""
    bits, limits = counter_bits(config.period), (config.first, config.first + config.count)
    lc = register_lc(config.lanes * config.bits, family) + 2
    if config.period > config.count:
        compared = sum(_limit_lc(limit, bits) for limit in limits if limit < config.period)
        lc += counter_lc(config.period, family) + compared + 2
    return Cost(lc, ff=slice_flip_flops(config))


def _limit_lc(limit: int, bits: int) -> int:
    """Return the logic cells of a comparison with a constant: a LUT where it asks for a few bits, or a carry chain."""
    lowest = limit & -limit
    if limit == 0:
        return 0
    return 1 if bits <= 4 or lowest == limit or limit + lowest == 1 << bits else bits + 3
