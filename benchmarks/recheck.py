"""Cycles of the networks of the zoo as they are predicted now, beside those of the results: by mapping alone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cases import CASES
from benchmarks.networks import NETWORKS
from nnhw.engines.timing import as_number
from nnhw.errors import NnhwError
from nnhw.flow.options import Options
from nnhw.flow.pipeline import run_build
from nnhw.flow.tools.progress import make_progress
from nnhw.frontend import Source

RESULTS = Path(__file__).parent / "results"

Row = dict[str, Any]


def run(board: str | None) -> Row:
    """Map each network of the zoo that has a result, and compare interval and latency with those of the result.

    Parameters
    ----------
    board: of the results to check; None: all.

    Returns
    -------
    `networks`: for each result the network, the board, and for `interval` and `latency` [in the result, now].
    """
    places = [(name, path) for name in CASES for path in sorted(RESULTS.glob(f"{name}-*.json"))]
    found = [(name, path.stem.removeprefix(f"{name}-"), path) for name, path in places]
    return {"networks": [recheck(name, on, path) for name, on, path in found if board in (None, on)]}


def recheck(name: str, board: str, path: Path) -> Row:
    """Map a network; return its figures in the result and now, or why it cannot be mapped."""
    before, case = json.loads(path.read_text(encoding="utf-8"))["cycles"], CASES[name]
    chosen = case.network or name
    model, example = NETWORKS[chosen].load()
    options = Options(clock_hz=case.clock_hz, target_fps=case.target_fps, style=case.style, fast_for="engine")
    row: Row = {"network": name, "board": board}
    with tempfile.TemporaryDirectory() as scratch:
        try:
            build = run_build(
                Source(model, example, chosen),
                chosen,
                board,
                options,
                out=scratch,
                stop_at="map",
                progress=make_progress(Console(stderr=True)),
            )
            schedule = build.accelerator.schedule
        except NnhwError as error:
            return {**row, "refused": str(error)}
    now = {"interval": as_number(schedule.interval), "latency": schedule.latency_cycles}
    return {**row, **{key: [before[key]["predicted"], value] for key, value in now.items()}}


def show(row: Mapping[str, Any]) -> None:
    """Print a line for each network, those that differ marked."""
    table = Table("network", "board", "interval", "now", "latency", "now", "")
    for one in row["networks"]:
        if "refused" in one:
            table.add_row(one["network"], one["board"], "", "", "", "", one["refused"])
            continue
        pairs = one["interval"], one["latency"]
        same = all(before == now for before, now in pairs)
        figures = [f"{figure:,}" for pair in pairs for figure in pair]
        table.add_row(one["network"], one["board"], *figures, "same" if same else "DIFFERS")
    Console(width=120).print(table)
