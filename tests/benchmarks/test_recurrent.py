"""The benchmark of recurrent cells: that all values in hardware are equal, and what `docs/sequences.md` says."""

from __future__ import annotations

import pytest

from benchmarks.recurrent import CELLS, RANDOM

from .markdown_table import result
from .recurrent_table import BOARDS, TABLE, cells_of, compared


@pytest.mark.parametrize("board", BOARDS)
def test_cells_equal_their_graph_in_the_predicted_cycles(board: str) -> None:
    rows = cells_of(board)
    assert [row["cell"] for row in rows[::2]] == list(CELLS)
    for row in rows:
        if "refused" not in row:
            assert row["as_predicted"]
            assert row["values"] > 1000
            assert row["differ"] == 0


def test_random_recurrent_networks_equal_their_graph() -> None:
    found = result("random_recurrent")
    refused = sum(count for what, count in found.items() if what.startswith("refused"))
    assert found["stage by stage"] + refused == RANDOM
    assert found["in RTL"] > RANDOM // 4
    assert found["failures"] == []


def test_page_of_sequences_says_how_much_was_compared() -> None:
    text = TABLE.path.read_text(encoding="utf-8")
    values, differ = compared()
    assert f"{values:,} values were compared in RTL, {differ} differ" in " ".join(text.split())
