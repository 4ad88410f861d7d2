"""How the open tools build for a family, and what its cells are to a simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Counts = Mapping[str, int]
"""How many of each kind: cells of a netlist, or places of a device that are taken."""
Columns = Sequence[Sequence[str]]
"""Places for block RAMs, column by column from left to right; each column has as many, from the top down."""


@dataclass(frozen=True)
class FamilyTool:
    """A program that is run for a family.

    Parameters
    ----------
    name: as on PATH.
    version_option: makes it print its version.
    minimum: version that suffices; (): any.
    """

    name: str
    version_option: str
    minimum: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tools:
    """Synthesis, place and route, packing.

    Parameters
    ----------
    synth: yosys command for a device, without the stages of `-run`; with multiplications in DSP blocks or not.
    place, pack: programs for place and route and for the bitstream.
    package: of YoWASP, on PyPI, that has both.
    constraints: ending of the file of constraints, and nextpnr's option for it.
    layout: ending of the placed design, and nextpnr's option for it.
    device_options: nextpnr's options for a device, a package and a speed grade.
    place_options: options of nextpnr that pay.
    pack_options: of the packer.
    bitstream: name of the finished file, from which openFPGALoader knows its kind.
    hidden: (type of cell, library that has it): cells of the design that inference of DSP blocks must not see.
    table: type of a cell that is a lookup table, where contents are put in behind place and route, see
        `nnhw.flow.implementation.contents`; None: they are part of the design.
    flip_flops: yosys commands for a device that say which flip-flops synthesis makes, in front of its stage for these.
    block_ram_columns: places for block RAMs on a device, see `nnhw.flow.implementation.floorplan`; none where nothing
        is arranged.
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
    table: str | None
    flip_flops: Callable[[str], tuple[str, ...]]
    block_ram_columns: Callable[[str], Columns]

    @property
    def names(self) -> tuple[str, str, str]:
        """The tools of a build, as on PATH."""
        return ("yosys", self.place.name, self.pack.name)


@dataclass(frozen=True)
class CellKinds:
    """What cells of a netlist, and places of a layout, count as.

    Parameters
    ----------
    lc: least logic cells of a netlist.
    placed_lc: logic cells of a placement.
    ff, placed_ff: the same of flip-flops, where they are counted apart; else 0.
    block_rams, large_rams, dsps: cells of a netlist, by the beginning of their names.
    placed: what nextpnr's report calls block RAMs, large RAMs and DSP blocks.
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
        """Return how many cells of a netlist are of some kinds."""
        return sum(number for cell, number in cells.items() if kinds and cell.startswith(kinds))


@dataclass(frozen=True, eq=False)
class CellModels:
    """What cells of a netlist are to a simulator.

    Parameters
    ----------
    files: with the models of the cells, in yosys's own folder of shared files.
    own: file with models that yosys does not have, in `nnhw/flow/verification`; None: it has all.
    defines: names that the files expect to be defined.
    luts: ports of a lookup table by the type of the cell: the output, then the inputs from the lowest.
    init: parameter of a lookup table that has its contents.
    pins: (type of the cell at a pin; its ports: the pin, what comes in, what goes out).
    plls: (input, outputs) by the type of the PLL: the simulated clock is the one that the PLL makes.
    ignored: cells that only lead out of the device.
    """

    files: tuple[str, ...]
    own: str | None
    defines: tuple[str, ...]
    luts: Mapping[str, tuple[str, ...]]
    init: str
    pins: tuple[str, str, str, str]
    plls: Mapping[str, tuple[str, tuple[str, ...]]]
    ignored: tuple[str, ...]
