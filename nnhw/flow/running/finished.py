"""Using a finished build: open its device, run files through it, simulate it, load it into a board."""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnhw.accelerator import Accelerator
from nnhw.boards import Board, board_of
from nnhw.driver import BatchError, Device
from nnhw.driver import open as open_link
from nnhw.driver.connecting import make_model_link
from nnhw.driver.links.base import USB_FLOWS, ByteLink
from nnhw.errors import InputError, LinkError, ToolError
from nnhw.flow.folder.build_folder import BuildFolder
from nnhw.flow.folder.manifest import read_fact
from nnhw.flow.models.calibrate import load_labels
from nnhw.flow.pipeline import Build
from nnhw.flow.running.accuracy import Score, score
from nnhw.flow.tools.progress import Progress, SilentProgress
from nnhw.flow.tools.storage import check_file_place
from nnhw.ir.interpreter import joined
from nnhw.links import Ftdi
from nnhw.reading import load_npy

if TYPE_CHECKING:
    from nnhw.flow.running.measuring import ProgramCount
    from nnhw.flow.verification.simulate import SimulationResult
    from nnhw.flow.virtual.virtual_board import VirtualHardware


def open(
    build: Build | Path | str,
    link: str | ByteLink = "sim",
    *,
    baud: int | None = None,
    max_retries: int = 3,
    notice: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int], None] = lambda finished, total: None,
    trust: bool = False,
    strict: bool = False,
) -> Device:
    """Open the device that runs a build; use it in a `with` statement and call it with images.

    Parameters
    ----------
    build: the result of `nnhw.build`, or the path of its folder.
    link: `sim` (the compiled hardware answers), `model` (the interpreter answers), `c` (the same integers by compiled
        C, the fastest without a board), `auto` (the only board that is plugged in), the name of a serial port, or a
        link that is open already.
    baud: bits per second of a serial port; default: the highest rate of the build at which the device answers.
    max_retries: attempts in a row without progress, after the first.
    notice: called with messages: what is slow and why, and that the device had refused the program it started with.
    progress: called with bytes sent and bytes in all, while the device is sent the build's program.
    trust: with `sim`, compile the folder's Verilog even if somebody else made it; it may then run any code. See
        `trust_build`.
    strict: inputs that are clipped far more often than calibration data are an InputError instead of a
        SaturationWarning.

    Raises
    ------
    BuildError: no build folder, an incomplete one, or one of another version; with `sim`, one that somebody else made.
    InputError: the build's program is damaged, or `baud` is given for a link that is no serial port.
    LinkError: no such port, no answer, a device with another model, or one that refuses the program.
    """
    if baud is not None:
        _check_baud(baud, link)
    folder = _mapped(build)
    board = _board(folder)
    clock_hz = board.target_clock_hz
    if link == "sim":
        from nnhw.driver.links.hardware import HardwareLink

        link = HardwareLink(_virtual_board(folder, clock_hz, notice, trust), clock_hz)
    elif link == "c":
        link = _c_link(folder, clock_hz)
    elif not board.host_link.has_port and link != "model" and isinstance(link, str):
        others = " or ".join(f"--link {other.kind}" for other in board.links if other.has_port)
        raise LinkError(
            f"build '{folder.path}' is for the board's link '{board.link}', which no port of this computer speaks; "
            f"drive it from a microcontroller, or build it with {others}"
        )
    elif isinstance(link, str) and link != "model":
        link = _link_name(link, board, folder)
    rates = (baud,) if baud else board.host_link.rates(_built_clock_hz(folder, board))
    return open_link(folder.path, link, rates, clock_hz, max_retries, progress, notice, strict)


_NAMED = (Ftdi.kind, *USB_FLOWS)


def _link_name(link: str, board: Board, folder: BuildFolder) -> str:
    """Return the name of a link to a board, `auto` as what the build is for.

    Raises
    ------
    LinkError: the build is for another kind of link.
    """
    # These links have names of their own; what is none of them is a serial port.
    kind, colon, rest = link.partition(":")
    name = next(iter(board.host_link.called), board.link)
    if kind == name:
        return f"{board.link}{colon}{rest}"
    if board.link in _NAMED and link == "auto":
        return board.link
    if board.link in USB_FLOWS and kind not in _NAMED:
        return f"{board.link}:{link}"
    if kind != board.link and (kind in _NAMED or board.link in _NAMED):
        remedy = f"--link {name}" if board.link in _NAMED else "--link auto, or a serial port"
        raise LinkError(
            f"build '{folder.path}' is for the board's link '{board.link}', not for '{link}'; use {remedy}, or build "
            "it for the other link with 'nnhw build --link'"
        )
    return link


@dataclass(frozen=True)
class FileRun:
    """The results of a batch, and what it took.

    Parameters
    ----------
    results: [N, *shape]; several are joined, [N, elements].
    seconds: from the first byte to the last result.
    cycles: cycles of the device's clock per image, counted by the device; None where it has no counter.
    program: cycles of the parts of the first shared engine's program; None: there is none, or it was not counted.
    accuracy: number of right results; None: no labels were given.
    parts: several results by their keys, or by their numbers in a tuple; empty where there is one.
    """

    results: np.ndarray
    seconds: float
    cycles: float | None
    program: ProgramCount | None = None
    accuracy: Score | None = None
    parts: Mapping[str, np.ndarray] = field(default_factory=dict)


def run_file(
    build: Path,
    file: Path,
    link: str = "sim",
    out: Path | None = None,
    progress: Progress | None = None,
    measure: bool = False,
    labels: Path | None = None,
    trust: bool = False,
    baud: int | None = None,
    strict: bool = False,
) -> FileRun:
    """Run the images of a .npy file through a device.

    Parameters
    ----------
    out: .npy file for the results; when the link fails, for those of the images that were finished.
    measure: let the device measure the cycles of each layer; see `measure_parts`.
    labels: .npy file of the images' labels [N], 0 for the first output: for the accuracy.
    trust, baud, strict: see `open`.

    Raises
    ------
    InputError: a file cannot be read, or does not fit the model. LinkError: see `open`; `BatchError` in the middle.
    """
    progress = progress or SilentProgress()
    _mapped(build)
    if out is not None:
        check_file_place(out)
    images = load_images(file)
    known = None if labels is None else load_labels(labels, len(images))
    with progress.stage(f"open link '{link}'"):
        notice, advance = progress.note, progress.advance
        device = open(build, link, baud=baud, notice=notice, progress=advance, trust=trust, strict=strict)
    with device:
        measured = _measured(device, progress) if measure else None
        keys = device.result_keys
        if out is not None and keys and out.suffix != ".npz":
            raise InputError(
                f"the model returns several results ({', '.join(keys)}), which a .npz file holds, got {out}; give "
                f"--out {out.with_suffix('.npz')}"
            )
        if keys and known is not None:
            raise InputError(
                f"labels are of one result, but the model returns several ({', '.join(keys)}); leave --labels out"
            )
        with progress.stage(f"{len(images)} images"):
            run = _run_images(device, images, out, progress, measured)
    if out is not None:
        _save(out, run.parts or run.results)
    return run if known is None else replace(run, accuracy=score(run.results, known))


def _measured(device: Device, progress: Progress) -> tuple[int, ...]:
    """Return the cycles of each part of the device's program, measured."""
    from nnhw.flow.running.measuring import measure_parts

    with progress.stage("measure the layers"):
        return measure_parts(device)


def _run_images(
    device: Device, images: np.ndarray, out: Path | None, progress: Progress, measured: Sequence[int] | None
) -> FileRun:
    """Run images, and count what the device does meanwhile."""
    programs = device.accelerator.programs
    before = device.idle_status() if programs else None
    start = time.monotonic()
    try:
        # Files get all bits of the exact results, which those of float32 images would be rounded from.
        exact = images.astype(np.float64, copy=False) if images.dtype.kind == "f" else images
        with warnings.catch_warnings(record=True) as warned:
            results, parts = _named(device, device(exact, progress.advance))
    except BatchError as error:
        if out is not None:
            finished, kept = _named(device, error.results)
            _save(out, kept or finished)
            progress.note(f"{error.finished} of {len(images)} images were finished; their results are in {out}")
        raise
    seconds = time.monotonic() - start
    for one in warned:
        progress.note(str(one.message))
    # A program's counters are complete only when it waits for the next image.
    status = device.idle_status() if programs else device.status()
    work = status.since(before) if before else None
    cycles = status.cycles / len(images) if status.cycles else None
    if not programs or work is None or not cycles:
        return FileRun(results, seconds, cycles, parts=parts)
    from nnhw.flow.running.measuring import count_parts

    frames = len(images)
    if device.accelerator.input_format.headed:
        frames *= images.shape[1] * (device.accelerator.rounds.count if device.accelerator.rounds else 1)
    return FileRun(results, seconds, cycles, count_parts(programs[0], frames, work, measured), parts=parts)


def simulate_build(build: Path, frames: int, stalls: str, progress: Progress) -> SimulationResult:
    """Compare the RTL of a build with the IR at every layer boundary; see `simulate`.

    Raises
    ------
    BuildError: they differ, or the folder is not complete.
    """
    from nnhw.flow.build_stages import check_simulation
    from nnhw.flow.verification.simulate import simulate

    folder = _mapped(build)
    with progress.stage("simulate"), folder.reading("capture", "lower", "map"):
        result = simulate(folder.path, frames=frames, stalls=stalls, progress=progress)
    check_simulation(result)
    return result


def program(build: Path, progress: Progress) -> None:
    """Write the bitstream of a build, and the program of a shared engine, to the board that is plugged in.

    Raises
    ------
    BuildError: there is no bitstream. InputError: the program is damaged.
    ToolError: openFPGALoader is missing or failed.
    """
    from nnhw.driver.openfpgaloader import program as load
    from nnhw.flow.tools.toolchain import find_tool

    folder = _mapped(build)
    folder.require("build")
    board = _board(folder)
    offset = board.flash.offset if board.flash else None
    with progress.stage("program"):
        load(
            folder.path,
            board.openfpgaloader,
            find=lambda: list(find_tool("openFPGALoader").argv),
            flash_offset=offset,
        )


def trust_build(build: Build | Path | str) -> list[str]:
    """Sign a build that somebody else made, so that its virtual board is compiled like this user's own.

    Its Verilog may run any code when it is compiled, with all rights of this user.

    Returns
    -------
    The stages that were not signed by this user before.

    Raises
    ------
    BuildError: no build folder, one of another version, or one whose files have changed since its stages ran.
    """
    return BuildFolder.open(build.path if isinstance(build, Build) else Path(build)).trust()


def load_images(file: Path) -> np.ndarray:
    """Return the array of a .npy file.

    Raises
    ------
    InputError: missing, not a .npy file, not numbers, or empty.
    """
    try:
        array = load_npy(file)
    except FileNotFoundError:
        raise InputError(f"images file '{file}' does not exist; check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"images file '{file}' cannot be read as .npy: {error}; save them with numpy.save") from None
    if array.dtype.kind not in "biuf" or array.ndim < 2 or not len(array):
        raise InputError(
            f"images file '{file}' needs numbers of shape [images, ...], at least one image, "
            f"given {array.dtype} of shape {list(array.shape)}"
        )
    return array


def _named(device: Device, results: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return results as one array, and by their keys where there are several."""
    keys = device.result_keys
    if not keys:
        return np.asarray(results), {}
    parts = dict(zip(keys, results.values() if isinstance(results, dict) else results, strict=True))
    return joined(list(parts.values())), parts


def _save(out: Path, results: np.ndarray | Mapping[str, np.ndarray]) -> None:
    """Write a .npy or .npz file whole or not at all."""
    partial = out.with_name(f".partial-{out.name}")
    try:
        with partial.open("wb") as stream:
            if isinstance(results, Mapping):
                np.savez(stream, allow_pickle=False, **results)
            else:
                np.save(stream, results, allow_pickle=False)
        partial.replace(out)
    except OSError as error:
        raise InputError(f"results cannot be written to '{out}': {error.strerror}; give another --out") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _mapped(build: Build | Path | str) -> BuildFolder:
    """Return a build folder that is complete enough to run."""
    folder = BuildFolder.open(build.path if isinstance(build, Build) else Path(build))
    for stage in ("lower", "map"):
        folder.require(stage)
    return folder


def _board(folder: BuildFolder) -> Board:
    """Return the board that a build is for, checked like a board file."""
    path = folder.path / "map.json"
    return board_of(read_fact(path, dict, "board"), f"build file '{path}'")


def _check_baud(baud: int, link: str | ByteLink) -> None:
    """Raise InputError for a rate that cannot be, or of a link that has none."""
    if not isinstance(link, str) or link in ("sim", "model", "c"):
        raise InputError(f"baud {baud} is the rate of a port, and link '{link}' is none; leave out the rate")
    if baud < 1:
        raise InputError(f"the rate of a port must be 1 bit per second or more, given {baud}")


def _built_clock_hz(folder: BuildFolder, board: Board) -> int:
    """Return the clock of a build's bitstream; the board's usual one if it has none."""
    path = folder.path / "build.json"
    return read_fact(path, int, "clock_hz") if path.exists() else board.target_clock_hz


def _c_link(folder: BuildFolder, clock_hz: int) -> ByteLink:
    """Return a link to a device that exported C answers for.

    The C is made here of the build's graph, which is data: nothing of the folder is compiled, whoever made it.
    """
    from nnhw import ir
    from nnhw.export.c import make_c
    from nnhw.flow.virtual.compiled import library_cache
    from nnhw.flow.virtual.native import NativeNetwork, compile_c

    # What the board has, which reads sequences in one direction.
    body = ir.one_direction(ir.load(folder.path / "lower.ir")).graph
    accelerator, program = Accelerator.load(folder.path), make_c(body)
    # As in `_virtual_board`, the library is loaded before its folder may go.
    with tempfile.TemporaryDirectory() as scratch:
        library = compile_c(program, library_cache(Path(scratch)))
        network = NativeNetwork(program, body, library, accelerator.input_format.turns)
    return make_model_link(accelerator, body, clock_hz, network)


def _virtual_board(folder: BuildFolder, clock_hz: int, notice: Callable[[str], None], trust: bool) -> VirtualHardware:
    """Return the compiled device of a build, or Amaranth's simulator where no compiler is."""
    from nnhw.flow.virtual.compiled import Compiler, compile_library, library_cache
    from nnhw.flow.virtual.virtual_board import CompiledHardware, SimulatedHardware

    verilog = folder.text_to_compile("elaborate", "device.v", trust)
    try:
        compiler = Compiler.find()
    except ToolError as error:
        from nnhw.flow.virtual.device_hardware import make_device

        notice(f"{error}. Amaranth's simulator runs the hardware now: expect minutes instead of seconds")
        return SimulatedHardware(make_device(Accelerator.load(folder.path), clock_hz))
    # Loaded inside of the block: without a cache the library lies in the scratch folder.
    with tempfile.TemporaryDirectory() as scratch:
        return CompiledHardware(compile_library(verilog, (), library_cache(Path(scratch)), compiler))
