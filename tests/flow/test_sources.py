"""What is kept in a cache or a build folder belongs to the code that made it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nnhw.flow.tools.sources import PACKAGE, code_hash, package_files, sources_hash, sources_of

ROOT = PACKAGE.parent
KEYED = ("nnhw.flow.implementation.synthesis", "nnhw.flow.implementation.place", "nnhw.flow.virtual.compiled")
"""Modules whose results are kept in the cache."""
REWRITING = ("rewriting", "carries", "chain_groups", "output_registers", "floorplan", "cells", "unneeded")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package in a checkout of its own, which a test may change."""
    hidden = shutil.ignore_patterns("__pycache__", "_sim", "_boards")
    for name in ("nnhw", "sim", "boards"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=hidden)
    return tmp_path / "nnhw"


def write(folder: Path, **files: str) -> Path:
    """Write modules of a package `nnhw`, by dotted name; return its folder."""
    for name, text in files.items():
        path = folder.joinpath("nnhw", *name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for parent in path.relative_to(folder).parents[:-1]:
            (folder / parent / "__init__.py").touch()
    return folder / "nnhw"


@pytest.mark.parametrize("module", KEYED)
def test_sources_hold_all_that_a_module_loads(module: str) -> None:
    script = f"import sys, {module}; print(*(name for name in sys.modules if name.split('.')[0] == 'nnhw'))"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(loaded.stdout.split()) <= sources_of(module).keys()


def test_sources_of_synthesis_hold_all_that_changes_a_netlist() -> None:
    taking_part = sources_of("nnhw.flow.implementation.synthesis").keys()
    assert {f"nnhw.flow.implementation.{name}" for name in REWRITING} < taking_part
    assert {"nnhw.hdl.names", "nnhw.flow.tools.toolchain", "nnhw.flow.tools.cache"} < taking_part


@pytest.mark.parametrize(
    ("module", "parts"), [(KEYED[0], ("carries", "floorplan")), (KEYED[1], ("place",)), (KEYED[2], ())]
)
def test_sources_hash_changes_with_each_module_that_takes_part(copy: Path, module: str, parts: tuple[str, ...]) -> None:
    def hash_now() -> str:
        sources_hash.cache_clear()
        return sources_hash(module, copy)

    seen, found = {hash_now()}, sources_of(module, copy)
    paths = [found[f"nnhw.flow.implementation.{name}"] for name in parts] or list(found.values())
    for path in paths:
        path.write_bytes(path.read_bytes() + b"\n# changed\n")
        seen.add(hash_now())
    assert len(seen) == 1 + len(paths)
    (copy / "passes" / "collapse_chains.py").write_text("", encoding="utf-8")
    assert hash_now() in seen


def test_sources_follow_every_way_to_import(tmp_path: Path) -> None:
    package = write(
        tmp_path,
        start="import nnhw.plain\nfrom nnhw import named\nfrom nnhw.part.inner import thing\nfrom .near import x\n"
        "def f():\n    from nnhw import late\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import nnhw.typed\nelse:\n    import nnhw.untyped\n",
        plain="import nnhw.further",
        part__inner="from ..up import y\nfrom . import beside",
        **dict.fromkeys(("named", "near", "late", "typed", "untyped", "further", "up", "part__beside", "other"), ""),
    )
    (package / "__init__.py").write_text("def f():\n    import nnhw.other\n", encoding="utf-8")
    modules = ("start", "plain", "further", "named", "part", "part.inner", "part.beside", "up", "near", "late")
    assert sources_of("nnhw.start", package).keys() == {"nnhw", "nnhw.untyped", *(f"nnhw.{name}" for name in modules)}


FILES = (
    *("flow/verification/netlist.v", "flow/virtual/compiled.cpp", "flow/verification/models_ecp5.v", "ir/types.py"),
    *("../sim/stalls.py", "../boards/icebreaker.toml"),
)


@pytest.mark.parametrize("name", FILES)
def test_code_hash_changes_with_every_kind_of_file(copy: Path, name: str) -> None:
    before = code_hash(copy)
    path = copy / name
    path.write_bytes(path.read_bytes() + b"\n")
    code_hash.cache_clear()
    assert code_hash(copy) != before


def test_code_hash_is_that_of_a_checkout_when_installed(copy: Path) -> None:
    before, names = code_hash(copy), package_files(copy).keys()
    for inside, beside in (("_sim", "sim"), ("_boards", "boards")):
        (copy.parent / beside).rename(copy / inside)
    code_hash.cache_clear()
    assert package_files(copy).keys() == names
    assert {"_sim/run.py", "_boards/icebreaker.toml", "flow/virtual/compiled.cpp"} < names
    assert code_hash(copy) == before


def test_code_hash_heeds_nothing_that_python_or_an_editor_leaves(copy: Path) -> None:
    before = code_hash(copy)
    for name in ("flow/__pycache__/place.cpython-311.pyc", "flow/.place.py.swp", ".git/HEAD"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("", encoding="utf-8")
    code_hash.cache_clear()
    assert code_hash(copy) == before
