"""`python -m benchmarks people`: each model through quantize, capture, lower, and map on boards.

Each step runs in a process of its own with a limit of CPU seconds. A result that the same code gave, with this limit or
a longer one, is kept. So a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from nnhw.errors import InputError
from nnhw.flow.tools.storage import write_whole

from .table import page

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "people.json"
PAGE = ROOT / "docs" / "networks.md"
BOARDS = ("icebreaker", "ice40_hx8k_b_evn", "ulx3s_25f", "ulx3s_85f")
LIMIT_S = 120.0
FRONT = ("quantize", "capture", "lower")


def main(arguments: list[str], code: str) -> int:
    """Run what is missing, save after each step, and write the page of the docs.

    Parameters
    ----------
    code: hash of what the results depend on.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks people", description=__doc__)
    parser.add_argument("--board", action="append", help=f"a board to map on, or none; repeatable; {', '.join(BOARDS)}")
    parser.add_argument("--model", action="append", help="one model; repeatable; all otherwise")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="CPU seconds of a step")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON to go on with")
    parser.add_argument("--page", type=Path, default=PAGE, help="table to write")
    parser.add_argument("--json", action="store_true", help="print the rows as one line")
    options = parser.parse_args(arguments)
    boards = [board for board in options.board or BOARDS if board != "none"]
    document = run(boards, options.model, options.limit, options.results, code)
    write_whole(options.page, page(document).encode())
    print(json.dumps(document) if options.json else f"{options.results}\n{options.page}")
    return 0


def run(boards: Iterable[str], names: Iterable[str] | None, limit_s: float, results: Path, code: str) -> Row:
    """Complete the rows of models on boards in a file of results; return the document.

    It says what made it, as other results do, once all rows are of this code.

    Raises
    ------
    InputError: a model that the corpus does not have.
    """
    from .corpus import MODELS

    chosen = list(names or MODELS)
    unknown = [name for name in chosen if name not in MODELS]
    if unknown:
        raise InputError(f"the corpus has no model '{unknown[0]}'; it has {', '.join(MODELS)}")
    document: Row = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {"models": {}}
    folder = Path(tempfile.gettempdir()) / f"nnhw-people-{code[:16]}"
    folder.mkdir(exist_ok=True)
    for name in chosen:
        entry, rows = MODELS[name], document["models"]
        row = rows.get(name, {})
        if not _current(row, code, limit_s, any(row.get(step, {}).get("outcome") == "time" for step in FRONT)):
            front = _stamped(_front(name, folder, limit_s), code, limit_s)
            row = {**_described(entry), **front, "boards": row.get("boards", {})}
        rows[name] = row
        for board in boards if row.get("lower", {}).get("outcome") == "done" else ():
            known = row["boards"].get(board, {})
            if not _current(known, code, limit_s, known.get("outcome") == "time"):
                if not (folder / f"{name}.ir").exists():
                    _front(name, folder, limit_s)
                mapped = _step([name, str(folder), str(limit_s), board], limit_s)
                row["boards"][board] = _stamped(mapped, code, limit_s)
                _save(document, results, MODELS, code)
        _save(document, results, MODELS, code)
    return document


def _described(entry: Any) -> Row:
    return {"source": "nnhw.nn" if entry.quantized else "float", "shape": list(entry.shape), "steps": entry.steps}


def _front(name: str, folder: Path, limit_s: float) -> Row:
    row = _step([name, str(folder), str(limit_s)], limit_s)
    if "outcome" in row:  # the process ended without an answer
        row = {"quantize": row}
    return row


def _stamped(row: Row, code: str, limit_s: float) -> Row:
    return {**row, "code": code, "limit_s": limit_s}


def _current(row: Mapping[str, Any], code: str, limit_s: float, over: bool) -> bool:
    """Return whether a result is of this code, and would not be another one with more time."""
    return row.get("code") == code and not (over and row["limit_s"] < limit_s)


def _step(arguments: list[str], limit_s: float) -> Row:
    """Run one step in a process of its own; return its answer, or how the process ended."""
    print(" ".join((arguments[0], *arguments[3:])), file=sys.stderr, flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.people.steps", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    if done.returncode in (-signal.SIGKILL, -signal.SIGXCPU):
        return {"outcome": "time", "cpu_s": limit_s}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {"outcome": "traceback", "message": last, "cpu_s": 0.0}
    row: Row = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def _save(document: Row, results: Path, order: Collection[str], code: str) -> None:
    """Write the results, in the order of the corpus; models that it no longer has are left out."""
    document.pop("made", None)
    document["models"] = {name: document["models"][name] for name in order if name in document["models"]}
    if len(document["models"]) == len(order) and all(_whole(row, code) for row in document["models"].values()):
        document["made"] = {"code": code}
    write_whole(results, (json.dumps(document, indent=1) + "\n").encode())


def _whole(row: Mapping[str, Any], code: str) -> bool:
    """Return whether all steps of a model that can run are of this code."""
    boards = BOARDS if row.get("lower", {}).get("outcome") == "done" else ()
    steps = [row, *(row["boards"].get(board, {}) for board in boards)]
    return all(step.get("code") == code for step in steps)
