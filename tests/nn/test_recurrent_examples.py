"""The recurrent examples: equal to their reference for any number of steps, and as good as their page says."""

from __future__ import annotations

import copy
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from examples import motion_lstm, spoken_digits
from nnhw.frontend.reference import Reference, reference

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder with the data sets; the training programs import their models as scripts do."""
    folder = os.environ.get("NNHW_DATA")
    if not folder:
        pytest.skip("needs NNHW_DATA, a folder with datasets/fsdd_8k.npz and BasicMotions_TEST.ts")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return folder


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name in ("motion_lstm", "spoken_digits", "train_motion", "train_spoken_digits"):
            del sys.modules[name]


NETWORKS: dict[str, tuple[nn.Module | None, Callable[[int, int], torch.Tensor]]] = {
    "motion": (motion_lstm.model, motion_lstm.swings),
    "digits": (spoken_digits.model, spoken_digits.chirps),
}


@functools.cache
def reference_of(name: str) -> Reference:
    """Return the reference of an example, traced once for sequences of any length."""
    model, draw = NETWORKS[name]
    assert model is not None
    return reference(model, draw(2, 9))


@pytest.mark.parametrize("steps", [1, 9, 40])
@pytest.mark.parametrize("name", NETWORKS)
def test_examples_equal_their_reference_for_any_number_of_steps(name: str, steps: int) -> None:
    model, draw = NETWORKS[name]
    sequences = draw(5, steps)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(sequences.double())  # type: ignore[union-attr]
    assert len(exact.unique()) > 3
    assert torch.equal(reference_of(name)(sequences), exact)


def test_features_of_a_tone_are_where_its_pitch_is() -> None:
    seconds = torch.arange(8000) / 8000
    tones = [8000 * torch.sin(2 * torch.pi * hz * seconds) for hz in (300, 900, 2500)]
    bands = [int(spoken_digits.features(tone).mean(0).argmax()) for tone in tones]
    assert bands == sorted(set(bands))
    assert spoken_digits.features(torch.zeros(256)).shape == (1, spoken_digits.BANDS)
    silence = spoken_digits.features(torch.zeros(1024))
    assert torch.equal(silence, torch.full_like(silence, -1.5))


def test_spoken_digits_are_recognized_as_well_as_stated(data: str) -> None:
    from train_spoken_digits import load_digits

    model = spoken_digits.model
    assert model is not None
    _, _, test = load_digits(data)
    with torch.no_grad():
        right = sum(int(model(sequence[None]).argmax()) == label for sequence, label in test)
    assert (right, len(test)) == (188, 200)


def test_movements_are_told_as_well_as_stated(data: str) -> None:
    from train_motion import accuracy, load_motions

    model = motion_lstm.model
    assert model is not None
    assert accuracy(model, load_motions("TEST", data)) == 92.5
