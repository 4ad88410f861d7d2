"""Imports point one way: a table says who may know whom, and where each heavy package may be imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "nnhw"

# Part of nnhw --> the other parts that it may import, besides `errors`, `reading` and `notebook`.
KNOWS: dict[str, set[str]] = {
    "errors": set(),
    "reading": set(),
    "notebook": set(),
    "model_files": set(),
    "ir": set(),
    "protocol": set(),
    "families": set(),
    "links": {"protocol"},
    "sensors": set(),
    "boards": {"families", "links", "sensors"},
    "nn": {"sensors"},
    "engines": {"ir", "protocol"},
    "accelerator": {"ir", "engines"},
    "export": {"engines", "ir", "mapping", "protocol"},
    "frontend": {"ir", "model_files", "nn"},
    "passes": {"ir"},
    "rewrites": {"ir", "passes"},
    "mapping": {"ir", "engines", "accelerator", "families"},
    "hdl": {"ir", "engines", "accelerator", "protocol", "boards", "families", "links", "sensors"},
    "driver": {"ir", "accelerator", "protocol", "families"},
    "flow": {
        *("ir", "engines", "accelerator", "protocol", "boards", "nn", "frontend", "passes", "mapping", "hdl"),
        *("driver", "export", "families", "links", "model_files", "rewrites", "sensors"),
    },
    "fitting": {"boards", "flow", "frontend", "ir", "model_files", "nn", "passes"},
    "searching": {"boards", "flow", "frontend", "ir", "model_files", "nn", "passes"},
    "dynamo": {"accelerator", "boards", "driver", "flow", "frontend", "nn"},
    "cli": {"fitting", "flow", "boards", "searching"},
    "__main__": {"cli"},
    "__init__": {"fitting", "flow", "frontend", "nn", "rewrites", "searching"},
}

# Room of flow --> the other rooms that it may import; "": the files on top, the path of a build.
FLOW_ROOMS: dict[str, set[str]] = {
    "tools": set(),
    "folder": {"tools"},
    "models": {"tools"},
    "implementation": {"folder", "tools"},
    "virtual": {"tools"},
    "verification": {"implementation", "models", "tools", "virtual"},
    "": {"folder", "implementation", "models", "tools", "verification", "virtual"},
    "running": {"", "folder", "models", "tools", "verification", "virtual"},
    "commands": {"", "folder", "models", "running", "tools", "verification", "virtual"},
}

# Third-party package --> where it may be imported.
HOMES: dict[str, tuple[str, ...]] = {
    "PIL": ("flow/models/images.py",),
    "torch": (
        *(
            "nn/",
            "dynamo/",
            "frontend/",
            "flow/models/samples.py",
            "flow/build_stages.py",
            "flow/pipeline.py",
            "driver/",
        ),
        *("flow/commands/exporting_c.py", "fitting/", "searching/"),
    ),
    "amaranth": ("hdl/", "flow/"),
    "amaranth_boards": ("hdl/", "flow/"),
    "brevitas": ("frontend/brevitas/",),
    "cocotb": ("../sim/",),
    "cocotb_tools": ("../sim/", "flow/verification/simulate.py"),
    "luna": ("hdl/link/usb.py",),
    "onnx": ("frontend/onnx/", "export/onnx"),
    "onnxruntime": ("frontend/onnx/", "export/onnx_runtime.py"),
    "optuna": ("searching/",),
    "plotly": ("searching/plotting.py",),
    "pyftdi": ("driver/links/ftdi.py",),
    "qonnx": ("frontend/onnx/",),
    "serial": ("driver/links/serial.py",),
    "tflite": ("frontend/tflite/",),
    "typer": ("cli.py",),
    "usb": ("driver/links/ftdi.py", "../sim/"),
    "usb_protocol": ("hdl/link/usb.py",),
}


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, anywhere in it."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *(node.module.split(".") if node.module else ())))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def loaded(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports when it is loaded: not those for annotations, not those in functions."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(path: Path) -> str:
    """Return the first name below nnhw."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


SOURCES = sorted(PACKAGE.rglob("*.py"))


def test_layering_table_names_every_part() -> None:
    parts = {part_of(path) for path in SOURCES}
    assert parts <= KNOWS.keys()


def strangers(path: Path) -> set[str]:
    """Return the parts that a file imports, but its own part may not know."""
    part = part_of(path)
    parts = {name.split(".")[1] for name in imported(path) if name.startswith("nnhw.")}
    return (parts & KNOWS.keys()) - KNOWS[part] - {part, "errors", "reading", "notebook"}


def room_of(module: str) -> str:
    """Return the room of a module `nnhw.flow...`: the first name below flow that is a folder, else ""."""
    name = module.split(".")[2]
    return name if (PACKAGE / "flow" / name).is_dir() else ""


def other_rooms(path: Path) -> set[str]:
    """Return the rooms that a file of flow imports when it is loaded, but its own room may not know."""
    room = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    modules = [name for name in loaded(path) if name.startswith("nnhw.flow.")]
    return {room_of(name) for name in modules} - FLOW_ROOMS[room] - {room}


def astray(path: Path) -> set[str]:
    """Return the heavy packages that a file imports away from their homes."""
    here = path.relative_to(PACKAGE).as_posix()
    roots = {name.split(".")[0] for name in imported(path)}
    return {name for name, homes in HOMES.items() if name in roots and not here.startswith(homes)}


def test_layering_parts_know_only_their_own() -> None:
    assert SOURCES
    assert {path.relative_to(PACKAGE).as_posix(): found for path in SOURCES if (found := strangers(path))} == {}


def test_layering_rooms_of_flow_know_only_lower_ones() -> None:
    files = sorted((PACKAGE / "flow").rglob("*.py"))
    assert {room_of(".".join(path.relative_to(ROOT).with_suffix("").parts)) for path in files} == FLOW_ROOMS.keys()
    assert {path.relative_to(PACKAGE).as_posix(): found for path in files if (found := other_rooms(path))} == {}


def test_layering_benchmarks_and_benches_know_nothing_of_tests() -> None:
    files = sorted(path for folder in ("benchmarks", "sim") for path in (ROOT / folder).rglob("*.py"))
    assert len(files) > 30
    roots = {path.relative_to(ROOT).as_posix(): {name.split(".")[0] for name in imported(path)} for path in files}
    assert [path for path, found in roots.items() if "tests" in found] == []


def test_layering_product_knows_neither_benchmarks_nor_tests() -> None:
    assert [path for path in SOURCES if {name.split(".")[0] for name in imported(path)} & {"benchmarks", "tests"}] == []


def test_layering_heavy_packages_stay_at_home() -> None:
    assert SOURCES
    assert {path.relative_to(PACKAGE).as_posix(): found for path in SOURCES if (found := astray(path))} == {}


@pytest.mark.parametrize(
    "action",
    [
        "import nnhw, nnhw.cli",
        "import nnhw.driver",
        "from typer.testing import CliRunner; import nnhw.cli; CliRunner().invoke(nnhw.cli.app, ['--help'])",
    ],
)
def test_layering_driver_and_help_import_neither_torch_nor_amaranth(action: str) -> None:
    script = f"{action}; import sys; print(sorted({{'torch', 'amaranth', 'cocotb', 'optuna'}} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_layering_finds_a_forbidden_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    bad = tmp_path / "nnhw" / "ir" / "bad.py"
    bad.parent.mkdir(parents=True)
    bad.write_text("def f():\n    from ..flow import build_stages\n    import torch.nn\n", encoding="utf-8")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "nnhw")
    assert set(imported(bad)) == {"nnhw.flow.build_stages", "torch.nn"}
    assert (strangers(bad), astray(bad)) == ({"flow"}, {"torch"})
