from __future__ import annotations

from pathlib import Path

from nnhw.frontend.capture import HANDLERS
from nnhw.frontend.support import support_matrix
from nnhw.ir import OPS

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def test_support_matrix_is_the_committed_one() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == support_matrix(), "run: python -m nnhw.frontend.support"


def test_support_matrix_has_every_operator_and_op() -> None:
    text = support_matrix()
    for operator in HANDLERS:
        assert f"`{operator.removeprefix('aten.').removesuffix('.default')}`" in text
    for name in OPS:
        assert f"| `{name}` |" in text


def test_support_matrix_says_what_each_row_means() -> None:
    rows = [line for line in support_matrix().splitlines() if line.startswith("| `")]
    assert len(rows) > len(OPS)
    assert all(line.rstrip(" |").rpartition("| ")[2].strip() for line in rows)
