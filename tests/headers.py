"""Verilator's headers, read once for all designs that tests compile: they take longer than a small design.

Builds do not do this: a header that is read takes 70 MB, and pays only after a few designs.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from functools import cache
from pathlib import Path

import pytest

from nnhw.errors import ToolError
from nnhw.flow.cache import Cache, cache_key
from nnhw.flow.compiled import Compiler
from nnhw.flow.processes import Command, run
from tests.marks import MEANINGS

HEADER = "verilated.h"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tell the compiler of the header, in front of the first test that may compile; compilers but g++ do without."""
    if any(item.get_closest_marker(mark) for mark in MEANINGS):
        os.environ["CXXFLAGS"] = flags(item.config.rootpath / ".pytest_cache" / "nnhw" / "headers")


@cache
def flags(folder: Path) -> str:
    """Return the options of the C++ compiler, the header among them; without it where that is not possible."""
    try:
        compiler = Compiler.find()
    except ToolError:
        return os.environ["CXXFLAGS"]
    if Path(compiler.cxx[0]).name != "g++":
        return os.environ["CXXFLAGS"]
    return f"{os.environ['CXXFLAGS']} -include {shlex.quote(str(header_read(folder, compiler)))}"


def header_read(folder: Path, compiler: Compiler) -> Path:
    """Return the path of a header that includes Verilator's, beside which its form for the compiler lies.

    Parameters
    ----------
    folder: where it is kept; several processes may make it at a time.
    """
    kept = Cache(folder)
    key = cache_key(compiler=compiler.identity, command=repr(compiler.command("")))
    entry = kept.find(key)
    if entry is None:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            source = compiler.verilator_root / "include" / HEADER
            (Path(scratch) / HEADER).write_text(f'#include "{source}"\n', encoding="utf-8")
            argv = (*compiler.command("-O2"), "-x", "c++-header", HEADER, "-o", f"{HEADER}.gch")
            run(Command("C++ compiler", argv, Path(scratch), "header.log"))
            entry = kept.keep(key, Path(scratch), [HEADER, f"{HEADER}.gch"])
    return entry / HEADER
