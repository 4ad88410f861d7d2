"""Logic of a family: LUTs, carry chains and flip-flops, how they pack, and the price of what is made of them."""

from __future__ import annotations

from dataclasses import dataclass

from nnhw.families.cost import Cost


@dataclass(frozen=True)
class Logic:
    """Logic cells, and the price of parts that are made of them.

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
    compared_lc: where flip-flops pack: logic cells of a bit of a comparison, which are its carry, and the LUT that
        inverts a bit of a constant.
    clamped_lc: logic cells of a bit of the comparisons with both ends of the codes.
    constant_chain, constant_lut: share of the logic of products that is left where each lane has a single weight, of
        those that are made of carry chains and of LUTs.
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
        """Return the price of LUTs that no flip-flop needs."""
        return Cost(lc=count)

    def state(self, bits: float) -> Cost:
        """Return the price of flip-flops behind LUTs that are counted as what they are."""
        return Cost(ff=0 if self.flip_flop_packs else bits)

    def register(self, bits: float) -> Cost:
        """Return the price of flip-flops that no LUT drives."""
        return Cost(lc=bits) if self.flip_flop_packs else Cost(ff=bits)

    def through(self, bits: float) -> Cost:
        """Return the price of what a LUT of its own does only where a cell has nothing but its LUT in front of it.

        Gates and inverters in front of a carry chain are such: elsewhere they lie in the cells of the chain.
        """
        return Cost(lc=bits if self.flip_flop_packs else 0.0)

    def chain(self, bits: int) -> Cost:
        """Return the price of an adder in a carry chain, without a register."""
        return Cost(lc=self._chain_lc(bits))

    def adder(self, bits: int) -> Cost:
        """Return the price of an adder as synthesis makes it; a register behind it takes no more logic cells."""
        return Cost(lc=self._adder_lc(bits))

    def sum(self, bits: int) -> Cost:
        """Return the price of an adder with the register behind it."""
        return Cost(lc=self._adder_lc(bits), ff=self.state(bits).ff)

    def tree_adder(self, bits: int) -> Cost:
        """Return the price of an adder of a tree, which is a carry chain where that takes fewer cells."""
        return Cost(lc=min(self._adder_lc(bits), self._chain_lc(bits)))

    def counter(self, count: int) -> Cost:
        """Return the price of a counter to `count` - 1 and again: a carry chain, and the comparison with its end."""
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
        """Return the price of a comparison: a carry chain and its end; of two bits, a LUT.

        Parameters
        ----------
        constant: with a single number; synthesis keeps the carry chain all the same.
        """
        if bits <= 2:
            return Cost(lc=1.0)
        if self.flip_flop_packs:
            return Cost(lc=bits * self.compared_lc + 1)
        if constant and bits <= len(self.small_adders):
            return Cost(lc=1.0)
        return Cost(lc=self._adder_lc(bits) - 2 * (bits <= 4))

    def limit(self, limit: int, bits: int) -> Cost:
        """Return the price of a comparison with a constant: a LUT where it asks for a few bits, or a carry chain."""
        lowest = limit & -limit
        if limit == 0:
            return Cost()
        return Cost(lc=1 if bits <= 4 or lowest == limit or limit + lowest == 1 << bits else bits + 3)

    def _chain_lc(self, bits: int) -> int:
        return -(-(bits + self.chain_bits) // self.carry_bits) * self.carry_lc

    def _adder_lc(self, bits: int) -> int:
        if bits <= 0:
            return 0
        return self.small_adders[bits - 1] if bits <= len(self.small_adders) else self._chain_lc(bits)


def counter_bits(count: int) -> int:
    """Return the bits of a counter that runs to `count` - 1."""
    return (count - 1).bit_length()
