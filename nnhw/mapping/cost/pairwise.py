"""The parts of a pairwise engine."""

from __future__ import annotations

from collections.abc import Iterator

from nnhw.engines.pairwise import PairConfig, needs_whole_dsp, number_bits
from nnhw.families.parts import (
    NOTHING,
    Inventory,
    adder,
    choice,
    dsp_blocks,
    dsp_products,
    gates,
    listed,
    luts,
    register,
    state,
    stream_buffer,
)
from nnhw.mapping.cost.requantizer import requantizer_parts


def pairwise_parts(config: PairConfig) -> Inventory:
    """List one operation for each lane, the output buffer, the requantizer."""
    lanes = config.lanes
    o_bits = config.raw.bits if config.requantizer is None else config.requantizer.code.bits
    own = operation_parts(config) + stream_buffer(lanes * o_bits)
    own += register(config.levels) + luts(2)
    return own + requantizer_parts(config.requantizer, config.raw, lanes)


def operation_parts(config: PairConfig) -> Inventory:
    """List the operations of all lanes alone."""
    if not config.dsp:
        return config.lanes * _lane(config)
    # One block of iCE40 makes the products of two lanes, of narrow factors.
    return (dsp_blocks if needs_whole_dsp(config.left, config.right) else dsp_products)(config.lanes)


def _lane(config: PairConfig) -> Inventory:
    """List one lane between its elements and its result."""
    if config.op != "product":
        wide = max(number_bits(config.left), number_bits(config.right))
        return adder(wide) + luts(config.raw.bits) + state(config.raw.bits)
    return listed(_level(terms, first, config) for first, terms in _levels(config))


Term = tuple[int, int]
"""Bits of a register, and the number of its lowest bits that are passed on without an adder."""


def _levels(config: PairConfig) -> Iterator[tuple[bool, list[Term]]]:
    """Yield, for each level of the tree of a product in logic, whether it is the first one, and the terms it gives."""
    wide = max(number_bits(config.left), number_bits(config.right))
    pairs, alone = divmod(config.planes, 2)
    # Two neighbouring rows are one place apart: the lowest bit of the lower one has nothing to be added to.
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


def _level(terms: list[Term], first: bool, config: PairConfig) -> Inventory:
    """List one level; on iCE40 the gates of one of two rows take LUTs of their own."""
    wide = max(number_bits(config.left), number_bits(config.right))
    total = NOTHING
    for width, passed in terms:
        bits = min(width, config.raw.bits)
        gated = min(passed, bits)
        total += adder(bits - gated) + state(bits) + (luts if first else gates)(gated)
        total += gates(wide - 1) if first and bits > gated else NOTHING
    if first and _subtracts(config):
        # The cells of a subtracter have no room for gates.
        total += luts(wide) + choice(wide - 1)
    return total


def _subtracts(config: PairConfig) -> bool:
    """Return whether the highest row of a product is subtracted from the one below it: it belongs to a sign bit."""
    sides = (config.left, config.right)
    narrow = min(sides, key=lambda kind: (number_bits(kind), kind.signed))
    # With an odd number of rows the highest one has no partner in the first level, and is subtracted further behind.
    return narrow.signed and config.planes % 2 == 0
