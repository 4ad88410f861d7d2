"""What a program asks for is seen; what would not be seen is a reason to run it again."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import nnhw.frontend.reads  # noqa: F401  # as before each program of a user
from nnhw.flow.models import watching
from nnhw.flow.models.watching import Watched, is_state, watched

PROGRAM = """
from pathlib import Path
import os, random

here = Path(__file__).parent
{line}
"""
HOUR_NS = 3600 * 10**9


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests are modules that were imported before, which is a reason of its own."""
    monkeypatch.setattr(watching, "_is_users", lambda name, module: False)


def age(folder: Path) -> None:
    """Let all files of a folder be an hour older."""
    for path in folder.rglob("*"):
        ns = path.stat().st_mtime_ns - HOUR_NS
        os.utime(path, ns=(ns, ns))


def seen_in(folder: Path, line: str) -> Watched:
    """Run a program with a line of its own in a folder; return what was seen."""
    program = folder / "program.py"
    program.write_text(PROGRAM.format(line=line), encoding="utf-8")
    age(folder)
    seen = Watched(str(folder))
    known = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        with watched(seen):
            runpy.run_path(str(program))
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - known:
            del sys.modules[name]
    return seen


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("(here / 'data').read_bytes()", lambda folder: (folder / "data").write_bytes(b"2")),
        ("open(here / 'data', 'rb').read()", lambda folder: (folder / "data").unlink()),
        ("os.path.exists(here / 'data')", lambda folder: (folder / "data").unlink()),
        ("(here / 'absent').exists()", lambda folder: (folder / "absent").write_bytes(b"")),
        ("os.access(here / 'absent', os.R_OK)", lambda folder: (folder / "absent").mkdir()),
        ("import helper", lambda folder: (folder / "helper.py").write_text("x = 2")),
        ("import package.inner", lambda folder: (folder / "package" / "inner.py").write_text("x = 2")),
        (
            "try:\n    import overrides_of_mine\nexcept ImportError:\n    pass",
            lambda folder: (folder / "overrides_of_mine.py").write_text("x = 1"),
        ),
        ("import poplib", lambda folder: (folder / "poplib.py").write_text("")),
        ("list(here.glob('*.pt'))", lambda folder: (folder / "new.pt").write_bytes(b"")),
        ("os.listdir(here)", lambda folder: (folder / "helper.py").rename(folder / "other.py")),
        ("pass", lambda folder: (folder / "program.py").write_text("x = 2")),
    ],
)
def test_watched_sees_what_a_program_depends_on(tmp_path: Path, line: str, change: Callable[[Path], object]) -> None:
    (tmp_path / "data").write_bytes(b"1")
    (tmp_path / "helper.py").write_text("x = 1")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "inner.py").write_text("x = 1")
    seen = seen_in(tmp_path, line)
    seen.paths.add(str(tmp_path / "program.py"))
    states = seen.states()
    assert not seen.reasons
    assert states
    assert all(is_state(path, state) for path, state in states.items())
    change(tmp_path)
    assert not all(is_state(path, state) for path, state in states.items())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("os.system('true')", "os.system"),
        ("import socket; socket.socket().close()", "socket.__new__"),
        ("(here / 'out').write_bytes(b'')", "it opens '"),
        ("os.remove(here / 'data')", "os.remove"),
        ("os.urandom(1)", "it draws random numbers without a seed"),
        ("random.SystemRandom().random()", "it draws random numbers without a seed"),
        ("random.Random()", "it draws random numbers without a seed"),
        ("import torch; torch.seed()", "it calls seed"),
        ("import time", "imports 'time'"),
        ("from datetime import date", "imports 'datetime'"),
        ("import os, uuid", "imports 'uuid'"),
        ("open('/dev/null').read()", "it opens '/dev/null'"),
        ("import sqlite3; sqlite3.connect(':memory:')", "sqlite3.connect"),
    ],
)
def test_watched_has_a_reason_to_run_again_what_no_file_decides(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "data").write_bytes(b"1")
    seen = seen_in(tmp_path, line)
    assert any(reason in one for one in seen.reasons)
    assert seen.states() is None


def test_watched_sees_files_that_torch_opens_in_cpp(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2)}, tmp_path / "net.pt2")
    seen = seen_in(tmp_path, "import torch; torch._C.PyTorchFileReader(str(here / 'net.pt2'))")
    assert str(tmp_path / "net.pt2") in seen.paths
    (tmp_path / "numbers").write_bytes(bytes(8))
    seen = seen_in(tmp_path, "import torch; torch.from_file(str(here / 'numbers'), size=2)")
    assert seen.reasons == {"it calls from_file"}


def test_watched_trusts_no_file_that_may_have_changed_meanwhile(tmp_path: Path) -> None:
    seen = seen_in(tmp_path, "pass")
    seen.paths.add(str(tmp_path / "program.py"))
    assert seen.states() is not None
    os.utime(tmp_path / "program.py")
    assert seen.states() is None


def test_watched_trusts_no_module_that_was_imported_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert f"'{__name__}' was imported before" in Watched(str(tmp_path)).reasons


def test_watched_gives_functions_back(tmp_path: Path) -> None:
    before = os.stat, os.lstat, os.access, os.readlink, os.urandom
    with pytest.raises(ZeroDivisionError):
        seen_in(tmp_path, "1 / 0")
    assert (os.stat, os.lstat, os.access, os.readlink, os.urandom) == before
    assert watching._current is None
