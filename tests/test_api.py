"""The names of the package: lazy, and what the README says of them."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import nnhw
from nnhw.flow.pipeline import Build
from nnhw.frontend import load_source


def test_api_names_are_there_and_stay_functions(small_net: str) -> None:
    source = load_source(small_net)
    for _ in range(2):  # a module of the same name must not take a function's place after its first use
        assert all(callable(getattr(nnhw, name)) for name in ("build", "open", "quantize", "reference", "search"))
        images = np.random.default_rng(1).random((3, 1, 4, 4)).astype(np.float32)
        assert nnhw.reference(source.model)(images).shape == (3, 4)
    assert set(nnhw.__all__) <= set(dir(nnhw))


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
