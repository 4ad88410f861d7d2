"""Tables of the docs are what their results give."""

from __future__ import annotations

import pytest

from .page_tables import TABLES


@pytest.mark.parametrize("name", TABLES)
def test_table_of_a_page_is_its_result(name: str) -> None:
    table = TABLES[name]
    assert table.place(name).findall(table.path.read_text(encoding="utf-8")) == [table.text()], (
        "run: python -m tests.benchmarks.page_tables"
    )
