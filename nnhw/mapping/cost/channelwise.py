"""The parts of a channelwise engine."""

from __future__ import annotations

import numpy as np

from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.encoding import encode
from nnhw.families.parts import (
    NOTHING,
    Inventory,
    adder,
    choice,
    counter,
    counter_bits,
    gates,
    luts,
    memory,
    register,
    state,
    stream_buffer,
)
from nnhw.mapping.cost.arithmetic import adder_tree, dsp_sums, lane_products, products_in_dsp, tree_widths
from nnhw.mapping.cost.constants import rom_parts
from nnhw.mapping.cost.requantizer import requantizer_parts


def channelwise_parts(config: ChannelwiseConfig) -> Inventory:
    """List operands, products, their tree, running results, the requantizer."""
    lanes, raw = config.lanes, config.raw.bits
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    summed = int(config.steps > 1)
    total = stream_buffer(lanes * o_bits)
    # The valid bits of all stages.
    total += register(config.raw_latency - summed) + gates(summed)
    total += lanes * _channel(config)
    if summed:
        counters = counter(config.chunks) + counter(config.steps) + luts(3) + state(2)
        total += lanes * _running(config) + counters + _ring(config)
    if config.weight is not None:
        depth = config.steps * config.chunks
        total += counter(depth) + register(config.i_lanes * config.activation.bits)
        total += rom_parts(_channel_words(config), config.logic_weights)
    dsp = lanes * products_in_dsp(config.arithmetic, config.row_lanes) if config.dsp else NOTHING
    return total + dsp + requantizer_parts(config.requantizer, config.raw, lanes)


def _ring(config: ChannelwiseConfig) -> Inventory:
    """List the ring that keeps the running results of all channels, a beat of lanes at a time."""
    beat = config.lanes * config.raw.bits
    if not config.ring_in_memory:
        return register(beat * max(0, config.chunks - 1))
    addresses = counter(config.chunks) + register(2 * counter_bits(config.chunks)) + luts(1)
    return addresses + state(1) + memory(config.chunks, beat)


def _running(config: ChannelwiseConfig) -> Inventory:
    """List one lane's running result: the operation, and the choice of the first term."""
    raw = config.raw.bits
    chosen = luts(raw) if config.op == "max" else NOTHING
    return adder(raw) + choice(raw) + chosen + state(raw)


def _channel(config: ChannelwiseConfig) -> Inventory:
    """List the tree over the taps of one beat, for one lane."""
    raw, taps = config.raw.bits, config.row_lanes
    if config.op == "dot":
        return (dsp_sums if config.dsp else lane_products)(config.arithmetic, taps, raw)
    bits = config.activation.bits
    if config.op == "max":
        # A tree of maxima has as many registers as one of sums, but none of its numbers grows.
        kept = sum(len(level) for level in tree_widths([bits] * taps) or [[bits]])
        return (taps - 1) * (adder(bits) + luts(bits)) + state(bits * kept)
    return adder_tree([bits] * taps, raw) + state(min(bits, raw) if taps == 1 else 0)


def _channel_words(config: ChannelwiseConfig) -> np.ndarray:
    """Return the words of the memory of weights as bit patterns, int64 [steps * chunks, i_lanes]."""
    assert config.weight is not None
    shape = (config.chunks, config.lanes, config.steps, config.row_lanes)
    patterns = encode(config.factors, config.weight).reshape(shape).transpose(2, 0, 3, 1)
    return patterns.reshape(config.steps * config.chunks, config.i_lanes)
