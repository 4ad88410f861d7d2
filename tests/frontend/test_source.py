from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from nnhw import model_files
from nnhw.errors import CaptureError, InputError
from nnhw.frontend import Source, load_source
from nnhw.frontend.doors import SUFFIXES
from nnhw.ir import run
from nnhw.model_files import identifier

MODEL = """\
import torch
from torch import nn
from helper import WIDTH
from nnhw.nn import QuantLinear, Sign

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            Sign(),
            QuantLinear(WIDTH, 3),
        )

    def forward(self, x):
        return self.layers(x)


model = Net()
other = nn.Sequential(
    nn.Flatten(),
    Sign(),
    QuantLinear(WIDTH, 3),
)
nothing = None
number = 3
example_input = torch.rand(2, 1, 4, 4)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my-net.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "helper.py").write_text("WIDTH = 16\n", encoding="utf-8")
    return tmp_path


def message_of(source: object) -> str:
    with pytest.raises((InputError, CaptureError)) as caught:
        load_source(source)  # type: ignore[arg-type]
    return str(caught.value)


def test_load_source_runs_a_file_with_its_folder_on_the_path(folder: Path) -> None:
    before = list(sys.path), set(sys.modules)
    source = load_source(folder / "my-net.py")
    assert isinstance(source, Source)
    assert (source.name, list(source.example_input.shape)) == ("my_net", [2, 1, 4, 4])
    assert sys.path == before[0]
    assert not [name for name in set(sys.modules) - before[1] if name.startswith("_nnhw_model")]
    sys.modules.pop("helper")


def test_load_source_takes_another_name_and_notes_where_layers_were_made(folder: Path) -> None:
    source = load_source(f"{folder / 'my-net.py'}:other")
    assert source.name == "my_net_other"
    graph = source.capture()
    assert graph.name == "my_net_other"
    places = {node.name: (node.location.file, node.location.line) for node in graph.nodes}
    assert places["linear_2"] == ("my-net.py", MODEL.splitlines().index("    QuantLinear(WIDTH, 3),") + 1)
    assert places["quantize_1"] == ("my-net.py", MODEL.splitlines().index("    Sign(),") + 1)
    # A module without parameters is noted where it is put into another one.
    assert places["flatten_0"] == ("my-net.py", MODEL.splitlines().index("other = nn.Sequential(") + 1)
    sys.modules.pop("helper")


def test_load_source_prefers_the_line_of_the_users_forward(folder: Path) -> None:
    graph = load_source(folder / "my-net.py").capture()
    location = graph.node("layers.2").location
    assert (location.module, location.line) == (
        "layers.2",
        MODEL.splitlines().index("        return self.layers(x)") + 1,
    )
    sys.modules.pop("helper")


def test_load_source_says_what_a_file_lacks(folder: Path) -> None:
    path = folder / "net.py"
    path.write_text("import torch\nfrom torch import nn\nModel = nn.Flatten()\n_x = 1\n", encoding="utf-8")
    assert message_of(path) == (
        f"{path} has no 'model': an nn.Module is needed; did you mean 'Model'?; models in it are Model: give one as "
        f"FILE.py:Model; it has the names torch, nn, Model"
    )
    assert message_of(f"{path}:Model") == (
        f"{path} has no 'example_input': a tensor [batch, ..] is needed; it has the names torch, nn, Model"
    )


def test_load_source_rejects_names_that_are_no_models(folder: Path) -> None:
    path = folder / "my-net.py"
    assert message_of(f"{path}:number") == (
        f"'number' in {path} must be an nn.Module, got int; models in it are model, other: give one as FILE.py:model"
    )
    assert message_of(f"{path}:nothing") == (
        f"'nothing' in {path} is None; is its checkpoint missing? run its training script first"
    )
    sys.modules.pop("helper")


def test_load_source_rejects_an_example_with_nan(folder: Path) -> None:
    path = folder / "my-net.py"
    path.write_text(MODEL + "example_input[0, 0, 1, 2] = float('nan')\n", encoding="utf-8")
    assert message_of(path) == "example_input holds NaN or infinity in 1 of 32 places; give finite numbers"
    sys.modules.pop("helper")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = x / 0\n", "fails at bad.py:2: ZeroDivisionError: division by zero"),
        ("def f(:\n", "fails at bad.py: SyntaxError: invalid syntax (bad.py, line 1)"),
        ("import nothing_of_this_name\n", "fails at bad.py:1: ModuleNotFoundError: No module named 'nothing_of_this_"),
        ("raise SystemExit(3)\n", "fails at bad.py:1: SystemExit: 3"),
    ],
)
def test_load_source_names_the_line_at_which_a_file_fails(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text, encoding="utf-8")
    found = message_of(path)
    assert found.startswith(f"{path} {message}")
    assert found.endswith(f"; it must run by itself: try 'python {path}'")


def test_load_source_shows_what_nnhw_refuses_while_a_file_runs(tmp_path: Path) -> None:
    path = tmp_path / "wide.py"
    path.write_text("from nnhw.nn import UInt\n\nmodel = UInt(12, scale=1)\n", encoding="utf-8")
    assert message_of(path) == "wide.py:3: UInt needs bits from 1 to 8, got 12"


def test_load_source_rejects_files_that_do_not_exist(folder: Path) -> None:
    near = folder / "my-net.py"
    assert message_of(folder / "mynet.py") == (f"model file {folder / 'mynet.py'} does not exist; did you mean {near}?")
    assert message_of(folder / "zzz.py") == f"model file {folder / 'zzz.py'} does not exist"
    absent = folder / "absent" / "my-net.py"
    assert message_of(absent) == f"model file {absent} does not exist, nor does its folder {absent.parent}"
    assert message_of(folder) == f"{folder} is a folder; give a model file in it, such as {folder / 'model.py'}"


def test_load_source_rejects_other_kinds_of_files(folder: Path) -> None:
    (folder / "net.h5").touch()
    others = "".join(f", FILE{suffix}" for suffix in SUFFIXES)
    expected = f"a model is FILE.py, FILE.py:NAME{others} or FILE.pt2, got {folder / 'net.h5'}"
    assert message_of(folder / "net.h5") == expected


@pytest.mark.parametrize(("text", "name"), [("my-net", "my_net"), ("3d", "m_3d"), ("é", "m__"), ("ok_1", "ok_1")])
def test_identifier_is_safe_everywhere(text: str, name: str) -> None:
    assert identifier(text) == name


@pytest.mark.parametrize("name", ["mnist_mlp", "mnist_cnn"])
def test_examples_are_captured_exactly(name: str) -> None:
    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    source = load_source(path)
    graph = source.capture()
    assert all(node.location.file == path.name for node in graph.nodes if node.location.module)
    assert all(node.location.line > 0 for node in graph.nodes if node.location.module)
    with torch.no_grad():
        expected = source.model(source.example_input).double().numpy()  # type: ignore[operator]
    assert run(graph, source.example_input.numpy())[0].tolist() == expected.tolist()


def test_load_source_sees_an_edit_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "net.py"
    for value in (1, 2):
        path.write_text(f"import torch\nmodel = torch.nn.Identity()\nexample_input = torch.tensor([[{value}.0]])\n")
        os.utime(path, (1_000_000_000, 1_000_000_000))
        assert load_source(path).example_input == torch.tensor([[float(value)]])
    assert not (tmp_path / "__pycache__").exists()


def test_model_files_have_the_suffixes_of_all_doors() -> None:
    assert set(model_files.SUFFIXES) == {".py", ".pt2", *SUFFIXES}
