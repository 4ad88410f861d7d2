"""One network from each door to a bitstream: models of other frameworks and formats, as they are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.mnist import EXAMPLES
from benchmarks.networks.data import data_path
from nnhw.flow.options import Options
from nnhw.flow.pipeline import build_file
from nnhw.flow.tools.progress import make_progress

Row = dict[str, Any]


@dataclass(frozen=True)
class Network:
    """A network that comes through a door.

    Parameters
    ----------
    file: returns its path.
    """

    door: str
    file: Callable[[], Path]
    board: str


NETWORKS = (
    Network("Brevitas", lambda: EXAMPLES / "brevitas_mlp.py", "icebreaker"),
    Network("PT2E", lambda: EXAMPLES / "mnist_pt2e.pt2", "icebreaker"),
    Network("ONNX (QONNX)", lambda: data_path("qonnx", "TFC_1W1A.onnx"), "icebreaker"),
    Network("ONNX (QDQ)", lambda: EXAMPLES / "mnist_qdq.onnx", "icebreaker"),
    Network("TFLite", lambda: EXAMPLES / "mnist_int8.tflite", "icebreaker"),
)


def run(board: str | None) -> Row:
    """Build all of them, each for its own board unless one is asked for.

    Returns
    -------
    `networks`: for each its door, file, board and style, logic cells, block RAMs, large RAMs and DSP blocks used, the
    clock that place and route holds and the one of the bitstream, cycles of a frame, and of how many frames RTL differs
    from the reference.
    """
    progress = make_progress(Console(stderr=True))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, network in enumerate(NETWORKS):
            with progress.stage(f"{network.door}: {network.file().name}"):
                rows.append(_built(network, board or network.board, Path(scratch) / str(number)))
    return {"networks": rows}


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people."""
    table = Table("door", "file", "board", "style", "LC", "block RAM", "DSP", "Fmax, MHz", "cycles", "RTL differs")
    for network in row["networks"]:
        used = network["resources"]
        table.add_row(
            *(network[name] for name in ("door", "file", "board", "style")),
            *(f"{used[name]:,}" for name in ("lc", "ebr", "dsp")),
            f"{network['fmax_hz'] / 1e6:.1f}",
            f"{network['interval_cycles']:,}",
            f"{network['mismatches']} of {network['frames']}",
        )
    Console().print(table)


def _built(network: Network, board: str, out: Path) -> Row:
    report = build_file(str(network.file()), board, Options(fast_for="engine"), out=out).report
    return {
        "door": network.door,
        "file": network.file().name,
        "model": report["model"],
        "board": board,
        "style": report["style"]["name"],
        "resources": {name: entry["used"] for name, entry in report["resources"].items()},
        "fmax_hz": report["fmax_hz"],
        "clock_hz": report["clock_hz"],
        "interval_cycles": report["cycles"]["interval"]["simulated"],
        "frames": report["exactness"]["rtl_samples"],
        "mismatches": report["exactness"]["ir_rtl"],
    }
