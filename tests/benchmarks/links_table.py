"""The table of all links on `docs/links.md`: `python -m tests.benchmarks.links_table` makes it from three results.

It is not in `benchmarks/links.py`, whose hash a result carries: a word in the table makes no result older.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnhw.boards import load_board

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "links.md"
BOARDS = ("icebreaker", "tinyfpga_bx", "ecpix5_45f")
"""Boards that have all kinds of links between them."""
COUNTS = ("theory", "simulated", "frames", "faults", "wrong")
TABLE = re.compile(r"(?<=<!-- made by tests/benchmarks/links_table.py -->\n\n).*?(?=\n<!-- to here -->)", re.DOTALL)
_HEAD = (
    "board",
    "link",
    "logic cells",
    "network",
    "images/s in theory",
    "images/s simulated",
    "frames",
    "faults injected",
    "wrong results",
)


def result(board: str) -> dict[str, Any]:
    """Return what `python -m benchmarks links --board BOARD --json` gave."""
    path = ROOT / "benchmarks" / "results" / f"links-{board}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def table() -> str:
    """Return the table, as Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in (_HEAD, *(row for board in BOARDS for row in _rows(board)))]
    return "\n".join((lines[0], f"|{'---|' * len(_HEAD)}", *lines[1:], ""))


def _rows(board: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a board: one for each link, at each of its rates, and network."""
    found = result(board)
    where = f"{load_board(board).title}, {found['clock_hz'] / 1e6:g} MHz"
    for link in found["links"]:
        for network, counts in link["networks"].items():
            yield where, link["link"], f"{link['lc']:,}", f"`{network}`", *(f"{counts[key]:,}" for key in COUNTS)


def main() -> None:
    """Write the table into the page."""
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
