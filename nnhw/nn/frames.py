"""The place in the user's code that a traced node comes from: its module, and the line that called it."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path, PurePath
from types import FrameType

import torch
from torch import fx

import nnhw.errors

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
# torch.export adds '@1', '@2', .. to the path of a module at its second and further calls.
_REPEATED_CALL = re.compile(r"@\d+")
# Parts of one of Brevitas's quantizers, whose own name says more.
_PARTS = re.compile(r"(\.export_handler|\.fused_activation_quant_proxy\.activation_impl)$")
_OWN_FOLDERS = tuple(f"{Path(file).resolve().parent}/" for file in (torch.__file__, nnhw.errors.__file__))
_PYTHON_FOLDER = sysconfig.get_paths()["stdlib"] + "/"
# Traces in a saved archive come from another machine, where these stood elsewhere.
_OWN_PACKAGES = re.compile(r"/(site|dist)-packages/(torch|nnhw|brevitas)/|/nnhw/nn/|^<")
_SITE_PACKAGES = re.compile(r"/(site|dist)-packages/")


def place_of(node: fx.Node) -> str:
    """Return the place of a traced node as text, such as "'features.3' (vgg.py:41)"."""
    module, frame = module_path(node), user_frame(node)
    shown = f"'{module}'" if module else "of the model"
    return f"{shown} ({PurePath(frame[0]).name}:{frame[1]})" if frame else shown


def module_path(node: fx.Node) -> str:
    """Return the path of the innermost module that a node belongs to; empty for the model itself."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    return _PARTS.sub("", _REPEATED_CALL.sub("", path))


def user_frame(node: fx.Node) -> tuple[str, int] | None:
    """Return the innermost (file, line) of the user's code at which a node was traced; None if it is not known."""
    trace = node.meta.get("stack_trace") or ""
    return innermost_user_frame((match["file"], int(match["line"])) for match in _FRAME.finditer(trace))


def running_user_frame() -> tuple[str, int] | None:
    """Return the innermost (file, line) of the user's code that is running."""
    frames: list[tuple[str, int]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return innermost_user_frame(reversed(frames))


def innermost_user_frame(frames: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    """Return the last (file, line) that belongs neither to Python, torch, Brevitas nor nnhw.

    Frames of other installed packages count only if there is no other.
    """
    outside = [frame for frame in frames if not _is_own(frame[0])]
    of_user = [frame for frame in outside if not _SITE_PACKAGES.search(frame[0])]
    return next(reversed(of_user or outside), None)


def _is_own(file: str) -> bool:
    # site-packages lies inside of the folder of the standard library, but is not a part of it.
    site_package = _SITE_PACKAGES.search(file)
    in_stdlib = file.startswith(_PYTHON_FOLDER) and not site_package
    return file.startswith(_OWN_FOLDERS) or in_stdlib or _OWN_PACKAGES.search(file) is not None
