"""The table of recurrent cells on `docs/sequences.md`, which `python -m tests.benchmarks.recurrent_table` makes.

It is not in `benchmarks/recurrent.py`, whose hash a result carries: a word in the table makes no result older.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "sequences.md"
BOARDS = ("icebreaker", "ulx3s_25f", "ulx3s_85f")
TABLE = re.compile(r"(?<=<!-- made by tests/benchmarks/recurrent_table.py -->\n\n).*?(?=\n<!-- to here -->)", re.DOTALL)
_HEAD = (
    "cell",
    "board",
    "cycles of a step",
    "of four in turn",
    "ideal",
    "logic cells",
    "block RAMs",
    "DSP blocks",
    "placed with its link: logic cells",
    "Fmax, MHz",
)


def result(board: str) -> list[dict[str, Any]]:
    """Return the rows that `python -m benchmarks recurrent --board BOARD --json` gave."""
    path = ROOT / "benchmarks" / "results" / f"recurrent-{board}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return found


def table() -> str:
    """Return the table, as Markdown."""
    pairs = [list(zip(*[iter(result(board))] * 2, strict=True)) for board in BOARDS]
    # All boards of a cell stand together.
    rows = [_row(board, *pair) for cell in zip(*pairs, strict=True) for board, pair in zip(BOARDS, cell, strict=True)]
    lines = [f"| {' | '.join(row)} |" for row in (_HEAD, *rows)]
    return "\n".join((lines[0], f"|{'---|' * len(_HEAD)}", *lines[1:], ""))


def compared() -> tuple[int, int]:
    """Return how many values of all rows were compared in RTL, and how many of them differed."""
    rows = [row for board in BOARDS for row in result(board)]
    return sum(row.get("values", 0) for row in rows), sum(row.get("differ", 0) for row in rows)


def _row(board: str, one: dict[str, Any], four: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of a cell on a board, from its results for one sequence at a time and for four in turn."""
    assert (one["cell"], one["sequences"], four["sequences"]) == (four["cell"], 1, 4)
    if "refused" in one:
        return (one["cell"], f"`{board}`", "does not fit", *[""] * (len(_HEAD) - 3))
    return (
        f"{one['cell']}{', '.join(['', *_kinds(one)])}",
        f"`{board}`",
        _cycles(one),
        "does not fit" if "refused" in four else _cycles(four),
        f"{one['ideal_cycles']:,}",
        f"{one['lc']:,}",
        f"{one['ebr']}" + (f", and {one['spram']} SPRAM" if one["spram"] else ""),
        f"{one['dsp']}",
        f"{one['placed_lc']:,}" if "placed_lc" in one else "",
        f"{one['fmax_hz'] / 1e6:.2f}" if "fmax_hz" in one else "",
    )


def _cycles(row: dict[str, Any]) -> str:
    return f"{row['cycles']:,g}" if row["cycles"] < 1e5 else f"{row['cycles']:,.0f}"


def _kinds(row: dict[str, Any]) -> Iterator[str]:
    if row["rounds"] > 1:
        yield f"{row['rounds']} rounds"
    if row["style"] == "shared":
        yield "a program"


def main() -> None:
    """Write the table into the page."""
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
