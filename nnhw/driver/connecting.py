"""Opening a device, from a build folder and the name of a link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.driver.device import Device
from nnhw.driver.image import PROGRAM_FILE, ProgramImage
from nnhw.driver.links.base import USB_FLOWS, ByteLink
from nnhw.driver.links.model import ModelBoard, ModelLink
from nnhw.driver.links.model_program import ProgramChain, ProgramMemory
from nnhw.driver.rates import open_fastest
from nnhw.driver.saturation import InputUse
from nnhw.driver.session import Progress
from nnhw.errors import BuildError, InputError
from nnhw.protocol import DeviceIdentity, joined_id
from nnhw.reading import check_folder

DEFAULT_BAUD = 3_000_000
DEFAULT_CLOCK_HZ = 48_000_000


def open(
    build_dir: Path | str,
    link: str | ByteLink = "model",
    baud: int | Sequence[int] = DEFAULT_BAUD,
    clock_hz: int = DEFAULT_CLOCK_HZ,
    max_retries: int = 3,
    progress: Progress = lambda finished, total: None,
    notice: Callable[[str], None] = lambda text: None,
    strict: bool = False,
) -> Device:
    """Open the device that runs a build.

    Parameters
    ----------
    build_dir: a folder that `nnhw build` made.
    link: `model` (the IR interpreter answers), the name of a serial port, `auto` (the only board that is plugged in),
        `ftdi` or `ftdi:SERIAL` (an FTDI chip as SPI controller), `usb` or `usb:PORT` (the USB port of the FPGA
        itself), `ulpi` or `ulpi:PORT` (that behind a PHY), or a link that is open already, such as one to simulated
        hardware.
    baud: bits per second of a serial port, or of an FTDI chip's clock; or several rates, fastest first, which are tried
        until the device answers.
    clock_hz: clock that the device of link `model` reports, in Hz.
    max_retries: attempts in a row without progress, after the first.
    progress: called with bytes taken and bytes in all, while a program is sent to a device that does not have it yet.
    notice: called with messages: that the device has refused the program it started with, and which rates do not work.
    strict: see `Device`.

    Raises
    ------
    BuildError: files are missing in the folder.
    InputError: its program is cut, damaged, or another build's.
    LinkError: no such port, no answer, another protocol version, another model, or a program that is refused.
    """
    folder = Path(build_dir)
    check_folder(folder)
    accelerator = Accelerator.load(folder)
    program = read_program(folder, accelerator)
    head, tail = ir.load(folder / "head.ir"), ir.load(folder / "tail.ir")
    usual = InputUse.read(folder)
    if isinstance(link, str):
        rates = (baud,) if isinstance(baud, int) else tuple(baud)
        link = make_link(link, folder, accelerator, rates, clock_hz, notice)
    return Device(link, accelerator, head, tail, max_retries, program, progress, notice, usual, strict)


def read_program(folder: Path, accelerator: Accelerator) -> ProgramImage | None:
    """Return the program of a build folder; None where the accelerator has no shared engine.

    Raises
    ------
    InputError: it is missing, cut, damaged, or of another accelerator.
    """
    image, arrays = ProgramImage.read(folder), [program.array.id for program in accelerator.programs]
    if not arrays:
        return None
    if image is None:
        raise InputError(f"build folder '{folder}' has no '{PROGRAM_FILE}'; run 'nnhw build' again")
    found = (image.array_id, image.output_bytes)
    needed = (joined_id(arrays), accelerator.output_format.frame_bytes)
    if found != needed:
        raise InputError(
            f"{image.where} is for array {found[0]:08x} and gives {found[1]} bytes a frame, the accelerator beside it "
            f"has array {needed[0]:08x} and {needed[1]} bytes; run 'nnhw build' again"
        )
    return image


def make_link(
    name: str,
    folder: Path,
    accelerator: Accelerator,
    rates: Sequence[int],
    clock_hz: int,
    notice: Callable[[str], None],
) -> ByteLink:
    """Open the link with a name; see `open`."""
    if name == "sim":
        raise InputError("link 'sim' needs the compiled hardware, which the driver alone cannot make; use nnhw.open")
    if name == "c":
        raise InputError("link 'c' needs C that is compiled, which the driver alone cannot make; use nnhw.open")
    if name == "model":
        return make_model_link(accelerator, ir.load(folder / "lower.ir"), clock_hz)
    if name == "ftdi" or name.startswith("ftdi:"):
        from nnhw.driver.links.ftdi import FtdiLink

        return open_fastest(rates, lambda hz: FtdiLink(name, hz), notice)
    from nnhw.driver.links.serial import SerialLink, UsbSerialLink, find_port

    if name.partition(":")[0] in USB_FLOWS:
        return UsbSerialLink(name)
    port = find_port() if name == "auto" else name
    return open_fastest(rates, lambda baud: SerialLink(port, baud), notice)


def _check_ends(accelerator: Accelerator, body: ir.Graph) -> None:
    """Raise BuildError unless the graph has the shapes of the accelerator's input and output."""
    i_types, o_types = ([node.type for node in nodes] for nodes in (body.inputs, body.output_nodes))
    for side, types, form in (
        ("takes", i_types, accelerator.input_format),
        ("gives", o_types, accelerator.output_format),
    ):
        # All steps of a sequence are one result where they are made of one image.
        steps = form.shape[: int(types[0].is_sequence and not accelerator.input_format.headed)]
        if len(types) != 1 or (*steps, *types[0].shape) != form.shape or not isinstance(types[0].dtype, ir.IntType):
            raise BuildError(
                f"the accelerator '{accelerator.name}' {side} integers of shape {list(form.shape)}, but the graph "
                f"beside it {side} {', '.join(map(str, types))}; run 'nnhw build' again"
            )


def make_model_link(
    accelerator: Accelerator,
    body: ir.Graph,
    clock_hz: int = DEFAULT_CLOCK_HZ,
    network: Callable[..., np.ndarray] | None = None,
) -> ModelLink:
    """Return a link to a device in Python, for which the IR interpreter computes.

    With a shared engine it must be sent a program, as the hardware must; it computes this graph, whatever the program.

    Parameters
    ----------
    network: compiled C of the graph, called with codes int64 [N, *shape] instead of the interpreter; where frames are
        steps, also with bool [N], True for steps that begin a sequence; it keeps the states.
    """
    i_format, o_format = accelerator.input_format, accelerator.output_format
    body = ir.one_direction(body).graph
    _check_ends(accelerator, body)
    identity = DeviceIdentity(accelerator.device_hash, *accelerator.device_bytes, clock_hz)

    steps = (network or ir.StepRunner(ir.one_step(body), i_format.turns)) if i_format.headed else None

    def compute(frames: np.ndarray) -> np.ndarray:
        codes = i_format.unpack(frames)
        if steps is not None:
            return o_format.pack(steps(codes, i_format.begins(frames)))
        return o_format.pack(network(codes) if network else ir.run_in_chunks(body, codes)[0])

    memory = None
    if accelerator.programs:
        arrays = [program.array for program in accelerator.programs]
        memory = ProgramChain([ProgramMemory(array.id, array.words * array.word_bits // 8) for array in arrays])
    return ModelLink(ModelBoard(identity, compute, memory, i_format.frame_bytes), "c" if network else "model")
