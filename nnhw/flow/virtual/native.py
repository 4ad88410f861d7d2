"""Exported C, compiled and measured: as a library of this machine, and its size and stack on a Cortex-M4."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnhw.errors import ToolError
from nnhw.export.c import CProgram
from nnhw.export.c.c_text import c_type
from nnhw.flow.tools.cache import Cache, cache_key
from nnhw.flow.tools.processes import ToolRun, run
from nnhw.flow.tools.storage import reported
from nnhw.flow.virtual.compiled import find_cc
from nnhw.ir import Graph, one_step

STRICT_FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
ARM_GCC = "arm-none-eabi-gcc"
CORTEX_M4 = ("-mcpu=cortex-m4", "-mthumb", "-O2", "-ffunction-sections")
LIBRARY = "library.dll" if os.name == "nt" else "library.so"


def c_compiler() -> tuple[str, ...]:
    """Return the command of the C compiler, with the options in `CFLAGS`.

    Raises
    ------
    ToolError: there is none.
    """
    found = find_cc()
    if not found:
        raise ToolError(
            "compiling exported C needs a C compiler, not found; install gcc or clang, or 'pip install ziglang', or "
            "name one with CC"
        )
    return (*found, *shlex.split(os.environ.get("CFLAGS", "")))


def compile_c(program: CProgram, cache: Path, flags: Sequence[str] = ("-O3", "-march=native")) -> Path:
    """Compile an exported model, or find it in the cache; return the path of the shared library.

    Raises
    ------
    ToolError: there is no compiler, or it failed.
    BuildError: the cache cannot be written.
    """
    command = (*c_compiler(), *STRICT_FLAGS, *flags, "-shared", "-fPIC", f"{program.name}.c", "-o", LIBRARY)
    return compile_library(program.files, (*command, *_math(program)), cache)


def compile_library(texts: Mapping[str, str], command: Sequence[str], cache: Path) -> Path:
    """Compile C, or find it in the cache; return the path of the shared library.

    Parameters
    ----------
    texts: name of a file --> what is in it.
    command: that makes `LIBRARY` of these files, in their folder.

    Raises
    ------
    ToolError: the compiler failed.
    BuildError: the cache cannot be written.
    """
    named = [text for name in sorted(texts) for text in (name, texts[name])]
    kept, key = Cache(cache), cache_key(c=named, command=command, machine=_machine())
    if entry := kept.find(key):
        return entry / LIBRARY
    remedy = "make room there, or name another folder with NNHW_CACHE"
    with reported(f"the compiled C cannot be kept in '{cache}'", remedy):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=cache) as name:
            folder = Path(name)
            for file, text in texts.items():
                (folder / file).write_text(text, encoding="utf-8")
            run(ToolRun("C compiler", tuple(command), folder, "cc.log"))
            return kept.keep(key, folder, [LIBRARY]) / LIBRARY


def write_files(program: CProgram, folder: Path) -> list[Path]:
    """Write the files of an exported model; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in program.files]
    for path in paths:
        path.write_text(program.files[path.name], encoding="utf-8", newline="\n")
    return paths


def _math(program: CProgram) -> tuple[str, ...]:
    return ("-lm",) if program.needs_math else ()


def _machine() -> str:
    """Return the features of this processor, on which `-march=native` depends: machines may share a cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith("flags")), "")


class NativeNetwork:
    """The integer network of an exported model, loaded into this process: codes in, codes out.

    Parameters
    ----------
    program: the exported model.
    body: the graph that it was exported from.
    library: the result of `compile_c`.
    turns: number of sequences that take turns, one step each; it matters where the graph has loops.
    """

    def __init__(self, program: CProgram, body: Graph, library: Path, turns: int = 1) -> None:
        self.program = program
        entry, result = body.inputs[0].type, body.output_nodes[0].type
        self._given = _array_type(c_type(entry.int_dtype)), entry.shape
        self._made = _array_type(c_type(result.int_dtype)), result.shape
        loaded = ctypes.CDLL(str(library))
        self._run = getattr(loaded, f"{program.name}_{'step' if body.loops else 'run'}")
        self._run.argtypes, self._run.restype = [ctypes.c_void_p] * (4 if body.loops else 3), None
        self._reset: Any = None
        if body.loops:
            self._reset = getattr(loaded, f"{program.name}_reset")
            self._reset.argtypes, self._reset.restype = [ctypes.c_void_p], None
            # No element of a state takes more than 8 bytes.
            elements = sum(state.start.size for state in one_step(body).states)
            self._states = itertools.cycle(np.zeros((turns, elements), np.uint64))

    def __call__(self, codes: np.ndarray, begins: np.ndarray | None = None) -> np.ndarray:
        """Return int64 [N, *shape] of codes [N, *shape], which must be in the range of the network's input.

        Parameters
        ----------
        begins: bool [N], True where a step begins a sequence, for a network with loops, whose states are kept from call
            to call.
        """
        given = np.ascontiguousarray(codes, dtype=self._given[0]).reshape(len(codes), -1)
        made = np.empty((len(codes), int(np.prod(self._made[1], dtype=np.int64))), self._made[0])
        # Aligned for every C type; + 1, as the bytes may be none, or no multiple of 8.
        scratch = np.empty(self.program.scratch_bytes // 8 + 1, np.uint64)
        for row in range(len(given)):
            ends = given[row].ctypes.data, made[row].ctypes.data
            if self._reset is None or begins is None:
                self._run(*ends, scratch.ctypes.data)
                continue
            state = next(self._states).ctypes.data
            if begins[row]:
                self._reset(state)
            self._run(*ends, state, scratch.ctypes.data)
        return made.reshape(len(codes), *self._made[1]).astype(np.int64)

    def seconds(self, codes: np.ndarray, least_s: float = 0.05) -> float:
        """Return the shortest time of one frame, in seconds, of all runs that fit into `least_s` seconds.

        Parameters
        ----------
        codes: int [1, *shape].
        """
        given = np.ascontiguousarray(codes, dtype=self._given[0])
        made = np.empty(int(np.prod(self._made[1], dtype=np.int64)), self._made[0])
        scratch = np.empty(self.program.scratch_bytes // 8 + 1, np.uint64)
        pointers = given.ctypes.data, made.ctypes.data, scratch.ctypes.data
        least, end = float("inf"), time.perf_counter() + least_s
        while (start := time.perf_counter()) < end:
            self._run(*pointers)
            least = min(least, time.perf_counter() - start)
        return least


def _array_type(ctype: str) -> np.dtype:
    return np.dtype(ctype.removesuffix("_t"))


@dataclass(frozen=True)
class Footprint:
    """The bytes that an exported model takes on a Cortex-M4, without the C library.

    Parameters
    ----------
    code: instructions.
    data: constants, most of them weights.
    scratch: memory of a run, without its input and output.
    stack: greatest depth of the stack below `NAME_run`.
    """

    code: int
    data: int
    scratch: int
    stack: int


def measure_cortex_m4(program: CProgram) -> Footprint | None:
    """Return the footprint of a model on a Cortex-M4, compiled with -O2; None without `arm-none-eabi-gcc`.

    Raises
    ------
    ToolError: the compiler fails.
    """
    compiler = shutil.which(ARM_GCC)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(program, folder)
        command = (compiler, *STRICT_FLAGS, *CORTEX_M4, "-fcallgraph-info=su", "-c", f"{program.name}.c", "-o", "m.o")
        run(ToolRun(ARM_GCC, command, folder, "arm.log"))
        size = shutil.which("arm-none-eabi-size") or "arm-none-eabi-size"
        run(ToolRun(size, (size, "-A", "m.o"), folder, "size.log"))
        sections = _sections((folder / "size.log").read_text(encoding="utf-8"))
        graph = next(folder.glob("*.ci")).read_text(encoding="utf-8")
    return Footprint(
        code=sum(size for section, size in sections.items() if section.startswith(".text")),
        data=sum(size for section, size in sections.items() if section.startswith((".rodata", ".data", ".bss"))),
        scratch=program.scratch_bytes,
        stack=stack_depth(graph, f"{program.name}_run"),
    )


def _sections(text: str) -> dict[str, int]:
    rows = re.findall(r"^(\.\S+)\s+(\d+)\s+\d+\s*$", text, re.MULTILINE)
    return {name: int(size) for name, size in rows}


def stack_depth(graph: str, entry: str) -> int:
    """Return the greatest depth of the stack below a function, in bytes, from GCC's call graph with stack usage.

    Functions that are not in it, such as memcpy, count as 0.
    """
    own = {}
    for title, label in re.findall(r'node: \{ title: "([^"]+)" label: "([^"]*)"', graph):
        used = re.search(r"(\d+) bytes", label)
        own[title] = int(used.group(1)) if used else 0
    calls: dict[str, set[str]] = {}
    for source, target in re.findall(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', graph):
        calls.setdefault(source, set()).add(target)

    def depth(title: str) -> int:
        return own.get(title, 0) + max((depth(called) for called in calls.get(title, ())), default=0)

    start = next((title for title in own if title == entry or title.endswith(f":{entry}")), entry)
    return depth(start)
