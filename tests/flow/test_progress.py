"""Progress is lines in a log, a live display on a terminal, and silence in Python."""

from __future__ import annotations

import io
import logging
import re

import pytest
from rich.console import Console

from nnhw.flow.tools.progress import (
    NamedProgress,
    PlainProgress,
    Progress,
    RichProgress,
    SilentProgress,
    make_progress,
    noted,
)


def work(progress: Progress) -> None:
    with progress.stage("outer"):
        progress.note("a note")
        with progress.stage("inner"):
            for done in range(3):
                progress.advance(done, 3)


def test_progress_plain_prints_lines_without_cursor_movements() -> None:
    stream = io.StringIO()
    work(PlainProgress(stream))
    text = re.sub(r"\d+\.\d s", "T", stream.getvalue())
    assert text.splitlines() == [
        *("outer ...", "a note", "inner ... T", "outer: T"),
    ]


def test_progress_named_says_the_outer_stage_after_an_inner_one_and_none_after_an_error() -> None:
    stream = io.StringIO()
    progress = NamedProgress(PlainProgress(stream))

    def fail() -> None:
        with progress.stage("outer"):
            with progress.stage("inner"):
                progress.note("a")
            progress.note("b")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    progress.note("c")
    text = re.sub(r"\d+\.\d s", "T", stream.getvalue())
    assert text.splitlines() == ["inner: a", "inner: T", "outer: b", "c"]


def test_progress_plain_has_one_line_for_a_stage_that_says_nothing() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    with progress.stage("load"):
        assert stream.getvalue() == "load ..."
    with progress.stage("outer"), progress.stage("inner"):
        pass
    progress.note("end")
    text = re.sub(r"\d+\.\d s", "T", stream.getvalue())
    assert text.splitlines() == ["load ... T", "outer ...", "inner ... T", "outer: T", "end"]


def test_progress_plain_says_nothing_of_a_time_for_what_failed() -> None:
    stream = io.StringIO()
    with pytest.raises(ValueError, match="x"), PlainProgress(stream).stage("outer"):
        raise ValueError("x")
    assert stream.getvalue() == "outer ...\n"


def test_progress_live_keeps_notes_and_finished_stages() -> None:
    stream = io.StringIO()
    work(RichProgress(Console(file=stream, force_terminal=True, width=80, color_system=None)))
    text = stream.getvalue()
    assert "a note" in text
    assert re.search(r"✓ inner +\d+\.\d s", text)
    assert re.search(r"✓ outer +\d+\.\d s", text)


def test_progress_live_says_how_long_it_may_still_take() -> None:
    stream = io.StringIO()
    progress = RichProgress(Console(file=stream, force_terminal=True, width=120, color_system=None))
    with progress.stage("outer", 12.0):
        assert progress._bars is not None
        progress._bars.refresh()
        assert "12 s last time" in stream.getvalue()
        progress.advance(1, 3)
        progress._bars.refresh()
        assert re.search(r"1 of 3, \d+ s left", stream.getvalue())


def test_progress_fits_the_stream() -> None:
    assert isinstance(make_progress(Console(file=io.StringIO(), force_terminal=True)), RichProgress)
    assert isinstance(make_progress(Console(file=io.StringIO(), force_terminal=False)), PlainProgress)


def test_progress_silent_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    work(SilentProgress())
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("period_s", "shown"), [(0.0, ["first", "second"]), (60.0, [])])
def test_progress_notes_what_a_part_logs_unless_it_is_quick(period_s: float, shown: list[str]) -> None:
    stream, logger = io.StringIO(), logging.getLogger("nnhw.part")
    with noted("nnhw.part", PlainProgress(stream), period_s):
        logger.info("%s", "first")
        logger.info("second")
    logger.info("behind it")
    assert stream.getvalue().splitlines() == shown
    assert not logger.handlers
