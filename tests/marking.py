"""Marks say what a test costs: a table gives them, and a test without any that starts such a tool fails.

So `make test-fast`, which leaves out every test with one of the marks, stays fast. What a test does is seen by Python's
audit events: programs that it starts, libraries that it loads. A library out of a cache counts, too. Not seen is what
other processes start in turn.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.marks import FAST, MARKS, MEANINGS, is_kept, marks_of

TESTS = Path(__file__).parent

# Mark --> programs that call for it, by the beginnings of their names. `product` is compiled hardware.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "rtl": ("verilator", "g++", "clang++", "c++", "product", "iverilog", "vvp"),
    "synth": ("yosys", "libyosys"),
    "pnr": ("nextpnr", "run_nextpnr", "run_icepack", "run_ecppack"),
}


class MarkMissingError(Exception):
    """A test without marks starts what needs one.

    Parameters
    ----------
    mark: the one.
    what: it did.
    """

    def __init__(self, mark: str, what: str) -> None:
        super().__init__(
            f"this test uses '{what}', but is not marked '{mark}', so `make test-fast` runs it; add its file to the "
            f"table in tests/marks.py, or write '@pytest.mark.{mark}' above it"
        )


def needed(arguments: Iterable[str]) -> tuple[str, str] | None:
    """Return the mark that a command needs, and the program that needs it; None where any test may run it."""
    program, *options = list(arguments)
    if len(options) == 1 and options[0].lower() in ("-v", "--version"):
        return None
    # YoWASP's tools and pyosys are Python: their code is an argument, and says what it calls.
    code = " ".join(options[options.index("-c") + 1 : options.index("-c") + 2]) if "-c" in options else ""
    words = [Path(program).name, *re.findall(r"\w+", code)]
    return next(
        ((mark, word) for word in words for mark, programs in PROGRAMS.items() if word.startswith(programs)), None
    )


class Watch:
    """Looks at what the running test starts, and stops what needs a mark in a test without any."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        self.refused: MarkMissingError | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            given = arguments[1]
            self.check([given] if isinstance(given, str | bytes | os.PathLike) else given)
        elif event == "ctypes.dlopen" and arguments[0]:
            self.check([arguments[0]])

    def check(self, arguments: Iterable[Any]) -> None:
        """Refuse a command that needs a mark, in a test without any."""
        if self.item is None or (found := needed(map(os.fsdecode, arguments))) is None:
            return
        if not any(self.item.get_closest_marker(mark) for mark in MEANINGS):
            self.refused = MarkMissingError(*found)
            raise self.refused


WATCH = Watch()
sys.addaudithook(WATCH)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks."""
    for mark, meaning in MEANINGS.items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out folders and files with marks where `make test-fast` would leave out each of their tests."""
    if config.option.markexpr == FAST and collection_path.is_relative_to(TESTS):
        return collection_path.relative_to(TESTS).as_posix() in MARKS or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test the marks of the table, before pytest selects by them.

    Raises
    ------
    UsageError: no row of a test is kept for `make test`, as its rows have other names than the table says.
    """
    without, kept = set[str](), set[str]()
    for item in items:
        test, _, row = f"{item.path.relative_to(TESTS).as_posix()}::{item.name}".partition("[")
        keeps = is_kept(test, row.removesuffix("]"))
        (kept if keeps else without).add(test)
        marks = marks_of(test) | (set() if keeps else {"long"})
        for mark in sorted(marks):
            item.add_marker(mark)
    # Where single rows are asked for, others are not collected.
    if without - kept and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"ROWS in tests/marks.py keeps no row of {', '.join(sorted(without - kept))}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Watch a test with its fixtures."""
    WATCH.item, WATCH.refused = item, None
    try:
        return (yield)
    finally:
        WATCH.item = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Any:
    """Fail a test that caught the refusal, too, once its fixtures are gone."""
    result = yield
    refused, WATCH.refused = WATCH.refused, None
    if refused is not None:
        raise refused
    return result
