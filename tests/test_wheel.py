"""The wheel is whole: boards and benches are inside, and the commands work away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(folder: Path, site: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the unpacked wheel, without its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheel = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(wheel, check=True)
    (found,) = folder.glob("nnhw-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(found)], check=True)
    return folder / "site"


def test_wheel_has_one_package(site: Path) -> None:
    assert sorted(path.name for path in site.iterdir() if path.name != "bin") == [
        "nnhw",
        f"{next(site.glob('*.dist-info')).name}",
    ]


def test_wheel_knows_its_boards(site: Path, tmp_path: Path) -> None:
    assert "icebreaker" in run(tmp_path, site, "-m", "nnhw", "boards")
    where = run(tmp_path, site, "-c", "import nnhw; print(nnhw.__file__)")
    assert where.strip() == str(site / "nnhw" / "__init__.py")


def test_wheel_builds_and_simulates(site: Path, tmp_path: Path, small_net: str) -> None:
    run(tmp_path, site, "-m", "nnhw", "build", small_net, "--stop-at", "elaborate")
    text = run(tmp_path, site, "-m", "nnhw", "sim", "build/small-icebreaker", "--frames", "2")
    assert "2 frames equal" in text


COMPILED = """
import torch
import nnhw
import small

compiled = torch.compile(small.model.eval(), backend="nnhw", options={"board": "icebreaker", "link": "model"})
with torch.no_grad():
    given = compiled(small.example_input)
print(torch.equal(given, nnhw.reference(small.model)(small.example_input).float()))
"""


def test_wheel_registers_the_backend_of_torch_compile(site: Path, tmp_path: Path, small_net: str) -> None:
    (tmp_path / "compiled.py").write_text(COMPILED, encoding="utf-8")
    assert run(tmp_path, site, "compiled.py").strip() == "True"
