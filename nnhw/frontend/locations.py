"""Places in the user's code that traced operations come from."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import PurePath

from torch import fx

from nnhw.ir import Location
from nnhw.nn.frames import innermost_user_frame, module_path, user_frame

Lines = Mapping[str, tuple[str, int]]


def location_of(node: fx.Node, lines: Lines) -> Location:
    """Return the module path of a traced node, and the innermost line of the user's code.

    torch records only functions named 'forward': functions that those call have the line of the call.

    Parameters
    ----------
    lines: (file, line) at which modules were made, by module path, for layers that torch itself calls, as in
        nn.Sequential; a module without an entry has that of the nearest module around it.
    """
    module = module_path(node)
    found = user_frame(node) or _made_at(module, lines)
    return Location(module, PurePath(found[0]).name, found[1]) if found else Location(module)


def module_location(path: str, lines: Lines) -> Location:
    """Return the place at which a module was made, by its path."""
    found = _made_at(path, lines)
    return Location(path, PurePath(found[0]).name, found[1]) if found else Location(path)


def error_location(error: BaseException, module: str = "", lines: Lines | None = None) -> Location:
    """Return the innermost line of the user's code that an exception passed; else that at which `module` was made."""
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    found = innermost_user_frame(frames) or _made_at(module, lines or {})
    return Location(module, PurePath(found[0]).name, found[1]) if found else Location(module)


def _made_at(module: str, lines: Lines) -> tuple[str, int] | None:
    while module not in lines and module:
        module = module.rpartition(".")[0]
    return lines.get(module)
