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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nnhw.errors import InputError
from nnhw.flow.tools.sources import code_hash
from nnhw.flow.tools.storage import write_whole

from .table import page

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "people.json"
PAGE = ROOT / "docs" / "networks.md"
BOARDS = ("icebreaker", "ice40_hx8k_b_evn", "ulx3s_25f", "ulx3s_85f")
LIMIT_S = 120.0
FRONT = ("quantize", "capture", "lower")


def main(arguments: list[str]) -> int:
    """Run what is missing, save after each step, and write the page of the docs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks people", description=__doc__)
    parser.add_argument("--board", action="append", help=f"a board to map on, or none; repeatable; {', '.join(BOARDS)}")
    parser.add_argument("--model", action="append", help="one model; repeatable; all otherwise")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="CPU seconds of a step")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON to go on with")
    parser.add_argument("--page", type=Path, default=PAGE, help="table to write")
    parser.add_argument("--json", action="store_true", help="print the rows as one line")
    options = parser.parse_args(arguments)
    boards = [board for board in options.board or BOARDS if board != "none"]
    document = run(boards, options.model, options.limit, options.results)
    write_whole(options.page, page(document).encode())
    print(json.dumps(document) if options.json else f"{options.results}\n{options.page}")
    return 0


def run(boards: Iterable[str], names: Iterable[str] | None, limit_s: float, results: Path) -> Row:
    """Complete the rows of models on boards in a file of results; return the document.

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
    folder = Path(tempfile.gettempdir()) / f"nnhw-people-{code_hash()[:16]}"
    folder.mkdir(exist_ok=True)
    for name in chosen:
        entry, rows = MODELS[name], document["models"]
        row = rows.get(name, {})
        if not _current(row, limit_s, any(row.get(step, {}).get("outcome") == "time" for step in FRONT)):
            row = {**_described(entry), **_front(name, folder, limit_s), "boards": row.get("boards", {})}
        rows[name] = row
        for board in boards if row.get("lower", {}).get("outcome") == "done" else ():
            known = row["boards"].get(board, {})
            if not _current(known, limit_s, known.get("outcome") == "time"):
                if not (folder / f"{name}.ir").exists():
                    _front(name, folder, limit_s)
                row["boards"][board] = _stamped(_step([name, str(folder), str(limit_s), board], limit_s), limit_s)
                _save(document, results, MODELS)
        _save(document, results, MODELS)
    return document


def _described(entry: Any) -> Row:
    return {"source": "nnhw.nn" if entry.quantized else "float", "shape": list(entry.shape), "steps": entry.steps}


def _front(name: str, folder: Path, limit_s: float) -> Row:
    row = _step([name, str(folder), str(limit_s)], limit_s)
    if "outcome" in row:  # the process ended without an answer
        row = {"quantize": row}
    return _stamped(row, limit_s)


def _stamped(row: Row, limit_s: float) -> Row:
    return {**row, "code": code_hash(), "limit_s": limit_s}


def _current(row: Mapping[str, Any], limit_s: float, over: bool) -> bool:
    """Return whether a result is of the code as it is, and would not be another one with more time."""
    return row.get("code") == code_hash() and not (over and row["limit_s"] < limit_s)


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


def _save(document: Row, results: Path, order: Iterable[str]) -> None:
    """Write the results, in the order of the corpus; models that it no longer has are left out."""
    document["models"] = {name: document["models"][name] for name in order if name in document["models"]}
    write_whole(results, (json.dumps(document, indent=1) + "\n").encode())
