"""The table of operators in docs/ir.md, made of `OPS`: `python -m tests.ir.operators_page` writes it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from nnhw.ir.attributes import fields_of, is_needed, takes
from nnhw.ir.ops import OPS, Op
from nnhw.ir.ops.base import ANY, SOME
from nnhw.ir.ops.elementwise import Binary

PAGE = Path(__file__).parents[2] / "docs" / "ir.md"
_TABLE = re.compile(r"(?<=<!-- made by tests/ir/operators_page.py -->\n\n).*?(?=<!-- to here -->)", re.DOTALL)


def table() -> str:
    """Return the rows of all operators."""
    rows = ["| operator | inputs | attributes | what |", "|---|---|---|---|"]
    own = {name: row for name, row in OPS.items() if row.__module__.startswith("nnhw.")}  # and none of a user
    for name, row in own.items():
        rows.append(f"| `{name}` | {_inputs(row)} | {_attributes(row)} | {_meaning(row)} |")
    return "\n".join(rows) + "\n"


def committed() -> str:
    """Return the rows as the page has them."""
    found = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    return found[0] if found else ""


def _inputs(row: type[Op]) -> str:
    if row.arity == ANY:
        return "two or more values"
    if row.arity == SOME:
        return "one or more values, then values or constants"
    if row.arity == 0:
        return "none"
    if issubclass(row, Binary):
        return "two values, or a value and a constant"
    constants = len(row.parameters)
    behind = f", {constants} constant{'s' * (constants > 1)}" if constants else ""
    return f"{row.arity - constants} value{'s' * (row.arity - constants > 1)}{behind}"


def _attributes(row: type[Op]) -> str:
    written = []
    for name, field in fields_of(row).items():
        default = "" if is_needed(field) else f", default `{_shown(field.default)}`"
        written.append(f"`:{name}` {takes(field)}{default}")
    return "<br>".join(written) or "none"


def _shown(value: object) -> str:
    from nnhw.ir.expressions import show

    return show(value)  # type: ignore[arg-type]


def _meaning(row: type[Op]) -> str:
    first, *others = (inspect.getdoc(row) or "").split("\n\n")
    text = re.sub(r"\s+", " ", first).replace("|", "\\|")
    if not text.endswith((",", ":")):
        return text
    formula = "<br>".join(f"`{re.sub(r' +', ' ', line.strip())}`" for line in others[0].splitlines())
    return f"{text} {formula}"


if __name__ == "__main__":
    content = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_TABLE.sub(lambda _: table(), content), encoding="utf-8")
