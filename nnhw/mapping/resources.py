"""What counters, registers and trees of adders take of the logic of a family."""

from __future__ import annotations

from nnhw.families import ICE40, Family


def counter_bits(count: int) -> int:
    """Return the bits of a counter that runs to `count` - 1."""
    return (count - 1).bit_length()


def chain_lc(bits: int, family: Family) -> int:
    """Return the logic cells of an adder in a carry chain."""
    return -(-(bits + family.logic.chain_bits) // family.logic.carry_bits) * family.logic.carry_lc


def adder_lc(bits: int, family: Family) -> int:
    """Return the logic cells of an adder as synthesis makes it; a register behind it takes no more."""
    if bits <= 0:
        return 0
    return family.logic.small_adders[bits - 1] if bits <= len(family.logic.small_adders) else chain_lc(bits, family)


def tree_adder_lc(bits: int, family: Family) -> int:
    """Return the logic cells of an adder of a tree, which is a carry chain where that takes fewer."""
    return min(adder_lc(bits, family), chain_lc(bits, family))


def register_lc(bits: float, family: Family) -> float:
    """Return the logic cells of flip-flops that no LUT drives."""
    return bits if family.logic.flip_flop_packs else 0.0


def counter_lc(count: int, family: Family = ICE40) -> float:
    """Return the logic cells of a counter to `count` - 1 and again: a carry chain, and the comparison with its end."""
    bits = counter_bits(count)
    if bits == 0:
        return 0.0
    if family.logic.flip_flop_packs:
        return bits + (bits + 2) // 3 + (bits > 2)
    if bits <= len(family.logic.small_adders):
        return bits + 1.0
    return adder_lc(bits, family) + 2.0 + (bits - 1 if count & (count - 1) else 0)


def buffer_lc(bits: int, family: Family = ICE40) -> float:
    """Return the logic cells of a `StreamBuffer`: two beats, and its handshake."""
    return bits + register_lc(bits, family) + 4


def buffer_flip_flops(bits: int) -> int:
    """Return the flip-flops of a `StreamBuffer`: two beats, and its handshake."""
    return 2 * bits + 2


def tree_widths(widths: list[int]) -> list[list[int]]:
    """Return the widths of the registers behind each level of a tree of adders."""
    levels = []
    while len(widths) > 1:
        pairs = [widths[index : index + 2] for index in range(0, len(widths), 2)]
        widths = [max(pair) + 1 if len(pair) == 2 else pair[0] for pair in pairs]
        levels.append(widths)
    return levels
