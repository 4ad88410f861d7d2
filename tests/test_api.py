"""The names of the package: lazy, and what the README says of them."""

from __future__ import annotations

import copy
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import nnhw
import nnhw.cli
from nnhw.errors import InputError
from nnhw.flow.pipeline import Build
from nnhw.flow.tools.progress import PlainProgress, SilentProgress, shown_progress
from nnhw.frontend import load_source


def test_api_names_are_there_and_stay_functions(small_net: str) -> None:
    source = load_source(small_net)
    for _ in range(2):  # a module of the same name must not take a function's place after its first use
        assert all(callable(getattr(nnhw, name)) for name in ("build", "open", "quantize", "reference", "search"))
        images = np.random.default_rng(1).random((3, 1, 4, 4)).astype(np.float32)
        assert nnhw.reference(source.model)(images).shape == (3, 4)
    assert set(nnhw.__all__) <= set(dir(nnhw))


def test_api_has_the_layers_as_an_attribute_without_torch_at_import() -> None:
    script = "import nnhw, sys; before = 'torch' in sys.modules; print(before, nnhw.nn.QuantLinear.__name__)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "QuantLinear"]
    assert nnhw.nn is importlib.import_module("nnhw.nn")
    # One name, one thing: what quantizes a model is `nnhw.quantize` alone.
    assert not hasattr(nnhw.nn, "quantize")


@pytest.mark.parametrize("home", [nnhw, nnhw.nn])
def test_api_names_have_docstrings_of_their_own(home: ModuleType) -> None:
    public = {name: getattr(home, name) for name in home.__all__ if not name.startswith("__")}
    assert len(public) > 10
    missing = [name for name, value in public.items() if not value.__doc__]
    for name, kind in public.items():
        if not inspect.isclass(kind):
            continue
        # A class without one would show that of its base, such as torch's.
        missing += [name] * (not vars(kind).get("__doc__"))
        own = [base for base in kind.__mro__ if base.__module__.startswith("nnhw")]
        methods = {key: value for base in reversed(own) for key, value in vars(base).items() if callable(value)}
        missing += [f"{name}.{key}" for key, value in methods.items() if not key.startswith("_") and not value.__doc__]
    assert missing == []


def test_api_errors_are_caught_by_one_name() -> None:
    with pytest.raises(nnhw.NnhwError, match="icestik"):
        nnhw.build(torch.nn.Linear(4, 2), torch.zeros(1, 4), board="icestik")


def test_api_reprs_are_short_and_say_something(small_net: str, tmp_path: Path) -> None:
    source = load_source(small_net)
    assert isinstance(source.model, torch.nn.Module)
    build = nnhw.build(source.model, source.example_input, name="small", out=tmp_path / "b", stop_at="map")
    interval = build.report["cycles"]["interval"]["predicted"]
    assert repr(build) == (
        f"<Build '{tmp_path / 'b'}': small on icebreaker, an image in {interval} cycles, no bitstream yet>"
    )
    taken = sum(row.cost.lc for rows in build.parts.values() for row in rows)
    assert 0 < taken < build.report["resources"]["lc"]["estimated"]  # that has the link, too
    assert all(str(row.part.kind) in str(row) for rows in build.parts.values() for row in rows)
    report = {**build.report, "inferences_per_second": 1_234_567.8, "clock_hz": 48e6}
    assert repr(Build(build.path, report)).endswith(" cycles, 1,234,568 images/s at 48.00 MHz>")
    reference = nnhw.reference(source.model)
    assert repr(reference) == "<Reference of Sequential: captured with its first images>"
    reference(source.example_input)
    assert repr(reference) == "<Reference of Sequential: [1, 4, 4] --> [4], 2 layers of integers, exact>"


@pytest.mark.parametrize("stage", ["capture", "lower"])
def test_api_repr_of_a_build_that_has_only_begun(small_net: str, tmp_path: Path, stage: str) -> None:
    source = load_source(small_net)
    assert isinstance(source.model, torch.nn.Module)
    build = nnhw.build(source.model, source.example_input, name="small", out=tmp_path / "b", stop_at=stage)
    assert repr(build) == f"<Build '{tmp_path / 'b'}': small on icebreaker, no bitstream yet>"


def test_api_repr_of_a_quantized_model_is_a_line_and_prints_its_layers() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    images, labels = torch.rand(6, 4, generator=torch.Generator().manual_seed(1)), torch.zeros(6, dtype=torch.int64)
    plain = nnhw.quantize(model, images, weight_bits=4, act_bits=5)
    shown = "<Sequential, quantized: 2 layers, 4-bit weights, 5-bit activations, 8-bit input, accuracy not measured>"
    assert repr(plain) == shown
    measured = nnhw.quantize(model, images, evaluate=(images, labels))
    copied = copy.deepcopy(measured)
    assert copied.accuracy == measured.accuracy
    assert repr(copied) == repr(measured)
    assert repr(measured).endswith("% after quantization, on 6 images>")
    assert "(0): QuantLinear(" in str(plain)
    assert "def forward(self" in str(plain)


def test_api_rejects_an_unknown_name() -> None:
    with pytest.raises(AttributeError) as error:
        nnhw.bild  # noqa: B018
    assert str(error.value) == "module 'nnhw' has no attribute 'bild'"


def test_api_build_leaves_the_model_as_it_is(small_net: str, tmp_path: Path) -> None:
    source = load_source(small_net)
    assert isinstance(source.model, torch.nn.Module)
    assert source.example_input is not None
    source.model.train()
    before = {name: value.clone() for name, value in source.model.state_dict().items()}
    build = nnhw.build(source.model, source.example_input, board="ice40", name="net", out=tmp_path / "b", stop_at="map")
    assert build.report["model"]["name"] == "net"
    assert build.report["board"]["name"] == "icebreaker"
    assert build.accelerator.board == "icebreaker"
    assert source.model.training
    assert all(torch.equal(value, before[name]) for name, value in source.model.state_dict().items())


def test_api_build_takes_the_name_of_the_class(small_net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = load_source(small_net)
    assert isinstance(source.model, torch.nn.Module)
    assert source.example_input is not None
    build = nnhw.build(source.model, source.example_input, stop_at="lower")
    assert build.path == Path("build/sequential-icebreaker")


# Names of the command line --> what `nnhw.build` calls the same; the model's file says what Python is given apart.
SAME_NAMES = {"clock": "clock_mhz", "file": "model"}
PYTHON_ALONE = {"example_input", "name", "rewrites", "progress"}
COMMAND_ALONE = {"ctx"}


def test_api_build_has_what_the_command_line_has() -> None:
    options = inspect.signature(nnhw.cli.build).parameters
    command = {SAME_NAMES.get(name, name): option for name, option in options.items() if name not in COMMAND_ALONE}
    python = inspect.signature(nnhw.build).parameters
    assert python.keys() - PYTHON_ALONE == command.keys()
    for name in command.keys() - {"model"}:
        assert python[name].default == command[name].default, name


def float_model() -> tuple[torch.nn.Module, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)), torch.rand(
        40, 4, generator=generator
    )


def test_api_build_quantizes_a_float_model(tmp_path: Path) -> None:
    model, images = float_model()
    labels = torch.zeros(40, dtype=torch.int64)
    options = {"calibrate": images, "weight_bits": 4, "act_bits": 5, "stop_at": "map", "board": "ulx3s_25f"}
    build = nnhw.build(model, images[:2], out=tmp_path / "b", labels=labels, **options)
    assert build.report["model"]["accuracy"]["samples"] == 40
    quantized = nnhw.quantize(model, images, 4, 5)
    other = nnhw.build(quantized, images[:2], out=tmp_path / "c", stop_at="map", board="ulx3s_25f")
    assert build.accelerator.model_hash == other.accelerator.model_hash


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"weight_bits": 4},
            "evaluate, labels, weight_bits and act_bits need calibrate=DATA",
        ),
        (
            {"calibrate": torch.rand(3, 4), "evaluate": torch.rand(3, 4)},
            "evaluate needs labels, those [N]",
        ),
        ({"start_from": "map", "stop_at": "lower"}, "a build cannot start from 'map' and stop at 'lower'"),
        ({"reusable": True}, "--reusable makes a shared engine for other networks, too; it needs --style shared"),
    ],
)
def test_api_build_rejects_options_that_mean_nothing(options: dict[str, object], message: str, tmp_path: Path) -> None:
    model, images = float_model()
    with pytest.raises(InputError) as caught:
        nnhw.build(model, images[:2], out=tmp_path / "b", **options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "b").exists()


def test_api_progress_is_shown_where_somebody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    own = PlainProgress()
    assert shown_progress(own) is own
    assert isinstance(shown_progress(True), SilentProgress)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    assert not isinstance(shown_progress(True), SilentProgress)
    assert isinstance(shown_progress(False), SilentProgress)


def test_api_objects_show_tables_in_a_notebook(small_net: str, tmp_path: Path) -> None:
    source = load_source(small_net)
    assert isinstance(source.model, torch.nn.Module)
    build = nnhw.build(source.model, source.example_input, name="small", out=tmp_path / "<b>", stop_at="map")
    shown = build._repr_html_()
    assert shown.startswith("<table>")
    assert "<b>small</b>" in shown
    assert "icebreaker" in shown
    assert "&lt;b&gt;" in shown
    assert f"{build.report['cycles']['interval']['predicted']:,}" in shown
    reference = nnhw.reference(source.model)
    assert "with its first images" in reference._repr_html_()
    reference(source.example_input)
    assert "[1, 4, 4]" in reference._repr_html_()
    model, images = float_model()
    assert "not measured" in nnhw.quantize(model, images)._repr_html_()
    with nnhw.open(build.path, link="model") as device:
        assert "<td" in device._repr_html_()
        assert "open" in device._repr_html_()
    assert "closed" in device._repr_html_()
