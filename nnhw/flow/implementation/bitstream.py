"""From a device to a bitstream: elaboration, synthesis, place and route, timing gate, packing."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnhw.boards import Board
from nnhw.families import FAMILIES, Family
from nnhw.flow.folder.build_folder import write_json
from nnhw.flow.implementation.cells import NETLIST
from nnhw.flow.implementation.contents import Parted, part
from nnhw.flow.implementation.filling import CONTENTS, MarkedNetlist, locate, mark
from nnhw.flow.implementation.layouts import format_of
from nnhw.flow.implementation.patching import fingerprint
from nnhw.flow.implementation.place import PlacedDesign, hops_of, pack, place_seeds
from nnhw.flow.implementation.retuning import pll_parameters, retune, without_pll
from nnhw.flow.implementation.synthesis import Netlist, synthesize
from nnhw.flow.implementation.timing_closure import Closure, Wanted, close_timing, first_clock, usable_clocks
from nnhw.flow.tools.cache import Cache
from nnhw.flow.tools.toolchain import Note, find_tool, silent

if TYPE_CHECKING:
    from amaranth.lib.wiring import Component

    from nnhw.hdl.pll import PllSettings
    from nnhw.hdl.top import TopDesign

MakeDevice = Callable[[int], "Component"]
"""Returns a new device with ports `rx` and `tx` for a clock in hertz."""
MINUTE_S = 60


def names(family: Family) -> tuple[str, ...]:
    """Return the names of a build's files, whose bytes are the same for the same input.

    These are the netlists before and after synthesis, constraints, layout, bitstream, nextpnr's report and, for
    families whose memories can be filled later, the places of their contents. Logs have times and folders in them, so
    they are not among the files.
    """
    made = (f"design.{family.tools.constraints[0]}", f"design.{family.tools.layout[0]}", family.tools.bitstream)
    return ("design.il", NETLIST, *made, "nextpnr.json", *((CONTENTS,) if family.tools.fills_block_rams else ()))


@dataclass(frozen=True)
class BitstreamRequest:
    """What a bitstream must fulfil, and how much may be tried for it.

    Parameters
    ----------
    clock_hz: clock that must be met, in Hz; None: place for the board's target, and take the fastest that is met.
    seeds: number of placements at most.
    jobs: tool processes at a time.
    planned_ebr, planned_spram: block RAMs and large RAMs that the design must take; None: not checked.
    dsp: multiplications go into DSP blocks.
    images_per_s: see `nnhw.flow.implementation.timing_closure.Wanted`.
    """

    clock_hz: float | None = None
    seeds: int = 5
    jobs: int = 2
    planned_ebr: int | None = None
    planned_spram: int | None = None
    dsp: bool = False
    images_per_s: Callable[[float], float] | None = None


@dataclass(frozen=True)
class Bitstream:
    """A finished bitstream.

    Parameters
    ----------
    closure: its clock and placement.
    netlist: the netlist that was placed.
    tools: versions of the tools by name.
    """

    closure: Closure
    netlist: Netlist
    tools: dict[str, str]

    def facts(self) -> dict[str, Any]:
        """Return the facts of the stage `build` for the report."""
        placement = self.closure.placement
        taken = placement.resources
        return {
            "clock_hz": self.closure.settings.output_hz,
            "clock_reason": self.closure.reason,
            "placed_hz": self.closure.placed.output_hz,
            "fmax_hz": round(placement.fmax_hz),
            "seed": placement.seed,
            "resources": dataclasses.asdict(taken),
            "attempts": [
                {"clock_hz": attempt.clock_hz, "seed": attempt.seed, "fmax_hz": round(attempt.fmax_hz)}
                for attempt in self.closure.attempts
            ],
            "slowest_path": hops_of(placement),
            "memories": [
                {"name": memory.name, "depth": memory.depth, "bits": memory.bits, "ebr": memory.ebr}
                for memory in self.netlist.memories
            ],
            "tools": self.tools,
        }


def build_bitstream(
    make_device: MakeDevice,
    board: Board,
    out: Path,
    request: BitstreamRequest,
    *,
    logs: Path | None = None,
    cache: Cache | None = None,
    note: Note = silent,
) -> Bitstream:
    """Build the bitstream of a device; the files of `names` appear in `out`, all of them or none.

    Parameters
    ----------
    out: takes the files.
    logs: folder that takes what the tools print, for each clock and seed, whether they succeed or not.

    Raises
    ------
    ToolError: a tool is missing, or failed.
    BuildError: the design does not fit, or a memory is not where it was planned.
    TimingError: the clock does not hold.
    """
    family = FAMILIES[board.family]
    # First of all, so that a tool that is missing is reported before minutes of work.
    tools = {name: find_tool(name).title for name in family.tools.names}
    clocks = usable_clocks(board)
    first = first_clock(clocks, request.clock_hz, board.target_clock_hz)
    with tempfile.TemporaryDirectory(prefix="nnhw-") as scratch:
        trial = ClockTrial(make_device, board, Path(scratch), request, cache, note)
        try:
            wanted = Wanted(clocks, first, request.clock_hz is not None, board.host_link, request.images_per_s)
            closure = close_timing(trial.place, wanted, trial.serves, note)
            note(f"the clock is {closure.settings.output_hz / 1e6:g} MHz: {closure.reason}")
            trial.finish(closure)
            packed = pack(closure.placement, family, note)
        finally:
            # In `finally`: the logs are needed most when a tool has failed.
            _keep_logs(Path(scratch), logs)
        folder, placement = packed.parent, closure.placement
        kept = names(family)
        made = (
            *kept[:3],
            placement.file(family.tools.layout[0]).name,
            packed.name,
            placement.file("json").name,
            *kept[6:],
        )
        _move({name: folder / source for name, source in zip(kept, made, strict=True)}, out)
        return Bitstream(closure, trial.netlists[closure.placed.output_hz], tools)


class ClockTrial:
    """Builds a device for one clock after the other, and finishes layouts; see `implementation.timing_closure`."""

    def __init__(
        self,
        make_device: MakeDevice,
        board: Board,
        folder: Path,
        request: BitstreamRequest,
        cache: Cache | None,
        note: Note,
    ) -> None:
        self.make_device = make_device
        self.board = board
        self._family = FAMILIES[board.family]
        self.folder = folder
        self.request = request
        self.cache = cache
        self.note = note
        self.netlists: dict[int, Netlist] = {}
        self._designs: dict[PllSettings, TopDesign] = {}
        self._fillings: dict[int, _Filling] = {}

    def place(self, settings: PllSettings) -> Iterator[PlacedDesign]:
        """Yield the placements for a clock, seed after seed."""
        request, clock_hz = self.request, settings.output_hz
        folder = self.folder / str(clock_hz)
        folder.mkdir()
        design = self._design(settings)
        self.note(f"synthesis for {clock_hz / 1e6:g} MHz")
        netlist = self._synthesize(design.rtlil, folder, clock_hz)
        (folder / "design.il").write_text(design.rtlil, encoding="utf-8")
        self.netlists[clock_hz] = netlist
        seeds = range(1, request.seeds + 1)
        options: dict[str, Any] = {"jobs": request.jobs, "cache": self.cache, "note": self.note}
        self.note(
            f"place and route for {clock_hz / 1e6:g} MHz, up to {request.seeds} seeds, {request.jobs} at a time"
            f"{expected_seconds(self._family, netlist.resources.lc)}"
        )
        yield from place_seeds(netlist, design.constraints, self.board, clock_hz, seeds, **options)

    def _synthesize(self, rtlil: str, folder: Path, clock_hz: int) -> Netlist:
        """Synthesize a design; where contents can be filled in after place and route, without them."""
        family, kept = self._family, list[str]()
        while True:
            parted = part(rtlil, family, kept)
            netlist = self._run_synthesis(parted.skeleton, folder)
            plan, unknown = mark(folder / NETLIST, parted)
            if not unknown:
                self._fillings[clock_hz] = _Filling(parted, plan, tuple(kept))
                return netlist
            self.note(f"memories whose contents cannot be exchanged later: {', '.join(unknown)}")
            # Once more, with these contents in the design; memories can become unknown in the new netlist, so until
            # none is.
            kept += unknown

    def _run_synthesis(self, rtlil: str, folder: Path) -> Netlist:
        request = self.request
        return synthesize(
            rtlil,
            self.board,
            folder,
            planned_ebr=request.planned_ebr,
            planned_spram=request.planned_spram,
            dsp=request.dsp,
            cache=self.cache,
            note=self.note,
        )

    def _design(self, settings: PllSettings) -> TopDesign:
        """Return the design for a clock."""
        from nnhw.hdl.top import make_top

        if settings not in self._designs:
            self._designs[settings] = make_top(self.make_device, self.board, settings)
        return self._designs[settings]

    def serves(self, placed: PllSettings, settings: PllSettings) -> bool:
        """Return whether the layout for one clock can be changed to another: the designs differ in contents and PLL
        alone.

        That is decided by comparing them; clocks far above the target are not even elaborated.
        """
        filling = self._fillings[placed.output_hz]
        if settings == placed or settings.output_hz > self.board.fastest_clock_hz:
            return settings == placed
        skeletons = (filling.parted.skeleton, filling.part(self._design(settings), self._family).skeleton)
        # Skeletons have markers in place of contents (`contents.part`), so contents do not count here.
        one, other = (without_pll(skeleton, self._family) for skeleton in skeletons)
        return one == other

    def finish(self, closure: Closure) -> None:
        """Put contents and clock into a layout, its netlist and its design, and write the places of the contents."""
        placement = closure.placement
        filling, design = self._fillings[closure.placed.output_hz], self._design(closure.settings)
        file, netlist = placement.file(self._family.tools.layout[0]), placement.folder / NETLIST
        layout, made = (
            format_of(self._family).read(file.read_text(encoding="ascii")),
            json.loads(netlist.read_text(encoding="utf-8")),
        )
        slots, top = locate(layout, filling.plan, filling.kept), made["modules"]["top"]
        slots.fill(layout, top, filling.part(design, self._family))
        text = layout.text
        if closure.settings != closure.placed:
            settings = (self._design(closure.placed).rtlil, design.rtlil)
            change = (pll_parameters(settings[0], self._family), pll_parameters(settings[1], self._family))
            text = retune(top, text, change, design.constraints, self.board, placement.folder)
        file.write_text(text, encoding="ascii")
        netlist.write_text(json.dumps(made), encoding="utf-8")
        (placement.folder / "design.il").write_text(design.rtlil, encoding="utf-8")
        if self._family.tools.fills_block_rams:
            write_json(placement.folder / CONTENTS, slots.document(fingerprint(self.board, self.request)))


@dataclass(frozen=True)
class _Filling:
    """A design with its contents apart, the marks in its netlist, and the memories that keep theirs."""

    parted: Parted
    plan: MarkedNetlist
    kept: tuple[str, ...]

    def part(self, design: TopDesign, family: Family) -> Parted:
        """Return the contents of a design apart, as those of this one are."""
        return part(design.rtlil, family, self.kept)


def expected_seconds(family: Family, lc: int) -> str:
    """Return what is said about the time of a seed before it begins."""
    least, most = family.tools.place_seconds.between(lc)
    took = (
        f"{least:.0f} to {most:.0f} s"
        if most < 2 * MINUTE_S
        else f"{least / MINUTE_S:.0f} to {most / MINUTE_S:.0f} min"
    )
    return f"; a seed of {lc:,} logic cells takes {took} of a core"


def _move(files: dict[str, Path], out: Path) -> None:
    """Bring files to a folder, by their final names; they are copied beside their place first, then renamed."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=out) as staging:
        for name, source in files.items():
            (Path(staging) / name).write_bytes(source.read_bytes())
        for name in files:
            os.replace(Path(staging) / name, out / name)


def _keep_logs(scratch: Path, logs: Path | None) -> None:
    """Copy the logs of all clocks to a folder."""
    if logs is None:
        return
    for log in sorted(scratch.glob("*/*.log")):
        (logs / log.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, logs / log.parent.name / log.name)
