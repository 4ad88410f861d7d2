"""What a model's program asks the system for while it runs: another run that would be told the same is left out."""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import platform
import random
import re
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import nnhw

MOST_BYTES = 1 << 30
"""Bytes of files beyond which a program is run again: to hash them takes as long."""
_RACE_NS = 2 * 10**9
"""Before a run by less than this, a file may have changed twice within one tick of its file system's clock."""
_ENDS = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "pty.", "socket.", "urllib.")
_FORBIDDEN = (*_ENDS, "ctypes.dlopen", "sqlite3.", "tempfile.", "shutil.", "os.remove", "os.rename", "os.mkdir")
"""Beginnings of the names of events (PEP 578) behind which a program may learn, or change, what no file tells."""
_CHANGING = re.compile(rb"^[ \t]*(?:import\b.*|from[ \t]+)\b(time|datetime|secrets|uuid)\b", re.MULTILINE)
"""An import of a module whose functions answer differently each time."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_READ_MODES = frozenset({"r", "rb", "rt", "U", None})
_OWN = re.compile(r"/(?:__pycache__|torchinductor_[^/]*)(?:/|$)")
"""Folders in which Python and PyTorch keep what they have made of the same files."""
_LISTED = f"{os.sep}*"
"""End of the path of a folder whose names count."""
_OUTSIDE = ("/dev/", "/proc/", "/sys/")
_EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)


class Watched:
    """What a program has asked for in the blocks of `watched`.

    Parameters
    ----------
    folder: the first one in which the program's imports are looked for.

    Members
    -------
    paths: absolute paths that it read, imported or looked for.
    listed: folders whose names it read.
    reasons: why another run may be told something else although all of these are the same; empty: it is not.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.paths, self.listed, self.reasons = set[str](), set[str](), set[str]()
        self.before = frozenset(sys.modules)
        # As times of files are.
        self._start_ns = time.time_ns()
        # A module that was imported earlier may be of another content than its file has by now.
        users = sorted(name for name, module in list(sys.modules.items()) if _is_users(name, module))
        self.reasons |= {f"'{name}' was imported before" for name in users}
        if os.name != "posix":
            self.reasons.add("not every way to look for a file is known on this system")

    def states(self) -> dict[str, str] | None:
        """Return the state of each path, see `is_state`; None where they do not decide what another run would give.

        Raises
        ------
        OSError: a file cannot be read.
        """
        if self.reasons or not self._is_old():
            return None
        return {path: _state(path) for path in sorted([*self.paths, *(folder + _LISTED for folder in self.listed)])}

    def _is_old(self) -> bool:
        """Return whether all files are regular, together of a size that is quick to hash, and older than the run."""
        size = 0
        for path in self.paths:
            if not os.path.exists(path) or os.path.isdir(path):
                continue
            found = os.stat(path)
            size += found.st_size
            if not os.path.isfile(path) or found.st_mtime_ns > self._start_ns - _RACE_NS or size > MOST_BYTES:
                return False
        return True


def is_state(path: str, state: str) -> bool:
    """Return whether what is at a path is still what `Watched.states` found there."""
    try:
        return _state(path) == state
    except OSError:
        return False


def surroundings() -> list[Any]:
    """Return what else a program may be told: its arguments, environment, machine, and the packages' versions."""
    folders = sorted({*_installed(), *(path for path in sys.path if os.path.isdir(path))})
    # With the time of their records, which another installation of the same version changes.
    infos = [
        sorted(
            (name, _time_of(os.path.join(folder, name, "RECORD")))
            for name in os.listdir(folder)
            if name.endswith("-info")
        )
        for folder in folders
    ]
    return [
        [sys.version, sys.argv, sys.path, os.getcwd(), sorted(os.environ.items())],
        [list(platform.uname()), os.cpu_count(), folders, infos],
    ]


def _time_of(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


@contextmanager
def watched(seen: Watched) -> Iterator[None]:
    """Watch what a `with` block of this process asks the system for.

    Python's events of PEP 578 tell of files that are opened, and of all that leaves the process; they do not tell of
    files that are looked for, so the functions for that are replaced meanwhile. Seen are calls by Python's code. A
    library in C can read files unseen, so that one which is not known is a reason to run the program again.
    """
    from nnhw.frontend.reads import watched_reads

    global _current
    _listen()
    try:
        with ExitStack() as patched:
            for owner, name in ((os, "stat"), (os, "lstat"), (os, "access"), (os, "readlink")):
                patched.enter_context(patch.object(owner, name, _looking(getattr(owner, name), seen)))
            patched.enter_context(
                watched_reads(lambda path: seen.paths.add(_absolute(path)), lambda why: seen.reasons.add(why))
            )
            for chance in ((os, "urandom"), (random, "_urandom")):
                patched.enter_context(patch.object(*chance, _drawing(getattr(*chance), seen)))
            patched.enter_context(patch.object(random.Random, "seed", _seeding(random.Random.seed, seen)))
            _current = seen
            yield
    finally:
        _current = None
    _add_modules(seen)


_current: Watched | None = None
_listens = False


def _listen() -> None:
    """Hear Python's events from now on; a hook cannot be removed."""
    global _listens
    if not _listens:
        _listens = True
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    seen = _current
    if seen is None:
        return
    if event == "open":
        _hear_open(seen, *arguments)
    elif event == "import":
        # Also one that fails: a file of this name that is there next time would be imported.
        top = str(arguments[0]).partition(".")[0]
        folders = [folder or os.getcwd() for folder in sys.path]
        outside = [_absolute(folder) for folder in folders if not _is_installed(_absolute(folder))]
        seen.paths |= {os.path.join(folder, top + end) for folder in outside for end in ("", ".py")}
    elif event in ("os.listdir", "os.scandir"):
        folder = arguments[0]
        # Those of imports are answered by what is imported: see `_add_modules`.
        if sys._getframe(1).f_globals.get("__name__") != "importlib._bootstrap_external":
            if isinstance(folder, int):
                seen.reasons.add(event)
            elif not _is_installed(where := _absolute(folder or ".")):
                seen.listed.add(where)
    elif event.startswith(_FORBIDDEN) and not any(_OWN.search(str(argument)) for argument in arguments):
        seen.reasons.add(event)


def _hear_open(seen: Watched, path: Any, mode: str | None, flags: int) -> None:
    if isinstance(path, int):
        return  # of a file that is open already
    where = _absolute(path)
    if _OWN.search(where) or _is_installed(where):
        return
    if mode not in _READ_MODES or (mode is None and flags & _WRITING) or where.startswith(_OUTSIDE):
        seen.reasons.add(f"it opens '{where}'")
    seen.paths.add(where)


def _looking(function: Callable[..., Any], seen: Watched) -> Callable[..., Any]:
    """Return a function that looks at a path, and notes it."""

    def look(path: Any, *rest: Any, **named: Any) -> Any:
        if not isinstance(path, int):
            where = _absolute(path)
            if not (_OWN.search(where) or _is_installed(where)):
                seen.paths.add(where)
        return function(path, *rest, **named)

    return look


def _drawing(function: Callable[[int], bytes], seen: Watched) -> Callable[[int], bytes]:
    """Return a function that gives random bytes, and notes that."""

    def draw(count: int) -> bytes:
        seen.reasons.add("it draws random numbers without a seed")
        return function(count)

    return draw


def _seeding(function: Callable[..., Any], seen: Watched) -> Callable[..., Any]:
    """Return a function that seeds a generator, and notes where no seed is given."""

    def seed(self: random.Random, a: Any = None, *rest: Any) -> Any:
        if a is None:
            seen.reasons.add("it draws random numbers without a seed")
        return function(self, a, *rest)

    return seed


def _add_modules(seen: Watched) -> None:
    """Add the files of imported modules, and those that would be imported in their place."""
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if (
            name in seen.before or origin is None
        ):  # without a file: built in, or a folder of packages, which has no code
            continue
        if origin.endswith(_EXTENSIONS) and not _is_known(origin):
            seen.reasons.add(f"it imports '{name}', a library that may read files unseen")
        if not _is_installed(_absolute(origin)):
            seen.paths.add(_absolute(origin))
        if "." not in name:
            seen.paths |= {os.path.join(seen.folder, name + end) for end in ("", ".py")}
    for path in [path for path in seen.paths if path.endswith(".py") and os.path.isfile(path)]:
        if found := _CHANGING.search(Path(path).read_bytes()):
            seen.reasons.add(f"'{path}' imports '{found[1].decode()}'")


def _is_users(name: str, module: ModuleType | None) -> bool:
    """Return whether a module is neither a part of an installed package nor of nnhw."""
    origin = getattr(module, "__file__", None)
    is_main = name in ("__main__", "__mp_main__")
    return not is_main and origin is not None and os.path.isfile(origin) and not _is_installed(_absolute(origin))


def _is_installed(path: str) -> bool:
    """Return whether a path belongs to Python, to an installed package or to nnhw, whose versions or hashes count."""
    return os.path.join(path, "").startswith(_installed())


def _is_known(path: str) -> bool:
    """Return whether a library in C is Python's own, or of a package that opens files through Python."""
    standard = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")}
    packages = [os.path.join(folder, name) for folder in _installed() for name in ("torch", "numpy")]
    folders = (*packages, *(os.path.join(folder, "lib-dynload") for folder in standard))
    return path.startswith(tuple(os.path.join(folder, "") for folder in folders))


@cache
def _installed() -> tuple[str, ...]:
    """Return the folders of Python, of installed packages and of nnhw, with a separator at their ends."""
    standard = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    packages = {path for path in sys.path if path.endswith("-packages")}  # also a user's own, and those of Debian
    folders = {*standard, *packages, str(Path(nnhw.__file__).parent)}
    return tuple(sorted(os.path.join(os.path.abspath(folder), "") for folder in folders))


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))


def _state(path: str) -> str:
    """Return what is at a path: the hash of a file; of a folder whether there is one, or the hash of its names."""
    if path.endswith(_LISTED):
        folder = path.removesuffix(_LISTED)
        names = sorted(set(os.listdir(folder)) - {"__pycache__"}) if os.path.isdir(folder) else None
        return hashlib.sha256(repr(names).encode()).hexdigest()
    if os.path.isdir(path):
        return "folder"
    if not os.path.exists(path):
        return "nothing"
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
