"""A second network on the hardware of the first: another program is loaded, nothing else changes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import nnhw
from benchmarks.networks import NETWORKS
from nnhw.flow.options import Options
from nnhw.flow.pipeline import Build, run_build
from nnhw.flow.tools.progress import Progress, make_progress

FIRST, SECOND = "resnet8_w8a8", ("cnn_small", "ecg_autoencoder", "mlp784_w8a8")
FRAMES = 3
Row = dict[str, Any]


def run(board: str) -> Row:
    """Build a network on a shared engine, make programs of others for its array, and run all on one virtual board.

    Returns
    -------
    `array`: id. `networks`: for each, in the order in which they ran, `same_hardware` (the Verilog of its device is
    that of the first one, byte for byte), `program_bytes`, `interval_cycles` as predicted, `frames`, and `mismatches`
    with `nnhw.reference`. The first one runs again at the end.
    """
    from nnhw.frontend import Source

    progress = make_progress(Console(stderr=True))
    with tempfile.TemporaryDirectory() as scratch:
        builds: dict[str, Build] = {}
        for name in (FIRST, *SECOND):
            model, example = NETWORKS[name].load()
            array = builds[FIRST].accelerator.programs[0].array if builds else None  # type: ignore[union-attr]
            options = Options(frames=0, style="shared", array=array)
            out = Path(scratch) / name
            builds[name] = run_build(
                Source(model, example, name), name, board, options, out=out, stop_at="elaborate", progress=progress
            )
        with nnhw.open(builds[FIRST], link="sim") as device:
            hardware = device.link
            rows = [compare(name, builds, hardware, progress) for name in (FIRST, *SECOND, FIRST)]
    return {"board": {"name": board}, "array": f"{array.id:08x}" if array else "", "networks": rows}


def compare(name: str, builds: dict[str, Build], hardware: Any, progress: Progress) -> Row:
    """Open a build on hardware that runs already, and compare its answers with the reference."""
    build, (model, example) = builds[name], NETWORKS[name].load()
    images = example[:FRAMES]
    with progress.stage(f"{name}: load and run {len(images)} frames"):
        device = nnhw.open(build, link=hardware)
        results = np.asarray(device(images.double().numpy()))
    expected = nnhw.reference(model)(images).numpy()
    image = build.accelerator.image
    assert image is not None
    verilog = [(builds[one].path / "device.v").read_bytes() for one in (FIRST, name)]
    return {
        "network": name,
        "same_hardware": verilog[0] == verilog[1],
        "program_bytes": len(image),
        "interval_cycles": build.accelerator.schedule.interval_cycles,
        "frames": len(images),
        "mismatches": int((results != expected).reshape(len(images), -1).any(axis=1).sum()),
    }


def show(row: Mapping[str, Any]) -> None:
    """Print a line for each network."""
    console = Console()
    console.print(f"array {row['array']} on {row['board']['name']}", highlight=False)
    for one in row["networks"]:
        same = "the same hardware" if one["same_hardware"] else "OTHER HARDWARE"
        console.print(
            f"{one['network']}: {same}, {one['program_bytes']:,} bytes of program, {one['interval_cycles']:,} cycles a "
            f"frame, {one['mismatches']} of {one['frames']} frames differ",
            highlight=False,
        )
