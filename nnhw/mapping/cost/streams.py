"""The cost of engines on a single stream: width converters, packing, borders, slices, max pooling."""

from __future__ import annotations

import math

from nnhw.engines.convert import ConvertConfig
from nnhw.engines.pack import BYTE_BITS, PackConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.slice import SliceConfig
from nnhw.engines.unpack import UnpackConfig
from nnhw.families import Cost, Family
from nnhw.families.logic import Logic, counter_bits


def convert_cost(config: ConvertConfig, family: Family) -> Cost:
    """Return the cost of a width converter: a word, the count of what is left of it, and a flag that it is there."""
    most, least, logic = max(config.i_lanes, config.o_lanes), min(config.i_lanes, config.o_lanes), family.logic
    word, count, widens = most * config.bits, counter_bits(most // least), config.o_lanes > config.i_lanes
    if logic.flip_flop_packs:
        return logic.luts(word + 2 * count + (3 if widens else 4))
    return logic.luts(count + 3 if widens else word + 4) + logic.state(word + count + 1)


def unpack_cost(config: UnpackConfig, family: Family) -> Cost:
    """Return the cost of cutting beats out of bytes: a word, a multiplexer for the beat's place in it, two counters."""
    word, places, logic = config.steps * config.step, config.i_steps, family.logic
    inputs = 4 if logic.wide_luts == 1 else 6
    choice = config.o_bits * -(-(places + counter_bits(places) - 1) // (inputs - 1)) if places > 1 else 0
    steps = counter_bits(config.steps + 1)
    counters = logic.luts(4 * steps) + logic.state(steps)
    counters += logic.counter(config.o_beats) if config.pads else Cost()
    return logic.register(word) + logic.luts(choice) + counters + logic.luts(4)


def pack_cost(config: PackConfig, family: Family) -> Cost:
    """Return the cost of packing elements into bytes: a word, multiplexers at its input and output, counters."""
    places, logic = counter_bits(BYTE_BITS // math.gcd(config.bits, BYTE_BITS) + 1), family.logic
    # The counter of a word's bytes is part of its places; that of elements is there even if no element is padded.
    counters = logic.counter(config.element_bytes).lc + 4 * (places + 1)
    counters += logic.counter(config.elements).lc if config.pad_bits else 0
    ways = 1 + (config.element_bytes > 1) + (config.pad_bits > 0)
    kept = logic.state(2 * BYTE_BITS + places + 1 + counter_bits(config.elements))
    return logic.luts(2 * BYTE_BITS * ways + 3 * BYTE_BITS + counters + 4) + kept


def pool_cost(config: PoolConfig, family: Family) -> Cost:
    """Return the cost of max pooling: a ring of running maxima, the output register, a comparison for each lane."""
    element, lanes, logic = config.element, config.lanes, family.logic
    beat = lanes * element.bits
    ring = logic.luts(beat) + logic.state(beat) + logic.register(beat * config.chunks)
    compared = Cost() if element.bipolar else lanes * (logic.adder(element.bits) + logic.through(element.bits))
    counters = logic.counter(config.chunks) + logic.counter(config.taps)
    return ring + compared + counters + logic.luts(4) + logic.state(1)


def pad_cost(config: PadConfig, family: Family) -> Cost:
    """Return the cost of padding: the output register, counters of rows and of beats of a row, each with two flags.

    In families that count flip-flops apart, the border's value takes no LUTs: it is the reset of the output register.
    """
    chunks, (top, left), logic = config.chunks, config.before, family.logic
    spans = ((top, config.height, config.o_height), (left * chunks, config.width * chunks, config.o_width * chunks))
    counters = [_span(*span, logic) for span in spans if span[2] > 1]
    return logic.register(config.lanes * config.bits) + sum(counters, Cost()) + logic.luts(5) + logic.state(2)


def _span(before: int, size: int, total: int, logic: Logic) -> Cost:
    """Return the cost of a counter to `total` with flags for the `size` counts that follow the first `before` ones."""
    limits = [logic.limit(limit, counter_bits(total)) for limit in (before, before + size) if limit < total]
    return logic.counter(total) + logic.luts(2) + logic.state(2) + sum(limits, Cost())


def slice_cost(config: SliceConfig, family: Family) -> Cost:
    """Return the cost of a slice: the register of a beat, a counter of the beats of a turn, and a flag."""
    logic, limits = family.logic, (config.first, config.first + config.count)
    total = logic.register(config.lanes * config.bits) + logic.luts(2) + logic.state(1)
    if config.period > config.count:
        compared = [logic.limit(limit, counter_bits(config.period)) for limit in limits if limit < config.period]
        total += logic.counter(config.period) + sum(compared, Cost()) + logic.luts(2) + logic.state(1)
    return total
