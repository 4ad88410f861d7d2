"""Marks are true: a test without any that starts a costly tool fails, and the table names what there is."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.marking import TESTS, WATCH, MarkMissingError, needed, pytest_ignore_collect
from tests.marks import FAST, LONG, MARKS, MEANINGS, marks_of


@pytest.mark.parametrize(
    ("command", "mark"),
    [
        (["/opt/bin/verilator_bin", "--cc"], "rtl"),
        (["/usr/bin/g++", "-c", "a.cpp"], "rtl"),
        (["cache/ab/abcd/product.so"], "rtl"),
        (["yosys", "-s", "x.ys"], "synth"),
        ([sys.executable, "-P", "-c", "from pyosys import libyosys", "x.ys"], "synth"),
        ([sys.executable, "-P", "-c", "import sys, a\nsys.exit(a.run_nextpnr_ecp5(sys.argv))"], "pnr"),
    ],
)
def test_a_command_needs_a_mark(command: list[str], mark: str) -> None:
    found = needed(command)
    assert found is not None
    assert found[0] == mark


@pytest.mark.parametrize("command", [["g++", "--version"], ["git", "status"], [sys.executable, "-c", "print()"]])
def test_other_commands_need_none(command: list[str]) -> None:
    assert needed(command) is None


def test_a_test_without_the_mark_is_refused_what_it_starts_and_what_it_loads(tmp_path: Path) -> None:
    with pytest.raises(MarkMissingError, match="'g\\+\\+', but is not marked 'rtl'"):
        subprocess.run(["g++", "-c", "a.cpp"], cwd=tmp_path, check=False)
    with pytest.raises(MarkMissingError, match=r"'product.so', but is not marked 'rtl'"):
        ctypes.CDLL(str(tmp_path / "product.so"))
    assert WATCH.refused is not None
    WATCH.refused = None  # else this test fails for it


def test_table_names_what_there_is() -> None:
    places = [*MARKS, *LONG]
    gone = [place for place in places if not (TESTS / place.partition("::")[0]).exists()]
    named = [place.split("::") for place in places if "::" in place]
    gone += [test for file, test in named if f"def {test}(" not in (TESTS / file).read_text(encoding="utf-8")]
    assert gone == []
    assert {mark for marks in MARKS.values() for mark in marks} <= MEANINGS.keys()


def test_marks_of_a_folder_a_file_and_a_test_add_up() -> None:
    assert marks_of("hdl/shared/test_ecp5.py::test_x") == {"rtl", "slow"}
    assert marks_of("mapping/test_mapper.py::test_x") == set()
    assert marks_of("hdlx/test_y.py::test_x") == set()
    assert marks_of("sim/test_rescaled.py::test_x") == {"rtl", "long"}


def test_fast_is_the_expression_of_make_and_leaves_out_every_mark() -> None:
    assert f"-m '{FAST}'" in (TESTS.parent / "Makefile").read_text(encoding="utf-8")
    assert FAST == " and ".join(f"not {mark}" for mark in MEANINGS)


def test_long_tests_are_left_out_unless_make_asks_for_them() -> None:
    folder = TESTS.parent
    assert (
        "-m 'not long'"
        in tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"][
            "addopts"
        ]
    )
    assert "-m long\n" in (folder / "Makefile").read_text(encoding="utf-8")


def test_files_with_marks_are_left_out_of_a_fast_run_alone(pytestconfig: pytest.Config) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for expression, expected in ((FAST, [True, True, None, None]), ("not pnr", [None] * 4), ("", [None] * 4)):
            patch.setattr(pytestconfig.option, "markexpr", expression)
            places = "hdl", "flow/test_chain.py", "flow/test_cache.py", "frontend/test_brevitas.py"
            assert [pytest_ignore_collect(TESTS / place, pytestconfig) for place in places] == expected
