"""What becomes of networks that quantize by themselves: `python -m tests.written.table [NAME ..]` writes the table.

`outcomes.json` says what becomes of each network, and the page counts what it says. So the page is checked without any
network, and a network without the others. The command runs those that it names, or all, and writes both.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections import Counter
from pathlib import Path

from tests.written.networks import KINDS, NETWORKS, REFUSED, WRONG, Outcome, outcome

PAGE = Path(__file__).parents[2] / "docs" / "written.md"
OUTCOMES = Path(__file__).with_name("outcomes.json")
_TABLE = re.compile(r"(?<=<!-- made by tests/written/table.py -->\n\n).*?(?=<!-- to here -->)", re.DOTALL)
_PLACE = re.compile(r" \([\w/]+\.py:\d+\)")


@functools.cache
def expected() -> dict[str, dict[str, str]]:
    """Return what becomes of each network: {name: {"kind", "bits", "message"}}."""
    found: dict[str, dict[str, str]] = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    return found


def entry(found: Outcome) -> dict[str, str]:
    """Return an outcome as it is written down; lines of the source are left out of messages."""
    return {"kind": found.kind, "bits": found.bits(), "message": _PLACE.sub("", found.message)}


def table() -> str:
    """Return the table, and the sums in front of it."""
    counts = Counter(found["kind"] for found in expected().values())
    lines = [f"| networks | {' | '.join(KINDS)} |", f"|---|{'---|' * len(KINDS)}"]
    lines += [f"| {len(expected())} | {' | '.join(str(counts[kind]) for kind in KINDS)} |", ""]
    lines += ["| network | in the manner of | outcome | bits by layer |", "|---|---|---|---|", *map(_row, NETWORKS)]
    return "\n".join(lines) + "\n"


def _row(name: str) -> str:
    network, found = NETWORKS[name], expected()[name]
    reason = ""
    if found["kind"] in (REFUSED, WRONG):
        first = re.sub(r"^\d+ problems:\n  1\. ", "", found["message"]).splitlines()[0]
        reason = f": {network.fault or first.partition('; ')[0]}"
    return f"| {_cell(name)} | {_cell(network.manner)} | {_cell(found['kind'] + reason)} | {found['bits']} |"


def _cell(text: str) -> str:
    return text.removesuffix(".").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def main(names: list[str]) -> None:
    """Run networks, and write what becomes of them."""
    known = expected() if OUTCOMES.exists() else {}
    for name in names or NETWORKS:
        known = {**known, name: entry(outcome(name))}
        ordered = {each: known[each] for each in NETWORKS if each in known}
        OUTCOMES.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    expected.cache_clear()
    PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
