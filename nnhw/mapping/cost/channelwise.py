"""What a channelwise engine costs."""

from __future__ import annotations

import numpy as np

from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.encoding import encode
from nnhw.families import Cost, Family
from nnhw.mapping.cost.arithmetic import adder_tree_lc, dsp_blocks, dsp_lc, tree_lc
from nnhw.mapping.cost.constants import Rom
from nnhw.mapping.cost.flip_flops import channelwise_flip_flops
from nnhw.mapping.cost.requantizer import requantizer_cost
from nnhw.mapping.resources import adder_lc, buffer_lc, counter_bits, counter_lc, register_lc


def channelwise_cost(config: ChannelwiseConfig, family: Family) -> Cost:
    """Return the cost of a channelwise engine: products, their tree, the ring of results, the requantizer."""
    lanes, raw = config.lanes, config.raw.bits
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    lc = (
        buffer_lc(lanes * o_bits, family)
        + register_lc(config.raw_latency, family)
        + lanes * _channel_lc(config, family)
    )
    total = Cost(lc, ff=channelwise_flip_flops(config))
    if config.steps > 1:
        counters = counter_lc(config.chunks, family) + counter_lc(config.steps, family) + 3
        total += Cost(lanes * _running_lc(config, family) + counters)
        if config.ring_in_memory:
            addresses = counter_lc(config.chunks, family) + register_lc(2 * counter_bits(config.chunks), family) + 1
            total += Cost(addresses, family.block_rams(config.chunks, lanes * raw))
        else:
            ring = lanes * raw * max(0, config.chunks - 1)
            total += Cost(register_lc(ring, family))
    if config.weight is not None:
        depth = config.steps * config.chunks
        total += Cost(counter_lc(depth, family) + register_lc(config.i_lanes * config.activation.bits, family))
        total += Rom(_channel_words(config), config.logic_weights).cost(family)
    dsp = lanes * dsp_blocks(config.arithmetic, config.row_lanes, family) if config.dsp else 0
    return total + Cost(0, 0, dsp) + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def _running_lc(config: ChannelwiseConfig, family: Family) -> float:
    """Return the logic cells of one lane's running result: the operation, and the choice of the first term."""
    raw = config.raw.bits
    if family.logic.flip_flop_packs:
        return raw * (2 if config.op == "max" else 1)
    return adder_lc(raw, family) + raw * (2 if config.op == "max" else 1)


def _channel_lc(config: ChannelwiseConfig, family: Family) -> float:
    """Return the logic cells of the tree over the taps of one beat, for one lane."""
    raw, taps = config.raw.bits, config.row_lanes
    if config.op == "dot":
        return (dsp_lc if config.dsp else tree_lc)(config.arithmetic, taps, raw, family)
    bits = config.activation.bits
    if config.op == "max":
        return float((adder_lc(bits, family) + bits) * (taps - 1))
    return adder_tree_lc([bits] * taps, raw, family)


def _channel_words(config: ChannelwiseConfig) -> np.ndarray:
    """Return the words of weights: patterns [steps * chunks, i_lanes]."""
    assert config.weight is not None
    shape = (config.chunks, config.lanes, config.steps, config.row_lanes)
    patterns = encode(config.factors, config.weight).reshape(shape).transpose(2, 0, 3, 1)
    return patterns.reshape(config.steps * config.chunks, config.i_lanes)
