"""The pages of `docs/`: links lead somewhere, names of files and options exist, and the tutorial's programs run."""

from __future__ import annotations

import gc
import importlib
import json
import re
import shlex
import warnings
from pathlib import Path

import pytest
from amaranth.hdl import UnusedElaboratable
from typer.testing import CliRunner

from nnhw.boards import load_board
from nnhw.cli import app
from tests.programs import run_command, run_program

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "examples").glob("*.md"))]
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Return the names of the sections of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_of_all_pages_lead_to_files_and_sections() -> None:
    broken = []
    for page in PAGES:
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            if "://" in link or link.startswith("mailto:"):
                continue
            name, _, section = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists() or (section and target.suffix == ".md" and section not in anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_figures_of_the_readme_are_those_of_the_results() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    results = ROOT / "benchmarks" / "results"
    built = json.loads((results / "mnist_mlp-icebreaker.json").read_text(encoding="utf-8"))
    links = json.loads((results / "links-icebreaker.json").read_text(encoding="utf-8"))["links"]
    fast, slow = (
        next(link for link in links if link["rate"] == rate)["networks"]["mnist_mlp"]["simulated"]
        for rate in (12_000_000, 3_000_000)
    )
    cycles, clock = built["cycles"]["interval"]["simulated"], built["clock_hz"]
    assert f"an image every {cycles} cycles on a UP5K: {clock / cycles:,.0f} a second at the engine, " in text
    assert f"at {clock / 1e6:g} MHz of the {built['fmax_hz'] / 1e6:.1f} that place and route holds" in text
    assert f"12 Mbaud {fast:,} in simulation at 48 MHz, at 3 Mbaud {slow:,}" in text


def test_table_of_contents_has_every_page() -> None:
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in _LINK.findall((DOCS / "README.md").read_text())}
    assert {page for page in DOCS.rglob("*.md") if page != DOCS / "README.md"} <= listed


@pytest.mark.parametrize("page", ["architecture.md", "contributing.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    named = re.findall(
        r"`((?:nnhw|tests|sim|boards|docs|flow|mapping|frontend|engines|hdl|ir|passes)/[\w./]+\.\w+)`", text
    )
    assert len(named) > 5
    missing = [name for name in named if not (ROOT / name).exists() and not (ROOT / "nnhw" / name).exists()]
    assert missing == []


def test_options_that_pages_name_exist() -> None:
    runner = CliRunner()
    commands = (
        "build",
        "check",
        "fit",
        "ir",
        "run",
        "search",
        "sim",
        "report",
        "export c",
        "export core",
        "export onnx",
        "",
    )
    shown = "".join(
        runner.invoke(app, [*name.split(), "--help"], env={"COLUMNS": "300", "TERM": "dumb"}).output
        for name in commands
    )
    for page in (DOCS / "README.md", DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))):
        for option in re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", page.read_text(encoding="utf-8")):
            assert option in shown, (page.name, option)


def test_board_file_of_the_page_is_one(tmp_path: Path) -> None:
    text = (DOCS / "how-to" / "own-board.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    path = tmp_path / "my_board.toml"
    path.write_text(block, encoding="utf-8")
    assert load_board(str(path)).resources.spram == 4


def test_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    model, program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    Path("first.py").write_text(model, encoding="utf-8")
    lines = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    shown = {}
    for line in lines:
        words = shlex.split(line)
        if words[:2] == ["nnhw", "build"] and "--stop-at" not in words:
            words += ["--stop-at", "elaborate"]  # place and route of other networks is in other tests
        shown[" ".join(words)] = (run_program if words[0] == "python" else run_command)(*words[1:])
    assert "no problems" in shown["nnhw check --calibrate calibration.npy first.py"]
    assert Path("results.npy").exists()
    core = (DOCS / "how-to" / "own-design.md").read_text(encoding="utf-8")
    with warnings.catch_warnings():
        # The page makes cores that nobody puts into a design here.
        warnings.simplefilter("ignore", UnusedElaboratable)
        for block in (program, *re.findall(r"```python\n(.*?)```", core, re.DOTALL)):
            exec(block, {"__name__": "__main__"})
        gc.collect()
    verilog = (tmp_path / "build" / "first-icebreaker" / "accelerator.v").read_text(encoding="utf-8")
    (ports,) = re.findall(r"^module top\((.*?)\);", verilog, re.MULTILINE)
    rows = [line for line in core.splitlines() if line.startswith("| `")]
    assert set(ports.split(", ")) == {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_pins_and_speeds_of_boards_are_those_of_their_files() -> None:
    text = (DOCS / "how-to" / "connect.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    named = {match[1]: (row[4], row[5]) for row in rows if (match := re.match(r"`(\w+)`", row[0])) and len(row) == 6}
    assert len(named) == 5
    for name, (pins, baud) in named.items():
        board = load_board(name)
        module, _, kind = board.platform.partition(":")
        platform = getattr(importlib.import_module(module), kind)
        (uart,) = [one for one in platform.resources if one.name == board.uart.resource and one.number == 0]
        found = {io.name: io.ios[0].names[0] for io in uart.ios if io.name in ("rx", "tx")}
        assert pins == f"{found['rx']}, {found['tx']}", name
        assert baud == f"{board.uart.baud:,}", name
