"""Faults planted one at a time in nnhw's own source, and the test that fails for each of them.

A fault is an exact text of a file of nnhw and what takes its place; `mutants.toml` has all of them, each with the tests
that ought to fail. What no test notices is counted as `survived`. The environment variable `NNHW_TESTS` names another
folder of tests, such as that of an older version, whose files are run in place of those here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nnhw.errors import NnhwError
from nnhw.flow.tools.progress import Progress, make_progress
from nnhw.reading import parse_toml

ROOT = Path(__file__).parents[1]
FAULTS = Path(__file__).with_suffix(".toml")
VARIABLE = "NNHW_TESTS"
"""Environment variable that names another folder of tests."""
PASSED, FAILED = 0, 1
"""Exit codes of pytest; with any other one it has not run the tests."""
LIMIT_S = 1800
_SHOWN_CHARACTERS = 2000

Row = Mapping[str, Any]


class MutantError(NnhwError):
    """The benchmark itself is wrong: a fault that cannot be planted, or tests that do not run."""


@dataclass(frozen=True)
class Fault:
    """A mistake in a source.

    Parameters
    ----------
    name: in a few words, what is wrong then.
    area: of the project.
    file: below nnhw.
    old, new: text that is there once, and what takes its place.
    tests: files, or file::test, that ought to fail.
    """

    name: str
    area: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def read_faults(path: Path = FAULTS) -> tuple[Fault, ...]:
    """Return all faults of a table."""
    rows = parse_toml(path.read_text(encoding="utf-8"))["fault"]
    return tuple(Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows)


def run(board: None) -> dict[str, Any]:
    """Plant each fault in a copy of the tree, and run its tests there.

    Returns
    -------
    `faults`: name, area, file of each, and `by`, the first test that fails; None: it survives. `survived`: how many do.

    Raises
    ------
    MutantError: tests fail without a fault, or do not run, or a fault cannot be planted.
    """
    named = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder), Path(named) if named else None)
        killers = plant_each(read_faults(), tree, make_progress(Console(stderr=True)), whole_files=bool(named))
    rows = [{"name": fault.name, "area": fault.area, "file": fault.file, "by": by} for fault, by in killers.items()]
    return {"faults": rows, "survived": sum(row["by"] is None for row in rows)}


def copy_tree(into: Path, tests: Path | None = None) -> Path:
    """Copy what belongs to the project into a folder; return the folder.

    Parameters
    ----------
    tests: folder that takes the place of the project's own one.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not (tests and name.startswith("tests/")):
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, into / name)
    if tests:
        shutil.copytree(tests, into / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    return into


def plant_each(
    faults: Sequence[Fault], tree: Path, progress: Progress, whole_files: bool = False
) -> dict[Fault, str | None]:
    """Return the first test that fails for each fault, None for a fault that survives.

    Parameters
    ----------
    tree: a copy, whose files are as before at the end.
    whole_files: run all of the files that the tests are in, as far as the tree has them.

    Raises
    ------
    MutantError: see `run`.
    """
    tests = {fault: _tests_in(tree, fault, whole_files) for fault in faults}
    distinct = sorted({test for some in tests.values() for test in some})
    with progress.stage(f"{len(distinct)} tests and files of tests, nothing planted"):
        broken = first_failing(tree, distinct)
    if broken:
        raise MutantError(f"test '{broken}' fails without a fault, so it tells nothing; repair it, or leave it out")
    found: dict[Fault, str | None] = {}
    with progress.stage(f"{len(faults)} faults"):
        for done, fault in enumerate(faults, 1):
            with planted(tree, fault):
                found[fault] = first_failing(tree, tests[fault])
            progress.note(f"{fault.name}: {found[fault] or 'SURVIVES'}")
            progress.advance(done, len(faults))
    return found


def _tests_in(tree: Path, fault: Fault, whole_files: bool) -> tuple[str, ...]:
    if not whole_files:
        return fault.tests
    files = dict.fromkeys(test.partition("::")[0] for test in fault.tests)
    return tuple(file for file in files if (tree / file).is_file())


@contextmanager
def planted(tree: Path, fault: Fault) -> Iterator[None]:
    """Plant a fault in a tree, as long as this is entered.

    Raises
    ------
    MutantError: its text is not there exactly once.
    """
    path = tree / "nnhw" / fault.file
    source = path.read_text(encoding="utf-8")
    if (count := source.count(fault.old)) != 1 or fault.old == fault.new:
        raise MutantError(
            f"fault '{fault.name}': its text must be once in nnhw/{fault.file}, and another one take its place, but it "
            f"is there {count} times; write in {FAULTS.name} what the source says now"
        )
    path.write_text(source.replace(fault.old, fault.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(source, encoding="utf-8")


def first_failing(tree: Path, tests: Sequence[str]) -> str | None:
    """Run tests in a tree; return the first one that fails, or None.

    Raises
    ------
    MutantError: they cannot be collected, or do not come to an end.
    """
    if not tests:
        return None
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
    # Files change within a second, which the time stamps of byte code do not tell.
    own = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    try:
        ended = subprocess.run(command, cwd=tree, env=kept | own, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise MutantError(f"tests {' '.join(tests)} did not end within {LIMIT_S} s; choose others") from None
    if ended.returncode == PASSED:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", ended.stdout, re.MULTILINE)
    if ended.returncode != FAILED or failed is None:
        said = (ended.stdout + ended.stderr)[-_SHOWN_CHARACTERS:]
        raise MutantError(
            f"pytest ended with code {ended.returncode} on {' '.join(tests)}, which is no verdict: {said}"
        )
    return failed[1]


def show(row: Row) -> None:
    """Print the table."""
    table = Table("area", "planted", "in", "fails", title="Faults in the source")
    for fault in row["faults"]:
        table.add_row(fault["area"], fault["name"], fault["file"], fault["by"] or "SURVIVES")
    Console().print(table)
    print(f"{len(row['faults'])} planted, {row['survived']} survived")
