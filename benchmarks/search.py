"""Architecture search for MNIST: is what it finds as good as the example made by hand, at the same rate?"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

import nnhw
from nnhw.flow.tools.progress import make_progress
from nnhw.searching.trial_records import Search, Tried

FILE = Path(__file__).resolve().parents[1] / "examples" / "search_mnist.py"
BY_HAND = Path(__file__).resolve().parent / "results" / "mnist_mlp-icebreaker.json"
TRIALS, SEED = 30, 1

Row = dict[str, Any]


def run(board: str) -> Row:
    """Search with one process, test the best network of the front once, and compare it with `mnist_mlp`.

    Returns
    -------
    The command, what became of the trials, the Pareto front, the winner with its accuracy on validation and on test
    digits, and the figures of the example made by hand; cycles are the mapper's, rates at the board's usual clock.
    """
    by_hand = json.loads(BY_HAND.read_text(encoding="utf-8"))
    cycles = by_hand["cycles"]["interval"]["predicted"]
    started, busy = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = nnhw.search(
            FILE,
            board=board,
            style="streaming",
            at_most={"cycles": cycles},
            trials=TRIALS,
            seed=SEED,
            out=folder,
            plot="none",
            export="best",
            progress=make_progress(Console(stderr=True)),
        )
    seconds = {"elapsed": round(time.monotonic() - started, 1), "processor": round(time.process_time() - busy, 1)}
    command = (
        f"nnhw search examples/{FILE.name} --board {board} --style streaming --at-most cycles={cycles} "
        f"--trials {TRIALS} --seed {SEED} --export best"
    )
    return {"command": command, "seconds": seconds, **facts(found), "by_hand": known(by_hand)}


def facts(found: Search) -> Row:
    """Return what a search with an exported network found."""
    assert found.exported is not None
    number = found.exported.number
    winner = next(trial for trial in found.front if trial.number == number)
    return {
        "trials": len(found.trials),
        "outcomes": found.outcomes,
        "ended_by_the_mapper": found.untrained,
        "objectives": list(found.goals.objectives),
        "front": [row_of(trial) for trial in found.front],
        "winner": {**row_of(winner), "validation": winner.figures["accuracy"], "test": found.exported.test},
    }


def row_of(trial: Tried) -> Row:
    """Return a trial as it is kept."""
    known = dataclasses.asdict(trial)
    return {name: known[name] for name in ("number", "params", "figures", "style", "seconds")}


def known(by_hand: Mapping[str, Any]) -> Row:
    """Return what is compared of the example made by hand: its cycles are simulated, its rate placed and routed."""
    return {
        "name": by_hand["model"]["name"],
        "test": by_hand["accuracy"],
        "cycles": by_hand["cycles"]["interval"]["simulated"],
        "rate": by_hand["inferences_per_second"],
        "lc": by_hand["resources"]["lc"]["estimated"],
        "ebr": by_hand["resources"]["ebr"]["estimated"],
    }


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people."""
    console = Console()
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in row["outcomes"].items())
    console.print(
        f"{row['trials']} trials, {row['seconds']['processor']:.0f} s of one processor: {outcomes}", highlight=False
    )
    for entry in row["front"]:
        figures, params = entry["figures"], entry["params"]
        line = f"trial {entry['number']}: validation {figures['accuracy']:.4f}, {figures['cycles']:.0f} cycles, "
        console.print(line + ", ".join(f"{name}={value}" for name, value in params.items()), highlight=False)
    winner, hand = row["winner"], row["by_hand"]
    console.print(
        f"winner: test {winner['test']:.4f}, {winner['figures']['cycles']:.0f} cycles; {hand['name']}, made by hand: "
        f"test {hand['test']:.4f}, {hand['cycles']} cycles",
        highlight=False,
    )
