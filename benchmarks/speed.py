"""How long a person waits: from an empty environment, cold, warm; and how fast the virtual board is."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import nnhw
from benchmarks.mnist import EXAMPLES
from nnhw.flow.options import Options
from nnhw.flow.pipeline import build_file
from nnhw.flow.tools.progress import make_progress

ROOT = EXAMPLES.parent
MODEL = EXAMPLES / "mnist_mlp.py"
FRAMES = 10_000


def run(board: str) -> dict[str, Any]:
    """Measure; caches of this user are left alone.

    Returns
    -------
    seconds: `empty_environment` from `python -m venv` to the first bitstream; `cold` with neither nnhw's cache nor the
        compiled tools; `warm_tools` with compiled tools alone; `unchanged` the same build again.
    cycles_per_second: of the virtual board.
    """
    progress = make_progress(Console(stderr=True))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with progress.stage("build in an empty environment"):
            empty = _seconds_from_nothing(folder, board)
        seconds = {"empty_environment": empty}
        command = [sys.executable, "-m", "nnhw", "build", str(MODEL), "--board", board]
        for name, cleared in (("cold", ("nnhw", "yowasp")), ("warm_tools", ("nnhw",)), ("unchanged", ())):
            out = folder / ("cold" if name == "cold" else "warm")
            with progress.stage(f"build: {name}"):
                seconds[name] = _seconds([*command, "--out", str(out)], _environment(folder, name, cleared))
        with progress.stage("virtual board"):
            cycles_per_second = _virtual_board(board, folder)
    rounded = {name: round(value, 1) for name, value in seconds.items()}
    return {"board": board, "seconds": rounded, "cycles_per_second": round(cycles_per_second)}


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people."""
    labels = {
        "empty_environment": "empty environment to first bitstream",
        "cold": "build, tools not compiled yet",
        "warm_tools": "build, tools compiled",
        "unchanged": "build, nothing changed",
    }
    for name, label in labels.items():
        print(f"{label:40} {row['seconds'][name]:8.1f} s")
    print(f"{'virtual board':40} {row['cycles_per_second']:10,} cycles/s")


def _seconds_from_nothing(folder: Path, board: str) -> float:
    """Return the seconds of venv, pip install and the first build, with empty caches of nnhw and the tools."""
    start = time.monotonic()
    home = folder / "venv"
    venv.create(home, with_pip=True)
    python = str(home / ("Scripts" if os.name == "nt" else "bin") / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(ROOT)]
    environment = _environment(folder, "empty", ("nnhw", "yowasp"))
    _seconds(install, environment)
    build = [python, "-m", "nnhw", "build", str(MODEL), "--board", board, "--out", str(folder / "first")]
    _seconds(build, environment)
    return time.monotonic() - start


def _environment(folder: Path, name: str, cleared: tuple[str, ...]) -> dict[str, str]:
    """Return an environment in which the caches named are empty, and the others as the build before left them."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["NNHW_CACHE"] = str(folder / (f"cache-{name}" if "nnhw" in cleared else "cache-warm_tools"))
    environment["YOWASP_CACHE_DIR"] = str(folder / (f"yowasp-{name}" if "yowasp" in cleared else "yowasp-cold"))
    return environment


def _seconds(command: list[str], environment: Mapping[str, str]) -> float:
    """Return the seconds of a command that must succeed; it runs away from the checkout."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as elsewhere:
        subprocess.run(command, env=dict(environment), cwd=elsewhere, check=True, capture_output=True)
    return time.monotonic() - start


def _virtual_board(board: str, folder: Path) -> float:
    """Return the cycles that the virtual board makes in a second of a batch."""
    build = build_file(
        str(MODEL), board, Options(frames=0, fast_for="engine"), out=folder / "virtual", stop_at="elaborate"
    )
    codes = build.accelerator.input_format.codes
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2, (FRAMES, *build.accelerator.input_format.shape))
    images = 2 * bits - 1 if codes.bipolar else bits
    with nnhw.open(build, link="sim") as device:
        device.infer_codes(images[:10])
        before, start = device.status().cycles, time.monotonic()
        device.infer_codes(images)
        return (device.status().cycles - before) / (time.monotonic() - start)
