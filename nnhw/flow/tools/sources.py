"""Hashes of nnhw's own sources: results that were made with other sources are made again."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import nnhw

PACKAGE = Path(nnhw.__file__).parent
_BESIDE = {"_sim": "sim", "_boards": "boards"}
"""Folders of an installed package --> where a checkout has them: beside the package."""
_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
"""Fields of the nodes of a source that hold statements, or `except` and `case` with statements in them."""


@cache
def code_hash(package: Path = PACKAGE) -> str:
    """Return the hash of all files that take part in a build: sources, data files, benches and boards."""
    return files_hash(package_files(package))


@cache
def sources_hash(module: str, package: Path = PACKAGE) -> str:
    """Return the hash of a module and of all modules that it imports; see `sources_of`.

    It is part of the keys of cached results, as it does not change with other modules, unlike `code_hash`. A key needs
    the data files that the module reads as well.
    """
    return files_hash(sources_of(module, package))


def package_files(package: Path = PACKAGE) -> dict[str, Path]:
    """Return all files of nnhw by the names that they have in an installed package, from there or from a checkout."""
    folders = {"": package}
    for inside, beside in _BESIDE.items():
        if not (package / inside).is_dir():
            folders[f"{inside}/"] = package.parent / beside
    return {
        prefix + path.relative_to(folder).as_posix(): path
        for prefix, folder in folders.items()
        for path in folder.rglob("*")
        if path.is_file() and _takes_part(path.relative_to(folder))
    }


def sources_of(module: str, *packages: Path) -> dict[str, Path]:
    """Return the module and the modules of nnhw that it imports, directly or through others, by name.

    Imports for annotations alone (`if TYPE_CHECKING`) do not count, nor do those inside functions of an `__init__.py`.

    Parameters
    ----------
    packages: folders of the packages whose modules count; that of nnhw where none is given.
    """
    known = {package.name: package for package in packages or (PACKAGE,)}
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        parts = waiting.pop().split(".")
        package = known.get(parts[0])
        for name in (".".join(parts[: count + 1]) for count in range(len(parts))) if package else ():
            assert package is not None
            path = _path_of(name, package)
            if path is not None and name not in found:
                found[name] = path
                waiting += _imported(path, package)
    return found


def _takes_part(path: Path) -> bool:
    """Return whether a file is more than what Python or an editor leaves behind."""
    return path.suffix != ".pyc" and not any(part == "__pycache__" or part.startswith(".") for part in path.parts)


@cache
def _path_of(name: str, package: Path) -> Path | None:
    """Return the file of a module of the package; None for a name in a module."""
    path = package.joinpath(*name.split(".")[1:])
    candidates = (path / "__init__.py", path.with_suffix(".py"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


@cache
def _imported(path: Path, package: Path) -> tuple[str, ...]:
    """Return the names that a file imports; of `from a import b` both `a` and `a.b`, whatever `b` is."""
    return tuple(_names(path, package))


def _names(path: Path, package: Path) -> Iterator[str]:
    here = path.relative_to(package.parent).parent.parts
    for node in _run(ast.parse(path.read_bytes()), path.name == "__init__.py"):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # One dot is the file's own package, each further one the package around it.
            base = here[: len(here) - node.level + 1] if node.level else ()
            module = ".".join((*base, *(node.module.split(".") if node.module else ())))
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))


def _run(tree: ast.AST, only_at_import: bool) -> Iterator[ast.AST]:
    """Yield the statements of a source that can run, without those inside functions if `only_at_import`."""
    for node in _inner(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from (part for other in node.orelse for part in (other, *_run(other, only_at_import)))
            continue
        if only_at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield node
        yield from _run(node, only_at_import)


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements right inside of a node, and its parts that hold some: no expression holds any."""
    for field in _BLOCKS:
        yield from getattr(node, field, ())


def files_hash(files: Mapping[str, Path]) -> str:
    """Return the hash of files and of their names."""
    digest = hashlib.sha256()
    for name in sorted(files):
        content = files[name].read_bytes()
        digest.update(f"{name}:{len(content)}:".encode() + content)
    return digest.hexdigest()
