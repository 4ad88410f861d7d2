"""A device that a sensor feeds, compiled, with a simulated sensor at its pins."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnhw.flow.tools.storage import reported
from nnhw.flow.virtual.compiled import LIBRARY, Compiler, compile_product
from nnhw.sensors import Camera, Pdm, SensorPins

PRODUCT = replace(LIBRARY, harness=Path(__file__).with_name("sensor.cpp"))
HEADERS = {Camera.kind: "#define NNHW_CAMERA\n", Pdm.kind: "#define NNHW_PDM\n"}
"""What the harness is told about the sensor, by its kind."""


@dataclass(frozen=True)
class SensorInput:
    """What a simulated sensor sends, and for how long.

    Parameters
    ----------
    numbers: words of 24 bits, or single bits, of a microphone, int32 [n]; images of a camera, int32 [n, height, width].
    cycles: clock cycles to run.
    divisor: clock cycles of a bit of the device's serial port.
    half_cycles: clock cycles of half a pixel clock.
    gap_pixels: pixel clocks for which `vsync` is high in front of each image.
    """

    numbers: np.ndarray
    cycles: int
    divisor: int
    half_cycles: int = 2
    gap_pixels: int = 0


@dataclass(frozen=True)
class SensorOutput:
    """What came out of a device, in the order in which it came.

    Parameters
    ----------
    codes: bytes of the front end's codes, uint8 [n].
    labels: at the pins of the result, uint8 [n].
    text: bytes of the serial port.
    """

    codes: np.ndarray
    labels: np.ndarray
    text: bytes


class _Record(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), ("capacity", ctypes.c_uint64), ("count", ctypes.c_uint64))


class _Sensing(ctypes.Structure):
    _fields_ = (
        ("numbers", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("count", "width", "height", "half", "gap", "divisor", "cycles")),
        *((name, _Record) for name in ("codes", "labels", "text")),
    )


def compile_sensor(verilog: str, pins: SensorPins, cache: Path, compiler: Compiler | None = None) -> Path:
    """Return the shared library of a `SensorDevice` with its sensor.

    Parameters
    ----------
    verilog: its top module is `top`.
    cache: folder; a library that was made before is taken from it.

    Raises
    ------
    ToolError: a tool is missing, or failed; the message has its last lines.
    """
    return compile_product(PRODUCT, {"top.v": verilog, "sensor.h": HEADERS.get(pins.kind, "")}, cache, compiler)


def play(library: Path, given: SensorInput, codes: int, frames: int) -> SensorOutput:
    """Run a device from its start, and return what came out of it.

    Parameters
    ----------
    library: result of `compile_sensor`.
    codes, frames: numbers that are expected; a few more are kept, so that what is too much is seen.
    """
    with reported(f"compiled hardware '{library}' cannot be loaded", "name another folder with NNHW_CACHE"):
        loaded = ctypes.CDLL(str(library))
    numbers = np.ascontiguousarray(given.numbers, dtype=np.int32)
    kept = {"codes": np.zeros(codes + 64, np.uint8), "labels": np.zeros(frames + 8, np.uint8)}
    kept["text"] = np.zeros(4 * (frames + 8), np.uint8)
    sides = numbers.shape[1:] or (0, 0)
    run = _Sensing(
        numbers=numbers.ctypes.data,
        count=len(numbers),
        width=sides[1],
        height=sides[0],
        half=given.half_cycles,
        gap=given.gap_pixels,
        divisor=given.divisor,
        cycles=given.cycles,
        **{name: _Record(array.ctypes.data, len(array), 0) for name, array in kept.items()},
    )
    loaded.nnhw_sense(ctypes.byref(run))
    came: dict[str, Any] = {name: array[: getattr(run, name).count] for name, array in kept.items()}
    return SensorOutput(came["codes"], came["labels"], came["text"].tobytes())
