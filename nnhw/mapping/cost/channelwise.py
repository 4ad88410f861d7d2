"""The cost of a channelwise engine."""

from __future__ import annotations

import numpy as np

from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.encoding import encode
from nnhw.families import Cost, Family
from nnhw.families.logic import Logic, counter_bits
from nnhw.mapping.cost.arithmetic import adder_tree, dsp_blocks, dsp_sums, lane_products, tree_widths
from nnhw.mapping.cost.constants import Rom
from nnhw.mapping.cost.requantizer import requantizer_cost


def channelwise_cost(config: ChannelwiseConfig, family: Family) -> Cost:
    """Return the cost of a channelwise engine: operands, products, their tree, running results, the requantizer."""
    lanes, raw, logic = config.lanes, config.raw.bits, family.logic
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    summed = int(config.steps > 1)
    total = logic.buffer(lanes * o_bits)
    total += logic.register(config.raw_latency - summed) + logic.through(summed)
    total += lanes * _channel(config, family)
    if summed:
        running = lanes * (logic.luts(_running_lc(config, logic)) + logic.state(raw))
        counters = logic.counter(config.chunks) + logic.counter(config.steps) + logic.luts(3) + logic.state(2)
        total += running + counters
        total += _ring(config, family)
    if config.weight is not None:
        depth = config.steps * config.chunks
        total += logic.counter(depth) + logic.register(config.i_lanes * config.activation.bits)
        total += Rom(_channel_words(config), config.logic_weights).cost(family)
    dsp = lanes * dsp_blocks(config.arithmetic, config.row_lanes, family) if config.dsp else 0
    return total + Cost(dsp=dsp) + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def _ring(config: ChannelwiseConfig, family: Family) -> Cost:
    """Return the cost of the ring that keeps the running results of all channels, a beat of lanes at a time."""
    beat, logic = config.lanes * config.raw.bits, family.logic
    if not config.ring_in_memory:
        return logic.register(beat * max(0, config.chunks - 1))
    addresses = logic.counter(config.chunks) + logic.register(2 * counter_bits(config.chunks)) + logic.luts(1)
    return addresses + logic.state(1) + Cost(ebr=family.block_rams(config.chunks, beat))


def _running_lc(config: ChannelwiseConfig, logic: Logic) -> float:
    """Return the logic cells of one lane's running result: the operation, and the choice of the first term."""
    raw = config.raw.bits
    adder = 0.0 if logic.flip_flop_packs else logic.adder(raw).lc
    return adder + raw * (2 if config.op == "max" else 1)


def _channel(config: ChannelwiseConfig, family: Family) -> Cost:
    """Return the cost of the tree over the taps of one beat, for one lane."""
    raw, taps, logic = config.raw.bits, config.row_lanes, family.logic
    if config.op == "dot":
        return (dsp_sums if config.dsp else lane_products)(config.arithmetic, taps, raw, family)
    bits = config.activation.bits
    if config.op == "max":
        kept = sum(len(level) for level in tree_widths([bits] * taps) or [[bits]])
        return (taps - 1) * (logic.adder(bits) + logic.luts(bits)) + logic.state(bits * kept)
    return adder_tree([bits] * taps, raw, logic) + logic.state(min(bits, raw) if taps == 1 else 0)


def _channel_words(config: ChannelwiseConfig) -> np.ndarray:
    """Return the words of the memory of weights as bit patterns, int64 [steps * chunks, i_lanes]."""
    assert config.weight is not None
    shape = (config.chunks, config.lanes, config.steps, config.row_lanes)
    patterns = encode(config.factors, config.weight).reshape(shape).transpose(2, 0, 3, 1)
    return patterns.reshape(config.steps * config.chunks, config.i_lanes)
