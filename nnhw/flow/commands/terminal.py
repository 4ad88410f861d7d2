"""The report as a person reads it: tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from nnhw.boards import Board
from nnhw.engines.timing import as_number
from nnhw.flow.tools.tables import NumberTable
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


def render_boards(boards: Iterable[Board]) -> NumberTable:
    """Return the table of `nnhw boards`."""
    table = NumberTable("Boards", "name", "device", "LC", "EBR", "SPRAM", "DSP", names=(), texts=("name",))
    for board in boards:
        has = board.resources
        counts = (_count(has.lc), _count(has.ebr), _count(has.spram), _count(has.dsp))
        name = ", ".join((board.name, *board.aliases))
        table.row(name, f"{board.device}-{board.package}", *counts)
    return table


def render_doctor(checks: Sequence[Check]) -> RenderableType:
    """Return the output of `nnhw doctor`: what was found; of what is missing, what fails without it and the remedy."""
    table = NumberTable("What nnhw finds here", "", "found", "for", texts=("found", "for"))
    for check in checks:
        absent = f"{check.lacks} is missing" if check.lacks else "missing"
        found = Text(check.found or absent, style="green" if check.found else "red" if check.required else "yellow")
        table.row(check.name, found, check.purpose)
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
    table = NumberTable("RTL and IR: frames that differ", "behind", "frames", "differ")
    for stream in result.streams:
        table.row(stream.name, _count(stream.frames), _mismatch(stream.mismatches))
    cycles = f"interval {_interval(result)} cycles, latency {_count(result.latency_cycles)}"
    text = (
        f"{result.samples} frames equal, without stalls and with '{stalls}' on both sides; {cycles}; {result.simulator}"
    )
    return Group(table, Text(text))


def _cycles(cycles: float | None) -> str:
    """Return a number of cycles as text; an average, which is no whole number, with two digits."""
    return _count(cycles) if cycles is None or isinstance(cycles, int) else f"{cycles:,.2f}"


def _interval(result: SimulationResult) -> str:
    """Return the simulated interval as text, or the predicted one where only one frame was simulated."""
    if result.interval is None:
        return f"{_cycles(as_number(result.schedule.interval))} (predicted)"
    return _cycles(as_number(result.interval))


def render_run(run: FileRun, link: str, out: Path | None) -> RenderableType:
    """Return the output of `nnhw run`: the first results, time, cycles and accuracy."""
    count = len(run.results)
    rows = run.results.reshape(count, -1)
    title = f"Results: {count} of shape {list(run.results.shape[1:])}"
    table = NumberTable(title, "image", "largest at", "values", names=(), texts=("values",))
    for number, row in enumerate(rows[:SHOWN]):
        values = " ".join(f"{value:g}" for value in row[:SHOWN]) + (" ..." if len(row) > SHOWN else "")
        table.row(str(number), str(int(row.argmax())), values)
    if count > SHOWN:
        table.row("...", "", "")
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
    table = NumberTable(f"Cycles of the device, {images} images", *columns)
    for row in program.parts:
        own = [_count(row.measured)] if measured else []
        counts = (row.cycles, row.busy, row.input_wait, row.output_wait)
        table.row(_part(row.part.kind, row.part.name), *own, *map(_count, counts))
    yield table
    predicted = f"{program.most:,}" if program.least == program.most else f"{program.least:,} to {program.most:,}"
    yield Text(
        f"The device counted {program.counted:,} cycles without waits, the program has {predicted}: "
        f"{'as predicted' if program.as_predicted else 'NOT AS PREDICTED'}."
    )


def _tables(report: Report) -> Iterator[NumberTable]:
    if report["layers"]:
        yield _layers(report)
    if report["style"] and report["style"]["memory"]:
        yield _memory(report)
    if report["program"]:
        yield _program(report["program"])
    yield _resources(report)
    yield _frame(report)
    yield _speed(report)
    yield _exactness(report)


def _headline(report: Report) -> Text:
    model, board = report["model"], report["board"]
    digits = (model["hash"] or "")[:16]
    return Text(f"{model['name']} ({digits}) on {board['name']}, {board['device']}", style="bold")


def _layers(report: Report) -> NumberTable:
    columns = ("layer", "PE x SIMD", "cycles", "of peak", "weight bits", "sum bits", "to codes by")
    table = NumberTable("Layers", *columns, texts=("to codes by",))
    for layer in report["layers"]:
        bounds = layer["accumulator"]
        table.row(
            layer["name"],
            f"{layer['pe']} x {layer['simd']}",
            _count(layer["cycles"]),
            _percent(layer["utilization"]),
            _count(layer["weight_bits"]),
            str(bounds["bits"]) if bounds else UNKNOWN,
            (layer["requantizer"] or "").partition(" (")[0],
        )
    table.section()
    table.row("all", "", "", _percent(report["utilization"]), _count(report["model"]["weight_bits"]), "", "")
    return table


def _memory(report: Report) -> NumberTable:
    rows, columns = report["style"]["memory"], ("what", "from word", "words", "written by", "read until")
    table = NumberTable("Memory of the shared engine", *columns, names=("what", "written by", "read until"))
    for engine, row in _by_engine(table, rows):
        table.row(f"{engine}{row['name']}", _count(row["first"]), _count(row["words"]), row["from"], row["until"])
    return table


def _program(parts: Sequence[Mapping[str, Any]]) -> NumberTable:
    """Return the table of the programs' cycles in a frame; `multiplying` and waits are those of the RTL."""
    columns = ("part", "predicted", "simulated", "multiplying", "input waits", "output waits")
    table = NumberTable("Cycles of the program, a frame", *columns)
    for engine, part in _by_engine(table, parts):
        table.row(
            f"{engine}{_part(part['kind'], part['name'])}",
            _count(part["cycles"]["predicted"]),
            _count(part["cycles"]["simulated"]),
            _count(part["busy"]["predicted"] if part["busy"]["simulated"] is None else part["busy"]["simulated"]),
            _count(part["input_wait"]),
            _count(part["output_wait"]),
        )
    return table


def _by_engine(table: NumberTable, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (beginning of the first cell, row); rows of several engines are told apart by it, and by sections."""
    # Each row with the one above it; the first with itself, which starts no section.
    for row, before in zip(rows, (rows[0], *rows), strict=False):
        if row["engine"] != before["engine"]:
            table.section()
        # Rows are in the order of engines: the last one tells whether there are several.
        yield f"engine {row['engine']}, " if rows[-1]["engine"] > 1 else "", row


def _resources(report: Report) -> NumberTable:
    table = NumberTable("Resources", "", "estimated", "used", "available", "full")
    for name, row in report["resources"].items():
        if name == "ff" and not row["available"]:  # a family whose logic cells have a flip-flop each, counted as LC
            continue
        taken = row["used"] if row["used"] is not None else row["estimated"]
        full = _percent(taken / row["available"]) if taken is not None and row["available"] else UNKNOWN
        table.row(name.upper(), _count(row["estimated"]), _count(row["used"]), _count(row["available"]), full)
    return table


def _frame(report: Report) -> NumberTable:
    table = NumberTable(f"Cycles per {report['frame']}", "", "predicted", "simulated")
    for name, what in (("interval", "from one to the next"), ("latency", "from input to result")):
        row = report["cycles"][name]
        table.row(f"{name}: {what}", _cycles(row["predicted"]), _cycles(row["simulated"]))
    return table


def _speed(report: Report) -> NumberTable:
    """Return the table of clock and rates; behind the rate through each link, whether link or engine is the slower."""
    table = NumberTable("Speed", "", "rate", "limited by", names=(), texts=("",))
    table.row("Fmax of place and route, MHz", _mega(report["fmax_hz"]), "")
    table.row("clock, MHz", _mega(report["clock_hz"]), "")
    if latency := report.get("latency_us"):  # a report of an older nnhw has none
        table.row("latency, us", f"{latency:,.2f}", "")
    frames = f"{report['frame']}s/s"
    if report["inferences_per_second"] is None and (planned := report["planned"]):
        clock = f"{planned['clock_hz'] / 1e6:g} MHz, if it is reached"
        table.row(f"engine at {clock}, {frames}", _count(planned["inferences_per_second"]), "")
    else:
        table.row(f"engine, {frames}", _count(report["inferences_per_second"]), "")
    for link in [] if report["sensor"] else report["links"]:
        name = "this build's link" if link["kind"] == report["link"]["kind"] else "with --link"
        rate = _count(link["inferences_per_second"])
        table.row(f"{name} {link['kind']} at {_link_speed(link)}, {frames}", rate, link["bound"] or "")
    return table


def render_rates(clock_hz: float, rates: Report) -> Iterator[str]:
    """Yield the lines of `nnhw check` about rates: of the engine, and of each link with what bounds the rate there."""
    engine = f"{_count(rates['inferences_per_second'])} {rates['frame']}s/s, latency {rates['latency_us']:,.2f} us"
    yield f"the engine, at {clock_hz / 1e6:g} MHz if that is reached: {engine}"
    for link in rates["links"]:
        rate = f"{_count(link['inferences_per_second'])} {rates['frame']}s/s"
        yield f"link {link['kind']} at {_link_speed(link)}: {rate}, limited by the {link['bound']}"


def _link_speed(link: Report) -> str:
    kind = LINKS[link["kind"]]
    return f"{_count(link[kind.speed_field])} {kind.speed_unit}"


def _exactness(report: Report) -> NumberTable:
    """Return the table of all comparisons; the remarks say why PyTorch's own floats may differ from exact values."""
    exact = report["exactness"]
    table = NumberTable(
        "Exactness: samples that differ", "compared", "samples", "differ", names=(), texts=("compared",)
    )

    def row(compared: str, samples: int | None, differ: int | None, is_fault: bool = True) -> None:
        table.row(compared, _count(samples), _mismatch(differ) if is_fault or not differ else _count(differ))

    for precision, name in (("float32", "torch_ir"), ("float64", "torch_float64_ir")):
        if precision == "float64" or exact["precision"] != "float64":
            row(f"PyTorch in {precision} and IR, which is exact", exact["samples"], exact[name], is_fault=False)
    for rewrite in exact["rewrites"] or []:
        places = f"{len(rewrite['places'])} place{'s' if len(rewrite['places']) != 1 else ''}"
        about = f"{places}, approximates" if rewrite["approximates"] else places
        compared = f"IR before and after rewrite '{rewrite['name']}' ({about})"
        row(compared, rewrite["samples"], rewrite["differing"], not rewrite["approximates"])
    for name, count in _passes(exact["passes"] or {}):
        row(f"IR before and after {name}", exact["samples"], count)
    row("IR and RTL", exact["rtl_samples"], exact["ir_rtl"])
    for name, count in (exact["layers"] or {}).items():
        row(f"  behind {name}", exact["rtl_samples"], count)
    if sensor := report["sensor"]:
        wrong = None if sensor["frames"] is None else max(sensor[name] for name in ("codes", "labels", "lines"))
        row("PyTorch and device, at its sensor's pins", sensor["frames"], wrong)
    row("IR and netlist, at its pins", exact["netlist_samples"], exact["ir_netlist"])
    return table


def _simulated(row: Mapping[str, Any]) -> str:
    """Return in words what a simulator did."""
    frames = f"{_count(row['frames'])} frame{'s' if row['frames'] != 1 else ''}"
    runs = f"{len(row['stalls'])} stall patterns"
    if row["bound_cycles"] is None:
        return f"{row['simulator']}: {frames} under {runs}, {_count(row['cycles'])} cycles."
    return (
        f"{row['simulator']}: the first {_count(row['bound_cycles'])} cycles of {frames} under {runs}, "
        f"{_count(row['beats'])} of {_count(row['beats_of_frames'])} beats."
    )


def _passes(passes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield (name, samples that differ) of each pass that changes a result, and one row for all others together."""
    changing = {name: count for name, count in passes.items() if count}
    yield from changing.items()
    if equal := len(passes) - len(changing):
        yield f"each of {equal} {'other ' if changing else ''}passes", 0


def _remarks(report: Report) -> Iterator[str]:
    """Yield the remarks below the tables, one line each."""
    accuracy, exact, style = report["model"]["accuracy"], report["exactness"], report["style"]
    interval = report["cycles"]["interval"]
    if interval["simulated"] not in (None, interval["predicted"]):
        found, expected = _cycles(interval["simulated"]), _cycles(interval["predicted"])
        yield (
            f"The simulated interval of {found} cycles is the mean over the later half of {exact['rtl_samples']} "
            f"frames, too few to show the long-run interval of {expected}."
        )
    yield from map(_simulated, exact.get("simulators") or [])  # a report of an older nnhw has none
    yield from _savings(report["savings"] or {})
    if style:
        if turns := style.get("turns"):
            yield f"To fit the memory of the shared engine, {'; '.join(turns)}."
        yield f"Style {style['name']}: {style['why']}."
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
    samples = _count(exact["samples"])
    gap, argmax, ties = (exact[f"{name}_{what}"] for what in ("gap", "argmax", "ties"))
    parts = [f"by at most {gap:.0e} of the largest result"] if gap is not None else []
    if argmax is not None:
        parts.append(f"with the same largest output on {_count(argmax)} of {samples}")
    if ties:
        parts.append(f"with a value at a tie between two codes on {_count(ties)} of {samples}")
    yield (
        f"On {_count(exact[f'{name}_ir'])} of {samples} samples PyTorch in {precision} differs from the hardware, "
        f"which computes the exact values{': ' if parts else ''}{', '.join(parts)}. The only cause is rounding in "
        "PyTorch's sums and functions: a difference beyond the bound of that rounding stops a build."
    )


def _verdict(report: Report) -> str:
    if report["inferences_per_second"] is None:
        return "Not built yet: clock and rates are estimates; place and route may not reach this clock."
    if report["sensor"]:
        most = _count(report["inferences_per_second"])
        return f"The input '{report['sensor']['input']}' feeds the network, which takes up to {most} frames/s."
    rate = min(report["inferences_per_second"], report["link"]["inferences_per_second"])
    return f"{_count(rate)} {report['frame']}s/s from host to result, limited by the {report['bound']}."


def _part(kind: str, name: str) -> str:
    """Return what a part of a program is called."""
    return name if kind == "layer" else f"{kind} ({name})"


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{int(value):,}"


def _mega(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value / 1e6:.2f}"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"


def _mismatch(count: int | None) -> Text:
    return Text(_count(count), "" if count is None else "red" if count else "green")


def render_c_export(made: CExport) -> str:
    """Return the output of `nnhw export c`: the files, and bytes of code and memory on a Cortex-M4."""
    lines = [f"{path}" for path in made.paths]
    lines.append(f"scratch memory of a run: {made.program.scratch_bytes:,} bytes")
    if made.footprint is None:
        return "\n".join([*lines, "Cortex-M4: not measured, arm-none-eabi-gcc is not installed"])
    found = made.footprint
    sizes = f"code {found.code:,}, constants {found.data:,}, scratch {found.scratch:,}, stack {found.stack:,} bytes"
    return "\n".join([*lines, f"Cortex-M4, -O2, without the C library: {sizes}"])
