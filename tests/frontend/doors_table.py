"""What becomes of models from elsewhere: `python -m tests.frontend.doors_table` writes the tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.frontend import brevitas_table
from tests.frontend.cases import KINDS, OUTCOMES, Case, expected, outcome, row

PAGE = Path(__file__).parents[2] / "docs" / "doors.md"
_TABLE = re.compile(r"(?<=<!-- made by tests/frontend/doors_table.py -->\n\n).*?(?=<!-- to here -->)", re.DOTALL)
ROWS: Mapping[str, tuple[str, ...]] = {
    "Brevitas": brevitas_table.SOURCES,
    "TFLite": ("TFLite",),
    "PT2E": ("PT2E",),
    "ONNX (QONNX)": ("ONNX (QONNX)",),
    "ONNX (QDQ)": ("ONNX (QDQ)",),
    "ONNX (QOperator)": ("ONNX (QOperator)",),
    "ExportDB": ("ExportDB",),
    "PyTorch's quantization tests": ("PyTorch's quantization tests",),
    "the same, converted by FX": ("the same, converted by FX",),
}
"""Rows of the table: the sources of their cases."""


def check_row(title: str) -> None:
    """Check that the page has a row as the outcomes are."""
    table = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert table is not None
    assert row(title, ROWS[title]) in table[0].splitlines(), "run: python -m tests.frontend.doors_table"


def table() -> str:
    """Return the table."""
    head = [f"| models | cases | {' | '.join(KINDS)} |", f"|---|---|{'---|' * len(KINDS)}"]
    return "\n".join([*head, *(row(title, sources) for title, sources in ROWS.items())]) + "\n"


def _cases() -> Iterator[Case]:
    from tests.frontend import brevitas_cases, onnx_cases, tflite_cases, torch_cases

    for module in (brevitas_cases, tflite_cases, onnx_cases, torch_cases):
        yield from module.cases()


def main() -> None:
    """Run all cases, and write what becomes of them."""
    found: dict[str, dict[str, str]] = {}
    for case in _cases():
        found.setdefault(case.source, {})[case.name] = outcome(case).kind
    OUTCOMES.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    expected.cache_clear()
    for path, write in (
        (PAGE, lambda text: _TABLE.sub(lambda _: table(), text)),
        (brevitas_table.PAGE, brevitas_table.page),
    ):
        path.write_text(write(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
