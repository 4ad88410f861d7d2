"""Names of models' files: mistakes in them are found before anything heavy is imported."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from nnhw.errors import InputError

SUFFIXES = (".py", ".pt2", ".ir", ".onnx", ".tflite")
"""Suffixes of the files that hold a model."""
DEFAULT_MODEL = "model"
"""Name of the model in a Python file where none is given."""


def split_name(source: str) -> tuple[Path, str | None]:
    """Return the path in FILE or FILE:NAME, and the name."""
    # Only an identifier behind a known suffix, as a path of Windows has a colon behind its drive.
    file, colon, name = source.rpartition(":")
    if colon and name.isidentifier() and file.endswith(SUFFIXES):
        return Path(file), name
    return Path(source), None


def identifier(text: str) -> str:
    """Return a name that is safe in files, hardware and text: letters, digits and underscores."""
    cleaned = re.sub(r"\W", "_", text, flags=re.ASCII)
    return cleaned if cleaned[:1].isalpha() else f"m_{cleaned}"


def model_name(source: str) -> str:
    """Return the name of the model in FILE or FILE:NAME, without reading the file."""
    path, name = split_name(source)
    return identifier(path.stem if name in (None, DEFAULT_MODEL) else f"{path.stem}_{name}")


def check_model_file(source: str) -> None:
    """Check that FILE or FILE:NAME is there and of a kind that holds a model.

    Raises
    ------
    InputError: it is not.
    """
    path, name = split_name(source)
    check_exists(path)
    if path.suffix not in SUFFIXES or (path.suffix == ".pt2" and name is not None):
        others = "".join(f", FILE{suffix}" for suffix in SUFFIXES[2:])
        raise InputError(f"a model is FILE.py, FILE.py:NAME{others} or FILE.pt2, got {source}")


def check_exists(path: Path) -> None:
    """Raise InputError where a model's file does not exist, with those that have a similar name."""
    if path.is_file():
        return
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a model file in it, such as {path / 'model.py'}")
    folder = path.parent
    files = sorted(file.name for file in folder.iterdir() if file.suffix in SUFFIXES) if folder.is_dir() else []
    near = difflib.get_close_matches(path.name, files, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(str(folder / name) for name in near)}?" if near else ""
    missing = "" if folder.is_dir() else f", nor does its folder {folder}"
    raise InputError(f"model file {path} does not exist{missing}{hint}")
