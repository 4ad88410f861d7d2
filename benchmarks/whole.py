"""Whole networks of the zoo: exactness, resources, clock and rate of each on a board, and how busy its engines are."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cases import CASES, Case
from benchmarks.mnist import join
from benchmarks.networks import NETWORKS
from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.boards import load_board
from nnhw.errors import NnhwError
from nnhw.flow.array_work import peak, works, works_of
from nnhw.flow.commands.terminal import render_report
from nnhw.flow.options import Options
from nnhw.flow.pipeline import Build, run_build
from nnhw.flow.tools.progress import Progress, make_progress
from nnhw.flow.verification.equality import PATTERNS, Equality, check_equality
from nnhw.flow.verification.record_cycles import program_rows
from nnhw.flow.verification.simulate import sample_codes

Row = dict[str, Any]


def network(*names: str) -> Callable[[str | None], Row]:
    """Return what measures networks on a board, or each on its own: one row, or `networks` with one row each."""

    def run(board: str | None) -> Row:
        if len(names) == 1:
            return measure(names[0], board)
        return {"networks": [measured_or_refused(name, board) for name in names]}

    return run


def measured_or_refused(name: str, board: str | None) -> Row:
    """Return a network's row, or nnhw's own words where it refuses the network."""
    try:
        return measure(name, board)
    except NnhwError as error:
        return {"network": name, "board": {"name": board or CASES[name].board}, "refused": str(error)}


def measure(name: str, board: str | None = None) -> Row:
    """Build a network and compare everything that computes it.

    Returns
    -------
    `report.json`, its `exactness` with the frames in RTL, and besides `network`, `stage_seconds` (see `Build.seconds`),
    `stalls` (one entry for each pair of patterns) and `slowest` (see `slowest_engine`). Without a bitstream the rate is
    at `target_clock_hz`, the board's usual clock.
    """
    from nnhw.frontend import Source

    case, found = CASES[name], load_board(board or CASES[name].board)
    progress = make_progress(Console(stderr=True))
    chosen = case.network or name
    model, example = NETWORKS[chosen].load()
    source = Source(model, example, chosen)
    with tempfile.TemporaryDirectory() as scratch:
        stop_at = "build" if case.placed else "map"
        options = Options(
            clock_hz=case.clock_hz,
            target_fps=case.target_fps,
            frames=0,
            netlist_frames=case.netlist,
            seeds=case.seeds,
            style=case.style,
            fast_for="engine",
        )
        # Equality comes before place and route, which takes longer; the second run finds the stages of the first.
        mapped = run_build(source, chosen, found.name, options, out=scratch, stop_at="map", progress=progress)
        equalities = compare_rtl(mapped, case, progress)
        build = mapped
        if case.placed:
            build = run_build(None, chosen, found.name, options, out=scratch, start_from="elaborate", progress=progress)
        return {
            "network": chosen,
            **with_equality(build.report, equalities),
            "target_clock_hz": found.target_clock_hz,
            "ideal_cycles": ideal_cycles(build.accelerator),
            "slowest": slowest_engine(build.accelerator),
            "stalls": [equality.row() for equality in equalities],
            "stopped_at": stop_at,
            "stage_seconds": build.seconds,
        }


def compare_rtl(build: Build, case: Case, progress: Progress) -> list[Equality]:
    """Run the build's own samples through its RTL; compare every boundary with the IR."""
    accelerator = build.accelerator
    codes = sample_codes(build.path, accelerator, case.frames)
    with progress.stage(f"{case.frames} frames: RTL at every boundary"):
        return check_equality(accelerator, ir.load(build.path / "lower.ir"), codes, PATTERNS[: case.patterns])


def with_equality(report: Mapping[str, Any], equalities: list[Equality]) -> Row:
    """Return a report with what the frames in RTL found: mismatches, and cycles without stalls."""
    cycles, free, counted = report["cycles"], equalities[0], equalities[0].counted
    return {
        **report,
        "exactness": {**report["exactness"], **join(equalities)},
        "cycles": {
            "interval": {**cycles["interval"], "simulated": free.interval_cycles},
            "latency": {**cycles["latency"], "simulated": free.run.latency_cycles},
        },
        "program": program_rows(counted) or None,
    }


def slowest_engine(accelerator: Accelerator) -> Row:
    """Return the engine that multiplies for most cycles of a frame.

    Returns
    -------
    Its layer; `cycles` in which it works for one frame; `busy`: those / interval; `utilization`: products that the
    frame needs / (products that its lanes can do in a cycle x cycles); border positions that padding adds are not
    needed. Of a shared engine, all layers together.
    """
    if accelerator.programs:
        own = max(
            (works_of(stage) for stage in accelerator.stages if stage.config.program is not None),
            key=lambda own: sum(work.busy for work in own),
        )
        layer, cycles = "all", sum(work.busy for work in own)
        products, lanes = sum(work.products for work in own), own[0].lanes
    else:
        work = max(works(accelerator), key=lambda work: work.busy)
        layer, cycles, products, lanes = work.layer, work.busy, work.products, work.lanes
    return {
        "layer": layer,
        "cycles": cycles,
        "busy": float(cycles / accelerator.schedule.interval),
        "utilization": products / (lanes * cycles),
    }


def ideal_cycles(accelerator: Accelerator) -> int:
    """Return the cycles of a frame in which every lane of every array would make a product that is needed."""
    products = sum(work.products for work in works(accelerator))
    return math.ceil(products * accelerator.schedule.interval / peak(accelerator))


def is_clean(row: Mapping[str, Any]) -> bool:
    """Return whether nothing differs from the reference to RTL and netlist, and the cycles are those predicted.

    PyTorch's own answers count apart: floats behind the integers are rounded in the order of the model's operators.
    """
    exactness, cycles = row["exactness"], row["cycles"]
    wrong = [exactness["ir_rtl"], exactness["ir_netlist"], *exactness["passes"].values(), *exactness["layers"].values()]
    latency = cycles["latency"]
    # Runs are equal only if each frame ends in its cycle; the interval of few frames need not be that of the long run.
    as_predicted = latency["simulated"] in (None, latency["predicted"])
    return not any(wrong) and as_predicted and all(run["equal"] for run in row["stalls"])


def show(row: Mapping[str, Any]) -> None:
    """Print one row in full, or a line for each of several."""
    console = Console()
    if "networks" in row:
        for one in row["networks"]:
            console.print(line(one), highlight=False)
        return
    console.print(render_report(row))
    console.print(line(row), highlight=False)


TABLE_WIDTH = 140
"""Characters of a line of the table of several networks, however narrow the terminal is."""


def show_table(row: Mapping[str, Any]) -> None:
    """Print a table, a row for each network."""
    table = Table("network", "board", "style", "cycles", "ideal", "use", "MHz", "ms", "LC", "EBR", "SPRAM", "DSP", "")
    for one in row["networks"] if "networks" in row else [row]:
        name, board = one["network"], one["board"]["name"]
        if "refused" in one:
            table.add_row(name, board, *[""] * 10, one["refused"])
            continue
        cycles, taken = one["cycles"]["interval"]["predicted"], one["resources"]
        clock_hz = one["clock_hz"] or one["target_clock_hz"]
        used = [f"{taken[key]['used'] or taken[key]['estimated']:,}" for key in ("lc", "ebr", "spram", "dsp")]
        table.add_row(
            name,
            board,
            one["style"]["name"],
            f"{cycles:,}",
            f"{one['ideal_cycles']:,}",
            f"{one['ideal_cycles'] / cycles:.1%}",
            f"{clock_hz / 1e6:g}{'' if one['clock_hz'] else ' (not placed)'}",
            f"{1e3 * cycles / clock_hz:.2f}",
            *used,
            "equal" if is_clean(one) else "DIFFERS",
        )
    Console(width=TABLE_WIDTH).print(table)


def line(row: Mapping[str, Any]) -> str:
    """Return what counts of a row, on one line."""
    name, board = row["network"], row["board"]["name"]
    if "refused" in row:
        return f"{name} on {board}: {row['refused']}"
    interval, clock_hz = row["cycles"]["interval"]["predicted"], row["clock_hz"] or row["target_clock_hz"]
    slowest, taken, exactness = row["slowest"], row["resources"], row["exactness"]
    used = ", ".join(f"{taken[key]['used'] or taken[key]['estimated']} {key}" for key in ("lc", "ebr", "dsp"))
    return (
        f"{name} on {board}: {interval} cycles a frame, {clock_hz / interval:,.0f}/s at {clock_hz / 1e6:g} MHz "
        f"({'placed' if row['clock_hz'] else 'not placed'}; {row['link']['inferences_per_second']:,.0f}/s through the "
        f"link), {used}; '{slowest['layer']}' is busy for {slowest['busy']:.1%}, of which {slowest['utilization']:.1%} "
        f"are products needed, of all engines {row['utilization']:.1%}; {'equal' if is_clean(row) else 'DIFFERS'} in "
        f"{exactness['rtl_samples']} frames of RTL; PyTorch's float32 differs in {exactness['torch_ir']} of "
        f"{exactness['samples']} images, its float64 in {exactness['torch_float64_ir']}"
    )
