"""What becomes of models from elsewhere: `python -m tests.frontend.doors_table` writes the table of the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.frontend.cases import KINDS, Case, row

PAGE = Path(__file__).parents[2] / "docs" / "doors.md"
_TABLE = re.compile(r"(?<=<!-- made by tests/frontend/doors_table.py -->\n\n).*?(?=<!-- to here -->)", re.DOTALL)


def _brevitas() -> list[Case]:
    from tests.frontend import brevitas_cases

    return brevitas_cases.cases()


def _tflite() -> list[Case]:
    from tests.frontend import tflite_cases

    return tflite_cases.cases()


def _torch(source: str) -> list[Case]:
    from tests.frontend import torch_cases

    return [case for case in torch_cases.cases() if case.source == source]


def _onnx(source: str) -> list[Case]:
    from tests.frontend import onnx_cases

    return [case for case in onnx_cases.cases() if case.source == source]


SOURCES: Mapping[str, Callable[[], list[Case]]] = {
    "Brevitas": _brevitas,
    "TFLite": _tflite,
    "PT2E": lambda: _torch("PT2E"),
    "ONNX (QONNX)": lambda: _onnx("ONNX (QONNX)"),
    "ONNX (QDQ)": lambda: _onnx("ONNX (QDQ)"),
    "ONNX (QOperator)": lambda: _onnx("ONNX (QOperator)"),
    "ExportDB": lambda: _torch("ExportDB"),
    "PyTorch's quantization tests": lambda: _torch("PyTorch's quantization tests"),
    "the same, converted by FX": lambda: _torch("the same, converted by FX"),
}
"""Rows of the table; each is checked where its cases are, so that they are made once."""


def row_of(source: str) -> str:
    """Return a row as it is now."""
    return row(source, SOURCES[source]())


def check_row(source: str) -> None:
    """Check that the page has a source's row as it is."""
    table = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert table is not None
    assert row_of(source) in table[0].splitlines(), "run: python -m tests.frontend.doors_table"


def table() -> str:
    """Return the table."""
    head = [f"| models | cases | {' | '.join(KINDS)} |", f"|---|---|{'---|' * len(KINDS)}"]
    return "\n".join([*head, *map(row_of, SOURCES)]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
