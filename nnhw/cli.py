"""The command line: parse options, call `nnhw.flow`, print. Commands import the heavy modules that they need."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

import nnhw
from nnhw.errors import DoesNotFitError, NnhwError, heading
from nnhw.flow.tools.stopping import Stopped, stop_on_signals
from nnhw.flow.tools.storage import system_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nnhw.flow.models.calibrate import Calibration
    from nnhw.flow.options import Options
    from nnhw.flow.tools.progress import Progress

# Results go to standard output and all else to standard error, so that results can be piped.
OUT = Console()
ERR = Console(stderr=True)
# 130 is 128 + SIGINT, as a shell reports a process that Ctrl-C has ended.
EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
# The base class of wrong options and arguments: typer exports only this one of its subclasses.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class _Commands(TyperGroup):
    """The group of all commands: shows errors as a message, without a traceback, and sets the exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line; a mistake in the command line itself is shown like every other error."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except _UsageError as error:
            if not standalone_mode:
                raise
            _show_usage(error)
            code = EXIT_USAGE
        if standalone_mode:
            sys.exit(code or 0)
        return code

    def invoke(self, ctx: Any) -> Any:
        try:
            # A full disk or a missing permission is a message, too.
            with system_errors():
                return super().invoke(ctx)
        except NnhwError as error:
            if ctx.params.get("debug"):
                raise
            _show_error(error)
            ctx.exit(EXIT_ERROR)
        except KeyboardInterrupt as stop:
            with contextlib.suppress(OSError):  # the terminal may be gone
                ERR.print("interrupted; what was finished before is kept, nothing is half-written")
            # As a shell reports a process that a signal has ended.
            ctx.exit(128 + stop.number if isinstance(stop, Stopped) else EXIT_INTERRUPTED)


def _show_error(error: NnhwError) -> None:
    _say_in_red(f"{heading(error)}: {error}")


def _show_usage(error: Any) -> None:
    # A command without any arguments has shown its help already, and its error has no message.
    if said := error.format_message().strip().rstrip("."):
        command = error.ctx.command_path if error.ctx else "nnhw"
        _say_in_red(f"Usage: {said}{'' if said.endswith('?') else ';'} see '{command} --help'")


def _say_in_red(message: str) -> None:
    # Without markup, as messages hold brackets, such as those of shapes.
    ERR.print(message, style="red", markup=False, highlight=False, soft_wrap=True)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    # An exception that is no NnhwError is a mistake of nnhw: a report of it needs the plain traceback.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success; 1 refused or failed; 2 usage error; 130 interrupted by Ctrl-C.",
)

ModelFile = Annotated[
    str,
    typer.Argument(metavar="FILE[:NAME]", help="A .py with `model`, `example_input`; a .pt2, .onnx, .tflite or .ir."),
]
BuildPath = Annotated[Path, typer.Argument(metavar="BUILD", help="A folder that `nnhw build` made.")]
Calibrate = Annotated[
    Path | None,
    typer.Option(
        "--calibrate",
        metavar="DATA.npy|FOLDER",
        help="Quantize a float model with these images, or a folder of pictures.",
    ),
]
Bits = Annotated[int, typer.Option(min=1, max=8, help="With --calibrate: 1 to 8.")]
# Copies for the help texts, so that --help imports nothing heavy; tests compare them with the real stages and passes.
STAGES = "capture, lower, map, elaborate, simulate, sense, build or netlist"
PASSES = (
    "separate_padding, permute_input, sink_shapes, hoist_shapes, cancel_permutes, sink_extremes, align_sums, "
    "join_rescaled, flatten_positions, collapse_chains, fold_constants, sink_integer_pooling, narrow_codes, "
    "fold_mirrors, turn_products, fold_permutes, share_twins, fold_fixed_channels, drop_unread, merge_parallel, "
    "merge_gates, rows_first"
)
FIGURES = "accuracy, rate, link, cycles, latency, lc, ff, ebr, spram, dsp"
BoardName = Annotated[str, typer.Option("--board", "-b", help="Name, alias (ice40) or file of a board.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        OUT.print(f"nnhw {nnhw.__version__}", highlight=False)
        raise typer.Exit


def _progress() -> Progress:
    from nnhw.flow.tools.progress import make_progress

    return make_progress(ERR)


@contextlib.contextmanager
def _advising(
    ctx: typer.Context, file: str, board: str, options: Options, calibration: Calibration | None
) -> Iterator[None]:
    """Where a model does not fit a board, show what each layer takes and what would fit, then exit."""
    try:
        yield
    except DoesNotFitError as error:
        # `_Commands.invoke` shows the traceback.
        if ctx.find_root().params.get("debug"):
            raise
        from nnhw.fitting.advice import MOST_SECONDS, advise
        from nnhw.fitting.tables import render_advice, render_needs
        from nnhw.flow.commands.inspection import captured

        _show_error(error)
        if error.layers:
            ERR.print(render_needs(error.layers))
        said = f"looking for what would fit: no new attempts after {MOST_SECONDS:g} s; Ctrl-C stops it"
        ERR.print(said, highlight=False, soft_wrap=True)
        progress, graph = _progress(), error.graph
        graph = captured(file, calibration, progress) if graph is None else graph
        ERR.print(render_advice(advise(graph, board, options, progress)))
        raise typer.Exit(EXIT_ERROR) from None


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    extension: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE", help="Import a module or file.py that registers engines of your own; repeatable."
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Quantized PyTorch networks to verified FPGA accelerators."""
    from nnhw.flow.models.extensions import load_extensions

    load_extensions(extension or ())


@app.command()
def doctor() -> None:
    """Show which tools are installed, their versions, and what a missing one costs."""
    from nnhw.flow.commands.doctor import diagnose
    from nnhw.flow.commands.terminal import render_doctor

    checks = diagnose()
    OUT.print(render_doctor(checks))
    # Scripts ask by the exit code whether everything that is needed is there.
    if any(check.required and not check.found for check in checks):
        raise typer.Exit(EXIT_ERROR)


@app.command()
def boards() -> None:
    """List the boards with their resources."""
    from nnhw.boards import list_boards
    from nnhw.flow.commands.terminal import render_boards

    OUT.print(render_boards(list_boards()))


@app.command()
def build(
    ctx: typer.Context,
    file: ModelFile,
    board: BoardName = "icebreaker",
    out: Annotated[Path | None, typer.Option(help="Build folder instead of build/<model>-<board>.")] = None,
    clock: Annotated[float | None, typer.Option(metavar="MHZ", help="Clock that must be reached.")] = None,
    target_fps: Annotated[
        float | None, typer.Option(help="Minimum frames per second; nnhw uses the smallest mapping that reaches it.")
    ] = None,
    style: Annotated[
        str,
        typer.Option(
            help="streaming: one engine per layer. shared: one engine runs all layers. auto: the faster of the two."
        ),
    ] = "auto",
    array: Annotated[
        Path | None, typer.Option(metavar="BUILD", help="Make a program for the shared engine of another build.")
    ] = None,
    reusable: Annotated[
        bool,
        typer.Option(
            "--reusable", help="With --style shared: an engine that also runs other networks, built with --array."
        ),
    ] = False,
    sequences: Annotated[
        int, typer.Option(min=1, help="Sequences of a recurrent network, interleaved to keep engines busy.")
    ] = 1,
    overrides: Annotated[Path | None, typer.Option(metavar="FILE.toml", help="Folding of single layers.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Place-and-route runs; the best one is used.")] = 5,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes; default: the number of cores.")] = None,
    frames: Annotated[int, typer.Option(min=0, help="Frames to simulate in RTL (0 to skip).")] = 8,
    netlist_frames: Annotated[
        int, typer.Option(min=0, help="Frames to simulate through the placed netlist, driven at its pins (0 to skip).")
    ] = 0,
    start_from: Annotated[
        str, typer.Option(metavar="STAGE", help=f"First stage to run: {STAGES}. Earlier ones must be done.")
    ] = "capture",
    stop_at: Annotated[str, typer.Option(metavar="STAGE", help=f"Last stage to run: {STAGES}.")] = "netlist",
    base: Annotated[
        Path | None,
        typer.Option("--from", metavar="BUILD", help="Reuse the placement of this build; only the weights may differ."),
    ] = None,
    link: Annotated[
        str,
        typer.Option(help="uart, spi, ftdi, usb or ulpi, where the board has it; empty: the board's default."),
    ] = "",
    input: Annotated[
        str,
        typer.Option(help="i2s, pdm or camera: a sensor at the board's pins feeds the network, without a computer."),
    ] = "",
    calibrate: Calibrate = None,
    evaluate: Annotated[
        Path | None, typer.Option(metavar="IMAGES.npy", help="With --labels: images to measure the accuracy on.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="LABELS.npy", help="Labels of the --evaluate images, or of --calibrate: show the accuracy."
        ),
    ] = None,
    weight_bits: Bits = 8,
    act_bits: Bits = 8,
) -> None:
    """Make an accelerator: capture, lower, map, elaborate, simulate, sense, build, netlist."""
    from nnhw.flow.commands.terminal import render_report
    from nnhw.flow.models.calibrate import make_calibration
    from nnhw.flow.options import make_options
    from nnhw.flow.pipeline import build_file

    chosen = make_options(
        clock,
        target_fps,
        overrides,
        seeds,
        jobs,
        frames,
        netlist_frames,
        style,
        array,
        reusable,
        board,
        base,
        sequences=sequences,
        link=link,
        input=input,
    )
    calibration = make_calibration(calibrate, evaluate, labels, weight_bits, act_bits)
    with _advising(ctx, file, board, chosen, calibration):
        made = build_file(
            file,
            board,
            chosen,
            out=out,
            start_from=start_from,
            stop_at=stop_at,
            calibration=calibration,
            progress=_progress(),
        )
    OUT.print(render_report(made.report))
    OUT.print(f"in {made.path}", highlight=False, soft_wrap=True)


@app.command()
def check(
    ctx: typer.Context,
    file: ModelFile,
    board: BoardName = "icebreaker",
    calibrate: Calibrate = None,
    weight_bits: Bits = 8,
    act_bits: Bits = 8,
) -> None:
    """List everything that prevents a build; if nothing does, show what runs where, and how fast."""
    from nnhw.flow.commands.inspection import check_file
    from nnhw.flow.commands.terminal import render_rates
    from nnhw.flow.models.calibrate import make_calibration
    from nnhw.flow.options import Options

    calibration = make_calibration(calibrate, None, None, weight_bits, act_bits)
    with _advising(ctx, file, board, Options(), calibration):
        checked = check_file(file, board, calibration, _progress())
    division = checked.division
    OUT.print(f"{file}: no problems", highlight=False, soft_wrap=True)
    for place, operators in (
        ("on the host, in front", division.before),
        ("on the device", division.device),
        ("on the host, behind", division.behind),
    ):
        OUT.print(f"{place}: {', '.join(operators) or 'nothing'}", highlight=False, markup=False, soft_wrap=True)
    for line in render_rates(checked.clock_hz, checked.rates):
        OUT.print(line, highlight=False, soft_wrap=True)


@app.command()
def fit(
    file: ModelFile,
    board: Annotated[
        list[str] | None,
        typer.Option("--board", "-b", help="Name, alias or file of a board; repeatable. One of each device otherwise."),
    ] = None,
    widths: Annotated[
        list[str] | None,
        typer.Option(metavar="W/A", help="Bits of weights and activations, as 4/8; repeatable. Usual ones otherwise."),
    ] = None,
    style: Annotated[str, typer.Option(help="streaming, shared or auto, as for build.")] = "auto",
    clock: Annotated[float | None, typer.Option(metavar="MHZ", help="Clock at which rates are computed.")] = None,
    calibrate: Calibrate = None,
    weight_bits: Bits = 8,
    act_bits: Bits = 8,
) -> None:
    """Show on which boards a model fits, with how many bits, and how fast it is there."""
    from nnhw.fitting import fit_file
    from nnhw.fitting.tables import render_fits
    from nnhw.flow.models.calibrate import make_calibration

    calibration = make_calibration(calibrate, None, None, weight_bits, act_bits)
    found = fit_file(
        file,
        boards=board or (),
        widths=widths or (),
        style=style,
        clock_mhz=clock,
        calibration=calibration,
        progress=_progress(),
    )
    OUT.print(render_fits(found))
    # Scripts ask by the exit code whether the model fits anywhere.
    if not found.fitting:
        raise typer.Exit(EXIT_ERROR)


@app.command()
def ir(
    file: Annotated[str, typer.Argument(metavar="FILE[:NAME]|BUILD", help="A model, or the folder of a build.")],
    stage: Annotated[
        str, typer.Option(metavar="STAGE", help=f"capture; a pass: {PASSES}; head, lower, tail; or map.")
    ] = "lower",
    board: BoardName = "icebreaker",
    calibrate: Calibrate = None,
    weight_bits: Bits = 8,
    act_bits: Bits = 8,
    data: Annotated[bool, typer.Option("--data", help="With the numbers of all constants.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.ir", help="Write it, and the constants as .npz beside it.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Write a picture; behind map with engines and cycles.")
    ] = None,
) -> None:
    """Print the graph of a model behind a stage, or write it as a file that is a model again, or as a picture."""
    from nnhw.flow.commands.inspection import check_written, ir_behind, write_ir
    from nnhw.flow.models.calibrate import make_calibration

    check_written(stage, out, svg)
    calibration = make_calibration(calibrate, None, None, weight_bits, act_bits)
    staged = ir_behind(file, stage, board, calibration, _progress())
    written = write_ir(staged, out, svg, data)
    for path in written:
        OUT.print(f"wrote {path}", highlight=False, soft_wrap=True, markup=False)
    if not written:
        # Not by rich, which takes brackets of shapes for markup, and wraps lines.
        typer.echo(staged.text(data).rstrip("\n"))


@app.command()
def report(build: BuildPath, json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show what is known of a build."""
    from json import dumps

    from nnhw.flow.commands.terminal import render_report
    from nnhw.flow.pipeline import Build

    content = Build.load(build).report
    if json:
        # Not by rich, which wraps lines and colours numbers: this is for programs.
        typer.echo(dumps(content, indent=1))
    else:
        OUT.print(render_report(content))


@app.command()
def sim(
    build: BuildPath,
    frames: Annotated[int, typer.Option(min=1, help="Frames, back to back.")] = 8,
    stalls: Annotated[str, typer.Option(help="Pattern of both sides: none, alternating, random, bursts.")] = "random",
) -> None:
    """Compare the RTL of a build with the IR, by cocotb, at every layer boundary."""
    from nnhw.flow.commands.terminal import render_simulation
    from nnhw.flow.running.finished import simulate_build

    result = simulate_build(build, frames, stalls, _progress())
    OUT.print(render_simulation(result, stalls))


@app.command()
def run(
    build: BuildPath,
    file: Annotated[Path, typer.Argument(metavar="FILE.npy", help="Images [N, ...] as the model takes them.")],
    link: Annotated[str, typer.Option(help="sim, model, c, auto, ftdi, usb, or a serial port.")] = "sim",
    out: Annotated[Path | None, typer.Option(metavar="OUT.npy", help="Where the results go.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Let the device measure the cycles of each layer of its program.")
    ] = False,
    labels: Annotated[
        Path | None, typer.Option(metavar="LABELS.npy", help="Labels of the images, [N]: show the accuracy.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="With link sim: compile the build's Verilog, whoever made it.")
    ] = False,
    baud: Annotated[
        int | None, typer.Option(help="Of a serial port; the fastest at which the device answers otherwise.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse images that are clipped far more often than calibration data.")
    ] = False,
) -> None:
    """Run images through a board, or a virtual one."""
    from nnhw.flow.commands.terminal import render_run
    from nnhw.flow.running.finished import run_file

    done = run_file(build, file, link, out, _progress(), measure, labels, trust, baud, strict)
    OUT.print(render_run(done, link, out))


@app.command()
def trust(build: BuildPath) -> None:
    """Take somebody else's build for your own: its Verilog may run any code when it is compiled."""
    from nnhw.flow.running.finished import trust_build

    stages = trust_build(build)
    said = f"trusted from now on: {', '.join(stages)}" if stages else "this user's nnhw made it: nothing to do"
    OUT.print(f"{build}: {said}", highlight=False, soft_wrap=True, markup=False)


@app.command()
def program(build: BuildPath) -> None:
    """Load a build into the board that is plugged in."""
    # Under another name, as the command has that of the function.
    from nnhw.flow.running.finished import program as load

    load(build, _progress())


@app.command()
def search(
    file: Annotated[Path, typer.Argument(metavar="FILE.py", help="With model(trial), train(model, trial).")],
    board: BoardName = "icebreaker",
    style: Annotated[str, typer.Option(help="streaming, shared or auto, as for build.")] = "auto",
    clock: Annotated[float | None, typer.Option(metavar="MHZ", help="Clock at which rates are computed.")] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option("--objective", "-o", metavar="NAME", help=f"{FIGURES}. Accuracy and rate otherwise."),
    ] = None,
    at_least: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="Least of such a figure, as rate=20000.")
    ] = None,
    at_most: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="Most of such a figure, as lc=3000.")
    ] = None,
    trials: Annotated[int | None, typer.Option(min=0, help="Trials to run now; 50 unless --timeout is given.")] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="No trial begins after so many.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="Of all random numbers; one process repeats itself.")] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="FILE|URL", help="Where trials are kept, for all who share them.")
    ] = None,
    study: Annotated[str | None, typer.Option(metavar="NAME", help="Of the study in the storage.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder instead of search/<study>.")] = None,
    plot: Annotated[str, typer.Option(help="HTML plot: offline (4.8 MB), cdn (10 KB) or none.")] = "offline",
    export: Annotated[
        str | None, typer.Option(metavar="NUMBER|best", help="Write a trial's network as code and weights; test it.")
    ] = None,
) -> None:
    """Search the networks of model(trial) for the best on a board: each is mapped before it is trained."""
    from nnhw.searching.goals import make_limits
    from nnhw.searching.rendering import render_search
    from nnhw.searching.search import search as run_search

    found = run_search(
        file,
        board=board,
        style=style,
        clock_mhz=clock,
        objectives=objective or ("accuracy", "rate"),
        at_least=make_limits(at_least or (), "--at-least"),
        at_most=make_limits(at_most or (), "--at-most"),
        trials=trials,
        timeout_s=timeout,
        jobs=jobs,
        seed=seed,
        storage=storage,
        study=study,
        out=out,
        plot=plot,
        export=export,
        progress=_progress(),
    )
    OUT.print(render_search(found))
    # What was found is shown first; the exit code is that of any interrupted command.
    if found.interrupted:
        raise KeyboardInterrupt


export = typer.Typer(help="Write a model as files for other tools.", no_args_is_help=True)
app.add_typer(export, name="export")


@export.command("onnx")
def export_onnx(
    file: ModelFile,
    out: Annotated[Path | None, typer.Option(metavar="FILE.onnx", help="Instead of <model>.onnx.")] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="With the float parts around the integers: images in, results out.")
    ] = False,
    calibrate: Calibrate = None,
    weight_bits: Bits = 8,
    act_bits: Bits = 8,
) -> None:
    """Write the integers of a model in standard ONNX operators; ONNX Runtime must give the same numbers."""
    from nnhw.flow.commands.exporting_onnx import export_onnx as write
    from nnhw.flow.models.calibrate import make_calibration

    made = write(file, out, whole, make_calibration(calibrate, None, None, weight_bits, act_bits), _progress())
    OUT.print(
        f"{made.path}: {made.operators} operators; ONNX Runtime gives the same numbers on {made.samples} samples",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


@export.command("c")
def export_c(
    file: ModelFile,
    out: Annotated[Path, typer.Option(help="Folder of the files.")] = Path("c"),
    name: Annotated[str | None, typer.Option(help="Stem of the files and prefix of the functions.")] = None,
    main: Annotated[bool, typer.Option("--main", help="Also a program that reads a tensor.")] = False,
    small: Annotated[bool, typer.Option("--small", help="For microcontrollers: packed weights.")] = False,
    codes: Annotated[bool, typer.Option("--codes", help="The integer network alone, without float ends.")] = False,
    calibrate: Calibrate = None,
    weight_bits: Bits = 8,
    act_bits: Bits = 8,
) -> None:
    """Write one C99 file and a header that compute the same integers."""
    from nnhw.flow.commands.exporting_c import export_c_file
    from nnhw.flow.commands.terminal import render_c_export
    from nnhw.flow.models.calibrate import make_calibration

    calibration = make_calibration(calibrate, None, None, weight_bits, act_bits)
    made = export_c_file(
        file,
        out=out,
        name=name,
        program=main,
        small=small,
        codes=codes,
        calibration=calibration,
        progress=_progress(),
    )
    OUT.print(render_c_export(made), highlight=False, markup=False, soft_wrap=True)


@export.command("core")
def export_core(
    build: BuildPath,
    bus: Annotated[str, typer.Option(help="axi-stream or wishbone.")] = "axi-stream",
    name: Annotated[str | None, typer.Option(help="Name of the module and stem of the files.")] = None,
    clock: Annotated[float, typer.Option(metavar="MHZ", help="Clock of the constraints.")] = 50.0,
    out: Annotated[Path, typer.Option(help="Folder of the files.")] = Path("core"),
) -> None:
    """Write the accelerator of a build as a core for your own design, with an instance and constraints."""
    from nnhw.flow.commands.exporting_core import export_core as write

    made = write(build, bus=bus, name=name, clock_mhz=clock, out=out, progress=_progress())
    for path in made.paths:
        OUT.print(f"wrote {path}", highlight=False, soft_wrap=True, markup=False)


@export.command("driver")
def export_driver(
    build: BuildPath,
    to: Annotated[str, typer.Option(help="c or micropython.")] = "c",
    out: Annotated[Path, typer.Option(help="Folder of the files.")] = Path("driver"),
) -> None:
    """Write a driver for a microcontroller, of a build with --link spi."""
    from nnhw.flow.commands.exporting_driver import export_driver as write

    for path in write(build, to=to, out=out):
        OUT.print(f"wrote {path}", highlight=False, soft_wrap=True, markup=False)


def main() -> None:
    """Run the command line."""
    # In front of everything, so that a signal while modules are imported leaves nothing half-written.
    stop_on_signals()
    app(prog_name="nnhw")


if __name__ == "__main__":
    main()
