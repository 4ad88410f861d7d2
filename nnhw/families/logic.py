"""Logic of a family: LUTs, carry chains and flip-flops, how they pack, and what is left of them after synthesis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Logic:
    """Logic cells.

    Parameters
    ----------
    rom_words: words of a ROM whose bit is one LUT.
    deep_rom: (words, bits): a ROM of weights in LUTs has at most so many words or at most so many bits; None: any. Each
        of its LUTs reads the same signals, which go to all of them.
    rom_rest_words: so many words of a ROM beyond a multiple of these take nothing but a multiplexer.
    wide_luts: so many LUTs, or a smaller power of two, make one of more inputs with multiplexers that are no LUTs.
    mux_lc: logic cells that another two-way multiplexer of one bit takes.
    carry_bits: bits of an adder in a carry cell.
    carry_lc: logic cells of a carry cell.
    chain_bits: bits of a carry chain beside those of its sum, which bring the carry in.
    small_adders: logic cells of adders of 1, 2, ... bits that synthesis makes of LUTs, without a carry chain.
    gate_adder_bits: bits of a sum up to which the hardware asks for gates instead of a carry chain; 0: never.
    flip_flop_packs: a flip-flop shares a logic cell only with the LUT that drives it; false: any two share one, so that
        a design takes as many logic cells as it has LUTs or flip-flops, whichever are more.
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
