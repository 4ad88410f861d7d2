"""Logic of a family: its LUTs, carry chains and flip-flops, how they pack, and what parts made of them cost."""

from __future__ import annotations

from dataclasses import dataclass

from nnhw.families.cost import Cost


@dataclass(frozen=True)
class Logic:
    """Logic cells of a family, and the prices of parts that are made of them.

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

    def luts(self, count: float) -> Cost:
        """Return the price of `count` LUTs in front of which or behind which no flip-flop is counted."""
        return Cost(lc=count)

    def state(self, bits: float) -> Cost:
        """Return the price of flip-flops behind LUTs, without these LUTs."""
        return Cost(ff=0 if self.flip_flop_packs else bits)

    def register(self, bits: float) -> Cost:
        """Return the price of flip-flops that no LUT drives."""
        return Cost(lc=bits) if self.flip_flop_packs else Cost(ff=bits)

    def through(self, bits: float) -> Cost:
        """Return the price of gates or inverters in front of a carry chain.

        They take LUTs of their own in a family whose carry cells have one LUT4 a bit; elsewhere they are in the chain.
        """
        return Cost(lc=bits if self.flip_flop_packs else 0.0)

    def chain(self, bits: int) -> Cost:
        """Return the price of an adder in a carry chain, without a register."""
        return Cost(lc=self._chain_lc(bits))

    def adder(self, bits: int) -> Cost:
        """Return the price of an adder as synthesis makes it; a register behind it takes no further logic cells."""
        return Cost(lc=self._adder_lc(bits))

    def sum(self, bits: int) -> Cost:
        """Return the price of an adder with the register behind it."""
        return Cost(lc=self._adder_lc(bits), ff=self.state(bits).ff)

    def accumulator(self, bits: int) -> Cost:
        """Return the price of a sum that numbers are added to; what begins a new sum is in the cells of its chain."""
        # Even a narrow one is a chain where flip-flops are counted apart: the choice leaves no LUT for the adder.
        return Cost(lc=self._adder_lc(bits) if self.flip_flop_packs else self._chain_lc(bits)) + self.state(bits)

    def tree_adder(self, bits: int) -> Cost:
        """Return the price of an adder of a tree, which is a carry chain where that takes fewer cells."""
        return Cost(lc=min(self._adder_lc(bits), self._chain_lc(bits)))

    def counter(self, count: int) -> Cost:
        """Return the price of a counter modulo `count`: a carry chain, and the comparison with its end."""
        bits = counter_bits(count)
        if bits == 0:
            return Cost(lc=0.0)
        if self.flip_flop_packs:
            return Cost(lc=bits + (bits + 2) // 3 + (bits > 2))
        if bits <= len(self.small_adders):
            return Cost(lc=bits + 1.0, ff=bits)
        return Cost(lc=self._adder_lc(bits) + 2.0 + (bits - 1 if count & (count - 1) else 0), ff=bits)

    def buffer(self, bits: int) -> Cost:
        """Return the price of a `StreamBuffer`: two beats, and its handshake."""
        if self.flip_flop_packs:
            return Cost(lc=bits + bits + 4)
        return Cost(lc=bits + 0.0 + 4, ff=2 * bits + 2)

    def comparison(self, bits: int, constant: bool = False) -> Cost:
        """Return the price of a comparison of two numbers of `bits` bits: a carry chain and its end, or a LUT.

        Parameters
        ----------
        constant: one of them is a constant; in some families narrow comparisons are LUTs then.
        """
        if bits <= 2:
            return Cost(lc=1.0)
        if self.flip_flop_packs:
            return Cost(lc=bits * self.compared_lc + 1)
        if constant and bits <= len(self.small_adders):
            return Cost(lc=1.0)
        return Cost(lc=self._adder_lc(bits) - 2 * (bits <= 4))

    def limit(self, limit: int, bits: int) -> Cost:
        """Return the price of a comparison of a number of `bits` bits with the constant `limit`."""
        # A power of two, or 2**bits less one, looks at a few of the bits only, which takes a LUT; others take a chain.
        lowest = limit & -limit
        if limit == 0:
            return Cost()
        return Cost(lc=1 if bits <= 4 or lowest == limit or limit + lowest == 1 << bits else bits + 3)

    def _chain_lc(self, bits: int) -> int:
        """Return the logic cells of a carry chain for a sum of `bits` bits."""
        return -(-(bits + self.chain_bits) // self.carry_bits) * self.carry_lc

    def _adder_lc(self, bits: int) -> int:
        """Return the logic cells of an adder of `bits` bits, as synthesis makes it."""
        if bits <= 0:
            return 0
        return self.small_adders[bits - 1] if bits <= len(self.small_adders) else self._chain_lc(bits)


def counter_bits(count: int) -> int:
    """Return the bits of a counter from 0 to `count` - 1."""
    return (count - 1).bit_length()
