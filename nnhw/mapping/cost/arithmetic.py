"""The cost of lanes: their products, and the trees of adders that sum them, with a register behind each adder."""

from __future__ import annotations

from functools import lru_cache

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.families import ICE40, Cost, Family
from nnhw.families.logic import Logic

MOST_KNOWN = 4096
"""Entries of the caches of this module."""


@lru_cache(maxsize=MOST_KNOWN)
def lane_products(arithmetic: LaneArithmetic, simd: int, raw: int, family: Family = ICE40) -> Cost:
    """Return the cost of the products of one cell's lanes and of the tree that adds them.

    In some families, gates and inverters in front of an adder take LUTs of their own; in others they are part of the
    cells of the carry chain (see `nnhw.hdl.cells`). `Logic.through` has the difference.

    Parameters
    ----------
    simd: number of lanes.
    raw: bits of the raw sum; higher bits of partial sums are left out, as they cannot matter.
    """
    logic, kind = family.logic, arithmetic.kind
    a, w = arithmetic.activation.bits, arithmetic.weight.bits
    pairs = simd // 2
    if kind == "xnor" or (a == 1 and w == 1):
        return adder_tree([1] * simd, raw, logic, counts=True) if simd > 1 else Cost(1.0) + logic.state(min(1, raw))
    if kind == "select":
        return logic.through(pairs * (a + 2)) + _plane(a, simd, raw, logic)
    if kind == "ternary":
        tree = adder_tree([a] * simd, raw, logic) if simd > 1 else Cost(a) + logic.state(min(a, raw))
        return Cost(2 * pairs * a) + tree
    if arithmetic.has_tables:
        return (_tables if logic.flip_flop_packs else _chained_tables)(simd, raw, logic)
    return _planes(arithmetic, simd, raw, logic)


def _planes(arithmetic: LaneArithmetic, simd: int, raw: int, logic: Logic) -> Cost:
    """Return the cost of products by bit planes of the narrower factor, each added over all lanes."""
    a, w = arithmetic.activation.bits, arithmetic.weight.bits
    planes, bits = arithmetic.planes, max(a, w)
    total = sum(
        (
            logic.through(simd // 2 * min(bits, raw - plane)) + _plane(bits, simd, raw - plane, logic)
            for plane in range(planes)
        ),
        Cost(),
    )
    narrow = arithmetic.weight if w < a else arithmetic.activation
    each = bits + (simd - 1).bit_length()
    # What the highest plane of a signed factor gives is subtracted: a LUT inverts each bit for the carry chain, where
    # there is one.
    is_chain = each + 1 > logic.gate_adder_bits
    inverted = each if planes > 1 and narrow.signed and not narrow.bipolar and is_chain else 0
    return total + logic.through(inverted) + _join(planes, each, raw, logic)


@lru_cache(maxsize=MOST_KNOWN)
def dsp_sums(arithmetic: LaneArithmetic, simd: int, raw: int, family: Family = ICE40) -> Cost:
    """Return the cost of the tree that adds the products of a cell's DSP blocks, without these."""
    return adder_tree([arithmetic.activation.bits + arithmetic.weight.bits] * simd, raw, family.logic)


def dsp_blocks(arithmetic: LaneArithmetic, simd: int, family: Family) -> int:
    """Return the DSP blocks of one cell whose products are made in them; 0 if this arithmetic cannot use them."""
    return -(-simd // family.dsp.products) if arithmetic.can_use_dsp else 0


def adder_tree(widths: list[int], raw: int, logic: Logic, counts: bool = False) -> Cost:
    """Return the cost of the adders of a tree; a term without a partner in its level is a register.

    Parameters
    ----------
    widths: bits of the terms.
    raw: bits of the result; higher bits are left out.
    counts: whether the terms are counts of bits; the top bit of their sums is a separate LUT.
    """
    total, top = Cost(0.0), int(counts)
    while len(widths) > 1:
        following = tree_widths(widths)[0]
        sums = [min(width, raw) for width in following[: len(widths) // 2]]
        total += sum((logic.tree_adder(bits - top) + Cost(top) + logic.state(bits) for bits in sums), Cost())
        if len(widths) % 2:
            total += logic.register(min(following[-1], raw))
        widths = following
    return total


def tree_widths(widths: list[int]) -> list[list[int]]:
    """Return the widths of the registers behind each level of a tree of adders, in bits."""
    levels = []
    while len(widths) > 1:
        pairs = [widths[index : index + 2] for index in range(0, len(widths), 2)]
        widths = [max(pair) + 1 if len(pair) == 2 else pair[0] for pair in pairs]
        levels.append(widths)
    return levels


def _tables(simd: int, raw: int, logic: Logic) -> Cost:
    """Return the cost of products that are looked up in tables, and of the tree that adds them.

    One half of the terms is signed and the other one is not, so that the sum of all has one bit more.
    """
    widths = [3] * (simd - simd % 2) + [4] * (simd % 2)
    tree = adder_tree(widths, raw, logic) + Cost(1) if simd > 1 else Cost(4)
    return Cost(sum(widths)) + tree


def _chained_tables(simd: int, raw: int, logic: Logic) -> Cost:
    """Return the cost of looked-up products for families whose gates are in carry chains.

    Tables there give each product plus 2, which is never negative; a constant at the end subtracts that again.
    """
    pairs, alone = divmod(simd, 2)
    widths = [4] * pairs + [3] * alone
    looked_up = Cost(2 * simd + alone) + pairs * logic.chain(4)
    looked_up += logic.state(sum(min(width, raw + 1) for width in widths))
    top = (6 * simd).bit_length() - ((2 * simd) & -(2 * simd)).bit_length() + 2
    return looked_up + adder_tree(widths, raw + 1, logic) + Cost(top) + logic.state(raw)


def _plane(bits: int, simd: int, raw: int, logic: Logic) -> Cost:
    """Return the cost of adding one plane's lanes; the adders of the first level contain the gates of both operands.

    A lane without a partner in the first level takes a LUT for each bit.
    """
    pairs, alone = divmod(simd, 2)
    pair, single = min(bits + 1, raw), min(bits, raw)
    first = pairs * (logic.chain(pair) + logic.state(pair)) + alone * (Cost(single) + logic.state(single))
    return first + adder_tree([bits + 1] * pairs + [bits] * alone, raw, logic)


def _join(planes: int, bits: int, raw: int, logic: Logic) -> Cost:
    """Return the cost of the tree that joins the sums of planes, each worth twice as much as the one before."""
    widths, shift, total = [bits] * planes, 1, Cost(0.0)
    while len(widths) > 1:
        following = []
        for index in range(0, len(widths), 2):
            low, *high = widths[index : index + 2]
            width = shift + max(low - shift, high[0]) + 1 if high else low
            # The lowest bits of the lower sum have nothing to be added to: they are registers, not adders.
            passed = min(shift if high else width, raw)
            total += logic.register(passed) + logic.sum(min(width, raw) - passed)
            following.append(width)
        widths = following
        shift *= 2
    return total


def drained_sum(bits: int, last: float, steps: int, logic: Logic) -> Cost:
    """Return the cost of one cell's accumulator and of its register in the drain.

    Parameters
    ----------
    last: share of the cells that are at the end of the drain: no other sums come by them, so they need no multiplexer.
    steps: beats that are added up; with 1 there is no accumulator.
    """
    drain = logic.luts(bits * (1 - last)) + logic.through(bits * last) + logic.state(bits)
    return drain if steps == 1 else drain + logic.accumulator(bits)
