"""Modules outside of nnhw that register operators and engines: installed ones, and those that the user names."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from nnhw.errors import InputError

ENTRY_POINTS = "nnhw.extensions"
"""Group of entry points: modules that register engines when they are imported."""
VARIABLE = "NNHW_EXTENSIONS"
"""Environment variable with such modules or files, separated as in PATH. A build folder names none: it is anybody's."""


def load_extensions(named: Sequence[str] = ()) -> None:
    """Import what registers engines: installed packages by their entry points, and modules or files by name.

    Parameters
    ----------
    named: modules, or paths of .py files, beside those of the environment variable NNHW_EXTENSIONS. They are handed on
        to processes that nnhw starts.

    Raises
    ------
    InputError: one that does not exist, or fails.
    """
    given = tuple(dict.fromkeys([*filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)), *named]))
    for point in entry_points(group=ENTRY_POINTS):
        _explained(point.value, lambda point=point: point.load())  # type: ignore[misc]  # mypy: a default of a lambda
    for name in given:
        _explained(name, lambda name=name: _import(name))  # type: ignore[misc]
    if given:
        os.environ[VARIABLE] = os.pathsep.join(given)


def _explained(name: str, load: object) -> None:
    assert callable(load)
    try:
        load()
    except Exception as error:  # somebody else's module may fail in any way
        raise InputError(f"the extension '{name}' cannot be imported: {type(error).__name__}: {error}") from error


def _import(name: str) -> None:
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    path = Path(name).resolve()
    title = f"_nnhw_extension_{path.stem}"
    if title in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(title, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module
    try:
        with_folder = [str(path.parent), *sys.path]
        before, sys.path[:] = list(sys.path), with_folder
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path[:] = before
    except BaseException:
        del sys.modules[title]
        raise
