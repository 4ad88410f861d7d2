"""The cost of a pairwise engine."""

from __future__ import annotations

from collections.abc import Iterator

from nnhw.engines.pairwise import PairConfig, needs_whole_dsp, number_bits
from nnhw.families import Cost, Family
from nnhw.families.logic import Logic
from nnhw.mapping.cost.requantizer import requantizer_cost


def pairwise_cost(config: PairConfig, family: Family) -> Cost:
    """Return the cost of a pairwise engine: one operation for each lane, the output buffer, the requantizer."""
    lanes, logic = config.lanes, family.logic
    o_bits = config.raw.bits if config.requantizer is None else config.requantizer.code.bits
    own = operations_cost(config, family) + logic.buffer(lanes * o_bits)
    own += logic.register(config.levels) + logic.luts(2)
    return own + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def operations_cost(config: PairConfig, family: Family) -> Cost:
    """Return the cost of the operations of all lanes alone."""
    if not config.dsp:
        return config.lanes * _lane(config, family.logic)
    # One block of iCE40 makes the products of two lanes, of narrow factors.
    each = 1 if needs_whole_dsp(config.left, config.right) else family.dsp.products
    return Cost(dsp=-(-config.lanes // each))


def _lane(config: PairConfig, logic: Logic) -> Cost:
    """Return the cost of one lane between its elements and its result."""
    if config.op != "product":
        wide = max(number_bits(config.left), number_bits(config.right))
        return logic.adder(wide) + logic.luts(config.raw.bits) + logic.state(config.raw.bits)
    return sum((_level(terms, first, config, logic) for first, terms in _levels(config)), Cost())


Term = tuple[int, int]
"""Bits of a register, and the number of its lowest bits that are passed on without an adder."""


def _levels(config: PairConfig) -> Iterator[tuple[bool, list[Term]]]:
    """Yield, for each level of the tree of a product in logic, whether it is the first one, and the terms it gives."""
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


def _level(terms: list[Term], first: bool, config: PairConfig, logic: Logic) -> Cost:
    """Return the cost of one level; on iCE40 the gates of one of two rows take LUTs of their own."""
    wide = max(number_bits(config.left), number_bits(config.right))
    total = Cost()
    for width, passed in terms:
        bits = min(width, config.raw.bits)
        gates = min(passed, bits)
        total += logic.adder(bits - gates) + logic.state(bits) + (logic.luts if first else logic.through)(gates)
        total += logic.through(wide - 1) if first and bits > gates else Cost()
    if first and _subtracts(config):
        # The cells of a subtracter have no room for gates.
        total += logic.luts(wide if logic.flip_flop_packs else 2 * wide - 1)
    return total


def _subtracts(config: PairConfig) -> bool:
    """Return whether the highest row of a product is subtracted from the one below it: it belongs to a sign bit."""
    sides = (config.left, config.right)
    narrow = min(sides, key=lambda kind: (number_bits(kind), kind.signed))
    return narrow.signed and config.planes % 2 == 0
