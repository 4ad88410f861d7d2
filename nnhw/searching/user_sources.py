"""Analysis of a user's file as text: the modules beside it that it imports, and the statements that a model needs."""

from __future__ import annotations

import ast
import hashlib
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FUTURE = "__future__"


def local_modules(text: str, folder: Path) -> list[Path]:
    """Return the files in a folder that a program's text imports, directly or through one another, sorted.

    Imports that are computed when the program runs are not seen. Of a package all Python files are returned.
    """
    found: set[Path] = set()
    texts = [text]
    while texts:
        for name in _imported(texts.pop()):
            module, package = folder / f"{name}.py", folder / name
            files = [module] if module.is_file() else sorted(package.rglob("*.py")) if package.is_dir() else []
            new = [file for file in files if file not in found]
            found.update(new)
            texts += [file.read_text(encoding="utf-8") for file in new]
    return sorted(found)


def digest(path: Path) -> str:
    """Return the SHA-256, hex, of a Python file and of the modules beside it that it imports."""
    text = path.read_text(encoding="utf-8")
    hashed = hashlib.sha256(text.encode())
    for module in local_modules(text, path.parent):
        # Zero bytes, which no path has, keep names and contents apart.
        hashed.update(b"\0" + module.relative_to(path.parent).as_posix().encode() + b"\0" + module.read_bytes())
    return hashed.hexdigest()


def needed_text(text: str, name: str) -> str:
    """Return the part of a program's text that defines one of its top-level names: whole statements, in order.

    Kept are the statements that assign or change a needed name, loops that fill a list or a table included, those that
    assign nothing and use needed names alone, such as `torch.manual_seed(0)`, and the docstring. Blocks that begin with
    `if __name__ ==` are left out.
    """
    statements = list(_statements(text))
    known = {bound for statement in statements for bound in statement.binds}
    needed, kept = {name}, set[int]()
    # Each statement that is kept may need further names, which keep further statements: repeat until nothing changes.
    while True:
        found = {
            index
            for index, statement in enumerate(statements)
            if statement.always or (statement.binds | statement.changes) & needed or _acts_on(statement, needed, known)
        }
        if found == kept:
            break
        kept = found
        needed |= {used for index in kept for used in statements[index].uses}
    lines = text.splitlines()
    rows = sorted({row for index in kept for row in range(statements[index].first, statements[index].last)})
    return _joined(lines, rows)


@dataclass(frozen=True)
class _Statement:
    """A statement of a module.

    Parameters
    ----------
    first, last: its lines, from 0 on and without `last`; comments directly above it belong to it.
    binds: names of the module that it assigns. uses: names that it reads, but for its own loop variables. changes:
        names of objects of which it sets attributes or items, or calls a method for its effect alone.
    always: whether it is kept whatever is needed.
    guarded: whether it is an `if` on `__name__`, which runs in the main program alone.
    """

    first: int
    last: int
    binds: set[str]
    uses: set[str]
    changes: set[str]
    always: bool
    guarded: bool


def _statements(text: str) -> Iterator[_Statement]:
    lines, body = text.splitlines(), ast.parse(text).body
    imported = {name for node in body if isinstance(node, ast.Import | ast.ImportFrom) for name in _names(node)[0]}
    end = 0
    for position, node in enumerate(body):
        # A definition begins with its first decorator, in front of the line that Python names.
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
        while first > end and lines[first - 1].startswith("#"):
            first -= 1
        binds, uses = _names(node)
        docstring = not position and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        end = node.end_lineno or node.lineno
        guarded = _is_guarded(node)
        changes = set[str]() if guarded else _changed(node, imported)
        yield _Statement(first, end, binds, uses, changes, docstring or _is_always_needed(node), guarded)


def _names(node: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the names of the module that a statement assigns, and those that it reads."""
    # Python's own symbol tables know the scopes of functions, classes and comprehensions.
    top = symtable.symtable(ast.unparse(node), "statement", "exec")
    binds = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    binds |= {symbol.get_name() for symbol in top.get_symbols() if symbol.is_namespace()}
    uses = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    # Inside of functions only names of the module count: reads of globals, and assignments under `global`.
    tables = list(top.get_children())
    while tables:
        table = tables.pop()
        tables += table.get_children()
        # A function that says `global x` may give the module's name a value, too.
        for symbol in table.get_symbols():
            if symbol.is_global():
                uses.add(symbol.get_name())
                binds |= {symbol.get_name()} if symbol.is_assigned() else set()
    # What a loop or a `with` block names itself is not taken from other statements, which may use the same short name.
    return binds, uses - _own_variables(node)


def _own_variables(node: ast.stmt) -> set[str]:
    """Return the names that a statement gives to the items of a loop, or to what a `with` block opens."""
    targets: list[ast.expr] = [node.target] if isinstance(node, ast.For) else []
    if isinstance(node, ast.With):
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def _changed(node: ast.stmt, imported: set[str]) -> set[str]:
    """Return the names of objects that a statement changes: `a` of `a.b[0] = 1`, and of `a.append(1)` in a loop.

    Parameters
    ----------
    imported: names that the program imports: calls of a module's functions change no object of the program.
    """
    names = set()
    for part in _run(node):
        if isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load):
            names |= _root(part)
        # The result of such a call is dropped, so that it is made for its effect.
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
            names |= _root(part.value.func) - imported if isinstance(part.value.func, ast.Attribute) else set()
    return names


def _root(target: ast.expr) -> set[str]:
    """Return the name of the object that attributes and items are of; empty if it has none."""
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return {target.id} if isinstance(target, ast.Name) else set()


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs when a statement does, itself and all parts: of functions, none of their bodies."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        yield node
        for part in ast.iter_child_nodes(node):
            yield from _run(part)


def _is_always_needed(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module == _FUTURE or any(one.name == "*" for one in node.names))


def _is_guarded(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def _acts_on(statement: _Statement, needed: set[str], known: set[str]) -> bool:
    """Return whether a statement assigns no name, and reads no name of the module that is not needed."""
    return not statement.binds and not statement.guarded and statement.uses & known <= needed


def _joined(lines: list[str], rows: list[int]) -> str:
    """Return the text of the given rows of a file; two empty lines stand wherever rows were left out."""
    parts: list[str] = []
    # Rows in between that are empty keep their number; if a statement was left out, two stand for it.
    for row, before in zip(rows, (-1, *rows), strict=False):
        skipped = lines[before + 1 : row]
        if any(line.strip() for line in skipped):
            parts += ["", ""]
        else:
            parts += skipped
        parts.append(lines[row])
    return "\n".join(parts).strip("\n") + "\n"


def _imported(text: str) -> Iterator[str]:
    """Yield the top-level names of the modules that a text imports, anywhere in it; relative imports are skipped."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
