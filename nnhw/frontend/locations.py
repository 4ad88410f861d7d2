"""Where in the user's code a traced operation comes from."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

import torch
from torch import fx

import nnhw.errors
from nnhw.ir import Location

Lines = Mapping[str, tuple[str, int]]

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_REPEATED_CALL = re.compile(r"@\d+")
_OWN_FOLDERS = tuple(f"{Path(file).resolve().parent}/" for file in (torch.__file__, nnhw.errors.__file__))
_PYTHON_FOLDER = sysconfig.get_paths()["stdlib"] + "/"
# Traces in a saved archive come from another machine, where these stood elsewhere.
_OWN_PACKAGES = re.compile(r"/(site|dist)-packages/(torch|nnhw)/|/nnhw/nn/|^<")
_SITE_PACKAGES = re.compile(r"/(site|dist)-packages/")


def location_of(node: fx.Node, lines: Lines) -> Location:
    """Return the module path of a traced node and the innermost frame that is the user's.

    Torch notes only functions named 'forward': what those call has the line of the call.

    Parameters
    ----------
    lines: for models whose layers are called by torch alone (nn.Sequential): where modules were made,
        (file, line) by module path; the nearest module above counts, too.
    """
    module = module_path(node)
    frames = [(match["file"], int(match["line"])) for match in _FRAME.finditer(node.meta.get("stack_trace") or "")]
    found = innermost_user_frame(frames) or _made_at(module, lines)
    return Location(module, PurePath(found[0]).name, found[1]) if found else Location(module)


def module_path(node: fx.Node) -> str:
    """Return the path of the innermost module that a node belongs to; empty for the model itself."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    return _REPEATED_CALL.sub("", path)


def innermost_user_frame(frames: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    """Return the last (file, line) that belongs neither to Python, torch nor nnhw.

    Frames of other installed packages count only if there is no other.
    """
    outside = [frame for frame in frames if not _is_own(frame[0])]
    of_user = [frame for frame in outside if not _SITE_PACKAGES.search(frame[0])]
    return next(reversed(of_user or outside), None)


def error_location(error: BaseException, module: str = "", lines: Lines | None = None) -> Location:
    """Return the innermost user frame that an exception came through."""
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    found = innermost_user_frame(frames) or _made_at(module, lines or {})
    return Location(module, PurePath(found[0]).name, found[1]) if found else Location(module)


def _is_own(file: str) -> bool:
    site_package = _SITE_PACKAGES.search(file)
    in_stdlib = file.startswith(_PYTHON_FOLDER) and not site_package
    return file.startswith(_OWN_FOLDERS) or in_stdlib or _OWN_PACKAGES.search(file) is not None


def _made_at(module: str, lines: Lines) -> tuple[str, int] | None:
    while module not in lines and module:
        module = module.rpartition(".")[0]
    return lines.get(module)
