"""The README's commands and programs run as they stand there, but that one placement has to do instead of several."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

import nnhw
from nnhw.cli import app
from tests.programs import run_command, run_program

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# Commands that make an environment of their own; who runs them instead.
ELSEWHERE = {
    "make demo": "the commands that it consists of run here",
    "make test": "runs this",
    "make test-fast": "runs a part of what `make test` runs",
    "pip install --constraint constraints.txt .": "tests/test_wheel.py",
}

# Further placements run the same code; `tests/flow` has how many are tried, and which one is taken.
FASTER = {"build": ["--seeds", "1"]}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    lines = [line.partition("#")[0].strip() for block in blocks("console") for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a checkout, as far as the commands look at it."""
    place = tmp_path_factory.mktemp("readme")
    (place / "examples").symlink_to(ROOT / "examples")
    return place


def test_readme_commands_run_in_their_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = {}
    monkeypatch.chdir(folder)
    for command in commands():
        words = shlex.split(command)
        if words[0] == "nnhw":
            outputs[words[1]] = run_command(*words[1:], *FASTER.get(words[1], []))
        elif words[0] == "python":
            run_program(*words[1:])
        else:
            assert command in ELSEWHERE
    assert "everything that a build needs is here" in outputs["doctor"]
    assert outputs["build"].rstrip().endswith("in build/mnist_mlp-icebreaker")
    assert "frames equal" in outputs["sim"]
    assert "300 images in" in outputs["run"]
    assert re.search(r"through 'sim': accuracy 9\d\.\d\d%: \d+ of 300 right", outputs["run"])
    assert "mnist_mlp" in outputs["report"]
    assert "equality: 300 of 300" in run_program("examples/demo.py", "build/mnist_mlp-icebreaker")


def test_readme_python_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = blocks("python")
    assert len(programs) == 3
    monkeypatch.chdir(folder)
    monkeypatch.setattr(nnhw, "build", functools.partial(nnhw.build, seeds=1))
    for program in programs:
        exec(program, {"__name__": "__main__"})


def test_readme_links_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_readme_names_every_build_option_that_exists() -> None:
    shown = CliRunner().invoke(app, ["build", "--help"], env={"COLUMNS": "200"}).output
    named = re.findall(r"`(--[a-z-]+)", README)
    unknown = {option for option in named if option not in shown} - {"--link", "--stage"}
    assert unknown == set()


def test_make_prints_its_targets() -> None:
    done = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True)
    for target in ("demo", "test", "lint", "benchmarks", "clean"):
        assert re.search(rf"^{target} ", done.stdout, re.MULTILINE)
