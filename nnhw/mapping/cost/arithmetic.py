"""The logic of lanes: their products, and the trees that add them."""

from __future__ import annotations

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.families import ICE40, Family
from nnhw.mapping.resources import adder_lc, chain_lc, register_lc, tree_adder_lc, tree_widths


def tree_lc(arithmetic: LaneArithmetic, simd: int, raw: int, family: Family = ICE40) -> float:
    """Return the logic cells of the products of one cell's lanes and of the tree that adds them.

    The operands of iCE40's carry chain are signals, so that what gates or inverts the first of the two takes LUTs
    of its own; the gate of the second one is in the cells of the chain (see `nnhw.hdl.cells`). On ECP5 both are.

    Parameters
    ----------
    raw: bits of the raw sum: what lies above is left out.
    """
    kind, a, w = arithmetic.kind, arithmetic.activation.bits, arithmetic.weight.bits
    pairs = simd // 2
    if kind == "xnor" or (a == 1 and w == 1):
        return adder_tree_lc([1] * simd, raw, family, counts=True) or 1.0
    if kind == "select":
        return register_lc(pairs * (a + 2), family) + _plane_lc(a, simd, raw, family)
    if kind == "ternary":
        return 2 * pairs * a + (adder_tree_lc([a] * simd, raw, family) or a)
    if arithmetic.has_tables:
        return (_tables_lc if family.logic.flip_flop_packs else _chained_tables_lc)(simd, raw, family)
    planes, bits = arithmetic.planes, w if w >= a else a
    total = sum(
        register_lc(pairs * min(bits, raw - plane), family) + _plane_lc(bits, simd, raw - plane, family)
        for plane in range(planes)
    )
    narrow = arithmetic.weight if w < a else arithmetic.activation
    each = bits + (simd - 1).bit_length()
    # What the highest plane of a signed factor gives is subtracted: a LUT inverts each bit for the carry chain, where
    # there is one.
    is_chain = each + 1 > family.logic.gate_adder_bits
    inverted = each if planes > 1 and narrow.signed and not narrow.bipolar and is_chain else 0
    return total + register_lc(inverted, family) + _join_lc(planes, each, raw, family)


def dsp_lc(arithmetic: LaneArithmetic, simd: int, raw: int, family: Family = ICE40) -> float:
    """Return the logic cells of a cell whose products are made in DSP blocks: the tree that adds them."""
    return adder_tree_lc([arithmetic.activation.bits + arithmetic.weight.bits] * simd, raw, family)


def dsp_blocks(arithmetic: LaneArithmetic, simd: int, family: Family) -> int:
    """Return the DSP blocks of one cell whose products are made in them; 0 where they cannot be."""
    return -(-simd // family.dsp.products) if arithmetic.can_use_dsp else 0


def adder_tree_lc(widths: list[int], raw: int, family: Family, counts: bool = False) -> float:
    """Return the adders of a tree; a term that is alone in its level is a register.

    Parameters
    ----------
    counts: the terms are counts of bits, of whose sums the top bit is a LUT of its own.
    """
    total, top = 0.0, int(counts)
    while len(widths) > 1:
        following = tree_widths(widths)[0]
        total += sum(tree_adder_lc(min(width, raw) - top, family) + top for width in following[: len(widths) // 2])
        if len(widths) % 2:
            total += register_lc(min(following[-1], raw), family)
        widths = following
    return total


def _tables_lc(simd: int, raw: int, family: Family) -> float:
    """Return the logic cells of products that are looked up, and of the tree that adds them.

    One half of the terms has no sign and the other one has, so that the sum of all takes a bit more.
    """
    widths = [3] * (simd - simd % 2) + [4] * (simd % 2)
    return sum(widths) + (adder_tree_lc(widths, raw, family) + 1 if simd > 1 else 4)


def _chained_tables_lc(simd: int, raw: int, family: Family) -> float:
    """Return the same on ECP5, where what is two more than each product is added."""
    pairs, alone = divmod(simd, 2)
    widths = [4] * pairs + [3] * alone
    looked_up = 2 * simd + alone + pairs * chain_lc(4, family)
    top = (6 * simd).bit_length() - ((2 * simd) & -(2 * simd)).bit_length() + 2
    return looked_up + adder_tree_lc(widths, raw + 1, family) + top


def _plane_lc(bits: int, simd: int, raw: int, family: Family) -> float:
    """Return the adders of one plane's lanes, in the first level of which the gates of both operands are.

    A lane that is alone in the first level takes a LUT a bit.
    """
    first = [bits + 1] * (simd // 2) + [bits] * (simd % 2)
    alone = min(bits, raw) * (simd % 2)
    own = sum(chain_lc(min(width, raw), family) for width in first[: simd // 2])
    return own + alone + adder_tree_lc(first, raw, family)


def _join_lc(planes: int, bits: int, raw: int, family: Family) -> float:
    """Return the tree that joins the sums of planes, each bit of which counts twice the one before."""
    widths, shift, total = [bits] * planes, 1, 0.0
    while len(widths) > 1:
        following = []
        for index in range(0, len(widths), 2):
            low, *high = widths[index : index + 2]
            width = shift + max(low - shift, high[0]) + 1 if high else low
            passed = min(shift if high else width, raw)
            total += register_lc(passed, family) + adder_lc(min(width, raw) - passed, family)
            following.append(width)
        widths = following
        shift *= 2
    return total
