"""What differs between device families in synthesis, place and route, and packing: one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nnhw.boards import Board
from nnhw.flow.implementation.cells import BLOCK_RAM, CARRY, REGISTER
from nnhw.flow.implementation.floorplan import Columns

Counts = Mapping[str, int]
"""How many of each kind: cells of a netlist, or places of a device that are taken."""

LARGE_LC = 30_000
"""Logic cells beyond which nextpnr's placer needs to be told where block RAMs stand, see `floorplan`."""


@dataclass(frozen=True)
class FlowFamily:
    """How the tools build for a family.

    Parameters
    ----------
    synth: yosys command for a board, without the stages of `-run`; with multiplications in DSP blocks or not.
    cells_lc: least logic cells of a netlist.
    placed_lc: logic cells of a placement.
    cells_ff, placed_ff: the same of flip-flops, where they are counted apart.
    block_rams, large_rams, dsps: cells of a netlist, by the beginning of their names.
    placed: what nextpnr's report calls block RAMs, large RAMs and DSP blocks.
    place_tool, pack_tool: as on PATH.
    constraints: ending of the file of constraints, and nextpnr's option for it.
    layout: ending of the placed design, and nextpnr's option for it.
    device_options: nextpnr's options for a board.
    place_options: options of nextpnr that pay.
    pack_options: of the packer.
    bitstream: name of the finished file, from which openFPGALoader knows its kind.
    hidden: (type of cell, library that has it): cells of the design that inference of DSP blocks must not see.
    table: type of a cell that is a lookup table, where contents are put in behind place and route, see
        `nnhw.flow.implementation.contents`; None: they are part of the design.
    flip_flops: yosys commands for a board that say which flip-flops synthesis makes, in front of its stage for these.
    block_ram_columns: places for block RAMs on a board's device, see `nnhw.flow.implementation.floorplan`; none where
        nothing is arranged.
    """

    synth: Callable[[Board, bool], str]
    cells_lc: Callable[[Counts], int]
    placed_lc: Callable[[Counts], int]
    block_rams: tuple[str, ...]
    large_rams: tuple[str, ...]
    dsps: tuple[str, ...]
    placed: tuple[str, str, str]
    place_tool: str
    pack_tool: str
    constraints: tuple[str, str]
    layout: tuple[str, str]
    device_options: Callable[[Board], tuple[str, ...]]
    place_options: tuple[str, ...]
    pack_options: tuple[str, ...]
    bitstream: str
    hidden: tuple[str, str] | None = None
    table: str | None = None
    flip_flops: Callable[[Board], tuple[str, ...]] = lambda _: ()
    block_ram_columns: Callable[[Board], Columns] = lambda _: ()
    cells_ff: Callable[[Counts], int] = lambda _: 0
    placed_ff: Callable[[Counts], int] = lambda _: 0

    @property
    def tools(self) -> tuple[str, str, str]:
        """The tools of a build, as on PATH."""
        return ("yosys", self.place_tool, self.pack_tool)

    def count(self, cells: Counts, kinds: tuple[str, ...]) -> int:
        """Return how many cells of a netlist are of some kinds."""
        return sum(number for cell, number in cells.items() if kinds and cell.startswith(kinds))


def _synth_ice40(board: Board, dsp: bool) -> str:
    device = "u" if board.device.startswith("u") else board.device[:2]
    # -abc9 is what yosys 0.70 does on its own, and older ones do not.
    return f"synth_ice40 -device {device} -top top -abc9{' -dsp' if dsp else ''}"


_ICE40_FLIP_FLOPS = ("$_DFF_?_", "$_DFFE_?P_", "$_DFF_?P?_", "$_DFFE_?P?P_", "$_SDFF_?P?_", "$_SDFFCE_?P?P_")
"""yosys's names for the flip-flops of an iCE40: with and without enable, set or reset."""


def _flip_flops_ice40(board: Board) -> tuple[str, ...]:
    """Return the commands; see `FlowFamily.flip_flops`.

    The eight flip-flops of a tile have one enable and one reset. On the UP5K, of an enable or a reset that fewer than
    three flip-flops share, synthesis makes logic in front of them, which nearly always fits the LUT beside each. The
    command is `synth_ice40`'s own with two options more.

    Measured with seed 1, without --> with: a shared engine that fills a UP5K for ResNet-8 of two bits, no place in nine
    minutes --> placed in one (193 --> 119 pairs of enable and reset, 462 --> 400 tiles of flip-flops at least, 31 LUTs
    more); of four bits, 43.4 --> 50.0 MHz; `mnist_cnn` 51.2 --> 58.9, `mnist_mlp` 60.6 --> 63.6. On the HX8K, where a
    LUT more takes a larger part of a cycle, it gives and takes: `mnist_mlp` 125 --> 142 MHz, `mnist_cnn` 131 --> 120,
    the array of `peak` 155 --> 148.
    """
    if not board.device.startswith("u"):
        return ()
    kinds = " 0 -cell ".join(_ICE40_FLIP_FLOPS)
    return (f"dfflegalize -cell {kinds} 0 -cell $_DLATCH_?_ x -mince 3 -minsrst 3",)


def _synth_ecp5(board: Board, dsp: bool) -> str:
    """Return the command; see `FlowFamily.synth`.

    Measured with `mnist_mlp` (of the HX8K) on an ECP5-25, grade 6, one seed: 5,821 TRELLIS_COMB and 104.4 MHz; with
    `-nowidelut` 6,635 and 91.5 MHz. yosys 0.70 runs abc9 on its own.
    """
    return f"synth_ecp5 -top top{'' if dsp else ' -nodsp'}"


def _block_ram_columns_ecp5(board: Board) -> Columns:
    """Return the places of an 85F, by nextpnr's names: 52 columns of four.

    Every nine tiles have four columns; in the middle of the device there are two tiles more.
    """
    if not board.device.endswith("85k"):
        return ()
    lefts = [4 + 9 * (column // 4) + 2 * (column % 4) + 2 * (column >= 28) for column in range(52)]
    return [[f"X{x}/Y{y}/EBR{column % 4}" for y in (22, 46, 70, 82)] for column, x in enumerate(lefts)]


def _cells_lc_ice40(cells: Counts) -> int:
    flip_flops = sum(number for kind, number in cells.items() if kind.startswith("SB_DFF"))
    return max(cells.get("SB_LUT4", 0), cells.get("SB_CARRY", 0), flip_flops)


def _cells_lc_ecp5(cells: Counts) -> int:
    """Count LUTs: a carry cell is two, a memory of 16 x 4 bits six, two of them for its write port."""
    return cells.get("LUT4", 0) + 2 * cells.get(CARRY, 0) + 6 * cells.get("TRELLIS_DPR16X4", 0)


def _ff_ecp5(cells: Counts) -> int:
    return cells.get(REGISTER, 0)


ICE40 = FlowFamily(
    synth=_synth_ice40,
    cells_lc=_cells_lc_ice40,
    placed_lc=lambda taken: taken.get("ICESTORM_LC", 0),
    block_rams=("SB_RAM40_4K",),
    large_rams=("SB_SPRAM256KA",),
    dsps=("SB_MAC16",),
    placed=("ICESTORM_RAM", "ICESTORM_SPRAM", "ICESTORM_DSP"),
    place_tool="nextpnr-ice40",
    pack_tool="icepack",
    constraints=("pcf", "--pcf"),
    layout=("asc", "--asc"),
    device_options=lambda board: (f"--{board.device}", "--package", board.package),
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
    # `ice40_dsp` (yosys 0.70) takes cells that are there already for its own: it cuts their clock and leaves out their
    # registers, without a word.
    hidden=("SB_MAC16", "+/ice40/cells_sim.v"),
    table="SB_LUT4",
    flip_flops=_flip_flops_ice40,
)

ECP5 = FlowFamily(
    synth=_synth_ecp5,
    cells_lc=_cells_lc_ecp5,
    # A slice has two of each, and a flip-flop needs no LUT beside it: the device is full when either runs out.
    placed_lc=lambda taken: taken.get("TRELLIS_COMB", 0),
    block_rams=(BLOCK_RAM, "PDPW16KD"),
    large_rams=(),
    dsps=("MULT18X18D",),
    placed=(BLOCK_RAM, "", "MULT18X18D"),
    place_tool="nextpnr-ecp5",
    pack_tool="ecppack",
    constraints=("lpf", "--lpf"),
    layout=("config", "--textcfg"),
    device_options=lambda board: (f"--{board.device}", "--package", board.package, "--speed", board.speed),
    # The option above costs here: 93.2 MHz instead of 104.4 (`mnist_mlp`, one seed).
    #
    # Attempts to find a place for a carry chain: the square of the number of cells by this, 8 if nothing is said, and
    # there is no line in the log meanwhile. Measured with chains that take more tiles than an ECP5-25F
    # has: 216,507,240 attempts, no end in 13 minutes; with this 1,732,058, given up in less than 5.
    place_options=("--placer-heap-cell-placement-timeout", "1000"),
    pack_options=("--compress",),
    bitstream="design.bit",
    block_ram_columns=_block_ram_columns_ecp5,
    cells_ff=_ff_ecp5,
    placed_ff=_ff_ecp5,
)

FLOW_FAMILIES: Mapping[str, FlowFamily] = {"ice40": ICE40, "ecp5": ECP5}


def family_of(board: Board) -> FlowFamily:
    """Return how the tools build for a board."""
    return FLOW_FAMILIES[board.family]
