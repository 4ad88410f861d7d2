"""A device with its sensor, from the sensor's bits to the result, compared with PyTorch in every frame."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from nnhw.accelerator import Accelerator
from nnhw.boards import Board
from nnhw.flow.models.sensor_signals import load_expected
from nnhw.flow.tools.progress import Progress
from nnhw.flow.verification.netlist import NetlistRun, compile_sensor_netlist
from nnhw.flow.virtual.compiled import library_cache
from nnhw.flow.virtual.sensor import SensorInput, SensorOutput, compile_sensor, play
from nnhw.links.uart import clocks_per_bit
from nnhw.sensors import Camera, I2s, LogMelConfig, Pdm, PixelsConfig, ResultPins, SensorFront, SensorPins
from nnhw.sensors.pdm import modulated
from nnhw.sensors.pins import BCLK_PER_FRAME, half_cycles
from nnhw.sensors.results import LINE_BITS, RESULT_BAUD, lines_of

HALF_PCLK_CYCLES = 2
"""Cycles of half a pixel clock of the simulated camera: the fewest that the design samples."""
Send = Callable[[np.ndarray, LogMelConfig], np.ndarray]
"""Returns what a simulated microphone sends for samples int64 [n]."""
IDLE_CYCLES = 64
"""Cycles for which a simulated device goes on when all that is expected has had time to leave."""
START_S = 40e-6
"""Longest wait of a placed design for its clock, see `nnhw.hdl.top.ClockGenerator`."""
CAMERA_BLANK = 7
"""Pixel clocks between rows of the simulated camera, see `sensor.cpp`."""


@dataclass(frozen=True)
class SensorRun:
    """The result of a device's run with its sensor.

    Parameters
    ----------
    frames: number of frames of the network; elements: of all of them that are new in their frame.
    codes: number of the front end's codes that differ from PyTorch's, are missing, or are too many.
    labels: the same of results at the pins; lines: of lines of the serial port.
    cycles: clock cycles of all runs.
    """

    frames: int
    elements: int
    codes: int
    labels: int
    lines: int
    cycles: int

    @property
    def equal(self) -> bool:
        """Whether everything is equal, and something came."""
        return self.frames > 0 and not (self.codes or self.labels or self.lines)


@dataclass(frozen=True)
class _Part:
    """A signal, with the codes that are new in each of its frames, [n], and the results, [frames].

    Parameters
    ----------
    shown: what the pins of the result show of the results; None: all.
    """

    given: SensorInput
    codes: np.ndarray
    labels: np.ndarray
    shown: np.ndarray | None = None


def run_sensor(
    verilog: str, folder: Path, front: SensorFront, pins: SensorPins, clock_hz: int, frames: int
) -> SensorRun:
    """Play example signals of a build, each from the start of the device, until so many frames are compared.

    Parameters
    ----------
    verilog: of the device. folder: build folder, with what PyTorch computed.
    frames: of the network, in all; fewer where the signals are shorter.

    Raises
    ------
    ToolError: a tool is missing, or failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        library = compile_sensor(verilog, pins, library_cache(Path(scratch)))
        return _run(library, folder, front, pins, clock_hz, frames)


def run_sensor_netlist(
    folder: Path, board: Board, front: SensorFront, clock_hz: int, frames: int, progress: Progress
) -> NetlistRun:
    """Play example signals at the pins of a build's netlist; see `run_sensor`.

    Raises
    ------
    BuildError, ToolError: see `compile_sensor_netlist`.
    """
    assert board.sensor is not None
    progress.note("the netlist is compiled, which takes a minute or more for a full device")
    with tempfile.TemporaryDirectory() as scratch:
        library = compile_sensor_netlist(folder, board, library_cache(Path(scratch)))
        run = _run(library, folder, front, board.sensor, clock_hz, frames, board)
    return NetlistRun(run.frames, max(run.labels, run.lines), 0, run.cycles)


def _run(
    library: Path,
    folder: Path,
    front: SensorFront,
    pins: SensorPins,
    clock_hz: int,
    frames: int,
    netlist_of: Board | None = None,
) -> SensorRun:
    """Return the counts of a run; see `run_sensor`.

    Parameters
    ----------
    netlist_of: board of a netlist, of which only the pins are seen, and which first waits for its clock.
    """
    tail = Accelerator.load(folder).schedule.latency_cycles
    waits = 0 if netlist_of is None else ceil(START_S * max(clock_hz, netlist_of.fastest_clock_hz))
    shown = None if netlist_of is None else netlist_of.result
    runs = list[tuple[int, ...]]()
    for part in _parts(folder, front, pins, clock_hz, frames, tail):
        played = replace(part.given, cycles=part.given.cycles + waits)
        came = play(library, played, part.codes.size, len(part.labels))
        if netlist_of is not None:
            part, came = _at_pins(part, came, shown)
        runs.append(_compared(part, came))
    totals = np.array(runs, dtype=np.int64).reshape(-1, 6).sum(axis=0)
    return SensorRun(*(int(total) for total in totals))


def _at_pins(part: _Part, came: SensorOutput, shown: ResultPins | None) -> tuple[_Part, SensorOutput]:
    """Return of a signal, and of what came, what is to be compared where only the pins of the result are seen."""
    none = np.zeros(0, np.uint8)
    if shown is None or not shown.changes:  # nothing says when there is a new result; the serial port has all of them
        return replace(part, codes=none, shown=none), replace(came, codes=none, labels=none)
    return replace(part, codes=none, shown=part.labels & (1 << len(shown.label)) - 1), replace(came, codes=none)


def _parts(
    folder: Path, front: SensorFront, pins: SensorPins, clock_hz: int, frames: int, tail: int
) -> Iterator[_Part]:
    """Yield what to play until there are so many frames."""
    expected = load_expected(folder)
    make = PLAYERS[pins.kind]
    if expected["codes"].shape[1] == 1:  # one frame in each signal: one after the other without a new start
        first = {name: array[:frames] for name, array in expected.items()}
        yield make(first["signals"], first["codes"][:, 0], first["labels"][:, 0], front, clock_hz, tail)
        return
    for signal, codes, labels in zip(expected["signals"], expected["codes"], expected["labels"], strict=True):
        if frames <= 0:
            return
        yield make(signal, codes[:frames], labels[:frames], front, clock_hz, tail)
        frames -= len(labels)


def _microphone(
    send: Send,
    signal: np.ndarray,
    codes: np.ndarray,
    labels: np.ndarray,
    front: LogMelConfig,
    clock_hz: int,
    tail: int,
) -> _Part:
    """Return samples as a microphone sends them; the codes are those of the last step of each frame."""
    half, divisor = half_cycles(clock_hz, front.rate_hz), clocks_per_bit(clock_hz, RESULT_BAUD)
    samples = signal[: len(labels) * front.hop].astype(np.int64)
    sample = 2 * BCLK_PER_FRAME * half
    behind = min(front.step_cycles + tail + LINE_BITS * divisor + 2 * int(np.prod(front.shape)), front.hop * sample)
    cycles = (len(samples) + 1) * sample + behind + IDLE_CYCLES
    return _Part(SensorInput(send(samples, front), cycles, divisor), codes[:, 0, -1], labels)


def _words(samples: np.ndarray, front: LogMelConfig) -> np.ndarray:
    """Return the words of 24 bits of which the samples are."""
    return samples << (8 - front.gain_log2)


def _bits(samples: np.ndarray, front: LogMelConfig) -> np.ndarray:
    return modulated(samples)


def _camera(
    images: np.ndarray, codes: np.ndarray, labels: np.ndarray, front: PixelsConfig, clock_hz: int, tail: int
) -> _Part:
    """Return images as a camera sends them, with so much time between two that a result has left."""
    divisor = clocks_per_bit(clock_hz, RESULT_BAUD)
    gap = (tail + LINE_BITS * divisor + 2 * front.elements) // (2 * HALF_PCLK_CYCLES) + IDLE_CYCLES
    image = gap + CAMERA_BLANK + front.height * (front.width + CAMERA_BLANK)
    cycles = 2 * HALF_PCLK_CYCLES * (len(images) * image + gap)
    return _Part(SensorInput(images, cycles, divisor, HALF_PCLK_CYCLES, gap), codes, labels)


PLAYERS: Mapping[str, Callable[[np.ndarray, np.ndarray, np.ndarray, Any, int, int], _Part]] = {
    I2s.kind: partial(_microphone, _words),
    Pdm.kind: partial(_microphone, _bits),
    Camera.kind: _camera,
}
"""Makes what a simulated sensor plays, by its kind: of (signal, codes, labels, front end, clock, cycles of a frame)."""


def _compared(part: _Part, came: SensorOutput) -> tuple[int, ...]:
    """Return the counts of `SensorRun`."""
    codes = part.codes.reshape(-1).astype(np.uint8)
    text = lines_of(part.labels)
    shown = part.labels if part.shown is None else part.shown
    differ = (_differing(came.codes, codes), _differing(came.labels, shown.astype(np.uint8)))
    size = len(lines_of(part.labels[:1]))
    found = [came.text[at : at + size] for at in range(0, len(came.text), size)]
    wanted = [text[at : at + size] for at in range(0, len(text), size)]
    lines = sum(one != other for one, other in zip(found, wanted, strict=False)) + abs(len(found) - len(wanted))
    return (len(part.labels), len(codes), *differ, lines, part.given.cycles)


def _differing(found: np.ndarray, wanted: np.ndarray) -> int:
    """Return how many of two rows differ, those that are missing or too many among them."""
    both = min(len(found), len(wanted))
    return int((found[:both] != wanted[:both]).sum()) + abs(len(found) - len(wanted))
