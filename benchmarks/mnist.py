"""The two MNIST examples on all test images: equality from PyTorch to the serial pins, clocks over seeds, rates."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.designs import MNIST_SEEDS as SEEDS
from benchmarks.designs import design_hashes
from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.boards import load_board
from nnhw.flow.commands.terminal import render_report
from nnhw.flow.implementation.bitstream import BitstreamRequest, ClockTrial
from nnhw.flow.implementation.timing_closure import first_clock, usable_clocks
from nnhw.flow.models.lowering import lower_graph, run_parts
from nnhw.flow.models.samples import differing_rows, evaluate
from nnhw.flow.options import Options
from nnhw.flow.pipeline import Build, build_file
from nnhw.flow.tools.cache import Cache
from nnhw.flow.tools.progress import Progress, make_progress
from nnhw.flow.verification.equality import Equality, check_equality
from nnhw.flow.verification.simulate import simulate_pins
from nnhw.flow.virtual.device_hardware import make_linked_device
from nnhw.frontend import Source, load_source
from nnhw.passes import Parts

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
UART_FRAMES = 20

Row = dict[str, Any]


def mlp(board: str) -> Row:
    """Measure `mnist_mlp`; all 10,000 test images in RTL."""
    return measure("mnist_mlp", board, rtl_images=10_000)


def cnn(board: str) -> Row:
    """Measure `mnist_cnn`; 1,000 test images in RTL."""
    return measure("mnist_cnn", board, rtl_images=1_000)


def measure(name: str, board: str, rtl_images: int) -> Row:
    """Build an example and compare everything that computes it with its reference.

    Returns
    -------
    `report.json` with `exactness` over the test images and `seeds` over all seeds, and `accuracy`, `design`
    (see `benchmarks.designs`), `stalls` (one entry for each pattern), `uart` and `stage_seconds` (see `Build.seconds`)
    besides.
    """
    progress = make_progress(Console(stderr=True))
    file = str(EXAMPLES / f"{name}.py")
    build = build_file(file, board, Options(seeds=SEEDS, fast_for="engine"), progress=progress)
    source, accelerator = load_source(file), build.accelerator
    images, labels = _examples_module("mnist_data").load_mnist("test")
    with progress.stage(f"{len(images)} images: PyTorch, reference, integer graph"):
        parts, exactness, logits = compare_graphs(source, images)
    codes = ir.run_in_chunks(parts.head, images)[0]
    with progress.stage(f"{rtl_images} images: RTL at every boundary"):
        found = check_equality(accelerator, parts.body, codes[:rtl_images])
    with progress.stage(f"{UART_FRAMES} images: through the serial pins"):
        pins = compare_pins(accelerator, parts, codes[:UART_FRAMES], build)
    return {
        **build.report,
        "design": design_hashes(accelerator, load_board(board), build.report["clock_hz"], {"seeds": SEEDS}),
        "seeds": all_seeds(accelerator, build, board, progress),
        "exactness": {**exactness, **join(found)},
        "accuracy": float((logits.argmax(axis=1) == labels).mean()),
        "stalls": [equality.row() for equality in found],
        "uart": pins,
        "stage_seconds": build.seconds,
    }


def compare_graphs(source: Source, images: np.ndarray) -> tuple[Parts, Row, np.ndarray]:
    """Compare PyTorch in float32 and float64, the reference, and the graph behind every pass.

    Returns
    -------
    The parts, `exactness` of the report, and the logits.
    """
    answers = {
        "inputs": images,
        "torch": evaluate(source.model, images),
        "torch_float64": evaluate(source.model, images, double=True),
    }
    graph = source.capture()
    parts, facts = lower_graph(graph, answers)
    reference = ir.run_in_chunks(graph, images)[0]
    keys = ("samples", "torch_ir", "torch_float64_ir", "passes")
    exactness = {key: facts[key] for key in keys}
    exactness["passes"]["all"] = differing_rows(run_parts(parts, images.astype(np.float64)), reference)
    return parts, exactness, reference


def join(found: Sequence[Equality]) -> Row:
    """Return the worst of all stall patterns, as `exactness` of the report; frames too many count as different."""
    streams = [equality.streams for equality in found]
    worst = [max(same, key=lambda stream: stream.mismatches + stream.extra) for same in zip(*streams, strict=True)]
    counts = {stream.name: stream.mismatches + stream.extra for stream in worst}
    return {"rtl_samples": worst[-1].frames, "ir_rtl": counts.pop("output"), "layers": counts}


def compare_pins(accelerator: Accelerator, parts: Parts, codes: np.ndarray, build: Build) -> Row:
    """Run frames through the pins of the device as it is on the board."""
    outputs = ir.run(parts.body, codes)[0]
    clock_hz, link = int(build.report["clock_hz"]), load_board(build.report["board"]["name"]).host_link
    with tempfile.TemporaryDirectory() as scratch:
        result = simulate_pins(accelerator, codes, outputs, clock_hz, link, Path(scratch))
    return {"samples": result.frames, "mismatches": result.mismatches}


def all_seeds(accelerator: Accelerator, build: Build, board: str, progress: Progress) -> Mapping[str, float]:
    """Return Fmax by seed, for all seeds: a build stops when one of the first holds."""
    found = load_board(board)
    settings = first_clock(usable_clocks(found), None, found.target_clock_hz)
    with progress.stage(f"{SEEDS} seeds"), tempfile.TemporaryDirectory() as scratch:
        trial = ClockTrial(
            lambda clock_hz: make_linked_device(
                accelerator, clock_hz, found.host_link, found.flash, found.fastest_clock_hz
            ),
            found,
            Path(scratch),
            BitstreamRequest(seeds=SEEDS),
            Cache.default(),
            progress.note,
        )
        return {str(placement.seed): round(placement.fmax_hz) for placement in trial.place(settings)}


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people."""
    console = Console()
    console.print(render_report(row))
    worst, clock_hz = min(row["seeds"].values()), row["clock_hz"]
    lines = [
        f"accuracy {row['accuracy']:.2%} on {row['exactness']['samples']} test images",
        f"worst of {len(row['seeds'])} seeds: {worst / 1e6:.2f} MHz for a clock of {clock_hz / 1e6:g} MHz",
        f"serial pins: {row['uart']['mismatches']} of {row['uart']['samples']} frames differ",
        *(
            f"RTL, stalls {' / '.join(run['stalls'])}: {run['ir_rtl']} of {run['rtl_samples']} frames differ, "
            f"{run['cycles_per_second']:,} cycles/s"
            for run in row["stalls"]
        ),
    ]
    for line in lines:
        console.print(line, highlight=False)


def _examples_module(name: str) -> ModuleType:
    """Return a module of the examples, which are no package."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
