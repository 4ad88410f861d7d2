"""The table of all links on `docs/links.md`, from the results of three boards; `page_tables.py` writes it."""

from __future__ import annotations

from typing import Any

from nnhw.boards import load_board

from .markdown_table import PageTable, Rows, result

BOARDS = ("icebreaker", "tinyfpga_bx", "ecpix5_45f")
"""Boards that have all kinds of links between them."""
COUNTS = ("theory", "simulated", "frames", "faults", "wrong")
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


def links_of(board: str) -> Any:
    """Return what `python -m benchmarks links --board BOARD --json` gave."""
    return result(f"links-{board}")


def _rows() -> Rows:
    """Yield the rows: one for each link of a board, at each of its rates, and network."""
    for board in BOARDS:
        found = links_of(board)
        where = f"{load_board(board).title}, {found['clock_hz'] / 1e6:g} MHz"
        for link in found["links"]:
            for network, counts in link["networks"].items():
                yield where, link["link"], f"{link['lc']:,}", f"`{network}`", *(f"{counts[key]:,}" for key in COUNTS)


TABLE = PageTable("links.md", _HEAD, _rows)
