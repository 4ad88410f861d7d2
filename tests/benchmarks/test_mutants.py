"""Planted faults: what the table says is there, and a tree of two files shows a kill, a survivor and no verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.mutants import ROOT, Fault, MutantError, plant_each, read_faults
from nnhw.flow.tools.progress import SilentProgress

FAULTS = read_faults()
FAULT = Fault("a sum is a difference", "sums", "sums.py", "a + b", "a - b", ("test_sums.py",))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package of one function, and its test."""
    (tmp_path / "nnhw").mkdir()
    (tmp_path / "nnhw" / "__init__.py").touch()
    (tmp_path / "nnhw" / "sums.py").write_text("def add(a, b):\n    return a + b  # a sum\n", encoding="utf-8")
    test = "from nnhw.sums import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
    (tmp_path / "test_sums.py").write_text(test, encoding="utf-8")
    return tmp_path


def test_every_fault_can_be_planted_and_has_tests() -> None:
    assert len(FAULTS) >= 40
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        assert (ROOT / "nnhw" / fault.file).read_text(encoding="utf-8").count(fault.old) == 1, fault.name
        for file, _, test in (each.partition("::") for each in fault.tests):
            assert f"def {test.partition('[')[0]}" in (ROOT / file).read_text(encoding="utf-8"), fault.name


def test_a_fault_is_killed_and_a_harmless_change_survives(tree: Path) -> None:
    harmless = replace(FAULT, name="a comment", old="# a sum", new="# sum")
    before = (tree / "nnhw" / "sums.py").read_text(encoding="utf-8")
    found = plant_each([FAULT, harmless], tree, SilentProgress())
    assert found == {FAULT: "test_sums.py::test_add", harmless: None}
    assert (tree / "nnhw" / "sums.py").read_text(encoding="utf-8") == before


def test_what_tells_nothing_is_no_kill(tree: Path) -> None:
    with pytest.raises(MutantError, match="it is there 0 times"):
        plant_each([replace(FAULT, old="a * b")], tree, SilentProgress())
    with pytest.raises(MutantError, match="which is no verdict"):
        plant_each([replace(FAULT, new="a +")], tree, SilentProgress())
    (tree / "test_sums.py").write_text("def test_add():\n    assert False\n", encoding="utf-8")
    with pytest.raises(MutantError, match="fails without a fault"):
        plant_each([FAULT], tree, SilentProgress())
