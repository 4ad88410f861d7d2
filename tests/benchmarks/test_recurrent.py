"""The benchmark of recurrent cells: that all values in hardware are equal, and that its table is its result."""

from __future__ import annotations

import json

import pytest

from benchmarks.recurrent import CELLS, RANDOM

from .recurrent_table import BOARDS, PAGE, ROOT, TABLE, compared, result, table


@pytest.mark.parametrize("board", BOARDS)
def test_cells_equal_their_graph_in_the_predicted_cycles(board: str) -> None:
    rows = result(board)
    assert [row["cell"] for row in rows[::2]] == list(CELLS)
    for row in rows:
        if "refused" not in row:
            assert row["as_predicted"]
            assert row["values"] > 1000
            assert row["differ"] == 0


def test_random_recurrent_networks_equal_their_graph() -> None:
    path = ROOT / "benchmarks" / "results" / "random_recurrent.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    refused = sum(count for what, count in found.items() if what.startswith("refused"))
    assert found["stage by stage"] + refused == RANDOM
    assert found["in RTL"] > RANDOM // 4
    assert found["failures"] == []


def test_page_of_sequences_has_the_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert TABLE.search(text)[0] == table(), "run: python -m tests.benchmarks.recurrent_table"  # type: ignore[index]
    values, differ = compared()
    assert f"{values:,} values were compared in RTL, {differ} differ" in " ".join(text.split())
