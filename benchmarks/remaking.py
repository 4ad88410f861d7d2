"""Results that are old: which those are, and making them again.

A result of one design says which: its netlist, program, schedule and settings, as hashes (`benchmarks.designs`). It is
old when one of these has changed. Only where source files have changed are they computed again, by mapping and
elaboration; they are kept in nnhw's cache by the sources that they depend on.

Other results, such as tables of many networks, are old when their code has changed: the hash of the benchmark's modules
and of all modules of nnhw that they import. It is without comments and docstrings, which change no figure, and, for a
network on one board, without the cells and prices of other families and without what is asked for of other networks.
For files without such a hash git says which of these modules have changed since.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nnhw
from benchmarks import cases, designs
from nnhw.boards import load_board
from nnhw.errors import NnhwError
from nnhw.families import FAMILIES
from nnhw.flow.tools.cache import Cache, cache_key
from nnhw.flow.tools.sources import PACKAGE, package_files, sources_of
from nnhw.flow.tools.toolchain import find_tool

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results"
MADE = "made"
"""Key of a result that says what made it."""
DESIGN = "design"
"""Key of a result that has the hashes of its design."""

OF_THE_SOURCE = ("benchmarks.mutants", "benchmarks.structure")
"""Modules that measure nnhw's source itself. Results of theirs depend on its text."""

OF_ONE_BOARD = ("benchmarks.whole", "benchmarks.mnist", "benchmarks.designs")
"""Modules that measure on the board that a result names, and on no other."""
OF_A_FAMILY = ("nnhw.families", "nnhw.hdl.cells")
"""Packages with a module for each device family, of its name."""
OF_NETLISTS = "nnhw.flow.verification.netlist"
"""Module that simulates netlists, which counts where one is simulated, not for large devices."""

Modules = Mapping[str, str]
"""Name of a benchmark --> the module that measures."""
Changes = Callable[[Path, Mapping[str, Path]], "tuple[str, ...] | None"]
DesignOf = Callable[[Mapping[str, Any]], "Mapping[str, str] | None"]
Run = Callable[[Sequence[str]], str]
"""Runs a command; returns what it printed. Raises CalledProcessError: it failed."""


@dataclass(frozen=True)
class Result:
    """A file of results.

    Parameters
    ----------
    path: the file.
    command: arguments of `python -m benchmarks` that make it; (): none does any more, so it is kept as it is.
    changed: names of source files that have changed since; None: nothing says what made it.
    design: what of its design has changed; None: it is not of one design, or that was not computed.
    """

    path: Path
    command: tuple[str, ...]
    changed: tuple[str, ...] | None
    design: tuple[str, ...] | None = None

    @property
    def is_stale(self) -> bool:
        """Whether the code may give other figures now."""
        return bool(self.command) and (self.changed != () if self.design is None else bool(self.design))

    def row(self) -> dict[str, Any]:
        """Return it for JSON."""
        changed, design = (None if names is None else list(names) for names in (self.changed, self.design))
        told = {"stale": self.is_stale, "changed": changed, "design": design}
        return {"file": self.path.name, "command": list(self.command), **told}

    def line(self) -> str:
        """Return it for people."""
        if not self.command:
            return f"{self.path.name}: kept, no benchmark makes it now"
        if not self.is_stale:
            return f"{self.path.name}: current" + (", its design is the same" if self.design is not None else "")
        command = f"python -m benchmarks {' '.join(self.command)} --json"
        if self.design:
            return f"{self.path.name}: other {', '.join(self.design)}; {command}"
        if self.changed is None:
            return f"{self.path.name}: made by unknown code; {command}"
        shown = ", ".join(self.changed[:2]) + (", .." if len(self.changed) > 2 else "")
        return f"{self.path.name}: {len(self.changed)} files changed since ({shown}); {command}"


def made_by(module: str, row: Mapping[str, Any], seconds: float, cpu_seconds: float) -> dict[str, Any]:
    """Return what a row says about its making.

    Parameters
    ----------
    module: that measures.
    row: what it measured.
    seconds, cpu_seconds: that it took, on the clock and of all processors.
    """
    return {"code": code_hash(module, row), "seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1)}


@cache
def code_of(module: str) -> dict[str, Path]:
    """Return the files that a benchmark depends on, by name of the module.

    Besides what it imports these are modules that it runs by their name, and those behind names such as `nnhw.build`,
    which are imported at their first use.
    """
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        new = sources_of(waiting.pop(), PACKAGE, BENCHMARKS).items() - found.items()
        found |= new
        waiting += [name for _, path in new if BENCHMARKS in path.parents for name in _reached(path)]
    measured = package_files() if module in OF_THE_SOURCE else {}
    return found | {name: path for name, path in measured.items() if path.suffix == ".py"}


def _reached(path: Path) -> Iterator[str]:
    """Yield the modules that a file names in strings, and the homes of what it uses of `nnhw` itself."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Constant) and str(node.value).startswith(f"{BENCHMARKS.name}."):
            yield str(node.value)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == nnhw.__name__:
            home = getattr(getattr(nnhw, node.attr, None), "__module__", None)
            if home is not None:
                yield home


def code_hash(module: str, row: Mapping[str, Any]) -> str:
    """Return the hash of what a row of a benchmark depends on: of its files, and of its own case of `benchmarks.cases`.

    Comments and docstrings do not change it.
    """
    case, unused = cases.CASES.get(row.get("benchmark", "")), set[str]()
    if module in OF_ONE_BOARD and "board" in row:
        family = load_board(row["board"]["name"]).family
        unused |= {f"{package}.{other}" for package in OF_A_FAMILY for other in FAMILIES if other != family}
    if case is not None:
        unused |= {cases.__name__} if case.placed and case.netlist else {cases.__name__, OF_NETLISTS}
    sources = {name: path for name, path in code_of(module).items() if name not in unused}
    digest = sources_hash(sources, as_text=module in OF_THE_SOURCE)
    return digest if case is None else hashlib.sha256(f"{digest}:{case}".encode()).hexdigest()


def sources_hash(sources: Mapping[str, Path], as_text: bool = False) -> str:
    """Return the hash of source files and of their names.

    Parameters
    ----------
    as_text: every byte of a module of Python counts; otherwise its comments and docstrings do not.
    """
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        content = path.read_bytes() if as_text or path.suffix != ".py" else _meaning(path.read_bytes())
        digest.update(f"{name}:{len(content)}:".encode() + content)
    return digest.hexdigest()


@cache
def _meaning(source: bytes) -> bytes:
    """Return a module's statements without positions, comments and strings that stand alone, as docstrings do."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, [part for part in value if not _is_text(part)])
    return ast.dump(tree).encode()


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def find_results(folder: Path, modules: Modules, changes: Changes, design: DesignOf) -> list[Result]:
    """Return the files of a folder with results.

    Parameters
    ----------
    changes: returns for a file of results and the sources it depends on which of these changed later; None: unknown.
    design: returns the hashes of a result's design by the present code; None: it cannot tell.
    """
    return [_result(path, modules, changes, design) for path in sorted(folder.glob("*.json"))]


def _result(path: Path, modules: Modules, changes: Changes, design: DesignOf) -> Result:
    document = json.loads(path.read_text(encoding="utf-8"))
    command = _command(path, document, modules)
    if not command:
        return Result(path, (), None)
    sources = code_of(modules[command[0]])
    code = document.get(MADE, {}).get("code")
    if code is not None and code == code_hash(modules[command[0]], document):
        return Result(path, command, ())
    found = changes(path, sources)
    # The hash is sure: where git sees no change, as the result was made before a commit, something has changed.
    changed = found or None if code is not None else found
    stored, now = document.get(DESIGN), None
    if stored is not None:
        now = design(document)
    if stored is None or now is None:
        return Result(path, command, changed)
    return Result(path, command, changed, tuple(name for name, value in stored.items() if now.get(name) != value))


class PresentDesigns:
    """Hashes of designs by the present code, from the cache where the sources are those of an earlier call.

    Parameters
    ----------
    limit_s: seconds after which no further design is computed; None: all are.
    note: called with the name of each result whose design is computed.
    """

    def __init__(self, limit_s: float | None, note: Callable[[str], None]) -> None:
        self._end = None if limit_s is None else time.monotonic() + limit_s
        self._note, self._cache = note, Cache.default()

    def __call__(self, document: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Return the hashes of a result's design; that it is refused is what `refused` says. None: no time is left."""
        told = json.dumps([document["benchmark"], document["board"]["name"], document["clock_hz"]])
        tools = [find_tool(name).title for name in _tool_names(document)]
        key = cache_key(stage="design", of=told, tools=tools, code=code_hash(designs.__name__, document))
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "design.json"
            if not self._cache.fetch(key, file.parent):
                if self._end is not None and time.monotonic() > self._end:
                    return None
                self._note(document["benchmark"])
                file.write_text(json.dumps(_present_design(document)), encoding="utf-8")
                self._cache.store(key, file.parent, [file.name])
            found: Mapping[str, str] = json.loads(file.read_text(encoding="utf-8"))
        return found


def _present_design(document: Mapping[str, Any]) -> Mapping[str, str]:
    try:
        return designs.design_of(document)
    except NnhwError as error:
        return {"refused": str(error)}


def _tool_names(document: Mapping[str, Any]) -> Sequence[str]:
    return FAMILIES[load_board(document["board"]["name"]).family].tools.names


def _command(path: Path, document: Any, modules: Modules) -> tuple[str, ...]:
    """Return the arguments that make a file; (): nothing does."""
    name = document.get("benchmark", path.stem) if isinstance(document, dict) else ""
    return command_of(path.stem, name) if name in modules else ()


def command_of(stem: str, name: str) -> tuple[str, ...]:
    """Return the arguments that make the file of a benchmark, `NAME` or `NAME-BOARD`; () for other files."""
    if stem in (name, name.replace("-", "_")):
        return (name,)
    return (name, "--board", stem.removeprefix(f"{name}-")) if name and stem.startswith(f"{name}-") else ()


def changed_since(path: Path, sources: Mapping[str, Path]) -> tuple[str, ...] | None:
    """Return which sources differ from those at the last commit that changed a file; None without git's history."""
    try:
        commit = _git("log", "-1", "--format=%H", "--", str(path)).strip()
        if not commit:
            return None
        differing = {(ROOT / line).resolve() for line in _git("diff", "--name-only", commit).splitlines()}
    except (OSError, subprocess.CalledProcessError):
        return None
    return tuple(sorted(str(file.relative_to(ROOT)) for file in sources.values() if file.resolve() in differing))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def run_benchmark(arguments: Sequence[str]) -> str:
    """Run a benchmark in a process of its own; return the row that it prints. Its progress goes to the terminal."""
    command = [sys.executable, "-m", "benchmarks", *arguments, "--json"]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def remake(results: Sequence[Result], run: Run = run_benchmark) -> list[Path]:
    """Make files again, one after the other; return those that failed, which stay as they were."""
    failed = []
    for number, result in enumerate(results, 1):
        print(f"{number} of {len(results)}: {result.path.name}", flush=True)
        start = time.monotonic()
        try:
            row = json.loads(run(result.command))
        except (subprocess.CalledProcessError, ValueError) as error:
            print(f"  failed: {error}", flush=True)
            failed.append(result.path)
            continue
        partial = result.path.with_suffix(".partial")
        partial.write_text(json.dumps(row) + "\n", encoding="utf-8")
        partial.replace(result.path)
        print(f"  made in {time.monotonic() - start:.0f} s", flush=True)
    return failed


def main(arguments: Sequence[str], modules: Modules) -> int:
    """Run `stale` or `remake`; return the exit code: 1 if something is stale, or could not be made."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("stale", help="list results that are old, with the command of each")
    listing.add_argument("--json", action="store_true", help="one object on one line")
    listing.add_argument(
        "--seconds",
        type=float,
        default=600,
        help="after so many no further design is computed, and results go by their sources (600)",
    )
    making = actions.add_parser("remake", help="make results again that are stale, or those that are named")
    making.add_argument("names", nargs="*", help="files of benchmarks/results, with or without .json, or benchmarks")
    given = parser.parse_args(arguments)
    if given.action == "remake" and given.names:
        return int(bool(remake(_named(RESULTS, given.names, modules))))
    limit_s = given.seconds if given.action == "stale" else None
    design = PresentDesigns(limit_s, lambda name: print(f"mapping {name}", file=sys.stderr, flush=True))
    found = find_results(RESULTS, modules, changed_since, design)
    if given.action == "stale":
        print(json.dumps({"results": [one.row() for one in found]}) if given.json else _listing(found))
        return int(any(one.is_stale for one in found))
    return int(bool(remake([one for one in found if one.is_stale])))


def _listing(found: Sequence[Result]) -> str:
    stale = sum(one.is_stale for one in found)
    return "\n".join([*(one.line() for one in found), f"{stale} of {len(found)} files are old"])


def _named(folder: Path, names: Sequence[str], modules: Modules) -> list[Result]:
    """Return the results of these names, whether they are stale or not.

    Parameters
    ----------
    names: of files, or of benchmarks, each of which stands for all its files.

    Raises
    ------
    SystemExit: there is no such file, or nothing makes it.
    """
    documents = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    known = [Result(path, _command(path, document, modules), None) for path, document in documents.items()]
    found = {
        name: [one for one in known if one.command and name in (one.path.name, one.path.stem, one.command[0])]
        for name in names
    }
    unknown = [name for name, results in found.items() if not results]
    if unknown:
        raise SystemExit(f"no benchmark makes {', '.join(unknown)}; 'python -m benchmarks stale' lists what there is")
    return list(dict.fromkeys(one for results in found.values() for one in results))
