"""What a user may say about a build."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nnhw.accelerator import Accelerator
from nnhw.boards import load_board
from nnhw.engines.shared import ArrayConfig
from nnhw.errors import InputError
from nnhw.reading import parse_toml

STYLES = ("auto", "streaming", "shared")
GOALS = ("link", "engine")
CLOCK_RANGE_MHZ = (0.001, 10_000.0)
"""Clocks that a user may ask for: slower and faster than any FPGA has, so that only slips of the keys are refused."""


@dataclass(frozen=True)
class Options:
    """What a user may say about a build.

    Parameters
    ----------
    clock_hz: clock that the engine must reach, in Hz; None: the fastest that place and route reaches.
    target_fps: frames per second of the engine that are enough; None: as `fast_for` says.
    overrides: foldings by layer name, see `nnhw.mapping.mapper.map_body`.
    seeds: number of place-and-route runs, of which the best is taken.
    jobs: tool processes at a time.
    frames: number of frames of the RTL simulation; 0: no simulation; None: 8, or fewer where these take long.
    cocotb_frames: number of whole frames that cocotb simulates besides; None: as far as a bound of cycles.
    netlist_frames: number of frames that are simulated with the placed netlist; 0: none.
    style: `streaming`: each layer has an engine of its own; `shared`: one engine runs a program of layers; `auto`: the
        faster that fits.
    fast_for: `link`: the smallest mapping that keeps up with the board's link, or the fastest where none does;
        `engine`: the fastest mapping that fits, even if the link cannot keep up with it.
    array: array of a shared engine that is built already: only a program is made for it.
    reusable: the shared engine is for other networks, too: no layer has an engine of its own, and its limits leave room
        for larger layers.
    sequences: number of sequences that take turns in a recurrent network; see `nnhw.mapping.mapper.map_body`.
    base: build folder whose layout is reused if the new build differs only in the contents of memories; None: the
        folder that is built into.
    link: kind of the board's link that the build is for; empty: the one that the board file names.
    input: kind of the sensor that feeds the network; empty: the one that the board file names, which mostly is none.
    """

    clock_hz: float | None = None
    target_fps: float | None = None
    overrides: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seeds: int = 5
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    frames: int | None = None
    cocotb_frames: int | None = None
    netlist_frames: int = 0
    style: str = "auto"
    fast_for: str = "link"
    array: ArrayConfig | None = None
    reusable: bool = False
    sequences: int = 1
    base: Path | None = None
    link: str = ""
    input: str = ""

    def __post_init__(self) -> None:
        if self.clock_hz is not None:
            check_clock(self.clock_hz / 1e6)
        if self.target_fps is not None and not 0 < self.target_fps < float("inf"):
            raise InputError(f"--target-fps needs a positive number of frames/s, given {self.target_fps:g}")
        # The command line refuses these numbers by itself; here they come from Python.
        numbers = (("seeds", 1), ("jobs", 1), ("frames", 0), ("cocotb_frames", 1), ("netlist_frames", 0))
        for name, least in (*numbers, ("sequences", 1)):
            count = getattr(self, name)
            if count is not None and count < least:
                raise InputError(f"--{name.replace('_', '-')} needs a whole number from {least} on, given {count}")
        if self.style not in STYLES:
            raise InputError(f"--style is one of {', '.join(STYLES)}; given '{self.style}'")
        if self.fast_for not in GOALS:
            raise InputError(f"--for is one of {', '.join(GOALS)}; given '{self.fast_for}'")
        if self.array is not None and self.style == "streaming":
            raise InputError("--array is of a shared engine, and --style streaming has none; leave out one of them")
        if self.overrides and (self.style == "shared" or self.array is not None):
            raise InputError(
                "--overrides fold the engines of single layers, and a shared engine (--style shared, --array) runs "
                "them all; leave out one of them"
            )
        if self.reusable and (self.style != "shared" or self.array is not None):
            raise InputError(
                f"--reusable makes a shared engine for other networks, too; it needs --style shared without --array, "
                f"given --style {self.style}{' and --array' if self.array else ''}"
            )


def check_clock(clock_mhz: float) -> None:
    """Check a clock in MHz that a user gave. Raises: InputError if no hardware could have it."""
    low, high = CLOCK_RANGE_MHZ
    # Written so that NaN is refused, too.
    if not low <= clock_mhz <= high:
        raise InputError(f"--clock needs a number of MHz from {low:g} to {high:g}, given {clock_mhz:g}")


def load_overrides(path: Path) -> dict[str, dict[str, int]]:
    """Read foldings by layer name from a TOML file: one table a layer, whole numbers in it.

    Raises
    ------
    InputError: missing, not TOML, or something else in it.
    """
    try:
        document = parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"overrides file '{path}' cannot be read: {error}") from None
    for layer, table in document.items():
        # Not isinstance: TOML's true and false are bool, which is a subclass of int.
        if not isinstance(table, dict) or not all(type(value) is int for value in table.values()):
            raise InputError(
                f"overrides file '{path}': '{layer}' needs a table of whole numbers, such as [\"{layer}\"] with "
                f"pe = 8, given {table!r}"
            )
    return document


def load_array(build: Path, board: str) -> ArrayConfig:
    """Return the array of the shared engine of a build.

    Parameters
    ----------
    board: name of the board on which another program is to run.

    Raises
    ------
    InputError: the build has no shared engine, several, or layers with engines of their own, which are part of its
        bitstream; or it was built for another board.
    BuildError: no build folder in which `map` has run.
    """
    accelerator = Accelerator.load(build)
    if not accelerator.programs:
        raise InputError(
            f"--array '{build}': its layers have engines of their own, so nothing else runs on its bitstream; give a "
            "build made with --style shared --reusable"
        )
    if len(accelerator.programs) > 1:
        raise InputError(
            f"--array '{build}': it has {len(accelerator.programs)} shared engines in a row, and programs are made for "
            "one; give a build made with --style shared --reusable"
        )
    if len(accelerator.stages) > 1:
        own = next(stage.layer for stage in accelerator.stages if stage.layer != "program")
        raise InputError(
            f"--array '{build}': its layer '{own}' has an engine of its own beside the shared one, so nothing else "
            "runs on its bitstream; give a build made with --style shared --reusable"
        )
    if accelerator.board != board:
        raise InputError(
            f"--array '{build}': its bitstream is for the board '{accelerator.board}', and the program would be for "
            f"'{board}'; give --board {accelerator.board}, or a build for '{board}'"
        )
    return accelerator.programs[0].array


def make_options(
    clock_mhz: float | None,
    target_fps: float | None,
    overrides: Path | Mapping[str, Mapping[str, int]] | None,
    seeds: int,
    jobs: int | None,
    frames: int | None,
    netlist_frames: int,
    style: str,
    array: Path | None,
    reusable: bool,
    board: str,
    base: Path | None = None,
    link: str = "",
    sequences: int = 1,
    input: str = "",
    fast_for: str = "link",
    cocotb_frames: int | None = None,
) -> Options:
    """Return the options of a command line, or of `nnhw.build`.

    Parameters
    ----------
    overrides: foldings by layer name, or a TOML file of them.
    array: build folder. board: name, alias or file.
    """
    folded = load_overrides(overrides) if isinstance(overrides, Path) else overrides
    return Options(
        clock_hz=None if clock_mhz is None else clock_mhz * 1e6,
        target_fps=target_fps,
        overrides=folded or {},
        seeds=seeds,
        jobs=jobs or os.cpu_count() or 1,
        frames=frames,
        cocotb_frames=cocotb_frames,
        netlist_frames=netlist_frames,
        style=style,
        array=load_array(array, load_board(board).name) if array else None,
        reusable=reusable,
        base=base,
        link=link,
        sequences=sequences,
        input=input,
        fast_for=fast_for,
    )
