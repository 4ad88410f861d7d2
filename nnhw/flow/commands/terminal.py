"""The report as a person reads it: tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nnhw.boards import Board
from nnhw.engines.timing import as_number
from nnhw.links import LINKS

if TYPE_CHECKING:
    from nnhw.flow.commands.doctor import Check
    from nnhw.flow.commands.exporting_c import CExport
    from nnhw.flow.running.finished import FileRun
    from nnhw.flow.running.measuring import ProgramCount
    from nnhw.flow.verification.simulate import SimulationResult

Report = Mapping[str, Any]
UNKNOWN = "-"
SHOWN = 10


def render_report(report: Report) -> RenderableType:
    """Return the tables of a report; what is not known yet is a dash."""
    remarks = (Text(remark) for remark in (*_remarks(report), _verdict(report)))
    return Group(_headline(report), *_tables(report), *remarks)


def render_boards(boards: Iterable[Board]) -> Table:
    """Return the table of `nnhw boards`."""
    table = _table("Boards", "name", "device", "LC", "EBR", "SPRAM", "DSP")
    for board in boards:
        has = board.resources
        counts = (_count(has.lc), _count(has.ebr), _count(has.spram), _count(has.dsp))
        name = ", ".join((board.name, *board.aliases))
        table.add_row(name, f"{board.device}-{board.package}", *counts)
    for column in table.columns[1:]:
        column.no_wrap = True
    return table


def render_doctor(checks: Sequence[Check]) -> RenderableType:
    """Return the output of `nnhw doctor`: what was found; of what is missing, what fails without it and the remedy."""
    table = _table("What nnhw finds here", "", "found", "for")
    for check in checks:
        absent = f"{check.lacks} is missing" if check.lacks else "missing"
        found = Text(check.found or absent, style="green" if check.found else "red" if check.required else "yellow")
        table.add_row(check.name, found, check.purpose)
    table.columns[1].justify = table.columns[2].justify = "left"
    notes = [Text(line) for check in checks for line in _advice(check)]
    missing = [check.name for check in checks if check.required and not check.found]
    verdict = f"needed and missing: {', '.join(missing)}" if missing else "everything that a build needs is here"
    return Group(table, *notes, Text(verdict))


def _advice(check: Check) -> Iterator[str]:
    """Yield what is to be said about a tool below the table."""
    if check.lacks:
        state = f"is installed, but does not start without the system's library {check.lacks}"
    else:
        state = "is missing"
    if check.found is None:
        yield f"{check.name} {state}: {check.remedy}. Without it works: {check.without}."
    if check.detail:
        yield f"{check.name}: {check.detail}"


def render_simulation(result: SimulationResult, stalls: str) -> RenderableType:
    """Return the output of `nnhw sim`: frames compared at each boundary, and cycles."""
    table = _table("RTL and IR: frames that differ", "behind", "frames", "differ")
    for stream in result.streams:
        table.add_row(stream.name, _count(stream.frames), _mismatch(stream.mismatches))
    cycles = f"interval {_interval(result)} cycles, latency {_count(result.latency_cycles)}"
    text = (
        f"{result.samples} frames equal, without stalls and with '{stalls}' on both sides; {cycles}; {result.simulator}"
    )
    return Group(table, Text(text))


def _cycles(cycles: float | None) -> str:
    """Return a number of cycles as text; an average, which is no whole number, with two digits."""
    return _count(cycles) if cycles is None or isinstance(cycles, int) else f"{cycles:,.2f}"


def _interval(result: SimulationResult) -> str:
    """Return the simulated interval as text, or the predicted one where too few frames were simulated to tell."""
    if result.interval is None:
        return f"{_cycles(as_number(result.schedule.interval))} (predicted)"
    return _cycles(as_number(result.interval))


def render_run(run: FileRun, link: str, out: Path | None) -> RenderableType:
    """Return the output of `nnhw run`: the first results, time, cycles and accuracy."""
    count = len(run.results)
    rows = run.results.reshape(count, -1)
    table = _table(f"Results: {count} of shape {list(run.results.shape[1:])}", "image", "largest at", "values")
    for number, row in enumerate(rows[:SHOWN]):
        values = " ".join(f"{value:g}" for value in row[:SHOWN]) + (" ..." if len(row) > SHOWN else "")
        table.add_row(str(number), str(int(row.argmax())), values)
    if count > SHOWN:
        table.add_row("...", "", "")
    cycles = f", {run.cycles:,.0f} cycles of the device each" if run.cycles else ""
    text = f"{count} images in {run.seconds:.2f} s through '{link}'{cycles}"
    said = [Text(text + (f"; results in {out}" if out else ""))]
    if run.accuracy is not None:
        said.append(Text(f"through '{link}': {run.accuracy}", style="bold"))
    return Group(table, *([] if run.program is None else _program_run(run.program, count)), *said)


def _program_run(program: ProgramCount, images: int) -> Iterator[RenderableType]:
    """Yield the table of the cycles of a program's parts on a device, and whether they are as predicted."""
    measured = any(row.measured is not None for row in program.parts)
    columns = (
        "part",
        *(["measured for one"] if measured else []),
        "cycles",
        "multiplying",
        "input waits",
        "output waits",
    )
    table = _table(f"Cycles of the device, {images} images", *columns)
    for row in program.parts:
        own = [_count(row.measured)] if measured else []
        counts = (row.cycles, row.busy, row.input_wait, row.output_wait)
        table.add_row(_part(row.part.kind, row.part.name), *own, *map(_count, counts))
    yield table
    predicted = f"{program.most:,}" if program.least == program.most else f"{program.least:,} to {program.most:,}"
    yield Text(
        f"The device counted {program.counted:,} cycles without waits, the program has {predicted}: "
        f"{'as predicted' if program.as_predicted else 'NOT AS PREDICTED'}."
    )


def _tables(report: Report) -> Iterator[Table]:
    if report["layers"]:
        yield _layers(report)
    if report["style"] and report["style"]["memory"]:
        yield _memory(report)
    if report["program"]:
        yield _program(report["program"])
    yield _resources(report)
    yield _speed(report)
    yield _exactness(report)


def _headline(report: Report) -> Text:
    model, board = report["model"], report["board"]
    digits = (model["hash"] or "")[:16]
    return Text(f"{model['name']} ({digits}) on {board['name']}, {board['device']}", style="bold")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number == 0)
    return table


def _layers(report: Report) -> Table:
    columns = ("layer", "PE x SIMD", "cycles", "of peak", "weight bits", "sum bits", "to codes by")
    table = _table("Layers", *columns)
    for layer in report["layers"]:
        bounds = layer["accumulator"]
        table.add_row(
            layer["name"],
            f"{layer['pe']} x {layer['simd']}",
            _count(layer["cycles"]),
            _percent(layer["utilization"]),
            _count(layer["weight_bits"]),
            str(bounds["bits"]) if bounds else UNKNOWN,
            (layer["requantizer"] or "").partition(" (")[0],
        )
    table.add_section()
    table.add_row("all", "", "", _percent(report["utilization"]), _count(report["model"]["weight_bits"]), "", "")
    return table


def _memory(report: Report) -> Table:
    rows = report["style"]["memory"]
    table = _table("Memory of the shared engine", "what", "from word", "words", "written by", "read until")
    for engine, row in _by_engine(table, rows):
        table.add_row(f"{engine}{row['name']}", _count(row["first"]), _count(row["words"]), row["from"], row["until"])
    if turns := report["style"].get("turns"):
        table.caption = "To fit the memory, " + "; ".join(turns)
    return table


def _program(parts: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of the programs' cycles in a frame; `multiplying` and waits are those of the RTL."""
    columns = ("part", "predicted", "simulated", "multiplying", "input waits", "output waits")
    table = _table("Cycles of the program, a frame", *columns)
    for engine, part in _by_engine(table, parts):
        table.add_row(
            f"{engine}{_part(part['kind'], part['name'])}",
            _count(part["cycles"]["predicted"]),
            _count(part["cycles"]["simulated"]),
            _count(part["busy"]["predicted"] if part["busy"]["simulated"] is None else part["busy"]["simulated"]),
            _count(part["input_wait"]),
            _count(part["output_wait"]),
        )
    return table


def _by_engine(table: Table, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (beginning of the first cell, row); rows of several engines are told apart by it, and by sections."""
    # Each row with the one above it; the first with itself, which starts no section.
    for row, before in zip(rows, (rows[0], *rows), strict=False):
        if row["engine"] != before["engine"]:
            table.add_section()
        # Rows are in the order of engines: the last one tells whether there are several.
        yield f"engine {row['engine']}, " if rows[-1]["engine"] > 1 else "", row


def _resources(report: Report) -> Table:
    table = _table("Resources", "", "estimated", "used", "available", "full")
    for name, row in report["resources"].items():
        if name == "ff" and not row["available"]:  # a family whose logic cells have a flip-flop each, counted as LC
            continue
        taken = row["used"] if row["used"] is not None else row["estimated"]
        full = _percent(taken / row["available"]) if taken is not None and row["available"] else UNKNOWN
        table.add_row(name.upper(), _count(row["estimated"]), _count(row["used"]), _count(row["available"]), full)
    return table


def _speed(report: Report) -> Table:
    table = _table("Speed", "", "predicted", "simulated")
    for name in ("interval", "latency"):
        row = report["cycles"][name]
        table.add_row(f"{name}, cycles", _cycles(row["predicted"]), _cycles(row["simulated"]))
    table.add_section()
    table.add_row("clock / Fmax, MHz", _mega(report["clock_hz"]), _mega(report["fmax_hz"]))
    if report["inferences_per_second"] is None and (planned := report["planned"]):
        clock = f"{planned['clock_hz'] / 1e6:g} MHz, if it is reached"
        table.add_row(f"engine, {report['frame']}s/s at {clock}", _count(planned["inferences_per_second"]), "")
    else:
        table.add_row(f"engine, {report['frame']}s/s", _count(report["inferences_per_second"]), "")
    for link in [] if report["sensor"] else report["links"]:
        speed = _link_speed(link)
        name = "link" if link["kind"] == report["link"]["kind"] else f"with --link {link['kind']}"
        bound = f"bound: {link['bound']}" if link["bound"] else ""
        table.add_row(f"{name}, {report['frame']}s/s at {speed}", _count(link["inferences_per_second"]), bound)
    return table


def render_rates(clock_hz: float, rates: Report) -> Iterator[str]:
    """Yield the lines of `nnhw check` about rates: of the engine, and of each link with what bounds the rate there."""
    engine = _count(rates["inferences_per_second"])
    yield f"the engine, at {clock_hz / 1e6:g} MHz if that is reached: {engine} {rates['frame']}s/s"
    for link in rates["links"]:
        rate = f"{_count(link['inferences_per_second'])} {rates['frame']}s/s"
        yield f"link {link['kind']} at {_link_speed(link)}: {rate}, the {link['bound']} is the bound"


def _link_speed(link: Report) -> str:
    kind = LINKS[link["kind"]]
    return f"{_count(link[kind.speed_field])} {kind.speed_unit}"


def _exactness(report: Report) -> Table:
    exact = report["exactness"]
    table = _table("Exactness: samples that differ", "compared", "samples", "differ")
    if exact["precision"] != "float64":
        table.add_row("PyTorch float32 and IR", _count(exact["samples"]), _rounded(exact["torch_ir"]))
    table.add_row("PyTorch float64 and IR", _count(exact["samples"]), _rounded(exact["torch_float64_ir"]))
    for rewrite in exact["rewrites"] or []:
        places = f"{len(rewrite['places'])} place{'s' if len(rewrite['places']) != 1 else ''}"
        differing = rewrite["differing"]
        shown = _rounded(differing) if rewrite["approximates"] else _mismatch(differing)
        table.add_row(f"IR before and after rewrite '{rewrite['name']}' ({places})", _count(rewrite["samples"]), shown)
    for name, count in _passes(exact["passes"] or {}):
        table.add_row(f"IR before and after {name}", _count(exact["samples"]), _mismatch(count))
    table.add_row("IR and RTL", _count(exact["rtl_samples"]), _mismatch(exact["ir_rtl"]))
    for name, count in (exact["layers"] or {}).items():
        table.add_row(f"  behind {name}", _count(exact["rtl_samples"]), _mismatch(count))
    if sensor := report["sensor"]:
        wrong = None if sensor["frames"] is None else max(sensor[name] for name in ("codes", "labels", "lines"))
        table.add_row("PyTorch and device, at its sensor's pins", _count(sensor["frames"]), _mismatch(wrong))
    table.add_row("IR and netlist, at its pins", _count(exact["netlist_samples"]), _mismatch(exact["ir_netlist"]))
    return table


def _passes(passes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield (name, samples that differ) of each pass that changes a result, and one row for all others together."""
    changing = {name: count for name, count in passes.items() if count}
    yield from changing.items()
    if equal := len(passes) - len(changing):
        yield f"each of {equal} {'other ' if changing else ''}passes", 0


def _remarks(report: Report) -> Iterator[str]:
    """Yield the remarks below the tables, one line each."""
    accuracy, exact, style = report["model"]["accuracy"], report["exactness"], report["style"]
    yield from _savings(report["savings"] or {})
    if style:
        what = "Layers share an engine" if style["name"] == "shared" else "Each layer has an engine"
        yield f"{what}: {style['why']}."
    if report.get("clock_reason"):  # a report of an older nnhw has none
        yield f"The clock is {report['clock_hz'] / 1e6:g} MHz: {report['clock_reason']}."
    if report["patched"]:
        yield (
            f"Patched from '{report['patched']['model']}' ({report['patched']['bitstream'][:16]}): the same layout "
            "with other contents of memories; clock and resources are that build's."
        )
    if accuracy:
        yield (
            f"Accuracy {accuracy['before']:.2%} as float, {accuracy['after']:.2%} quantized, "
            f"on {_count(accuracy['samples'])} images."
        )
    if exact["precision"] != "float64":
        yield from _rounding(exact, "torch", "float32")
    yield from _rounding(exact, "torch_float64", "float64")
    if exact["near_ties"]:
        yield (
            f"In {_count(exact['near_ties'])} channels PyTorch may round to another code than the hardware, for the "
            "sums listed in lower.json; scales that are powers of two avoid most of it."
        )


def _savings(savings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield for each optimization what it saved, and which layers it removed from the network."""
    for name, saved in savings.items():
        parts = [f"{saved[what]:,} {what}" for what in ("nodes", "channels", "weights", "products") if saved[what] > 0]
        gone = f"; no longer there: {', '.join(saved['layers'])}" if saved["layers"] else ""
        if parts or gone:
            yield f"Pass {name} saved {', '.join(parts) or 'nothing'}{gone}."


def _rounding(exact: Mapping[str, Any], name: str, precision: str) -> Iterator[str]:
    """Yield how far PyTorch's results in a precision are from the reference; nothing where they are equal."""
    if not exact[f"{name}_ir"]:
        return
    gap, argmax, ties = (exact[f"{name}_{what}"] for what in ("gap", "argmax", "ties"))
    parts = [f"by at most {gap:.0e} of the largest result"] if gap is not None else []
    if argmax is not None:
        parts.append(f"with the greatest result in the same place on {_count(argmax)} of {_count(exact['samples'])}")
    if ties:
        parts.append(f"and on {_count(ties)} a quantizer takes another code at a tie")
    how = ", ".join(parts)
    yield f"PyTorch's own {precision} differs by its roundings alone, {how}; hardware follows the exact values."


def _verdict(report: Report) -> str:
    if report["inferences_per_second"] is None:
        return "Not built yet: place and route has still to reach the clock."
    if report["sensor"]:
        most = _count(report["inferences_per_second"])
        return f"The input '{report['sensor']['input']}' feeds the network, which takes up to {most} frames/s."
    rate = min(report["inferences_per_second"], report["link"]["inferences_per_second"])
    return f"{_count(rate)} {report['frame']}s/s from host to result: the {report['bound']} is the bound."


def _part(kind: str, name: str) -> str:
    """Return what a part of a program is called."""
    return name if kind == "layer" else f"{kind} ({name})"


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{int(value):,}"


def _mega(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value / 1e6:.2f}"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"


def _rounded(count: int | None) -> str:
    """Return a number of samples that differ by roundings, which is no fault."""
    return UNKNOWN if count is None else "[green]0[/]" if count == 0 else f"{count}, by rounding"


def _mismatch(count: int | None) -> str:
    if count is None:
        return UNKNOWN
    return "[green]0[/]" if count == 0 else f"[red]{count}[/]"


def render_c_export(made: CExport) -> str:
    """Return the output of `nnhw export-c`: the files, and bytes of code and memory on a Cortex-M4."""
    lines = [f"{path}" for path in made.paths]
    lines.append(f"scratch memory of a run: {made.program.scratch_bytes:,} bytes")
    if made.footprint is None:
        return "\n".join([*lines, "Cortex-M4: not measured, arm-none-eabi-gcc is not installed"])
    found = made.footprint
    sizes = f"code {found.code:,}, constants {found.data:,}, scratch {found.scratch:,}, stack {found.stack:,} bytes"
    return "\n".join([*lines, f"Cortex-M4, -O2, without the C library: {sizes}"])
