"""Tables at any width: every number whole, names shortened so that they stay apart."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from nnhw.boards import list_boards, load_board
from nnhw.errors import DoesNotFitError, LayerNeed, MappingError
from nnhw.fitting import Fits, FitTrial, Variant
from nnhw.fitting.tables import render_fits, render_needs, trial_table
from nnhw.fitting.trials import failed
from nnhw.flow.commands.doctor import Check
from nnhw.flow.commands.terminal import render_boards, render_doctor
from nnhw.flow.tools.tables import NumberTable, shortened
from nnhw.searching.goals import FIGURES, Goals
from nnhw.searching.rendering import render_search
from nnhw.searching.trial_records import COMPLETE, Search, Tried

WIDTHS = (200, 80, 60, 40)
LONG = [f"sequential/conv2d_{number}/BiasAdd;sequential/conv2d_{number}/Conv2D/" + "x" * 60 for number in range(12)]


def printed(table: RenderableType, width: int, encoding: str = "utf-8") -> str:
    """Return what a terminal of this width shows, with a blank behind each line; each line fits it."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(width=width, file=out).print(table)
    out.seek(0)
    lines = out.read().splitlines()
    assert max(map(len, lines)) <= width
    return "".join(f"{line} \n" for line in lines)


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
    shown = re.findall(r"^(?:│ )?(seq\S*) ", first, re.M)
    assert len(shown) == len(set(shown)) == len(LONG)


def test_table_that_fits_is_not_changed() -> None:
    text = printed(large(["fc1", "a[0][/b]"]), 120)
    assert "│ fc1      │   0 x 128 │ 1,000,000,000 │   100,000,000 │ multiply-add-shift │" in text
    assert "│ a[0][/b] │" in text
    assert "┃ layer    ┃ PE x SIMD ┃" in text
    assert "…" not in text


def test_table_continues_in_a_second_one_with_the_same_first_column() -> None:
    text = printed(large(["fc1", "fc2"]), 40)
    assert [line.strip() for line in text.splitlines() if line.startswith("Layers")] == ["Layers", "Layers, continued"]
    assert len(re.findall(r"^fc1 ", text, re.M)) == len(re.findall(r"^all ", text, re.M)) == 2


def test_table_without_unicode_is_plain_ascii() -> None:
    text = printed(large(LONG), 60, "ascii")
    assert text.isascii()
    assert re.search(r"^sequen\S*\.\.\.\S* +\|", text, re.M)


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


def fit_trial(board: str, missing: str = "", supported: bool = True) -> FitTrial:
    error = DoesNotFitError(missing) if supported else MappingError(missing)
    trial = failed(error, Variant(8, 8, own=True), load_board(board), (), 48e6)
    return trial if missing else replace(trial, style="streaming", cycles=234_567.0, link=12_345.0)


def test_table_of_fits_is_one_table_at_80_columns() -> None:
    names = ("icestick", "icebreaker_bitsy", "ice40_hx8k_b_evn", "colorlight_5a75b_r7_0")
    text = printed(trial_table("net: mapped, not built", [fit_trial(name) for name in names]), 80)
    assert "continued" not in text
    assert text.count(" 234,567 ") == len(names)
    assert all(f"{name} " in text for name in names[:-1])
    assert re.search(r"^color\S*…\S*_r7_0 ", text, re.MULTILINE)


def test_fits_say_each_reason_once_and_of_small_boards_that_of_the_largest() -> None:
    trials = [fit_trial(name, f"{name} lacks a lot") for name in ("icestick", "icebreaker", "ice40_hx8k_b_evn")]
    trials += [fit_trial(name, "no engine", supported=False) for name in ("ulx3s_25f", "ulx3s_85f")]
    text = " ".join(printed(render_fits(Fits("net", tuple(trials))), 80).split())
    assert "ulx3s_25f, ulx3s_85f: no engine ice40_hx8k_b_evn: ice40_hx8k_b_evn lacks a lot" in text
    assert "icestick, icebreaker: smaller boards, also too small; `nnhw fit --board NAME` shows what" in text
    assert text.count("lacks a lot") == text.count("no engine") == 1


def test_table_of_a_search_at_80_columns_has_every_figure(tmp_path: Path) -> None:
    figures = dict.fromkeys(FIGURES, 123456.0) | {"accuracy": 0.9876}
    params = {"width": 128, "weight_bits": 4, "kind": "convolution_of_many_channels"}
    search = Search(
        "toy", "study", tmp_path, Goals(("accuracy", "rate"), {}, {}), (Tried(7, COMPLETE, params, figures),)
    )
    text = printed(render_search(search), 80)
    assert text.count(" 123,456 ") >= 5
    assert all(f"{name}=" in text for name in params)
    assert "weight_bits=4" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_table_of_the_doctor_says_every_version(width: int) -> None:
    checks = [Check(f"tool-{number}", f"0.11.1.0.post{number} (yowasp)", "work", "", "", True) for number in range(9)]
    text = printed(render_doctor(checks), width)
    assert all(f"0.11.1.0.post{number}" in text for number in range(9))
