"""Running the stages of a build: files that are up to date are kept, the others are made again."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnhw.accelerator import Accelerator
from nnhw.boards import Board, board_of, load_board
from nnhw.errors import BuildError, InputError, ToolError
from nnhw.flow.build_stages import (
    STAGE_NAMES,
    STAGES,
    BuildStage,
    Job,
    dependents,
    load_accelerator,
    load_facts,
    stage_key,
)
from nnhw.flow.folder.build_folder import BuildFolder, read_json, write_json
from nnhw.flow.folder.manifest import read_fact
from nnhw.flow.models.calibrate import Calibration, given_data
from nnhw.flow.models.model_file import ModelFile
from nnhw.flow.options import Options, make_options
from nnhw.flow.report import make_report
from nnhw.flow.tools.beside import Beside
from nnhw.flow.tools.cache import Cache
from nnhw.flow.tools.progress import NamedProgress, Progress, SilentProgress, shown_progress
from nnhw.flow.tools.storage import check_folder_place
from nnhw.model_files import check_model_file, identifier, model_name
from nnhw.notebook import facts_table

ARTICLES = {"image": "an image", "step": "a step"}

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.export import ExportedProgram

    from nnhw.families.prices import PartRow
    from nnhw.flow.implementation.patching import Base
    from nnhw.frontend import Source
    from nnhw.nn.bits import Widths
    from nnhw.rewrites import Rewrite

ROOT = Path("build")
REPORT, TIMING = "report.json", "timing.json"


@dataclass(frozen=True, repr=False)
class Build:
    """A finished build: its folder and its report.

    Parameters
    ----------
    path: the build folder.
    report: content of `report.json`, see `docs/report-schema.md`.
    """

    path: Path
    report: Mapping[str, Any]

    @classmethod
    def load(cls, path: Path | str) -> Build:
        """Open a folder that `nnhw build` made.

        Raises
        ------
        BuildError: the folder does not exist, is not complete, or was made by another version of nnhw.
        """
        folder = BuildFolder.open(Path(path))
        report = read_json(folder.path / REPORT)
        _check_shown(report, folder.path / REPORT)
        return cls(folder.path, report)

    @property
    def accelerator(self) -> Accelerator:
        """The mapped network."""
        return Accelerator.load(self.path)

    @property
    def parts(self) -> dict[str, list[PartRow]]:
        """What each engine is made of, by name: adders, registers, memories and so on, as the cost model has them."""
        from nnhw.flow.board_budget import engine_parts

        facts = self.path / "map.json"
        return engine_parts(self.accelerator, board_of(read_fact(facts, dict, "board"), f"build file '{facts}'"))

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that each stage took when it last ran, by name; what ran beside each other overlaps."""
        path = self.path / TIMING
        return read_json(path) if path.is_file() else {}

    def _repr_html_(self) -> str:
        report, rate, cycles = self.report, self.report["inferences_per_second"], self._cycles
        taken = {
            name: row["estimated"] if row["used"] is None else row["used"] for name, row in report["resources"].items()
        }
        used = [f"{count:,} {name}" for name, count in taken.items() if count]
        facts = {
            "board": report["board"]["name"],
            "cycles per image": None if cycles is None else f"{cycles:,.0f}",
            "images per second": None if rate is None else f"{rate:,.0f} at {report['clock_hz'] / 1e6:.2f} MHz",
            "resources": ", ".join(used) or None,
            "folder": self.path,
        }
        return facts_table(report["model"]["name"], facts)

    @property
    def _cycles(self) -> float | None:
        """Cycles from one image to the next: those counted in simulation, else those predicted; None before `map`."""
        interval = self.report["cycles"]["interval"]
        found: float | None = interval["predicted"] if interval["simulated"] is None else interval["simulated"]
        return found

    def __repr__(self) -> str:
        report, rate, cycles = self.report, self.report["inferences_per_second"], self._cycles
        facts = [f"{report['model']['name']} on {report['board']['name']}"]
        facts += [] if cycles is None else [f"{ARTICLES[report['frame']]} in {cycles:,.0f} cycles"]
        if rate is None:
            facts.append("no bitstream yet")
        else:
            facts.append(f"{rate:,.0f} {report['frame']}s/s at {report['clock_hz'] / 1e6:.2f} MHz")
        return f"<Build '{self.path}': {', '.join(facts)}>"


def build(
    model: nn.Module | ExportedProgram,
    example_input: torch.Tensor,
    *,
    board: str = "icebreaker",
    name: str | None = None,
    out: Path | str | None = None,
    clock_mhz: float | None = None,
    target_fps: float | None = None,
    style: str = "auto",
    fast_for: str = "link",
    array: Path | str | None = None,
    reusable: bool = False,
    sequences: int = 1,
    overrides: Mapping[str, Mapping[str, int]] | Path | None = None,
    seeds: int = 5,
    jobs: int | None = None,
    frames: int | None = None,
    cocotb_frames: int | None = None,
    netlist_frames: int = 0,
    base: Path | str | None = None,
    link: str = "",
    input: str = "",
    calibrate: Any = None,
    evaluate: Any = None,
    labels: Any = None,
    weight_bits: Widths = 8,
    act_bits: Widths = 8,
    start_from: str = STAGE_NAMES[0],
    stop_at: str = STAGE_NAMES[-1],
    rewrites: Sequence[Rewrite] = (),
    progress: Progress | bool = True,
) -> Build:
    """Build an accelerator for a model; stages whose files in the build folder are up to date are skipped.

    Parameters
    ----------
    model: in any mode; a copy in eval mode is built.
    example_input: [batch, ..]: shape, dtype and range of what the model will see.
    board: name of a board, an alias, or the path of a board file.
    name: name of the model; default: that of its class in lower case.
    out: the build folder; default: `build/<name>-<board>`.
    clock_mhz: clock that the engine must reach, in MHz; default: the fastest that place and route reaches.
    target_fps: frames per second of the engine that are enough; default: as `fast_for` says.
    style: `streaming`: an engine for each layer; `shared`: one engine runs a program; `auto`: the faster that fits.
    fast_for: `link`: the smallest mapping that keeps up with the board's link, or the fastest where none does;
        `engine`: the fastest mapping that fits, even if the link cannot keep up with it.
    array: folder of a build with a shared engine, which is to run this model too: only a program is made for it.
    reusable: with style `shared`: the engine is made for other networks as well, which are then built with `array`.
    sequences: number of sequences that take turns in a recurrent network, one step each: an engine that waits for the
        state of one sequence works on the steps of the others meanwhile.
    overrides: foldings by layer name, or a TOML file of them.
    seeds: number of place-and-route runs, of which the best is taken.
    jobs: tool processes at a time; default: the number of cores.
    frames: number of frames of the RTL simulation; 0: no simulation; default: 8, fewer where these take long.
    cocotb_frames: number of whole frames that cocotb simulates besides; default: the start of one.
    netlist_frames: number of frames that the placed netlist is simulated with, through the pins of its link; 0: none.
    base: build folder of a network that differs in its weights alone: its layout is kept, and only the contents of
        memories are changed; default: the folder `out`, where it holds a finished build. A network that differs in
        more is built as a whole.
    link: `uart`, `spi`, `ftdi`, `usb` or `ulpi`, where the board has it, and `usb` also for `ulpi` where it has that
        alone; default: the link that its board file names.
    input: `i2s`, `pdm` or `camera`, where the board has its pins and the model is a `nnhw.nn.SensorModel`: a sensor
        feeds the network, and no computer takes part; default: what its board file names, mostly none.
    calibrate: data with which a float model is quantized, as `nnhw.quantize` takes it; None: the model has quantizers.
    evaluate, labels: images (default: those of `calibrate`) and their labels [N]: the report then has the accuracy
        before and after quantization.
    weight_bits, act_bits: bits of weights and of activations with `calibrate`, 1 to 8, or a dict of them by layers; see
        `nnhw.quantize`.
    start_from, stop_at: the first and the last stage to run; files of the stages before it are used as they are.
    rewrites: of the model's graph, in order; see `docs/rewrites.md`.
    progress: where the build reports. True: bars in a terminal or a notebook, nothing elsewhere; False: nothing.

    Raises
    ------
    NnhwError: see `nnhw.errors`; stages that have finished stay in the build folder.

    Notes
    -----
    A build waits while another one writes into the same folder.
    """
    check_stages(start_from, stop_at)
    from nnhw.frontend.source import Source, sensed
    from nnhw.nn.given import class_name

    shown = shown_progress(progress)
    named = identifier(name or class_name(model).lower())
    other, base = (Path(folder) if folder else None for folder in (array, base))
    options = make_options(
        clock_mhz,
        target_fps,
        overrides,
        seeds,
        jobs,
        frames,
        netlist_frames,
        style,
        other,
        reusable,
        board,
        base,
        sequences=sequences,
        link=link,
        input=input,
        fast_for=fast_for,
        cocotb_frames=cocotb_frames,
    )
    _board_with_link(board, options)  # what is wrong with it is reported before the model is quantized
    data = given_data(calibrate, evaluate, labels, weight_bits, act_bits)
    if data is not None and start_from == STAGE_NAMES[0]:
        with shown.stage("quantize"):
            model = data.quantize(model, example_input, shown)
    source = sensed(Source(model, example_input, named, rewrites=tuple(rewrites)))
    return run_build(source, named, board, options, out=out, start_from=start_from, stop_at=stop_at, progress=shown)


def run_build(
    source: Source | ModelFile | None,
    name: str,
    board: str,
    options: Options,
    *,
    out: Path | str | None = None,
    start_from: str = STAGE_NAMES[0],
    stop_at: str = STAGE_NAMES[-1],
    progress: Progress | None = None,
) -> Build:
    """Run the stages from `start_from` to `stop_at`; see `build`.

    Parameters
    ----------
    source: the model; of a `ModelFile`, the program is run only where it may have changed. May be None when
        `start_from` is a later stage.
    """
    found = _board_with_link(board, options)
    progress = progress or SilentProgress()
    selected = _selected(start_from, stop_at, options, found, progress)
    progress.note(f"board: {found.name} ({found.title}, {found.device})")
    Cache.default()  # a folder that cannot be used is said before the work begins
    path = _folder(out, name, found)
    with BuildFolder.lend(path, name, found.name, progress.note) as folder:
        base = _base(options, folder, selected)
        is_mapped = any(stage.name == "map" for stage in selected)
        model, file = (None, source) if isinstance(source, ModelFile) else (source, None)
        job = Job(folder, found, options, progress, model, base, is_mapped)
        # A build without frames or without a simulator has no files of `simulate`, and no later stage reads them.
        for earlier in STAGE_NAMES[: STAGE_NAMES.index(start_from)]:
            if earlier not in ("simulate", "sense"):
                folder.require(earlier)
        if file is not None:
            capture, *selected = selected
            _capture_file(file, capture, job)
        _run_stages(selected, job)
        return _finish(job)


def _capture_file(file: ModelFile, capture: BuildStage, job: Job) -> None:
    """Run `capture` with the model of a file, unless nothing that it depends on has changed since it ran."""
    folder, key = job.folder, stage_key(capture, job)
    is_own = folder.is_intact(capture.name) and not folder.is_foreign(capture.name)
    if is_own and file.is_captured(folder.files(capture.name), key):
        job.progress.note(f"{capture.name}: unchanged")
        return
    _advance(capture, dataclasses.replace(job, source=file.load(job.progress), watched=file.watched))
    file.keep(folder.files(capture.name), key)


def _folder(out: Path | str | None, name: str, board: Board) -> Path:
    """Return the build folder: `out`, or the one that is named after model and board."""
    return Path(out) if out else ROOT / f"{name}-{board.name}"


def _board_with_link(name: str, options: Options) -> Board:
    """Return the board with the link and the sensor that the options ask for.

    Raises
    ------
    BoardError: an unknown board, or one without that link or that sensor. InputError: it has no clock as fast as asked.
    """
    from nnhw.flow.implementation.timing_closure import check_board_clock

    named = load_board(name)
    board = named.with_link(options.link or named.link).with_input(options.input)
    check_board_clock(board, options.clock_hz)
    return board


def _base(options: Options, folder: BuildFolder, selected: list[BuildStage]) -> Base | None:
    """Return the finished build that may be patched, None where there is none.

    It is read into memory before the first stage runs: it may be the folder itself, whose files the stages replace.
    """
    from nnhw.flow.implementation.patching import load_base

    return load_base(options.base, folder) if any(stage.name == "build" for stage in selected) else None


def check_stages(start_from: str, stop_at: str) -> None:
    """Raise InputError for a stage that does not exist, or an end before the start."""
    for name in (start_from, stop_at):
        if name not in STAGE_NAMES:
            raise InputError(f"there is no stage '{name}'; the stages are {', '.join(STAGE_NAMES)}")
    if STAGE_NAMES.index(start_from) > STAGE_NAMES.index(stop_at):
        raise InputError(f"a build cannot start from '{start_from}' and stop at '{stop_at}', which comes before it")


def _selected(start_from: str, stop_at: str, options: Options, board: Board, progress: Progress) -> list[BuildStage]:
    """Return the stages to run, in order; `sense` only with a sensor, it, `simulate` and `netlist` only with frames.

    Raises
    ------
    InputError: a stage that does not exist, or an end before the start.
    """
    check_stages(start_from, stop_at)
    selected = list(STAGES[STAGE_NAMES.index(start_from) : STAGE_NAMES.index(stop_at) + 1])
    if any(stage.name == "simulate" for stage in selected) and not _can_simulate(options, progress):
        selected = [stage for stage in selected if stage.name != "simulate"]
    if board.sensor is None or options.frames == 0:
        selected = [stage for stage in selected if stage.name != "sense"]
    if not options.netlist_frames:
        selected = [stage for stage in selected if stage.name != "netlist"]
    return selected


def _can_simulate(options: Options, progress: Progress) -> bool:
    from nnhw.flow.verification.compare_rtl import can_compare

    if options.frames == 0:
        return False
    try:
        can_compare()
    except ToolError as error:
        progress.note(f"no simulation: {error}")
        return False
    return True


BESIDE = ("elaborate", "simulate", "sense")
"""Stages that run beside `build`, which reads nothing of theirs."""


def _run_stages(selected: Sequence[BuildStage], job: Job) -> None:
    """Run stages in order; simulation and synthesis beside each other, where two processes are allowed.

    A bitstream is handed out only when the simulation has passed; one that fails ends synthesis, place and route.
    """
    before = [stage for stage in selected if stage.name not in (*BESIDE, "build", "netlist")]
    for stage in before:
        _advance(stage, job)
    rest = selected[len(before) :]
    others, build = ([stage for stage in rest if stage.name in names] for names in (BESIDE, ("build",)))
    if build and job.options.jobs > 1 and not all(_is_current(stage, job) for stage in (*others, *build)):
        watched = dataclasses.replace(job, progress=NamedProgress(job.progress))

        def simulate() -> None:
            for stage in others:
                _advance(stage, watched)

        with Beside(simulate, job.options.jobs) as beside:
            _advance(build[0], job, beside.finish)
            beside.finish()
        rest = [stage for stage in rest if stage.name == "netlist"]
    for stage in rest:
        _advance(stage, job)


def _is_current(stage: BuildStage, job: Job) -> bool:
    """Return whether a stage's files are up to date."""
    return bool(stage.reads) and job.folder.is_current(stage.name, stage_key(stage, job))


def _advance(stage: BuildStage, job: Job, wait: Callable[[], None] = lambda: None) -> None:
    """Run one stage unless its files are up to date.

    `capture` always runs: only its result tells whether the model has changed. See `_capture_file`.

    Parameters
    ----------
    wait: called before the files come into the folder.
    """
    folder = job.folder
    key = stage_key(stage, job)
    if stage.reads and folder.is_current(stage.name, key):
        job.progress.note(f"{stage.name}: unchanged")
        return
    if folder.is_foreign(stage.name):
        job.progress.note(f"{stage.name}: made again, as this user's nnhw did not make what is there")
    start = time.monotonic()
    with job.progress.stage(stage.name, _seconds(folder).get(stage.name)), folder.staging(stage.name) as staged:
        with folder.reading(*stage.reads):
            stage.run(job, staged)
        wait()
        # The same graph and samples as before: the files stay, so the stages behind `capture` remain up to date.
        if not stage.reads and folder.is_same(stage.name, staged):
            return
        # From here on nothing of the old build may be taken for the new one's.
        for stale in (stage.name, *dependents(stage.name)):
            folder.drop(stale)
        (folder.path / REPORT).unlink(missing_ok=True)
        folder.commit(stage.name, key, staged)
    _record_seconds(folder, stage.name, time.monotonic() - start)


def _record_seconds(folder: BuildFolder, stage: str, seconds: float) -> None:
    """Keep how long each stage took when it last ran; no artefact depends on it."""
    write_json(folder.path / TIMING, {**_seconds(folder), stage: round(seconds, 3)})


def _seconds(folder: BuildFolder) -> dict[str, float]:
    """Return the seconds that each stage took when it last ran."""
    path = folder.path / TIMING
    return read_json(path) if path.is_file() else {}


def _finish(job: Job) -> Build:
    """Write the report of what is there."""
    folder = job.folder
    facts, accelerator = load_facts(folder), load_accelerator(folder)
    try:
        report = make_report(facts, accelerator, job.board)
    except Exception as error:  # what stages of somebody else say may be of any form
        raise BuildError(
            f"build folder '{folder.path}': no report can be made of what its stages found ({error!r}); "
            "delete the folder and run 'nnhw build' again"
        ) from error
    write_json(folder.path / REPORT, report)
    return Build(folder.path, report)


def _check_shown(report: Mapping[str, Any], path: Path) -> None:
    """Raise BuildError where a report cannot be shown; the code that shows it later relies on this check."""
    import io

    from rich.console import Console

    from nnhw.flow.commands.terminal import render_report

    try:
        # Rendering is the only full check there is of a report's form; the text is thrown away.
        Console(file=io.StringIO()).print(render_report(report))
    except Exception as error:  # a file that somebody changed may have any form
        raise BuildError(f"'{path}' is no report of a build ({error!r}); run 'nnhw build' again") from error


def build_file(
    file: str,
    board: str,
    options: Options,
    *,
    out: Path | str | None = None,
    start_from: str = STAGE_NAMES[0],
    stop_at: str = STAGE_NAMES[-1],
    calibration: Calibration | None = None,
    progress: Progress | None = None,
) -> Build:
    """Build the model in a file, of any kind that `nnhw.frontend.load_source` reads. See `run_build`.

    The file is read only when the build starts from `capture`.

    Parameters
    ----------
    calibration: data with which a float model is quantized; None: the model has quantizers.
    """
    progress = progress or SilentProgress()
    check_stages(start_from, stop_at)
    source: ModelFile | None = None
    if start_from == STAGE_NAMES[0]:
        # To import torch and to load the model takes seconds, so all that is cheap to find is said before.
        check_model_file(file)
        check_folder_place(_folder(out, model_name(file), _board_with_link(board, options)))
        if options.base is not None:
            BuildFolder.open(options.base)
        Cache.default()
        source = ModelFile(file, calibration)
    elif calibration is not None:
        raise InputError(f"calibration data is used by the stage 'capture'; start from it instead of '{start_from}'")
    return run_build(
        source, model_name(file), board, options, out=out, start_from=start_from, stop_at=stop_at, progress=progress
    )
