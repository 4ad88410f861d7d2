"""How the open tools build for a family, and how its cells are counted and simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Counts = Mapping[str, int]
"""Numbers by kind: of the cells of a netlist, or of the used places of a device."""
Columns = Sequence[Sequence[str]]
"""Places for one kind of cell, by nextpnr's names: columns from left to right, each from the top down, all as long."""


@dataclass(frozen=True)
class Sites:
    """Places of a device, for `nnhw.flow.implementation.floorplan`.

    Parameters
    ----------
    block_ram: type of the cells that are block RAMs.
    block_rams: places for these; empty where nothing is arranged.
    multiplier: type of the cells that are DSP blocks.
    multipliers: places for these; its columns are spread over the same width.
    between: rows of block RAMs, from the first, that lie between rows of DSP blocks.
    """

    block_ram: str = ""
    block_rams: Columns = ()
    multiplier: str = ""
    multipliers: Columns = ()
    between: int = 0


@dataclass(frozen=True)
class FamilyTool:
    """A program that builds for a family.

    Parameters
    ----------
    name: name of the program on PATH.
    version_option: option with which it prints its version.
    minimum: lowest version that will do; (): any.
    """

    name: str
    version_option: str
    minimum: tuple[int, ...] = ()


@dataclass(frozen=True)
class BlockRamMap:
    """How yosys makes the cells of block RAMs, and the initial bits of each of their parameters.

    Parameters
    ----------
    libraries: files that say which memories there are, in yosys's folder of shared files.
    cells: the file there that makes the cells.
    function: name of its function that picks the bits of one parameter; its argument is the parameter's number.
    bits: returns for a number the places of these bits in the memory's contents, lowest first; None: a zero.
    """

    libraries: tuple[str, ...]
    cells: str
    function: str
    bits: Callable[[int], Sequence[int | None]]


@dataclass(frozen=True)
class PlaceSeconds:
    """How long one seed of place and route takes, in seconds of a core: a curve through what was measured.

    Parameters
    ----------
    start_s: for a design of a few cells, as nextpnr loads the device.
    thousand_lc_s: beyond that, for 1,000 logic cells of the netlist.
    power: by which power of the logic cells it grows.
    spread: factor by which a design may take less or more, as one that is harder to route does.
    """

    start_s: float
    thousand_lc_s: float
    power: float
    spread: float

    def between(self, lc: int) -> tuple[float, float]:
        """Return the least and the most seconds to expect for a number of logic cells."""
        expected = self.start_s + self.thousand_lc_s * (lc / 1000) ** self.power
        return expected / self.spread, expected * self.spread


@dataclass(frozen=True)
class Tools:
    """Synthesis, place and route, packing.

    Parameters
    ----------
    synth: returns the yosys command for a device, without its option `-run`; the second argument says whether
        multiplications may go into DSP blocks.
    place, pack: programs for place and route, and for making the bitstream.
    package: YoWASP's package on PyPI that has both.
    constraints: (suffix of the constraint file, nextpnr's option for it).
    layout: (suffix of the placed design's file, nextpnr's option for it).
    device_options: returns nextpnr's options for a device, a package and a speed grade.
    place_options: further options of nextpnr, which improve its results.
    pack_options: options of the packer.
    bitstream: name of the finished file; openFPGALoader knows its kind by the suffix.
    hidden: (type of cell, yosys library that has it): cells of the design that yosys's inference of DSP blocks must not
        see; None: there are none.
    block_rams: how yosys makes block RAMs, see `nnhw.flow.implementation.ram_mapping`.
    table: type of the cells for lookup tables whose contents are put in after place and route, see
        `nnhw.flow.implementation.contents`; its ports and its parameter are in `CellModels`.
    fills_block_rams: whether the contents of block RAMs are put in then, too.
    flip_flops: returns yosys commands for a device that restrict the kinds of flip-flops; run before yosys maps them.
    sites: returns the places of a device that a floorplan gives to cells.
    place_seconds: how long place and route takes.
    """

    synth: Callable[[str, bool], str]
    place: FamilyTool
    pack: FamilyTool
    package: str
    constraints: tuple[str, str]
    layout: tuple[str, str]
    device_options: Callable[[str, str, str], tuple[str, ...]]
    place_options: tuple[str, ...]
    pack_options: tuple[str, ...]
    bitstream: str
    hidden: tuple[str, str] | None
    block_rams: BlockRamMap
    table: str
    fills_block_rams: bool
    flip_flops: Callable[[str], tuple[str, ...]]
    sites: Callable[[str], Sites]
    place_seconds: PlaceSeconds

    @property
    def names(self) -> tuple[str, str, str]:
        """Names of the programs of a build on PATH: synthesis, place and route, packer."""
        return ("yosys", self.place.name, self.pack.name)


@dataclass(frozen=True)
class CellKinds:
    """How cells of a netlist, and used places of a layout, are counted.

    Parameters
    ----------
    lc: returns the fewest logic cells that a netlist can take.
    placed_lc: returns the logic cells that a placed design takes.
    ff, placed_ff: the same for flip-flops in families that count them apart; else they return 0.
    block_rams, large_rams, dsps: beginnings of the names of these cells in a netlist.
    placed: names of block RAMs, large RAMs and DSP blocks in nextpnr's report; "" if there are none.
    """

    lc: Callable[[Counts], int]
    placed_lc: Callable[[Counts], int]
    ff: Callable[[Counts], int]
    placed_ff: Callable[[Counts], int]
    block_rams: tuple[str, ...]
    large_rams: tuple[str, ...]
    dsps: tuple[str, ...]
    placed: tuple[str, str, str]

    @staticmethod
    def count(cells: Counts, kinds: tuple[str, ...]) -> int:
        """Return how many cells of a netlist have a type that begins with one of `kinds`."""
        return sum(number for cell, number in cells.items() if kinds and cell.startswith(kinds))


@dataclass(frozen=True)
class PinCell:
    """The cell at a pin of the device, by its ports.

    Parameters
    ----------
    kind: its type.
    pad: port to the pin.
    inside: port with the level of the pin, for the logic.
    outside: port with the level that the logic wants on the pin.
    enable: port that says whether the pin is driven; not connected: it always is.
    enabled: level of `enable` at which it is driven.
    """

    kind: str
    pad: str
    inside: str
    outside: str
    enable: str
    enabled: int


@dataclass(frozen=True, eq=False)
class CellModels:
    """How cells of a netlist are simulated.

    Parameters
    ----------
    files: files with models of the cells, in yosys's folder of shared files.
    own: file in `nnhw/flow/verification` with models that yosys does not have; None: yosys has all.
    defines: names of macros that must be defined for these files.
    luts: ports of lookup tables, by the type of the cell: the output, then the inputs from the lowest.
    init: name of the parameter with a lookup table's content.
    pin: the cell at a pin.
    plls: (input port, output ports) of PLLs, by the type of the cell: simulated outputs equal the input, which a test
        bench drives with the clock that the PLL makes.
    ignored: types of cells that only lead out of the device.
    """

    files: tuple[str, ...]
    own: str | None
    defines: tuple[str, ...]
    luts: Mapping[str, tuple[str, ...]]
    init: str
    pin: PinCell
    plls: Mapping[str, tuple[str, tuple[str, ...]]]
    ignored: tuple[str, ...]
