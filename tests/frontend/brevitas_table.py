"""How far the door for Brevitas goes, as its page says: `python -m tests.frontend.doors_table` writes that part."""

from __future__ import annotations

from pathlib import Path

from tests.frontend.cases import FAILS, KINDS, REFUSED, expected, row

PAGE = Path(__file__).parents[2] / "docs" / "brevitas.md"
SOURCES = ("weights", "activations", "biases", "truncations", "layers", "models")
_BEGIN, _END = "<!-- made by tests/frontend/brevitas_table.py -->\n", "<!-- to here -->\n"


def section() -> str:
    """Return the part of the page that counts the cases, and names those that are not built."""
    lines = [f"| | cases | {' | '.join(KINDS)} |", "|---|---|---|---|---|---|", *(row(one, [one]) for one in SOURCES)]
    for kind in (REFUSED, FAILS):
        lines += ["", f"{kind[0].upper()}{kind[1:]}:", ""]
        for source in SOURCES:
            names = [name for name, found in expected()[source].items() if found == kind]
            lines += [f"- {source}: {'; '.join(names)}"] if names else []
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with the part as it is now."""
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + "\n" + section() + "\n" + _END + rest.partition(_END)[2]
