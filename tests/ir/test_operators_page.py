from __future__ import annotations

from tests.ir.operators_page import committed, table


def test_page_has_every_operator_as_it_is() -> None:
    assert committed() == table()
