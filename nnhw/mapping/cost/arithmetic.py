"""The parts of lanes: their products, and the trees of adders that sum them, with a register behind each adder."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.families import Family
from nnhw.families.parts import (
    NOTHING,
    Inventory,
    LogicFact,
    accumulator,
    chain,
    dsp_products,
    gates,
    inverters,
    listed,
    luts,
    register,
    registered_sum,
    state,
    tree_adder,
    where,
)

MOST_KNOWN = 4096
"""Entries of the caches of this module."""


@lru_cache(maxsize=MOST_KNOWN)
def lane_products(arithmetic: LaneArithmetic, simd: int, raw: int) -> Inventory:
    """List the products of one cell's lanes and the tree that adds them.

    In some families, gates and inverters in front of an adder take LUTs of their own; in others they are part of the
    cells of the carry chain (see `nnhw.hdl.cells`): the price of `gates` has the difference.

    Parameters
    ----------
    simd: number of lanes.
    raw: bits of the raw sum; higher bits of partial sums are left out, as they cannot matter.
    """
    kind = arithmetic.kind
    a, w = arithmetic.activation.bits, arithmetic.weight.bits
    pairs = simd // 2
    # A product of two bits is a gate, which fits the LUT of the adder or counter behind it.
    if kind == "xnor" or (a == 1 and w == 1):
        return adder_tree([1] * simd, raw, counts=True) if simd > 1 else luts(1) + state(min(1, raw))
    if kind == "select":
        return gates(pairs * (a + 2)) + _plane(a, simd, raw)
    if kind == "ternary":
        tree = adder_tree([a] * simd, raw) if simd > 1 else luts(a) + state(min(a, raw))
        # A LUT for each bit: the activation, its complement or 0. A lane alone has it in the LUT of its register.
        return luts(2 * pairs * a) + tree
    if arithmetic.has_tables:
        # Where gates do not take LUTs of their own, because they are in carry chains, the products are, too.
        return where(LogicFact.PACKS, _tables(simd, raw), _chained_tables(simd, raw))
    return _planes(arithmetic, simd, raw)


def _planes(arithmetic: LaneArithmetic, simd: int, raw: int) -> Inventory:
    """List products by bit planes of the narrower factor, each added over all lanes."""
    a, w = arithmetic.activation.bits, arithmetic.weight.bits
    planes, bits = arithmetic.planes, max(a, w)
    added = [gates(simd // 2 * min(bits, raw - plane)) + _plane(bits, simd, raw - plane) for plane in range(planes)]
    narrow = arithmetic.weight if w < a else arithmetic.activation
    # The sum of a plane over all lanes has a bit more for each level of the tree.
    each = bits + (simd - 1).bit_length()
    # What the highest plane of a signed factor gives is subtracted.
    subtracted = inverters(each) if planes > 1 and narrow.signed and not narrow.bipolar else NOTHING
    return listed(added) + subtracted + _join(planes, each, raw)


@lru_cache(maxsize=MOST_KNOWN)
def dsp_sums(arithmetic: LaneArithmetic, simd: int, raw: int) -> Inventory:
    """List the tree that adds the products of a cell's DSP blocks, without these."""
    return adder_tree([arithmetic.activation.bits + arithmetic.weight.bits] * simd, raw)


def products_in_dsp(arithmetic: LaneArithmetic, simd: int) -> Inventory:
    """List the products of one cell that are made in DSP blocks; nothing if this arithmetic cannot use them."""
    return dsp_products(simd) if arithmetic.can_use_dsp else NOTHING


def dsp_blocks(arithmetic: LaneArithmetic, simd: int, family: Family) -> int:
    """Return the DSP blocks of one cell whose products are made in them; 0 if this arithmetic cannot use them."""
    return family.price(products_in_dsp(arithmetic, simd)).dsp


def adder_tree(widths: list[int], raw: int, counts: bool = False) -> Inventory:
    """List the adders of a tree; a term without a partner in its level is a register.

    Parameters
    ----------
    widths: bits of the terms.
    raw: bits of the result; higher bits are left out.
    counts: whether the terms are counts of bits; the top bit of their sums is a separate LUT.
    """
    found, top = list[Inventory](), int(counts)
    for following in tree_widths(widths):
        sums = Counter(min(width, raw) for width in following[: len(widths) // 2])
        # Equal sums are listed together: a tree has thousands of adders, and lists of parts are priced often.
        for bits, count in sums.items():
            found += [count * tree_adder(bits - top), luts(count * top), state(count * bits)]
        # The last term has no partner, and waits a level.
        if len(widths) % 2:
            found.append(register(min(following[-1], raw)))
        widths = following
    return listed(found)


def tree_widths(widths: list[int]) -> list[list[int]]:
    """Return the widths of the registers behind each level of a tree of adders, in bits."""
    levels = []
    while len(widths) > 1:
        pairs = [widths[index : index + 2] for index in range(0, len(widths), 2)]
        widths = [max(pair) + 1 if len(pair) == 2 else pair[0] for pair in pairs]
        levels.append(widths)
    return levels


def _tables(simd: int, raw: int) -> Inventory:
    """List products that are looked up in tables, and the tree that adds them.

    One half of the terms is signed and the other one is not, so that the sum of all has one bit more.
    """
    widths = [3] * (simd - simd % 2) + [4] * (simd % 2)
    tree = adder_tree(widths, raw) + luts(1) if simd > 1 else luts(4)
    return luts(sum(widths)) + tree


def _chained_tables(simd: int, raw: int) -> Inventory:
    """List looked-up products for families whose gates are in carry chains.

    Tables there give each product plus 2, which is never negative; a constant at the end subtracts that again.
    """
    pairs, alone = divmod(simd, 2)
    widths = [4] * pairs + [3] * alone
    looked_up = luts(2 * simd + alone) + pairs * chain(4)
    looked_up += state(sum(min(width, raw + 1) for width in widths))
    # The greatest product plus 2 is 6, and 2 for each lane is subtracted: its lowest zero bits need nothing.
    top = (6 * simd).bit_length() - ((2 * simd) & -(2 * simd)).bit_length() + 2
    return looked_up + adder_tree(widths, raw + 1) + luts(top) + state(raw)


def _plane(bits: int, simd: int, raw: int) -> Inventory:
    """List the adders of one plane's lanes; those of the first level contain the gates of both operands.

    A lane without a partner in the first level takes a LUT for each bit.
    """
    pairs, alone = divmod(simd, 2)
    pair, single = min(bits + 1, raw), min(bits, raw)
    first = pairs * chain(pair) + state(pairs * pair) + luts(alone * single) + state(alone * single)
    return first + adder_tree([bits + 1] * pairs + [bits] * alone, raw)


def _join(planes: int, bits: int, raw: int) -> Inventory:
    """List the tree that joins the sums of planes, each worth twice as much as the one before."""
    widths, shift, found = [bits] * planes, 1, list[Inventory]()
    while len(widths) > 1:
        following = []
        for index in range(0, len(widths), 2):
            low, *high = widths[index : index + 2]
            width = shift + max(low - shift, high[0]) + 1 if high else low
            # The lowest bits of the lower sum have nothing to be added to: they are registers, not adders.
            passed = min(shift if high else width, raw)
            found += [register(passed), registered_sum(min(width, raw) - passed)]
            following.append(width)
        widths = following
        # Each level joins sums that are twice as many planes apart.
        shift *= 2
    return listed(found)


def drained_sum(bits: int, last: float, steps: int) -> Inventory:
    """List one cell's accumulator and its register in the drain.

    Parameters
    ----------
    last: share of the cells that are at the end of the drain: no other sums come by them, so they need no multiplexer.
    steps: beats that are added up; with 1 there is no accumulator.
    """
    drain = luts(bits * (1 - last)) + gates(bits * last) + state(bits)
    return drain if steps == 1 else drain + accumulator(bits)
