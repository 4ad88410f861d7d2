"""The table of recurrent cells on `docs/sequences.md`, from the results of three boards; `page_tables.py` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .markdown_table import PageTable, Rows, result

BOARDS = ("icebreaker", "ulx3s_25f", "ulx3s_85f")
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


def cells_of(board: str) -> list[dict[str, Any]]:
    """Return the rows that `python -m benchmarks recurrent --board BOARD --json` gave."""
    found: list[dict[str, Any]] = result(f"recurrent-{board}")["rows"]
    return found


def _rows() -> Rows:
    """Return the rows: all boards of a cell stand together."""
    pairs = [list(zip(*[iter(cells_of(board))] * 2, strict=True)) for board in BOARDS]
    return [_row(board, *pair) for cell in zip(*pairs, strict=True) for board, pair in zip(BOARDS, cell, strict=True)]


def compared() -> tuple[int, int]:
    """Return how many values of all rows were compared in RTL, and how many of them differed."""
    rows = [row for board in BOARDS for row in cells_of(board)]
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


TABLE = PageTable("sequences.md", _HEAD, _rows)
