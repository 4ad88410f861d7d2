"""Extensions: modules outside of nnhw that register operators and engines, installed or named by the user."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

from nnhw.errors import InputError, NnhwError

ENTRY_POINTS = "nnhw.extensions"
"""Group of entry points: modules that register engines when they are imported."""
VARIABLE = "NNHW_EXTENSIONS"
"""Environment variable with such modules or files, separated as in PATH.

Build folders do not name extensions: anybody may have written a folder, and importing a module runs its code.
"""


def load_extensions(named: Sequence[str] = ()) -> None:
    """Import all extensions: installed packages by their entry points, others by name.

    Parameters
    ----------
    named: modules, or paths of .py files, in addition to those of the environment variable NNHW_EXTENSIONS.

    Raises
    ------
    InputError: an extension does not exist, or its import fails.
    """
    given = tuple(dict.fromkeys([*filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)), *named]))
    for point in entry_points(group=ENTRY_POINTS):
        with _named(point.value):
            point.load()
    for name in given:
        with _named(name):
            _import(name)
    if given:
        # Processes that nnhw starts import the same ones.
        os.environ[VARIABLE] = os.pathsep.join(given)


@contextmanager
def _named(extension: str) -> Iterator[None]:
    """Say of any error which extension it comes from."""
    try:
        yield
    except NnhwError as error:
        raise InputError(f"the extension '{extension}' cannot be imported: {error}") from error
    except Exception as error:  # somebody else's module may fail in any way
        raise InputError(f"the extension '{extension}' cannot be imported: {type(error).__name__}: {error}") from error


def _import(name: str) -> None:
    """Import a module by name, or run a file, once."""
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    path = Path(name).resolve()
    if not path.is_file():
        raise InputError(f"there is no file '{path}'; give a .py file, or the name of a module")
    if path not in _DONE:
        from nnhw.frontend.source import execute  # brings torch, which a module by name may not need

        execute(path)
        _DONE.add(path)


_DONE: set[Path] = set()
