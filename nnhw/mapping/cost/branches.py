"""What branches cost: forks, FIFOs, concatenations, sums."""

from __future__ import annotations

from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.families import Cost, Family
from nnhw.mapping.cost.flip_flops import concat_flip_flops, fifo_flip_flops, sum_flip_flops
from nnhw.mapping.cost.memories import memory_cost
from nnhw.mapping.cost.requantizer import requantizer_cost
from nnhw.mapping.resources import adder_lc, buffer_lc, counter_bits, counter_lc, register_lc


def fork_cost(config: ForkConfig, family: Family) -> Cost:
    """Return the cost of a fork: one register, and a bit for each output."""
    own = 2 * config.outputs if family.logic.flip_flop_packs else 2 * config.outputs**2 - 2
    beat = config.lanes * config.bits
    return Cost(register_lc(beat, family) + own, ff=beat + config.outputs)


def fifo_cost(config: FifoConfig, family: Family) -> Cost:
    """Return the cost of a FIFO: a memory with two addresses and a level, or registers."""
    words, width, ff = config.words, config.width, fifo_flip_flops(config)
    if config.depth == 1:
        return Cost(lc=register_lc(width, family) + 2, ff=ff)
    if config.depth == 2:
        return Cost(lc=buffer_lc(width, family), ff=ff)
    level = counter_bits(words + 1)
    if family.logic.flip_flop_packs:
        counters = 2 * counter_lc(words) + 3 * level + 9
    else:
        counters = max(23.0, 2 * counter_lc(words, family) + adder_lc(level, family) + 2 * level + 3)
    if config.in_block_ram or config.large:
        return Cost(counters, ff=ff) + memory_cost(words, width, config.large, family)
    if family.logic.flip_flop_packs:
        return Cost(lc=counters + words * (2 * width + 1) - width, ff=ff)
    return Cost(lc=counters + (words + 1) // 2 * width, ff=ff)


def concat_cost(config: ConcatConfig, family: Family) -> Cost:
    """Return the cost of a concatenation: a register behind a multiplexer, a counter."""
    inputs = len(config.chunks)
    lc = config.lanes * config.bits * (inputs + 1) / 2 + 2 * counter_bits(max(config.chunks)) + 3 * inputs + 4
    return Cost(lc, ff=concat_flip_flops(config))


def sum_cost(config: SumConfig, family: Family) -> Cost:
    """Return the cost of a weighted sum: an adder for each term, the output buffer, the requantizer."""
    raw, lanes = config.raw.bits, config.lanes
    inputs = config.inputs
    terms = [(shift, shift + inputs[index].bits + inputs[index].bipolar, sign) for index, shift, sign in config.terms]
    adders = lanes * _terms_lc(terms, raw, family)
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    lc = adders + buffer_lc(lanes * o_bits, family) + register_lc(config.tree_levels, family) + len(config.inputs)
    own = Cost(lc, ff=sum_flip_flops(config))
    return own + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def _terms_lc(terms: list[tuple[int, int, int]], raw: int, family: Family) -> float:
    """Return the logic cells of a tree that adds numbers; on iCE40 what is subtracted takes an inverter a bit.

    Parameters
    ----------
    terms: (lowest bit, width with the zeros below it, sign).
    """
    total = 0.0
    while True:
        results = []
        for index in range(0, len(terms), 2):
            pair = terms[index : index + 2]
            low, width = min(term[0] for term in pair), max(term[1] for term in pair) + len(pair) - 1
            subtracted = pair[1] if len(pair) == 2 and pair[0][2] > pair[1][2] else pair[0]
            mixed = len({term[2] for term in pair}) == 2
            bits = min(width, raw) - min(low, raw)
            total += adder_lc(bits, family) if len(pair) == 2 or pair[0][2] < 0 else register_lc(bits, family)
            total += register_lc(subtracted[1] - subtracted[0] if mixed else 0, family)
            results.append((low, width, 1 if mixed else pair[0][2]))
        terms = results
        if len(terms) == 1:
            return total
