"""Tables at any width: every number whole, names shortened so that they stay apart."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from nnhw.boards import list_boards
from nnhw.errors import LayerNeed
from nnhw.fitting.tables import render_needs
from nnhw.flow.commands.terminal import render_boards
from nnhw.flow.tools.tables import NumberTable, shortened

WIDTHS = (200, 80, 60, 40)
LONG = [f"sequential/conv2d_{number}/BiasAdd;sequential/conv2d_{number}/Conv2D/" + "x" * 60 for number in range(12)]


def printed(table: NumberTable, width: int, encoding: str = "utf-8") -> str:
    """Return what a terminal of this width shows; each line fits it."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(width=width, file=out).print(table)
    out.seek(0)
    text = out.read()
    assert max(map(len, text.splitlines())) <= width
    return text


def large(names: list[str]) -> NumberTable:
    table = NumberTable("Layers", "layer", "PE x SIMD", "cycles", "weight bits", "kind", texts=("kind",))
    for number, name in enumerate(names):
        table.row(name, f"{number} x 128", f"{10**9 + number:,}", f"{10**8 + number:,}", "multiply-add-shift")
    table.section()
    table.row("all", "", "", f"{12 * 10**8:,}", "")
    return table


@pytest.mark.parametrize("width", WIDTHS)
def test_table_shows_every_number_at_any_width(width: int) -> None:
    text = printed(large(LONG), width)
    for number in range(len(LONG)):
        assert f" {number} x 128 " in text
        assert f" {10**9 + number:,} " in text
        assert f" {10**8 + number:,} " in text
    assert f" {12 * 10**8:,} " in text
    # The whole texts, whose words may be on several lines.
    assert text.count("multiply") == text.count("shift") == len(LONG)


@pytest.mark.parametrize("width", WIDTHS)
def test_table_names_every_row_apart(width: int) -> None:
    first = printed(large(LONG), width).partition("continued")[0]
    shown = re.findall(r"^│ (seq\S*) +│", first, re.M)
    assert len(shown) == len(set(shown)) == len(LONG)


def test_table_that_fits_is_not_changed() -> None:
    text = printed(large(["fc1", "a[0][/b]"]), 120)
    assert "│ fc1      │   0 x 128 │ 1,000,000,000 │   100,000,000 │ multiply-add-shift │" in text
    assert "│ a[0][/b] │" in text
    assert "┃ layer    ┃ PE x SIMD ┃" in text
    assert "…" not in text


def test_table_continues_in_a_second_one_with_the_same_first_column() -> None:
    text = printed(large(["fc1", "fc2"]), 40)
    assert [line for line in text.splitlines() if line.startswith("Layers")] == ["Layers", "Layers, continued"]
    assert text.count("│ fc1 ") == text.count("│ all ") == 2


def test_table_without_unicode_is_plain_ascii() -> None:
    text = printed(large(LONG), 60, "ascii")
    assert text.isascii()
    assert re.search(r"\| sequen\S*\.\.\.\S* +\|", text)


def test_shortened_keeps_head_and_tail() -> None:
    assert shortened(["short", "sequential/conv2d_1/BiasAdd"], 15) == ["short", "sequent…BiasAdd"]


@pytest.mark.parametrize("width", [16, 20, 33])
def test_shortened_names_stay_apart(width: int) -> None:
    near = ["block_1_depthwise_resource", "block_1_depthwise_1_resource", "block_1_depthwise_12_resource"]
    names = [*LONG, *near, *LONG[:1]]
    short = shortened(names, width)
    assert all(len(text) <= width for text in short)
    assert len(set(short)) == len(set(names))
    assert all(text[:3] == name[:3] and text[-3:] == name[-3:] for text, name in zip(short, names, strict=True))


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_of_boards_and_needs_lose_no_number(width: int) -> None:
    boards = printed(render_boards(list_boards()), width)
    assert all(f" {board.resources.lc:,} " in boards for board in list_boards())
    needs = printed(render_needs([LayerNeed(name, 12345, 0, 678, 90, 12, 34) for name in LONG]), width)
    assert needs.count(" 12,345 ") == needs.count(" 136 ") == len(LONG)
