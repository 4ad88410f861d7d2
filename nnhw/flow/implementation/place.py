"""Place and route: netlist -> placements for several seeds, and the bitstream of one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnhw.boards import Board, Resources
from nnhw.errors import BuildError
from nnhw.families import FAMILIES, Family
from nnhw.flow.implementation.cells import NETLIST
from nnhw.flow.tools.cache import Cache, cache_key
from nnhw.flow.tools.processes import ToolFailure, ToolRun, error_lines, run, run_each
from nnhw.flow.tools.sources import sources_hash
from nnhw.flow.tools.toolchain import Note, find_tool, prepare, silent

if TYPE_CHECKING:  # a netlist made by other code is another netlist, and as that in the key
    from nnhw.flow.implementation.synthesis import Netlist

CIRCLING_LINES = 60
"""Lines of the router's log without progress after which it is ended; a line is 1,000 wires, or one round."""
CRAWLING_S = 60
"""CPU seconds for 1,000 wires after which, twice, the router is ended, as each further thousand takes longer. With
seconds of the clock on the wall, `ai8x_mnist` on an ECP5-25F, built on a busy machine, went to the second router, and
had 77 MHz instead of 101."""
OTHER_ROUTER = ("--router", "router2")
"""Options with which nextpnr's second router is used when the first one does not finish.

nextpnr's first router gives higher clocks: `mlp784_w8a8` on an ECP5-25F, seed 1, is placed for 108.0 MHz, of which
101.7 are left, with the second router 95.3; one placement of a `peak` there gives 164.6 MHz or 77.0. But of
`resnet8_w4a4` on an 85F it had 1,046 of 121,243 wires to go after 12 minutes, and 674 after 28; the second one routed
all in 3.6, with 81.7 MHz left of 87.3.
"""
MANY_CELLS = 40_000
"""Logic cells from which on the second router is used at once, as the first one would come to no end, or after hours.

With a ResNet-8 of 8 bits of 63,400 cells on an 85F it had 205,000 of 338,000 wires to go after 18 minutes, and with
that of 4 bits, of 43,200 cells, a rest after 28; with `ds_cnn_w8a8` of 34,500 it came to its end.
"""
SPARSE = 0.65
"""Share of a device's logic cells and flip-flops below which nextpnr's static placer is used for large designs."""
SPARSE_OPTIONS = ("--placer", "static")
"""Chooses nextpnr's static placer, which spreads cells as if they repelled each other, and shortens wires.

It does not look at the clock. Measured with a ResNet-8 of 8 bits, 49,000 logic cells on an 85F: 396,000 tiles of wire,
493,000 with the usual placer; 79.8 MHz after routing, where nextpnr had estimated 69.9 MHz before it (63.7 with the
usual placer). Three rounds of the second router left 14,800 wires in dispute, 22,100 with the usual placer, whose
design it did not bring to an end: of wires in dispute there were 4,090 after 19 rounds, and 1,299 with the cells spread
further (`--placer-heap-beta` 0.7, not 0.9)."""
CROWDED = 0.9
"""Share of a device's logic cells, or of its blocks of a kind, above which it counts as crowded."""
CROWDED_OPTIONS = ("--placer-heap-beta", "1")
"""nextpnr spreads cells until no region is fuller than this share, 0.9 if nothing is said. Blocks of which more are
taken never get there: they stay on one side of the device, and take places from each other for thousands of rounds.
Measured with a UP5K of which a shared engine takes all 30 block RAMs, all large RAMs and 80 % of the logic: not placed
in 5 minutes, with this in 20 seconds. With one kind of blocks crowded nextpnr found places."""
# nextpnr has periods in picoseconds: 48 MHz becomes 48.003 MHz. That of the oscillator in an iCE40's PLL is cut off,
# which is one part in 938 at its fastest: 33 MHz, 946 ps times 32, becomes 33.034 MHz.
_ROUNDING = 1.2e-3


@dataclass(frozen=True)
class Hop:
    """A step of a path: 'clk-to-q', 'logic', 'routing' or 'setup', and the cells at its ends."""

    kind: str
    delay_ns: float
    source: str
    sink: str


@dataclass(frozen=True)
class PlacedDesign:
    """A placed and routed design.

    Parameters
    ----------
    folder: has the layout (`seed<n>.asc`, `.config`), nextpnr's report (`.json`) and `.log`.
    seed: of the placement.
    clock_hz: clock that it was made for, in Hz.
    fmax_hz: clock that its slowest path allows, in Hz; 0 if a clock of the link is missed.
    resources: resources that it takes.
    path: its slowest path between registers.
    missed: what a clock of the link reaches, and what it needs, in Hz; None: there is none that is missed.
    """

    folder: Path
    seed: int
    clock_hz: float
    fmax_hz: float
    resources: Resources
    path: tuple[Hop, ...]
    missed: tuple[float, float] | None = None

    @property
    def share(self) -> float:
        """How much of the clock that it was made for is reached; of the clock of its link, if that is missed."""
        return self.missed[0] / self.missed[1] if self.missed else self.fmax_hz / self.clock_hz

    @property
    def holds(self) -> bool:
        """Whether the clock that it was made for is met."""
        return self.fmax_hz >= self.clock_hz

    def file(self, kind: str) -> Path:
        """Return the path of a file: 'asc' or 'config' (the layout), 'json' or 'log'."""
        return self.folder / f"seed{self.seed}.{kind}"


def place_seeds(
    netlist: Netlist,
    constraints: str,
    board: Board,
    clock_hz: int,
    seeds: Sequence[int],
    *,
    jobs: int = 2,
    cache: Cache | None = None,
    note: Note = silent,
) -> Iterator[PlacedDesign]:
    """Place and route a netlist for each seed; yield in the order of the seeds, `jobs` processes at a time.

    A caller that leaves the loop ends the runs that are still running. The order does not depend on `jobs`. Where the
    router does not finish, nextpnr's second one follows, and large designs get that at once. Whether it is too slow is
    decided by the CPU seconds that it takes: so a slow machine may get another layout than a fast one, but a busy
    machine does not. A seed has no placement if cells find no place, or if neither router finishes.

    Parameters
    ----------
    constraints: constraints of pins and of the input clock.
    clock_hz: clock behind the PLL, in Hz.

    Raises
    ------
    ToolError: nextpnr is missing, or failed.
    BuildError: cells find no place with any of the seeds, the netlist's clock is not the requested one, or a clock of
        the constraints is not there.
    """
    cache = cache or Cache(None)
    family, folder = FAMILIES[board.family], netlist.folder
    tool = find_tool(family.tools.place.name)
    prepare(tool, note)
    (folder / f"design.{family.tools.constraints[0]}").write_text(constraints, encoding="utf-8")
    crowded = is_crowded(netlist.resources, board.resources)
    added = large_options(netlist.resources, board.resources)
    options = {seed: [*nextpnr_options(board, clock_hz, seed, crowded), *added] for seed in seeds}
    keys = _keys(netlist, constraints, options, tool.title)
    commands = {
        seed: replace(tool.command(options[seed], folder, f"seed{seed}.log"), is_stuck=is_lost)
        for seed in seeds
        if not cache.fetch(keys[seed], folder)
    }

    def keep(seed: int) -> None:
        if _is_placed(folder, seed):
            _check_constraints(_read_log(folder, seed))
            note(_seed_line(read_placement(folder, seed, clock_hz, family)))
            cache.store(keys[seed], folder, [f"seed{seed}.{kind}" for kind in (family.tools.layout[0], "json", "log")])

    # Seeds end in any order; they are yielded in their own, so that the result does not depend on `jobs`.
    finished = _succeed(commands, jobs, board)
    ended, full = set[int](), []
    for seed in seeds:
        if seed not in commands:
            note(f"{_seed_line(read_placement(folder, seed, clock_hz, family))}, as the cache has it")
        while seed in commands and seed not in ended:
            ended.add(other := next(finished))
            keep(other)
        again = seed in commands and not set(OTHER_ROUTER) <= set(commands[seed].argv)
        if again and not _is_placed(folder, seed) and not finds_no_place(_read_log(folder, seed)):
            note(f"seed {seed}: the router comes to no end; nextpnr's other router takes over")
            run(replace(commands[seed], argv=(*commands[seed].argv, *OTHER_ROUTER)))
            keep(seed)
        if _is_placed(folder, seed):
            yield read_placement(folder, seed, clock_hz, family)
        else:
            log = _read_log(folder, seed)
            full += _no_place_lines(log)[:1]
            note(f"seed {seed} is given up: {'cells find no place' if finds_no_place(log) else 'it is not routed'}")
    if len(full) == len(seeds):
        raise BuildError(_too_large(board, full[0]))


def lay_out(designs: Mapping[Path, Mapping[str, Any]], constraints: str, board: Board) -> list[str]:
    """Return the layouts of small designs, whose timing does not matter; they are made at the same time.

    Parameters
    ----------
    designs: netlists in yosys's JSON, each by the folder for its files, which is made.

    Raises
    ------
    ToolError: nextpnr is missing, or failed.
    """
    tools = FAMILIES[board.family].tools
    tool, options = find_tool(tools.place.name), nextpnr_options(board, board.target_clock_hz, 1)
    for folder, design in designs.items():
        folder.mkdir()
        (folder / NETLIST).write_text(json.dumps(design), encoding="utf-8")
        (folder / f"design.{tools.constraints[0]}").write_text(constraints, encoding="utf-8")
    for _ in run_each([tool.command(options, folder, "pll.log") for folder in designs], len(designs)):
        pass
    return [(folder / f"seed1.{tools.layout[0]}").read_text(encoding="utf-8") for folder in designs]


def is_lost(log: str, share: float) -> bool:
    """Return whether a seed will not lead to a placement; another one may.

    Parameters
    ----------
    log: end of nextpnr's log.
    share: share of a core that nextpnr has had, as its log has seconds of the clock on the wall.
    """
    return finds_no_place(log) or goes_in_circles(log) or crawls(log, share)


def finds_no_place(log: str) -> bool:
    """Return whether nextpnr's placer has ended without a place for each cell, as it does in full devices.

    It spreads the cells before it seeks free places, and gives up after a number of attempts: another seed spreads them
    otherwise.
    """
    return "nable to find legal placement" in log


def goes_in_circles(log: str) -> bool:
    """Return whether nextpnr's router takes out as many wires as it puts in, and has done so for long.

    nextpnr has two. The lines of the first are: iterations | wires taken out, put in | the same since the last line |
    remaining | seconds. Those of the second say how many wires still carry more than one signal.
    """
    overused = [int(number) for number in re.findall(r"^Info: +iter=\d+ .*overused=(\d+)", log, re.MULTILINE)]
    if len(overused) > CIRCLING_LINES and min(overused[-CIRCLING_LINES:]) >= min(overused[:-CIRCLING_LINES]):
        return True
    lines = [(put_in, remaining) for put_in, remaining, _ in _router_lines(log)[-CIRCLING_LINES:]]
    return len(lines) == CIRCLING_LINES and set(lines) == {("0", lines[-1][1])}


def crawls(log: str, share: float) -> bool:
    """Return whether nextpnr's first router took very long for its last thousand wires, twice; see `is_lost`."""
    # Once may be a computer that was asleep.
    last = [float(seconds) for _, _, seconds in _router_lines(log)[-2:]]
    return len(last) == 2 and min(last) * share > CRAWLING_S


def _router_lines(log: str) -> list[tuple[str, str, str]]:
    """Return what the first router's lines say: wires put in since the last line, remaining ones, seconds for them."""
    line = r"^Info: +\d+ \|[^|]+\| +\d+ +(\d+) \| +(\d+)\| +([\d.]+) +[\d.]+\|$"
    return re.findall(line, log, re.MULTILINE)


def is_crowded(taken: Resources, given: Resources) -> bool:
    """Return whether little is left of a device's logic cells or flip-flops, or of two kinds of its blocks."""
    if taken.lc > CROWDED * given.lc or taken.ff > CROWDED * given.ff:
        return True
    blocks = ((taken.ebr, given.ebr), (taken.dsp, given.dsp), (taken.spram, given.spram))
    return sum(some > CROWDED * number for some, number in blocks) >= 2


def large_options(taken: Resources, given: Resources) -> tuple[str, ...]:
    """Return nextpnr's options for large designs, none for others; see `MANY_CELLS` and `SPARSE`."""
    if taken.lc <= MANY_CELLS:
        return ()
    is_sparse = taken.lc < SPARSE * given.lc and taken.ff < SPARSE * given.ff
    return (*OTHER_ROUTER, *(SPARSE_OPTIONS if is_sparse and not is_crowded(taken, given) else ()))


def nextpnr_options(board: Board, clock_hz: int, seed: int, crowded: bool = False) -> list[str]:
    """Return nextpnr's options. A missed clock is no failure of the run: `PlacedDesign.holds` says it.

    Parameters
    ----------
    crowded: the placer may fill every place of a region.
    """
    tools = FAMILIES[board.family].tools
    (constraints, constraints_option), (layout, layout_option) = tools.constraints, tools.layout
    return [
        *tools.device_options(board.device, board.package, board.speed),
        *("--freq", f"{clock_hz / 1e6:g}", "--json", NETLIST, constraints_option, f"design.{constraints}"),
        *(layout_option, f"seed{seed}.{layout}", "--report", f"seed{seed}.json"),
        *("--seed", str(seed), "--timing-allow-fail", *tools.place_options, *(CROWDED_OPTIONS if crowded else ())),
    ]


def read_placement(folder: Path, seed: int, clock_hz: int, family: Family) -> PlacedDesign:
    """Return the placement of a seed from nextpnr's files.

    Raises
    ------
    BuildError: no clock of the design is the requested one.
    """
    report = json.loads((folder / f"seed{seed}.json").read_text(encoding="utf-8"))
    clocks = {name: (entry["achieved"] * 1e6, entry["constraint"] * 1e6) for name, entry in report["fmax"].items()}
    made = [hz for _, hz in clocks.values()]
    if not any(abs(hz / clock_hz - 1) <= _ROUNDING for hz in made):
        listed = ", ".join(f"{hz / 1e6:.2f}" for hz in made) or "none"
        raise BuildError(
            f"the design should run at {clock_hz / 1e6:g} MHz, but place and route found clocks of {listed} MHz; "
            "this is a mistake in nnhw: please report it"
        )
    resources = _resources(report["utilization"], family)
    fmax_hz, missed = _reached(clocks.values(), clock_hz)
    return PlacedDesign(folder, seed, float(clock_hz), fmax_hz, resources, _slowest_path(report), missed)


def _reached(clocks: Iterable[tuple[float, float]], clock_hz: int) -> tuple[float, tuple[float, float] | None]:
    """Return the clock that a design holds, and the clock of its link that it misses by most, see `PlacedDesign`.

    Parameters
    ----------
    clocks: what each clock reaches and what it needs, in Hz. Nearly always there is one.
    """
    own, others = list[float](), list[tuple[float, float]]()
    for reached, needed in clocks:
        if abs(needed / clock_hz - 1) <= _ROUNDING:
            own.append(reached)
        elif reached < needed:
            others.append((reached, needed))
    if others:  # no other clock of the design makes up for it
        return 0.0, min(others, key=lambda clock: clock[0] / clock[1])
    return min(own), None


def pack(placement: PlacedDesign, family: Family, note: Note = silent) -> Path:
    """Return the bitstream file of a placement, in its folder.

    Raises
    ------
    ToolError: the packer is missing, or failed.
    """
    return pack_layout(placement.folder, placement.file(family.tools.layout[0]).name, family, note)


def pack_layout(folder: Path, layout: str, family: Family, note: Note = silent) -> Path:
    """Return the bitstream file of a layout, by its name, in its folder. Raises ToolError: see `pack`."""
    tools = family.tools
    tool = find_tool(tools.pack.name)
    prepare(tool, note)
    run(tool.command([*tools.pack_options, layout, tools.bitstream], folder, f"{tools.pack.name}.log"))
    return folder / tools.bitstream


def _succeed(commands: Mapping[int, ToolRun], jobs: int, board: Board) -> Iterator[int]:
    """Run nextpnr; yield the seeds as they finish."""
    seed_of = {command: seed for seed, command in commands.items()}
    try:
        for command in run_each(commands.values(), jobs):
            yield seed_of[command]
    except ToolFailure as failure:
        # nextpnr packs before it places: so this is how it says that the logic cells do not suffice.
        if any("no BELs remaining" in line for line in failure.lines):
            raise BuildError(_too_large(board, failure.lines[0])) from failure
        raise


def _keys(netlist: Netlist, constraints: str, options: Mapping[int, list[str]], tool: str) -> dict[int, str]:
    """Return the cache keys of the placements, by seed."""
    content, code = (netlist.folder / NETLIST).read_bytes(), sources_hash(__name__)
    return {
        seed: cache_key(stage="place", netlist=content, constraints=constraints, options=one, tool=tool, code=code)
        for seed, one in options.items()
    }


def _no_place_lines(log: str) -> list[str]:
    return [line for line in error_lines(log) if finds_no_place(line)]


def _seed_line(placement: PlacedDesign) -> str:
    if placement.missed:
        reached_hz, needed_hz = placement.missed
        reached = f"{reached_hz / 1e6:.2f} MHz of {needed_hz / 1e6:.4g}"
        return f"seed {placement.seed} misses the clock of the link: {reached}"
    return f"seed {placement.seed} reaches {placement.fmax_hz / 1e6:.2f} MHz of {placement.clock_hz / 1e6:g}"


def _is_placed(folder: Path, seed: int) -> bool:
    return (folder / f"seed{seed}.json").exists()


def _check_constraints(log: str) -> None:
    """Raise a BuildError if a clock was placed without its frequency: of a name it cannot find, nextpnr only warns."""
    ignored = re.search(r"net '(.*)' does not exist in design, ignoring clock constraint", log)
    if ignored:
        raise BuildError(
            f"place and route does not find the clock '{ignored[1]}', whose frequency it has to hold; this is a "
            "mistake in nnhw, or in a design of yours that renames the clock: please report it"
        )


def _read_log(folder: Path, seed: int) -> str:
    return (folder / f"seed{seed}.log").read_text(encoding="utf-8", errors="replace")


def _too_large(board: Board, line: str) -> str:
    """Return the message that a design does not fit, in nextpnr's words, with what to do."""
    said = line.removeprefix("ERROR: ").partition(", check constraints")[0]
    return (
        f"the design does not fit '{board.name}': {said}; "
        "use a smaller network, a slower --target-fps, smaller foldings in --overrides, or a larger board"
    )


def _resources(utilization: Mapping[str, Mapping[str, int]], family: Family) -> Resources:
    taken = {kind: entry["used"] for kind, entry in utilization.items()}
    ebr, spram, dsp = (taken.get(kind, 0) for kind in family.kinds.placed)
    return Resources(family.kinds.placed_lc(taken), ebr, spram, dsp, family.kinds.placed_ff(taken))


def _slowest_path(report: Mapping[str, Any]) -> tuple[Hop, ...]:
    """Return the slowest path between registers of one clock."""
    inner = [
        path["path"]
        for path in report["critical_paths"]
        if path["from"] == path["to"] and not path["from"].startswith("<async>")
    ]
    slowest = max(inner, key=lambda path: sum(hop["delay"] for hop in path), default=())
    return tuple(Hop(hop["type"], hop["delay"], hop["from"]["cell"], hop["to"]["cell"]) for hop in slowest)


def describe_path(path: Sequence[Hop]) -> str:
    """Return a path in a line: length, ends, and what it is made of."""
    if not path:
        return "no path between registers"
    total = sum(hop.delay_ns for hop in path)
    levels = sum(hop.kind == "logic" for hop in path)
    routing = sum(hop.delay_ns for hop in path if hop.kind == "routing")
    start, end = path[0].source, path[-1].sink
    return f"{total:.2f} ns from '{start}' to '{end}' ({levels} cells, {routing:.2f} ns of it in wires)"


def hops_of(placement: PlacedDesign) -> list[dict[str, str | float]]:
    """Return the slowest path for a report."""
    return [
        {"kind": hop.kind, "delay_ns": round(hop.delay_ns, 3), "source": hop.source, "sink": hop.sink}
        for hop in placement.path
    ]
