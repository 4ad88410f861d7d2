"""Inputs that are clipped far more often than calibration data are noticed; others pass without a word."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import nnhw
from nnhw.driver.saturation import InputUse
from nnhw.errors import BuildError, InputError, SaturationWarning
from nnhw.flow.running.finished import run_file
from nnhw.flow.tools.progress import SilentProgress
from nnhw.ir import IntType

UINT4 = IntType(0, 15)
DATA = torch.rand(64, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a mapped network whose calibration data lies in 0..1."""
    torch.manual_seed(0)
    model = nnhw.quantize(nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4)).eval(), [DATA])
    out = tmp_path_factory.mktemp("saturated") / "build"
    return nnhw.build(model, DATA[:2], board="icebreaker", stop_at="map", out=out).path


def test_device_warns_of_inputs_of_another_scale(build: Path) -> None:
    with nnhw.open(build, link="model") as device:
        with pytest.warns(SaturationWarning, match=r"images: 9\d.\d% of the input values have the highest code of"):
            device(DATA * 255)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(device(DATA)) == 64


def test_strict_device_refuses_inputs_of_another_scale(build: Path) -> None:
    with nnhw.open(build, link="model", strict=True) as device:
        with pytest.raises(InputError, match=r"^images: .* but only 0\.\d% of the calibration .* \(such as x / 255\)"):
            device(DATA * 255)
        with pytest.raises(InputError, match="have the lowest code"):
            device(DATA - 1)
        assert len(device(DATA)) == 64


def test_run_notes_inputs_of_another_scale(build: Path, tmp_path: Path) -> None:
    notes: list[str] = []

    class Noting(SilentProgress):
        def note(self, text: str) -> None:
            notes.append(text)

    np.save(tmp_path / "bytes.npy", DATA.numpy() * 255)
    assert len(run_file(build, tmp_path / "bytes.npy", "model", progress=Noting()).results) == 64
    assert [note.startswith("images: 99.") for note in notes] == [True]
    with pytest.raises(InputError, match="highest code"):
        run_file(build, tmp_path / "bytes.npy", "model", strict=True)


def test_use_is_read_only_whole(build: Path, tmp_path: Path) -> None:
    use = InputUse.read(build)
    assert use is not None
    assert (use.lowest, use.highest) == (DATA.min(), DATA.max())
    (tmp_path / "lower.json").write_text('{"input": {"lowest": 0}}')
    with pytest.raises(BuildError, match=r"lower\.json' cannot be read"):
        InputUse.read(tmp_path)


@given(st.integers(1, 2000), st.floats(0, 0.4), st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_chance_alone_is_no_saturation(count: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)

    def use(number: int) -> InputUse:
        codes = np.where(rng.random(number) < share, 15, rng.integers(1, 15, number))
        found = InputUse.of(codes, codes, UINT4)
        assert found is not None
        return found

    assert use(count).more_than(use(4096), count) is None


def test_inputs_of_two_values_and_none_have_no_ends() -> None:
    values = np.ones((4, 3))
    assert InputUse.of(values, values, IntType(-1, 1, bipolar=True)) is None
    assert InputUse.of(values[:0], values[:0], UINT4) is None


def test_ends_that_are_usual_are_no_saturation() -> None:
    dark, black, white = InputUse(0, 1, 0.8, 0.01), InputUse(-1, 0, 1, 0), InputUse(0, 255, 0.8, 0.2)
    assert dark.more_than(dark, 784) is None
    assert black.more_than(dark, 784 * 100) is not None
    assert white.more_than(dark, 784) is not None


def test_black_and_white_images_within_the_usual_range_are_no_saturation() -> None:
    usual = InputUse(0.0001, 0.9998, 0.01, 0.01)
    assert InputUse(0, 1, 0.5, 0.5).more_than(usual, 784) is None
    assert InputUse(0, 1.2, 0.5, 0.5).more_than(usual, 784) is not None
