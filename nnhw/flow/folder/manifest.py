"""Reading the manifest of a build folder, which anybody may have written: no name in it may lead out of the folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from nnhw.errors import BuildError
from nnhw.reading import is_plain_name, parse_json

MANIFEST = "manifest.json"
Fact = TypeVar("Fact")
_HEX = frozenset("0123456789abcdef")


def read_json(path: Path) -> dict[str, Any]:
    """Return the table in a JSON file of a build folder.

    Raises
    ------
    BuildError: the file is missing or damaged.
    """
    try:
        document = parse_json(path.read_bytes())
        if not isinstance(document, dict):
            raise ValueError("it is no table")
    except (OSError, ValueError) as error:
        raise BuildError(f"build file '{path}' cannot be read ({error}); run 'nnhw build' again") from None
    return document


def read_fact(path: Path, kind: type[Fact], *keys: str) -> Fact:
    """Return a value of a JSON file of a build folder.

    Parameters
    ----------
    kind: class that the value must have.
    keys: of nested tables, the outermost first.

    Raises
    ------
    BuildError: the file is missing or damaged, or has no value of this kind there.
    """
    found: Any = read_json(path)
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    # True and False are instances of int in Python, and no number of a build.
    if not isinstance(found, kind) or type(found) is bool:
        raise BuildError(
            f"build file '{path}' needs {kind.__name__} as '{'.'.join(keys)}', but says {str(found)[:80]!r}; "
            "run 'nnhw build' again"
        )
    return found


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a build folder, checked, since builds delete and replace the files that it names.

    Raises
    ------
    BuildError: it is missing or damaged, or a name in it could lead out of the folder.
    """
    manifest = read_json(folder / MANIFEST)
    problem = next(_problems(folder, manifest), None)
    if problem:
        raise BuildError(
            f"build folder '{folder}': {MANIFEST} {problem}; nnhw did not write it so: delete the folder and run "
            "'nnhw build' again"
        )
    return manifest


def _problems(folder: Path, manifest: dict[str, Any]) -> Iterator[str]:
    for field in ("model", "board"):
        if not is_plain_name(manifest.get(field)):
            yield f"needs a plain name as '{field}', given {manifest.get(field)!r}"
    stages = manifest.get("stages")
    if not isinstance(stages, dict):
        yield "has no table 'stages'"
        return
    for name, stage in stages.items():
        if not is_plain_name(name) or not isinstance(stage, dict) or not isinstance(stage.get("files"), dict):
            yield f"needs a table of files for each stage, but not for {name!r}"
            return
        for file, digest in stage["files"].items():
            if not is_plain_name(file) or file == MANIFEST or (folder / file).is_dir():
                yield f"names the file {file!r} of stage '{name}', which is no plain name of a file in the folder"
            elif digest is not None and not _is_hash(digest):
                yield f"has no SHA-256 of file '{file}', but {digest!r}"


def _is_hash(digest: object) -> bool:
    return isinstance(digest, str) and len(digest) == 64 and set(digest) <= _HEX
