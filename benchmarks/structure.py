"""What a newcomer to the source of nnhw has to know, counted: classes, constants, names with two meanings."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nnhw

FAMILIES = {"ice40", "ecp5"}

_DOORS = {"frontend", "frontend/brevitas", "frontend/onnx", "frontend/tflite"}
PARALLELS: Mapping[str, set[str]] = {
    "an engine or a requantizer": {"engines", "engines/requantize", "hdl", "ir/ops", "mapping", "mapping/cost"},
    "the shared engine": {"engines/shared", "hdl/shared"},
    "an operator": {*_DOORS, "nn", "ir/ops", "export/c"},
    "a device family": {"families", "hdl", "hdl/cells"},
    "a link": {"links", "hdl/link", "driver/links"},
    "a sensor": {"sensors", "hdl/sensors"},
}
"""What is described from several sides --> the folders in which its files have one name.

`docs/architecture.md` says the same to people."""


def run(board: None = None) -> dict[str, Any]:
    """Return the counts of the package that is imported."""
    del board
    return measure(Path(nnhw.__file__).parent)


def show(row: Mapping[str, Any]) -> None:
    """Print the counts, and the names that mean two things."""
    for name, value in row.items():
        if isinstance(value, int | float):
            print(f"{value:>8} {name.replace('_', ' ')}")
    for name, files in (*row["files_of_one_name"].items(), *row["classes"].items()):
        print(f"{name}: {', '.join(files)}")


def measure(package: Path) -> dict[str, Any]:
    """Return the counts of a package.

    Returns
    -------
    lines, files, public_classes: of the package.
    constants: upper-case names on the top level of a module whose value is a number, or numbers.
    file_names_used_twice: but for those of one engine, which has the same name in `engines`, `hdl`, `mapping/cost` and
        `ir/ops`.
    of_these_parallel: those of them whose files all stand in the folders of one row of `PARALLELS`: they describe one
        thing from different sides, and share the name for that reason.
    file_names_that_mean_two_things, files: the others, and their folders.
    class_names_used_twice, classes: names of classes that two files define, and these files.
    engine_checks: `isinstance(.., SomethingConfig)` outside of `engines`.
    family_checks: comparisons with the name of a device family outside of `families`.
    comments_in_100_lines: lines with a comment of their own, docstrings apart.
    """
    files = {path.relative_to(package).as_posix(): path for path in sorted(package.rglob("*.py"))}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in files.items()}
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in files.items()}
    classes: dict[str, list[str]] = defaultdict(list)
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(name)
    twice = {name: found for name, found in sorted(classes.items()) if len(found) > 1 and not name.startswith("_")}
    comments = sum(_comments(path) for path in files.values())
    names = _file_names(files)
    unlike = {name: sorted(found) for name, found in sorted(names.items()) if not _is_parallel(name, found)}
    return {
        "files": len(files),
        "lines": sum(lines.values()),
        "public_classes": sum(len(found) for name, found in classes.items() if not name.startswith("_")),
        "constants": sum(len(list(_constants(tree))) for tree in trees.values()),
        "file_names_used_twice": len(names),
        "of_these_parallel": len(names) - len(unlike),
        "file_names_that_mean_two_things": len(unlike),
        "class_names_used_twice": len(twice),
        "engine_checks": sum(_engine_checks(tree) for name, tree in trees.items() if not name.startswith("engines/")),
        "family_checks": sum(_family_checks(tree) for name, tree in trees.items() if not name.startswith("families/")),
        "comments_in_100_lines": round(100 * comments / sum(lines.values()), 1),
        "files_of_one_name": unlike,
        "classes": twice,
    }


def _comments(path: Path) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    return sum(token.type == tokenize.COMMENT and token.line.strip().startswith("#") for token in tokens)


def _constants(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_number(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
            yield from (name.id for name in names if isinstance(name, ast.Name) and name.id.isupper())


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    if isinstance(value, ast.Tuple | ast.List):
        return bool(value.elts) and all(_is_number(one) for one in value.elts)
    if isinstance(value, ast.BinOp):
        return _is_number(value.left) and _is_number(value.right)
    return isinstance(value, ast.UnaryOp) and _is_number(value.operand)


def _file_names(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return names of files that stand in two folders, unless all of these describe the same engine."""
    places: dict[str, set[str]] = defaultdict(set)
    for name in files:
        folder, _, file = name.rpartition("/")
        if file != "__init__.py":
            places[file].add(folder)
    return {file: found for file, found in places.items() if len(found) > 1 and not found <= _ENGINE_FOLDERS}


_ENGINE_FOLDERS = {"engines", "hdl", "ir/ops", "mapping/cost"}


def _is_parallel(file: str, folders: set[str]) -> bool:
    # Like `__init__.py`, `base.py` says by its name what it is to its folder: what all classes of the folder share.
    return file == "base.py" or any(folders <= row for row in PARALLELS.values())


def _engine_checks(tree: ast.Module) -> int:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    checks = [call for call in calls if call.func.id == "isinstance" and len(call.args) == 2]  # type: ignore[attr-defined]
    return sum(bool(re.search(r"\b[A-Z]\w*Config\b", ast.unparse(check.args[1]))) for check in checks)


def _family_checks(tree: ast.Module) -> int:
    def names_family(value: ast.expr) -> bool:
        return isinstance(value, ast.Constant) and value.value in FAMILIES

    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    return sum(any(names_family(value) for value in (node.left, *node.comparators)) for node in compared)
