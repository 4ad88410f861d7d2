"""Logic of a family: its LUTs, carry chains and flip-flops, and how they pack."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Logic:
    """Logic cells of a family; `nnhw.families.prices` has what parts made of them cost.

    Parameters
    ----------
    rom_words: words of a ROM of which one LUT holds a bit each.
    deep_rom: (words, bits): a ROM of weights in LUTs with more words has at most so many bits; None: any size will do.
        All of its LUTs read the same address signals, so large and deep ones cannot be routed.
    rom_rest_words: if a ROM has at most so many words more than a multiple of `rom_words`, these take a multiplexer
        only.
    wide_luts: how many LUTs, at most, hardware multiplexers join to one LUT with more inputs.
    mux_lc: logic cells of any other two-way multiplexer of one bit.
    carry_bits: bits of an adder in one carry cell.
    carry_lc: logic cells of one carry cell.
    chain_bits: bits that a carry chain has in addition to those of the sum, to bring the carry in.
    small_adders: logic cells of adders of 1, 2, ... bits that synthesis makes from LUTs, without a carry chain.
    gate_adder_bits: widest sum, in bits, that the hardware describes by gates to avoid a carry chain; 0: none.
    flip_flop_packs: a flip-flop shares a logic cell only with the LUT that drives it. False: with any LUT, so that a
        design takes as many logic cells as it has LUTs or flip-flops, whichever are more.
    compared_lc: if flip-flops pack: logic cells for each bit of a comparison: its carry, and sometimes a LUT that
        inverts a bit.
    clamped_lc: logic cells for each bit of the two comparisons of a clamp.
    constant_chain, constant_lut: share of the logic of products that remains where each lane has a single weight, a
        constant: for products made from carry chains, and for those made from LUTs.
    """

    rom_words: int
    deep_rom: tuple[int, int] | None
    rom_rest_words: int
    wide_luts: int
    mux_lc: float
    carry_bits: int
    carry_lc: int
    chain_bits: int
    small_adders: tuple[int, ...]
    gate_adder_bits: int
    flip_flop_packs: bool
    compared_lc: float
    clamped_lc: float
    constant_chain: float
    constant_lut: float

    def chain_lc(self, bits: int) -> int:
        """Return the logic cells of a carry chain for a sum of `bits` bits."""
        return -(-(bits + self.chain_bits) // self.carry_bits) * self.carry_lc

    def adder_lc(self, bits: int) -> int:
        """Return the logic cells of an adder of `bits` bits, as synthesis makes it."""
        if bits <= 0:
            return 0
        return self.small_adders[bits - 1] if bits <= len(self.small_adders) else self.chain_lc(bits)
