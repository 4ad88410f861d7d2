"""The parts of engines on a single stream: width converters, packing, borders, slices, max pooling."""

from __future__ import annotations

import math

from nnhw.engines.convert import ConvertConfig
from nnhw.engines.pack import BYTE_BITS, PackConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.slice import SliceConfig
from nnhw.engines.unpack import UnpackConfig
from nnhw.families.parts import (
    NOTHING,
    Inventory,
    adder,
    counter,
    counter_bits,
    counting,
    gates,
    limit,
    listed,
    luts,
    multiplexer,
    register,
    state,
)


def convert_parts(config: ConvertConfig) -> Inventory:
    """List a word, the count of what is left of it, and a flag that it is there."""
    most, least = max(config.i_lanes, config.o_lanes), min(config.i_lanes, config.o_lanes)
    word, count, widens = most * config.bits, counter_bits(most // least), config.o_lanes > config.i_lanes
    if widens:
        return register(word) + luts(count + 3) + gates(count) + state(count + 1)
    return luts(word + 4) + gates(2 * count) + state(word + count + 1)


def unpack_parts(config: UnpackConfig) -> Inventory:
    """List a word that beats are cut out of, a multiplexer for the beat's place in it, two counters."""
    word, steps = config.steps * config.step, counter_bits(config.steps + 1)
    counters = luts(4 * steps) + state(steps)
    counters += counter(config.o_beats) if config.pads else NOTHING
    return register(word) + multiplexer(config.o_bits, config.i_steps) + counters + luts(4)


def pack_parts(config: PackConfig) -> Inventory:
    """List a word, multiplexers at its input and output, counters."""
    places = counter_bits(BYTE_BITS // math.gcd(config.bits, BYTE_BITS) + 1)
    # The counter of a word's bytes is part of its places; that of elements is there even if no element is padded.
    counters = counting(config.element_bytes) + luts(4 * (places + 1))
    counters += counting(config.elements) if config.pad_bits else NOTHING
    ways = 1 + (config.element_bytes > 1) + (config.pad_bits > 0)
    kept = state(2 * BYTE_BITS + places + 1 + counter_bits(config.elements))
    return luts(2 * BYTE_BITS * ways + 3 * BYTE_BITS) + counters + luts(4) + kept


def pool_parts(config: PoolConfig) -> Inventory:
    """List a ring of running maxima, the output register, a comparison for each lane."""
    element, lanes = config.element, config.lanes
    beat = lanes * element.bits
    ring = luts(beat) + state(beat) + register(beat * config.chunks)
    # The maximum of two bits is OR, which fits the LUT of the ring.
    compared = NOTHING if element.bipolar else lanes * (adder(element.bits) + gates(element.bits))
    return ring + compared + counter(config.chunks) + counter(config.taps) + luts(4) + state(1)


def pad_parts(config: PadConfig) -> Inventory:
    """List the output register, counters of rows and of beats of a row, each with two flags.

    In families that count flip-flops apart, the border's value takes no LUTs: it is the reset of the output register.
    """
    chunks, (top, left) = config.chunks, config.before
    spans = ((top, config.height, config.o_height), (left * chunks, config.width * chunks, config.o_width * chunks))
    counters = listed(_span(*span) for span in spans if span[2] > 1)
    return register(config.lanes * config.bits) + counters + luts(5) + state(2)


def _span(before: int, size: int, total: int) -> Inventory:
    """List a counter to `total` with flags for the `size` counts that follow the first `before` ones."""
    limits = listed(limit(end, counter_bits(total)) for end in (before, before + size) if end < total)
    return counter(total) + luts(2) + state(2) + limits


def slice_parts(config: SliceConfig) -> Inventory:
    """List the register of a beat, a counter of the beats of a turn, and a flag."""
    ends = (config.first, config.first + config.count)
    total = register(config.lanes * config.bits) + luts(2) + state(1)
    # Where all beats are kept, there is nothing to count.
    if config.period > config.count:
        compared = listed(limit(end, counter_bits(config.period)) for end in ends if end < config.period)
        total += counter(config.period) + compared + luts(2) + state(1)
    return total
