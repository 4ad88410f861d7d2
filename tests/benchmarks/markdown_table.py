"""A table on a page of the docs that is written from results of benchmarks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"

Rows = Iterable[Iterable[str]]


@dataclass(frozen=True)
class PageTable:
    """A table.

    Parameters
    ----------
    page: of `docs`.
    head: titles of the columns.
    rows: returns the cells below.
    """

    page: str
    head: tuple[str, ...]
    rows: Callable[[], Rows]

    @property
    def path(self) -> Path:
        """The page's file."""
        return ROOT / "docs" / self.page

    def text(self) -> str:
        """Return the table, as Markdown."""
        lines = [f"| {' | '.join(row)} |" for row in (self.head, *self.rows())]
        return "\n".join((lines[0], f"|{'---|' * len(self.head)}", *lines[1:], ""))

    def place(self, name: str) -> re.Pattern[str]:
        """Return what finds the table in its page, between two comments."""
        opening = re.escape(f"<!-- {name}: made by tests/benchmarks/page_tables.py -->\n\n")
        return re.compile(rf"(?<={opening}).*?(?=\n<!-- to here -->)", re.DOTALL)


def result(stem: str) -> Any:
    """Return what a file of results holds."""
    return json.loads((RESULTS / f"{stem}.json").read_text(encoding="utf-8"))
