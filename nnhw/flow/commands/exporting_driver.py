"""The driver of a build for a microcontroller: files of C or MicroPython."""

from __future__ import annotations

import math
import re
from pathlib import Path

from nnhw.accelerator import Accelerator
from nnhw.boards import board_of
from nnhw.errors import InputError
from nnhw.export.driver import DriverModel, make_driver
from nnhw.flow.folder.build_folder import BuildFolder
from nnhw.flow.folder.manifest import read_fact
from nnhw.flow.tools.storage import reported, write_whole
from nnhw.links import Spi
from nnhw.links.spi import CYCLES_PER_BIT

_MARGIN_BYTES = 2048


def export_driver(build: Path, *, to: str = "c", out: Path | None = None) -> tuple[Path, ...]:
    """Write the driver of a build for a microcontroller.

    Parameters
    ----------
    build: a build folder with the link `spi` in which `map` has run.
    to: one of `nnhw.export.driver.LANGUAGES`.
    out: folder, made where it is missing; default: `driver`.

    Returns
    -------
    The files, that of the model first.

    Raises
    ------
    InputError: another language, a build for another link, one that needs a program, or one that keeps a state.
    BuildError: no build folder, or not mapped; the files cannot be written.
    """
    folder = BuildFolder.open(build)
    folder.require("map")
    accelerator = Accelerator.load(folder.path)
    path = folder.path / "map.json"
    board = board_of(read_fact(path, dict, "board"), f"build file '{path}'")
    if board.link != Spi.kind:
        raise InputError(
            f"build '{build}' is for the board's link '{board.link}', and drivers for microcontrollers are for "
            f"'{Spi.kind}'; build it with --link {Spi.kind}"
        )
    if accelerator.programs:
        raise InputError(
            f"build '{build}' has a shared engine, to which the driver would have to send a program, which it cannot; "
            "build it with --style streaming"
        )
    if accelerator.input_format.headed:
        raise InputError(
            f"build '{build}' keeps a state from step to step, which the driver could not restore behind a fault, as "
            "it sends only the image again that has no answer; build it with another link, and drive it from a computer"
        )
    files = make_driver(_model(accelerator, board.host_link.speed), to)
    where = out or Path("driver")
    with reported(f"the folder '{where}' cannot be written", "give another one with --out"):
        where.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            write_whole(where / file, text.encode())
    return tuple(where / file for file in files)


def _model(accelerator: Accelerator, hz: int) -> DriverModel:
    """Return what the driver has to know of a build.

    Parameters
    ----------
    hz: clock of the SPI link.
    """
    schedule = accelerator.schedule
    # A byte on SPI takes 8 * CYCLES_PER_BIT cycles of the design's clock or more.
    # The driver counts its patience in bytes that it clocks, and waits four times as long as an image can take.
    image_bytes = (schedule.latency_cycles + float(schedule.interval)) / (8 * CYCLES_PER_BIT)
    i_bytes, o_bytes = accelerator.device_bytes
    return DriverModel(
        _identifier(accelerator.name.removesuffix("_body")),
        accelerator.device_hash[:16],
        i_bytes,
        o_bytes,
        hz,
        math.ceil(4 * image_bytes) + _MARGIN_BYTES,
        _layout(accelerator),
    )


def _identifier(name: str) -> str:
    """Return a name that C and Python take, such as `net_2` of `net-2`."""
    word = re.sub(r"\W", "_", name, flags=re.ASCII)
    return word if word[:1].isalpha() else f"model_{word}"


def _layout(accelerator: Accelerator) -> tuple[str, ...]:
    """Return lines of a comment about how images and outputs are packed into bytes."""
    i, o = accelerator.input_format, accelerator.output_format
    element = f"{i.element.bits} bit" + (", of which 0 is -1" if i.element.bipolar else "")
    between = "following one another across bytes" if i.lanes else f"{i.per_byte} in a byte"
    result = (
        f"{o.element.bits} bits each, across bytes" if o.packed else f"{8 * o.element_bytes} bits each, little-endian"
    )
    return (
        f"An image: {i.elements} elements of {element}, {between}, the first in the lowest bits, pixel by pixel with",
        f"the channels of a pixel together; shape {list(i.shape)}; code = element + {i.offset}.",
        f"An output: {o.elements} elements, {result}; shape {list(o.shape)};",
        f"value = {o.multiplier} * element + offset, of offsets {o.offsets.tolist()} over the channels.",
    )
