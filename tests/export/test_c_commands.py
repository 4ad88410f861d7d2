"""The command, the example and the link of exported C."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import nnhw
from nnhw.cli import app
from nnhw.errors import ToolError
from nnhw.flow.virtual import compiled, native
from nnhw.flow.virtual.compiled import find_cc
from nnhw.frontend import load_source
from tests.programs import run_program

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(find_cc() is None, reason="needs a C compiler (gcc, clang, or 'pip install ziglang')")


def test_command_writes_files_and_says_sizes(small_net: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    done = CliRunner().invoke(
        app, ["export", "c", small_net, "--out", str(folder), "--name", "my-net", "--main", "--small"]
    )
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in folder.iterdir()) == ["my_net.c", "my_net.h", "my_net_main.c"]
    assert "scratch memory of a run: " in done.output
    assert "Cortex-M4" in done.output


def test_command_writes_the_network_alone(small_net: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", "c", small_net, "--out", str(tmp_path), "--name", "n", "--codes"])
    assert done.exit_code == 0, done.output
    header = (tmp_path / "n.h").read_text()
    assert "void n_run(" in header
    assert "n_quantize" not in header


def test_python_and_command_write_the_same_files(small_net: str, tmp_path: Path) -> None:
    source = load_source(small_net)
    made = nnhw.export_c(source.model, source.example_input, out=tmp_path / "a", name="net")
    CliRunner().invoke(app, ["export", "c", small_net, "--out", str(tmp_path / "b"), "--name", "net"])
    for path in made.paths:
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_link_c_equals_the_reference(small_net: str, tmp_path: Path) -> None:
    source = load_source(small_net)
    build = nnhw.build(source.model, source.example_input, name="small", out=tmp_path / "b", stop_at="map")
    images = np.random.default_rng(1).normal(0, 2, (50, 1, 4, 4)).astype(np.float32)
    with nnhw.open(build, link="c") as device:
        assert "link 'c'" in repr(device)
        assert (device(images.astype(np.float64)) == nnhw.reference(source.model)(images)).all()


def test_link_c_without_a_compiler_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    monkeypatch.setattr(compiled, "find_spec", lambda name: None)
    with pytest.raises(ToolError) as caught:
        native.c_compiler()
    assert str(caught.value) == (
        "compiling exported C needs a C compiler, not found; install gcc or clang, or 'pip install ziglang', or name "
        "one with CC"
    )


def test_example_exports_compiles_and_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    printed = run_program("examples/export_c.py", str(tmp_path))
    assert "300 of 300 results equal nnhw.reference" in printed
