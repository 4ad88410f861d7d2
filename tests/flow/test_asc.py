"""The layout of an iCE40 as text: block RAMs and lookup tables, read and replaced."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.flow.implementation.asc import AscLayout
from nnhw.flow.implementation.filling import table_marks
from nnhw.flow.implementation.lookup_tables import ORDERS, canonical, find_tables, is_distinct, reorder

TILE = "".join("0" * 54 + "\n" for _ in range(16))
RAM = "".join(f"{row:064x}\n" for row in range(16))
TEXT = f".comment a layout\n.device 5k\n.logic_tile 1 2\n{TILE}\n.ram_data 6 3\n{RAM}\n.logic_tile 2 2\n{TILE}"
TABLES = st.integers(0, 0xFFFF)


def test_layout_reads_the_rows_of_a_block_ram_from_their_lowest_bit() -> None:
    layout = AscLayout(TEXT)
    assert layout.rams.keys() == {(6, 3)}
    rows = layout.ram((6, 3)).reshape(16, 256)
    assert [(row[:8] << np.arange(8)).sum() for row in rows] == list(range(16))
    assert not rows[:, 8:].any()
    assert layout.text == TEXT


@given(seed=st.integers(0, 1000))
def test_layout_holds_the_block_ram_that_was_put_in(seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2, 4096, dtype=np.uint8)
    layout = AscLayout(TEXT)
    layout.set_ram((6, 3), bits)
    again = AscLayout(layout.text)
    assert (again.ram((6, 3)) == bits).all()
    again.set_ram((6, 3), AscLayout(TEXT).ram((6, 3)))
    assert again.text == TEXT


@given(content=TABLES, place=st.tuples(st.sampled_from([1, 2]), st.just(2), st.integers(0, 7)))
def test_layout_holds_the_table_that_was_put_in(content: int, place: tuple[int, int, int]) -> None:
    layout = AscLayout(TEXT)
    layout.set_table(place, content)
    assert {other: found for other, found in layout.tables.items() if found} == ({place: content} if content else {})
    layout.set_table(place, 0)
    assert layout.text == TEXT


def test_layout_has_the_bits_of_a_table_where_icestorm_says() -> None:
    layout = AscLayout(TEXT)
    layout.set_table((1, 2, 3), 0b1)  # bit 4 of the cell's first line
    lines = layout.text.split("\n")
    assert lines[3 + 6] == "0" * 40 + "1" + "0" * 13
    layout.set_table((1, 2, 3), 0b10)  # bit 14, which is bit 4 of its second line
    lines = layout.text.split("\n")
    assert (lines[3 + 6], lines[3 + 7]) == ("0" * 54, "0" * 40 + "1" + "0" * 13)


@pytest.mark.parametrize(
    "damage", [(RAM[-66:], "\n"), (RAM[:65], ""), (TILE[-55:], "2" + TILE[-54:])], ids=["end", "line", "digit"]
)
def test_layout_rejects_a_section_that_is_damaged(damage: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="has not the lines that it should have"):
        AscLayout(TEXT.replace(damage[0], damage[1], 1))


@given(content=TABLES, order=st.sampled_from(ORDERS))
def test_canonical_form_does_not_depend_on_the_order_of_inputs(content: int, order: tuple[int, ...]) -> None:
    assert canonical(reorder(content, order)) == canonical(content)


def test_find_tables_tells_where_a_table_is_and_how_it_is_connected() -> None:
    marks = table_marks(["a", "b"], set())
    assert all(map(is_distinct, marks.values()))
    assert canonical(marks["a"]) != canonical(marks["b"])
    assert not is_distinct(0x8000)
    layout = AscLayout(TEXT)
    layout.set_table((2, 2, 5), reorder(marks["a"], ORDERS[17]))
    layout.set_table((1, 2, 0), reorder(marks["b"], ORDERS[4]))
    layout.set_table((1, 2, 1), 0x8000)
    assert set(find_tables(layout.tables, marks)) == {("a", (2, 2, 5), ORDERS[17]), ("b", (1, 2, 0), ORDERS[4])}


def test_orders_are_all_ways_to_connect_four_inputs() -> None:
    assert len(set(ORDERS)) == 24
    # A table of one input gives the four inputs, in all orders.
    assert {reorder(0xAAAA, order) for order in ORDERS} == {0xAAAA, 0xCCCC, 0xF0F0, 0xFF00}
