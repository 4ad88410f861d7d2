"""The names of the package: lazy, and what the README says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import nnhw
from nnhw.frontend import load_source


def test_api_names_are_there_and_stay_functions(small_net: str) -> None:
    source = load_source(small_net)
    for _ in range(2):  # a module of the same name must not take a function's place after its first use
        assert all(callable(getattr(nnhw, name)) for name in ("build", "open", "quantize", "reference"))
        images = np.random.default_rng(1).random((3, 1, 4, 4)).astype(np.float32)
        assert nnhw.reference(source.model)(images).shape == (3, 4)
    assert set(nnhw.__all__) <= set(dir(nnhw))


def test_api_errors_are_caught_by_one_name() -> None:
    with pytest.raises(nnhw.NnhwError, match="icestik"):
        nnhw.build(torch.nn.Linear(4, 2), torch.zeros(1, 4), board="icestik")


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
