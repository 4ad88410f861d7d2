"""The program of a model's file is run again unless all that it depends on is the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nnhw.flow.folder.build_folder import BuildFolder
from nnhw.flow.models import watching
from nnhw.flow.models.calibrate import Calibration
from nnhw.flow.models.model_file import ModelFile
from nnhw.flow.options import Options
from nnhw.flow.pipeline import build_file
from nnhw.flow.tools.progress import SilentProgress
from tests.conftest import WriteNet
from tests.flow.test_watching import age

WITH_FILES = """
import helper
import numpy as np
import torch
from pathlib import Path
from torch import nn
from nnhw.nn import QuantLinear, Scale, Sign

here = Path(__file__).parent
model = nn.Sequential(nn.Flatten(), Sign(), QuantLinear(16, 4, bias=False), Scale(2**-1))
model[2].weight.data = torch.from_numpy(np.load(here / "weights.npy"))
if (here / "finer.npy").exists():
    model[2].weight.data = torch.from_numpy(np.load(here / "finer.npy"))
example_input = torch.rand(4, 1, 4, 4) - helper.OFFSET
"""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The files whose programs were run; the tests count as no modules of the user, and keep their own cache."""
    monkeypatch.setenv("NNHW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(watching, "_is_users", lambda name, module: False)
    found: list[str] = []
    load = ModelFile.load

    def noted(self: ModelFile, progress: SilentProgress) -> object:
        found.append(self.file)
        return load(self, progress)

    monkeypatch.setattr(ModelFile, "load", noted)
    return found


@pytest.fixture
def project(tmp_path: Path) -> str:
    """A model that reads a module, weights, and looks for better ones."""
    import numpy as np

    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "helper.py").write_text("OFFSET = 0.5\n", encoding="utf-8")
    (folder / "net.py").write_text(WITH_FILES, encoding="utf-8")
    np.save(folder / "weights.npy", np.ones((4, 16), np.float32))
    age(folder)
    return str(folder / "net.py")


def captured(file: str, out: Path, board: str = "icebreaker", calibration: Calibration | None = None) -> str:
    """Build up to `capture`; return the hash of what was captured."""
    import sys

    build = build_file(file, board, Options(frames=0), out=out, stop_at="capture", calibration=calibration)
    sys.modules.pop("helper", None)  # as in another process
    return str(BuildFolder.open(build.path).files("capture"))


def test_model_file_is_not_run_again_where_nothing_has_changed(project: str, tmp_path: Path, runs: list[str]) -> None:
    first = captured(project, tmp_path / "b")
    assert captured(project, tmp_path / "b") == first
    assert runs == [project]


def flipped(folder: Path, name: str) -> None:
    import numpy as np

    np.save(folder / name, -np.ones((4, 16), np.float32))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: flipped(folder, "weights.npy"),
        lambda folder: flipped(folder, "finer.npy"),
        lambda folder: (folder / "helper.py").write_text("OFFSET = 0.25\n", encoding="utf-8"),
        lambda folder: (folder / "net.py").write_text(WITH_FILES.replace("-1", "-2"), encoding="utf-8"),
    ],
    ids=["weights", "weights that were not there", "a module", "the program"],
)
def test_model_file_is_run_again_where_a_file_has_changed(
    project: str, tmp_path: Path, runs: list[str], change: Callable[[Path], object]
) -> None:
    first = captured(project, tmp_path / "b")
    change(Path(project).parent)
    age(Path(project).parent)
    second = captured(project, tmp_path / "b")
    assert second != first
    assert captured(project, tmp_path / "b") == second
    assert runs == [project] * 2


def test_model_file_is_run_again_with_other_surroundings(
    project: str, tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    captured(project, tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setenv("SIZE", "2")
        captured(project, tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setattr("nnhw.flow.build_stages.code_hash", lambda: "changed")
        captured(project, tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setattr("sys.argv", ["nnhw", "build", "--seeds", "2"])
        captured(project, tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setattr("sys.version", "another")
        captured(project, tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setenv("NNHW_CACHE", "off")
        captured(project, tmp_path / "b")
    assert runs == [project] * 6
    captured(project, tmp_path / "b")
    assert runs == [project] * 6


def test_model_file_is_run_again_for_another_or_a_damaged_folder(project: str, tmp_path: Path, runs: list[str]) -> None:
    captured(project, tmp_path / "b")
    captured(project, tmp_path / "c")
    captured(project, tmp_path / "d", board="ulx3s_25f")
    assert runs == [project] * 3
    (tmp_path / "b" / "samples.npz").write_bytes(b"")
    captured(project, tmp_path / "b")
    assert runs == [project] * 4


def test_model_file_that_draws_without_a_seed_is_the_same_each_time(
    write_net: WriteNet, tmp_path: Path, runs: list[str]
) -> None:
    path = Path(write_net(1))
    text = path.read_text(encoding="utf-8").replace("torch.manual_seed(1)\n", "")
    assert "seed" not in text
    path.write_text(text, encoding="utf-8")
    assert captured(str(path), tmp_path / "one") == captured(str(path), tmp_path / "two")


def test_model_file_that_was_written_just_now_is_run_again(
    write_net: WriteNet, tmp_path: Path, runs: list[str]
) -> None:
    path = write_net(1)
    captured(path, tmp_path / "b")
    captured(path, tmp_path / "b")
    assert runs == [path] * 2
    ns = os.stat(path).st_mtime_ns - 3600 * 10**9
    os.utime(path, ns=(ns, ns))
    captured(path, tmp_path / "b")
    captured(path, tmp_path / "b")
    assert runs == [path] * 3


def test_model_file_is_run_again_for_other_calibration_data(tmp_path: Path, runs: list[str]) -> None:
    import numpy as np

    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "net.py").write_text(
        "import torch\nfrom torch import nn\nmodel = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))\n"
        "example_input = torch.rand(2, 4)\n",
        encoding="utf-8",
    )
    data = folder / "data.npy"
    images = np.random.default_rng(0).random((8, 4), np.float32)
    first = ""
    for scale, calibration in ((1, Calibration(data)), (2, Calibration(data)), (2, Calibration(data, weight_bits=4))):
        np.save(data, np.float32(scale) * images)
        age(folder)
        found = [captured(str(folder / "net.py"), tmp_path / "b", calibration=calibration) for _ in range(2)]
        assert found[0] == found[1] != first
        first = found[0]
    assert len(runs) == 3
