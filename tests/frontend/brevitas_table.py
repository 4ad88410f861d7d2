"""How far the door for Brevitas goes, as its page says: `python -m tests.frontend.brevitas_table` writes that part."""

from __future__ import annotations

from pathlib import Path

from tests.frontend.brevitas_cases import cases
from tests.frontend.cases import FAILS, KINDS, REFUSED, outcome, row

PAGE = Path(__file__).parents[2] / "docs" / "brevitas.md"
_BEGIN, _END = "<!-- made by tests/frontend/brevitas_table.py -->\n", "<!-- to here -->\n"


def section() -> str:
    """Return the part of the page that counts the cases, and names those that are not built."""
    sources = list(dict.fromkeys(case.source for case in cases()))
    lines = [f"| | cases | {' | '.join(KINDS)} |", "|---|---|---|---|---|---|"]
    lines += [row(source, (case for case in cases() if case.source == source)) for source in sources]
    for kind in (REFUSED, FAILS):
        lines += ["", f"{kind[0].upper()}{kind[1:]}:", ""]
        for source in sources:
            names = [case.name for case in cases() if case.source == source and outcome(case).kind == kind]
            lines += [f"- {source}: {'; '.join(names)}"] if names else []
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with the part as it is now."""
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + "\n" + section() + "\n" + _END + rest.partition(_END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
