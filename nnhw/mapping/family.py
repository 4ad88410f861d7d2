"""Device families as the cost model sees them: block RAM shapes, LUTs, carry chains, DSP blocks. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnhw.engines.large_ram import LUT_RAM_WORDS


@dataclass(frozen=True)
class DspBlock:
    """A DSP block.

    Parameters
    ----------
    cell: its name.
    left_bits, right_bits: operands of its product, signed or not.
    least_bits: of both operands of a product together, below which yosys makes it of LUTs.
    products: smaller products of `product_bits` x `product_bits` that it can do instead at the same time.
    accumulates: it has an adder and accumulator of its own that the open tools use.
    """

    cell: str
    left_bits: int
    right_bits: int
    least_bits: int
    products: int
    product_bits: int
    accumulates: bool


@dataclass(frozen=True)
class Family:
    """A device family.

    Parameters
    ----------
    name: as in `nnhw.boards.FAMILIES`.
    block_ram_modes: (words, bits) of a block RAM with a port to read and a port to write, the widest first.
    block_ram_bits: of a block RAM.
    slow_block_ram: a block RAM's output takes so much of a cycle that nothing but a register has time behind it.
    write_mask_bits: bits of a word that can be written apart from the others.
    block_ram_units: what a block RAM costs where yosys chooses a shape; a two-way multiplexer of one bit costs 1/2.
    large_ram: (words, bits) of a large RAM with one port, or None.
    lut_inputs: of a logic cell's LUT.
    lut_rom_words: words of a ROM whose bit is one LUT.
    lut_ram_words, lut_ram_lc: words of a memory in LUTs, and the logic cells of four bits of it; 0: there is none.
    deep_rom: (words, bits): a ROM of weights in LUTs has at most so many words or at most so many bits; None: any. Each
        of its LUTs reads the same signals, which go to all of them. Measured: an ECP5-25F with 144 words of 256 bits,
        and 93 % of its logic cells taken, is routed; with 324 words of 160 bits, and 70 %, it is not.
    rom_rest_words: so many words of a ROM beyond a multiple of these take nothing but a multiplexer.
    wide_luts: so many LUTs, or a smaller power of two, make one of more inputs with multiplexers that are no LUTs.
    mux_lc: logic cells that another two-way multiplexer of one bit takes.
    carry_bits: bits of an adder in a carry cell.
    carry_lc: logic cells of a carry cell.
    chain_bits: bits of a carry chain beside those of its sum, which bring the carry in.
    small_adders: logic cells of adders of 1, 2, ... bits that synthesis makes of LUTs, without a carry chain.
    flip_flop_packs: a flip-flop shares a logic cell only with the LUT that drives it; false: any two share one, so that
        a design takes as many logic cells as it has LUTs or flip-flops, whichever are more.
    dense_dsp: one DSP block of the iCE40 multiplies and adds, where sums are scaled to codes and that is exact, and
        makes the products of two cells of one lane.
    dsp: its DSP block; some devices of the family have none.
    usable: share of a device's logic cells that a mapping may be estimated to take: beyond, clocks drop, or placement
        finds no room. Measured: a UP5K does not always place at 86 %. An ECP5-25F was placed and routed at 93 % of
        its LUTs.
    usable_ff: the same of flip-flops, where they are counted apart. Measured on an ECP5-25F, where they come in pairs
        with one enable: with 93 % of them taken, cells found no place.
    stretch: multiple of that for what is known only with the whole: FIFOs, converters of width, larger line buffers.
    usable_shared: the same of a shared engine, whose many small groups of registers and short carry chains leave tiles
        of the iCE40 half empty. Measured: at 84 % of a UP5K as estimated, 87 % as placed, all seeds found places.
    block_ram_lc, dsp_lc: logic cells that a block RAM or a DSP block is taken to be worth when foldings of the same
        speed are compared.
    """

    name: str
    block_ram_modes: tuple[tuple[int, int], ...]
    block_ram_bits: int
    slow_block_ram: bool
    write_mask_bits: int
    block_ram_units: int
    large_ram: tuple[int, int] | None
    lut_inputs: int
    lut_rom_words: int
    lut_ram_words: int
    lut_ram_lc: int
    deep_rom: tuple[int, int] | None
    rom_rest_words: int
    wide_luts: int
    mux_lc: float
    carry_bits: int
    carry_lc: int
    chain_bits: int
    small_adders: tuple[int, ...]
    flip_flop_packs: bool
    dsp: DspBlock
    usable: float
    usable_ff: float
    stretch: float
    usable_shared: float
    block_ram_lc: float
    dsp_lc: float
    dense_dsp: bool = False

    def weight(self, lc: float, ebr: int, dsp: int) -> float:
        """Return one number to compare costs by."""
        return lc + self.block_ram_lc * ebr + self.dsp_lc * dsp

    def block_rams(self, depth: int, bits: int, *, rom: bool = False, parts: int = 1) -> int:
        """Return the block RAMs of a memory, at the shape that synthesis chooses; a single word is a constant.

        What does not fit below one another may stand beside one another, with a multiplexer in logic to choose; in a
        memory that is written, as far as the write mask allows it.

        Parameters
        ----------
        rom: nothing is ever written.
        parts: of a word that are written apart, all of the same length.
        """
        return self._shape(depth, bits, rom, parts)[0] if depth > 1 else 0

    def rom_banks(self, depth: int, bits: int) -> int:
        """Return how many memories one below another a ROM in block RAM is made of, with a multiplexer behind them."""
        return self._shape(depth, bits, True, 1)[1]

    def _shape(self, depth: int, bits: int, rom: bool, parts: int) -> tuple[int, int]:
        """Return the block RAMs of a memory, and how many lie one below another.

        The shape is not always that of the fewest block RAMs: what chooses among those one below another costs, too,
        half a unit for each bit of all but one to read, and for each enable of all to write. Of shapes that cost the
        same, synthesis takes the deepest.

        Source: yosys 0.70, `memory_libmap`, compared with what it made of some 600 memories; the tests compare fewer.
        """
        shapes = []
        for words, width in reversed(self.block_ram_modes):
            mask = 1 if rom else min(self.write_mask_bits, width)
            banks = -(-depth // words)
            count = -(-banks * parts * -(-bits // parts // mask) * mask // width)
            logic = (banks - 1) * bits + (banks * parts if banks > 1 and not rom else 0)
            shapes.append((self.block_ram_units * count + logic / 2, count, banks))
        return min(shapes, key=lambda shape: shape[0])[1:]

    def large_rams(self, depth: int, bits: int) -> int | None:
        """Return the large RAMs of a memory, side by side; None where the family has none, or none of that depth."""
        if self.large_ram is None or depth > self.large_ram[0]:
            return None
        return -(-bits // self.large_ram[1])


ICE40 = Family(
    name="ice40",
    block_ram_modes=((256, 16), (512, 8), (1024, 4), (2048, 2)),  # Lattice, iCE40 memory usage guide (FPGA-TN-02002)
    block_ram_bits=4096,
    slow_block_ram=False,
    write_mask_bits=1,
    block_ram_units=64,  # yosys 0.70, ice40/brams.txt
    large_ram=(16384, 16),
    lut_inputs=4,
    lut_rom_words=16,
    lut_ram_words=0,
    lut_ram_lc=0,
    deep_rom=None,
    rom_rest_words=4,
    wide_luts=1,
    mux_lc=1.0,
    carry_bits=1,
    carry_lc=1,
    chain_bits=0,
    small_adders=(),
    flip_flop_packs=True,
    dsp=DspBlock("SB_MAC16", 16, 16, least_bits=11, products=2, product_bits=8, accumulates=True),
    usable=0.85,
    usable_ff=1.0,
    stretch=1.04,
    usable_shared=0.84,
    block_ram_lc=25,
    dsp_lc=100,
)

ECP5 = Family(
    name="ecp5",
    # Lattice, ECP5 memory usage guide (FPGA-TN-02204). 36 bits: one port reads, the other writes.
    block_ram_modes=((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1)),
    block_ram_bits=18432,
    slow_block_ram=True,  # nextpnr: 5.8 ns from the clock to the output in speed grade 6
    write_mask_bits=9,
    block_ram_units=128,  # yosys 0.70, lattice/brams_16kd.txt
    large_ram=None,
    lut_inputs=4,
    lut_rom_words=16,
    lut_ram_words=LUT_RAM_WORDS["ecp5"],  # TRELLIS_DPR16X4
    lut_ram_lc=6,
    deep_rom=(192, 8192),
    # PFUMX and L6MUX21: ROMs of 17, 40, 100, 144 and 324 words took 1.1, 3.9, 8.0, 11.1 and 27.3 LUTs a bit.
    rom_rest_words=1,
    wide_luts=8,
    mux_lc=0.3,
    carry_bits=2,
    carry_lc=2,
    # See `nnhw.flow.implementation.carries`. What is not a tree's adder is LUTs up to 4 bits. Measured with single
    # adders, yosys 0.70.
    chain_bits=1,
    small_adders=(1, 2, 6, 11),
    flip_flop_packs=False,
    # MULT9X9D, half of it, is not accepted by nextpnr, and ALU54B is not used by yosys.
    dsp=DspBlock("MULT18X18D", 18, 18, least_bits=0, products=1, product_bits=18, accumulates=False),
    usable=0.9,
    usable_ff=0.9,
    stretch=1.0,
    usable_shared=0.9,
    block_ram_lc=80,
    dsp_lc=100,
)

FAMILIES: Mapping[str, Family] = {family.name: family for family in (ICE40, ECP5)}
"""By the name that a board's field `family` has."""
