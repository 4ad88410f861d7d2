"""The stages of a build, in order. Each reads files of earlier stages and writes files of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nnhw
from nnhw.accelerator import Accelerator
from nnhw.boards import Board
from nnhw.driver.image import PROGRAM_FILE
from nnhw.driver.saturation import InputUse
from nnhw.errors import BuildError, DoesNotFitError, InputError
from nnhw.flow.folder.build_folder import BuildFolder, read_json, write_json
from nnhw.flow.folder.manifest import read_fact
from nnhw.flow.models.sensor_signals import SIGNALS, expected_of
from nnhw.flow.options import Options
from nnhw.flow.sensor_build import beside, check_ends, check_speed, load_front, sensor_options
from nnhw.flow.tools.progress import Progress, noted
from nnhw.flow.tools.sources import code_hash
from nnhw.sensors import SensorFront, table_of

if TYPE_CHECKING:
    from amaranth.lib import wiring

    from nnhw.flow.implementation.bitstream import BitstreamRequest, MakeDevice
    from nnhw.flow.implementation.patching import Base
    from nnhw.flow.verification.simulate import SimulationResult, StartRun
    from nnhw.frontend import Source


@dataclass(frozen=True)
class Job:
    """A build that is running: what its stages are given.

    Parameters
    ----------
    source: the model; None when the build starts from a stage after `capture`.
    base: finished build whose layout is reused if the new build differs from it only in the contents of memories;
        None: there is none.
    is_mapped: whether the network will be mapped, so that one that is far too large for the board is refused at once.
    watched: makes a context in which the model's program runs; see `nnhw.flow.models.model_file`.
    """

    folder: BuildFolder
    board: Board
    options: Options
    progress: Progress
    source: Source | None = None
    base: Base | None = None
    is_mapped: bool = False
    watched: Callable[[], AbstractContextManager[None]] = nullcontext

    def path(self, name: str) -> Path:
        """Return the path of an artefact of an earlier stage."""
        return self.folder.path / name

    def front(self) -> SensorFront | None:
        """Return the front end of the sensor that the build is for; None without a sensor. See `load_front`."""
        return load_front(self.path("lower.json"), self.board)

    def clock_hz(self) -> int:
        """Return the clock of a build for a sensor, which `map` has chosen, in Hz."""
        return int(read_fact(self.path("map.json"), float, "clock_hz"))


@dataclass(frozen=True)
class BuildStage:
    """One step of a build.

    Parameters
    ----------
    name: as the options --start-from and --stop-at take it.
    reads: names of the stages whose files it reads.
    settings: names of the fields of `Options` that its files depend on.
    run: takes the job and an empty folder, and writes the stage's files there; `<name>.json` among them holds what the
        report needs.
    """

    name: str
    reads: tuple[str, ...]
    settings: tuple[str, ...]
    run: Callable[[Job, Path], None]


def stage_key(stage: BuildStage, job: Job) -> str:
    """Return the hash of everything that a stage depends on: nnhw, board, options, and the files that it reads."""
    document = {
        "nnhw": [nnhw.__version__, code_hash()],
        "stage": stage.name,
        "board": dataclasses.asdict(job.board),
        "settings": {name: getattr(job.options, name) for name in stage.settings},
        "files": {name: job.folder.files(name) for name in stage.reads},
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return a setting in a form that JSON has."""
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else dict(value)


def dependents(name: str) -> list[str]:
    """Return the stages that read a stage's files, directly or through others."""
    # One pass is enough, as STAGES is in order: a stage reads only stages that stand before it.
    found = [name]
    for stage in STAGES:
        if set(stage.reads) & set(found):
            found.append(stage.name)
    return found[1:]


def capture(job: Job, out: Path) -> None:
    """Model --> float-level graph, and sample images with the results that PyTorch computes for them.

    Raises
    ------
    InputError: the build has no model.
    DoesNotFitError: the network is to be mapped, and its weights are far too many for the board.
    ExactnessError: the graph's codes differ from PyTorch's, and rounding does not explain it.
    """
    from nnhw import ir
    from nnhw.flow.board_budget import refuse_on_board
    from nnhw.flow.models.samples import samples_of, usual_inputs
    from nnhw.ir.files import pack_arrays
    from nnhw.nn.post_training import accuracy_of
    from nnhw.rewrites import apply_rewrites

    if job.source is None:
        raise InputError("the stage 'capture' needs a model; give one, or start from a later stage")
    source = job.source
    with job.watched():
        captured = source.capture_quantizers()
    if job.is_mapped:
        try:
            refuse_on_board(captured.graph, job.board)
        except DoesNotFitError as error:
            error.graph = None if source.rewrites else captured.graph
            raise
    samples = samples_of(source.example_input, captured.graph)
    with job.watched():
        own = source.own_answers(captured, samples)
    graph, rewritten = apply_rewrites(captured.graph, source.rewrites, samples)
    ir.save(graph, out / "capture.ir")
    answers = {"torch": own.own} | ({} if own.double is None else {"torch_float64": own.double})
    accuracy = accuracy_of(source.model)
    facts = {
        "name": source.name,
        "samples": len(samples),
        "precision": own.precision,
        "ties": own.ties,
        "tools": _versions("torch"),
        "rewrites": [one.facts() for one in rewritten],
        **({"accuracy": dataclasses.asdict(accuracy)} if accuracy else {}),
        "front": None if source.front is None else table_of(source.front.config),
    }
    write_json(out / "capture.json", facts)
    usual = usual_inputs(source, captured.graph)
    arrays = {"inputs": samples, **answers} | ({} if usual is None else {"usual": usual})
    (out / "samples.npz").write_bytes(pack_arrays(arrays))
    if source.front is not None:
        (out / SIGNALS).write_bytes(pack_arrays(expected_of(source, job.board.input)))


def lower(job: Job, out: Path) -> None:
    """Float-level graph --> float head, integer body, float tail; equality is checked around every pass."""
    from nnhw import ir
    from nnhw.flow.models.lowering import lower_graph
    from nnhw.flow.models.samples import load_samples
    from nnhw.ir.interpreter import run_in_chunks

    precision = read_fact(job.path("capture.json"), str, "precision")
    samples = load_samples(job.path("samples.npz"))
    parts, facts = lower_graph(ir.load(job.path("capture.ir")), samples, rounds=precision == "float32")
    for name, graph in (("head", parts.head), ("lower", parts.body), ("tail", parts.tail)):
        ir.save(graph, out / f"{name}.ir")
    usual, kind = samples.get("usual"), parts.head.output_nodes[0].type.int_dtype
    use = None if usual is None else InputUse.of(usual, run_in_chunks(parts.head, usual)[0], kind)
    noted = {"input": None if use is None else dataclasses.asdict(use)}
    write_json(out / "lower.json", {**facts, **noted, "front": read_json(job.path("capture.json")).get("front")})


def map_stage(job: Job, out: Path) -> None:
    """Integer body and board --> engines.

    Raises
    ------
    InputError, MappingError: a sensor is to feed a network that has no front end, or that does not fit to it.
    """
    from nnhw import ir
    from nnhw.flow.board_budget import map_on_board
    from nnhw.mapping.settling import settling

    body = ir.load(job.path("lower.ir"))
    front = job.front()
    options = job.options if front is None else sensor_options(job.board, front, job.options)
    others = () if front is None else (beside(job.board, front),)
    with noted("nnhw.mapping", job.progress), settling():
        try:
            mapped, facts = map_on_board(body, job.board, options, *others)
        except DoesNotFitError as error:
            error.graph = ir.load(job.path("capture.ir"))
            raise
    if front is not None:
        check_ends(ir.load(job.path("head.ir")), ir.load(job.path("tail.ir")), mapped.accelerator, front)
        check_speed(mapped.accelerator, front, facts["clock_hz"])
    mapped.accelerator.save(out)
    image = mapped.accelerator.image
    if image is not None:
        (out / PROGRAM_FILE).write_bytes(image)
    write_json(out / "map.json", facts)


def elaborate(job: Job, out: Path) -> None:
    """Engines --> Verilog: the bare engine for simulators and other flows, and the device of the virtual board.

    Both have a module `top` with byte streams `i` and `o`. With a sensor, also the device between its pins and the
    result.
    """
    from nnhw.flow.tools.toolchain import find_tool, run_yosys
    from nnhw.flow.verification.simulate import engine_verilog
    from nnhw.flow.virtual.device_hardware import make_device, make_sensor_device
    from nnhw.hdl.verilog import to_verilog

    accelerator = Accelerator.load(job.folder.path)
    device = make_device(accelerator, job.board.target_clock_hz)
    (out / "accelerator.v").write_text(engine_verilog(accelerator, taps=False), encoding="utf-8")
    (out / "device.v").write_text(to_verilog(device, run_yosys), encoding="utf-8")
    if (front := job.front()) is not None:
        sensor = make_sensor_device(accelerator, front, job.board, job.clock_hz())
        (out / "sensor.v").write_text(to_verilog(sensor, run_yosys), encoding="utf-8")
    write_json(out / "elaborate.json", {"tools": {**_versions("amaranth"), "yosys": find_tool("yosys").title}})


def simulate(job: Job, out: Path) -> None:
    """Compare simulated RTL with the IR at every layer boundary, with stalled streams and without.

    Raises
    ------
    BuildError: results differ, or a frame does not end in the predicted cycle.
    """
    from nnhw.flow.verification.compare_rtl import compare_rtl

    options = job.options
    result = compare_rtl(job.folder.path, options.frames, options.cocotb_frames, job.progress)
    for part in result.parts:
        check_simulation(part)
    write_json(out / "simulate.json", {**result.facts(), "tools": _versions("cocotb")})


def sense(job: Job, out: Path) -> None:
    """Play the model's example signals at the sensor's pins, and compare what comes out with PyTorch, frame by frame.

    Raises
    ------
    BuildError: codes of the front end, or results, differ.
    """
    from nnhw.flow.verification.compare_rtl import USUAL_FRAMES
    from nnhw.flow.verification.sensing import run_sensor

    front = job.front()
    assert front is not None, "the stage is left out without a sensor"
    assert job.board.sensor is not None
    verilog = job.folder.text_to_compile("elaborate", "sensor.v")
    frames = job.options.frames or USUAL_FRAMES
    run = run_sensor(verilog, job.folder.path, front, job.board.sensor, job.clock_hz(), frames)
    if not run.equal:
        raise BuildError(
            f"the device with its sensor differs from PyTorch: {run.codes} of {run.elements} codes of the front end, "
            f"{run.labels} of {run.frames} results at the pins, {run.lines} of {run.frames} lines of the serial port; "
            "this is a mistake of nnhw, please report the model"
        )
    write_json(out / "sense.json", dataclasses.asdict(run))


def build(job: Job, out: Path) -> None:
    """Engines --> bitstream that holds its clock; patched from a finished one's layout where that is possible."""
    from nnhw.flow.implementation.bitstream import BitstreamRequest, build_bitstream
    from nnhw.flow.report import host_rate
    from nnhw.flow.tools.cache import Cache
    from nnhw.flow.virtual.device_hardware import make_linked_device, make_sensor_device

    accelerator, options, front = Accelerator.load(job.folder.path), job.options, job.front()
    # What mapping planned is compared with what synthesis makes: a memory that ends up in logic is an error.
    planned = {name: read_fact(job.path("map.json"), int, "resources", name) for name in ("ebr", "spram", "dsp")}
    request = BitstreamRequest(
        clock_hz=options.clock_hz if front is None else job.clock_hz(),
        seeds=options.seeds,
        jobs=options.jobs,
        planned_ebr=planned["ebr"],
        planned_spram=planned["spram"],
        dsp=planned["dsp"] > 0,
        images_per_s=lambda clock_hz: host_rate(accelerator, job.board.host_link, clock_hz),
    )

    def make(clock_hz: int) -> wiring.Component:
        board = job.board
        if front is not None:
            return make_sensor_device(accelerator, front, board, clock_hz)
        return make_linked_device(accelerator, clock_hz, board.host_link, board.flash, board.fastest_clock_hz)

    facts = _patch(job, make, request, out)
    if facts is None:
        facts = build_bitstream(make, job.board, out, request, cache=Cache.default(), note=job.progress.note).facts()
    write_json(out / "build.json", facts)


def _patch(job: Job, make: MakeDevice, request: BitstreamRequest, out: Path) -> dict[str, Any] | None:
    """Return the facts of a bitstream patched from the finished build `job.base`; None where that is not possible."""
    from nnhw.flow.implementation.patching import DiffersError, patch_bitstream

    if job.base is None:
        return None
    try:
        facts = patch_bitstream(job.base, make, job.board, out, request, job.progress.note)
    except DiffersError as reason:
        job.progress.note(f"not patched from {job.base.title}: {reason}; a whole build follows")
        return None
    job.progress.note(f"patched from {job.base.title}: the layout is the same, only what is in memories differs")
    return facts


def netlist(job: Job, out: Path) -> None:
    """Compare the placed netlist with the IR: the driver sends frames to the pins of its link, in simulation.

    With a sensor it plays the model's example signals at its pins, and compares what comes out with PyTorch.

    Raises
    ------
    BuildError: results differ, or frames of the protocol are lost.
    """
    from nnhw.flow.verification.netlist import run_netlist
    from nnhw.flow.verification.sensing import run_sensor_netlist

    # The netlist is compiled and run on this machine, so its file must be one that this user's nnhw has signed.
    job.folder.text_to_compile("build", "design.json")
    clock_hz, frames = read_fact(job.path("build.json"), int, "clock_hz"), job.options.netlist_frames
    if (front := job.front()) is None:
        run = run_netlist(job.folder.path, job.board, clock_hz, frames, job.progress)
    else:
        run = run_sensor_netlist(job.folder.path, job.board, front, clock_hz, frames, job.progress)
    if not run.equal:
        what = "the IR" if front is None else "PyTorch, at the pins of sensor and result,"
        lost = f", and {run.bad_frames} frames of the protocol were lost" if front is None else ""
        raise BuildError(
            f"the netlist differs from {what} in {run.mismatches} of {run.samples} frames{lost}, so the bitstream "
            "would give wrong answers; this is a mistake of nnhw or of yosys, please report the model with the version "
            "of yosys"
        )
    write_json(out / "netlist.json", dataclasses.asdict(run))


STAGES = (
    BuildStage("capture", (), (), capture),
    BuildStage("lower", ("capture",), (), lower),
    BuildStage(
        "map",
        ("lower",),
        ("clock_hz", "target_fps", "overrides", "style", "fast_for", "array", "reusable", "sequences"),
        map_stage,
    ),
    BuildStage("elaborate", ("lower", "map"), (), elaborate),
    BuildStage("simulate", ("capture", "lower", "map", "elaborate"), ("frames", "cocotb_frames"), simulate),
    BuildStage("sense", ("capture", "lower", "map", "elaborate"), ("frames",), sense),
    # `jobs` is no setting: the result does not depend on it.
    BuildStage("build", ("lower", "map"), ("clock_hz", "seeds"), build),
    BuildStage("netlist", ("capture", "lower", "map", "build"), ("netlist_frames",), netlist),
)
STAGE_NAMES = tuple(stage.name for stage in STAGES)


def check_simulation(result: SimulationResult | StartRun) -> None:
    """Raise BuildError unless the RTL gave exactly the results of the IR, each in the cycle that was predicted."""
    from nnhw.flow.verification.simulate import StartRun

    if result.equal:
        return
    if isinstance(result, StartRun):
        raise BuildError(_start_differs(result))
    wrong = [f"{stream.name} ({stream.mismatches})" for stream in result.streams if not stream.equal]
    if result.miscounted:
        wrong.append(f"the cycles of its records ({result.miscounted})")
    if result.mistimed is not None and not wrong and not result.broken_rules:
        raise BuildError(
            f"the RTL equals the IR, but {_times(result, result.mistimed)}, so latency and rate would not be those "
            "that are stated; this is a mistake of nnhw, please report the model"
        )
    raise BuildError(
        f"the RTL differs from the IR in {', '.join(wrong) or 'its handshakes'}, of {result.samples} frames "
        f"({result.broken_rules} broken stream rules); this is a mistake of nnhw, please report the model"
    )


def _start_differs(result: StartRun) -> str:
    """Return in words what the start of a simulation found."""
    starts = [start for run in result.streams for start in run if not start.equal]
    wrong = [f"{start.name} ({start.wrong} of {start.came} beats, {_due(start.due)})" for start in starts]
    return (
        f"the RTL differs in {', '.join(wrong) or 'its handshakes'} in the first {result.bound_cycles:,} cycles, "
        f"simulated by {result.simulator} ({result.broken_rules} broken stream rules); this is a mistake of nnhw, "
        "please report the model"
    )


def _due(beats: int | None) -> str:
    return "no other simulator" if beats is None else f"{beats} in compiled code"


def _times(result: SimulationResult, frame: int) -> str:
    """Return in words how far the end of a frame is from the cycle that was predicted.

    Parameters
    ----------
    frame: number of the first frame that ends in another cycle than predicted.
    """
    predicted = result.schedule.ends(frame + 1)
    if frame >= len(result.ends):
        return f"its frame {frame} never ended"
    if not frame:
        # Ends are numbers of cycles from 0 on; a latency counts cycles, hence + 1.
        return f"its latency is {result.ends[0] + 1} cycles, and {predicted[0] + 1} were predicted"
    took, expected = result.ends[frame] - result.ends[frame - 1], predicted[frame] - predicted[frame - 1]
    return f"its frame {frame} ends {took} cycles after the one before, and {expected} were predicted"


def load_facts(folder: BuildFolder) -> dict[str, dict[str, Any]]:
    """Return the facts (`<stage>.json`) of each stage that has run, by stage name."""
    return {name: read_json(folder.path / f"{name}.json") for name in STAGE_NAMES if folder.is_intact(name)}


def load_accelerator(folder: BuildFolder) -> Accelerator | None:
    """Return what `map` made, or None where it has not run."""
    return Accelerator.load(folder.path) if folder.is_intact("map") else None


def _versions(*packages: str) -> dict[str, str]:
    from importlib.metadata import version

    return {package: version(package) for package in packages}
