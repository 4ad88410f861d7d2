"""What a pairwise engine costs."""

from __future__ import annotations

from collections.abc import Iterator

from nnhw.engines.pairwise import PairConfig, number_bits
from nnhw.families import Cost, Family
from nnhw.mapping.cost.requantizer import requantizer_cost
from nnhw.mapping.resources import adder_lc, buffer_flip_flops, buffer_lc, register_lc


def pairwise_cost(config: PairConfig, family: Family) -> Cost:
    """Return the cost of a pairwise engine: one operation for each lane, the output buffer, the requantizer."""
    raw, lanes = config.raw.bits, config.lanes
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    lc = lanes * _lane_lc(config, family) + buffer_lc(lanes * o_bits, family) + register_lc(config.levels, family) + 2
    ff = lanes * _lane_flip_flops(config) + config.levels + buffer_flip_flops(lanes * o_bits)
    # One block of iCE40 makes the products of two lanes.
    blocks = -(-lanes // family.dsp.products) if config.dsp else 0
    own = Cost(lc, 0, blocks, ff=ff)
    return own + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def _lane_lc(config: PairConfig, family: Family) -> float:
    """Return the logic cells of one lane: nothing where a DSP block makes its product."""
    if config.dsp:
        return 0.0
    left, right = number_bits(config.left), number_bits(config.right)
    if config.op != "product":
        return adder_lc(max(left, right), family) + config.raw.bits
    return sum(_level_lc(terms, first, config, family) for first, terms in _levels(config))


def _lane_flip_flops(config: PairConfig) -> int:
    """Return the flip-flops of one lane between its elements and its result."""
    if config.dsp:
        return 0
    if config.op != "product":
        return config.raw.bits
    return sum(min(bits, config.raw.bits) for _, terms in _levels(config) for bits, _ in terms)


Term = tuple[int, int]
"""Bits of a register, and those of its lowest bits that are no sum."""


def _levels(config: PairConfig) -> Iterator[tuple[bool, list[Term]]]:
    """Yield, for each level of the tree of a product in logic, whether it is the first one, and its results."""
    wide = max(number_bits(config.left), number_bits(config.right))
    pairs, alone = divmod(config.planes, 2)
    terms = [(wide + 2, 1)] * pairs + [(wide, wide)] * alone
    yield True, terms
    shift = 2
    while len(terms) > 1:
        following = []
        for index in range(0, len(terms), 2):
            low, *high = terms[index : index + 2]
            following.append((max(low[0], shift + high[0][0]) + 1, shift) if high else (low[0], low[0]))
        terms, shift = following, 2 * shift
        yield False, terms


def _level_lc(terms: list[Term], first: bool, config: PairConfig, family: Family) -> float:
    """Return the logic cells of one level; on iCE40 the gate of one of two rows takes LUTs of its own."""
    wide = max(number_bits(config.left), number_bits(config.right))
    total = 0.0
    for bits, passed in terms:
        bits = min(bits, config.raw.bits)
        gates = min(passed, bits)
        total += adder_lc(bits - gates, family) + (gates if first else register_lc(gates, family))
        total += register_lc(wide - 1, family) if first and bits > gates else 0
    if first and _subtracts(config):  # no gate of a difference is in the cells of its adder
        total += wide if family.logic.flip_flop_packs else 2 * wide - 1
    return total


def _subtracts(config: PairConfig) -> bool:
    """Return whether the highest row is subtracted from the one below it."""
    sides = (config.left, config.right)
    narrow = min(sides, key=lambda kind: (number_bits(kind), kind.signed))
    return narrow.signed and config.planes % 2 == 0
