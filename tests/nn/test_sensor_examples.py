"""The examples behind sensors: as good as their page says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def _on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])


def test_digits_in_front_of_a_camera_are_recognized_as_well_as_stated() -> None:
    import mnist_camera

    assert mnist_camera.model is not None
    with np.load(EXAMPLES / "data" / "mnist_300.npz", allow_pickle=False) as samples:
        labels = samples["labels"]
    with torch.no_grad():
        found = mnist_camera.model.eval()(mnist_camera.pictures(0, 300))[:, 0].argmax(1).numpy()
    assert int((found == labels).sum()) == 298


@pytest.mark.skipif("NNHW_DATA" not in os.environ, reason="needs datasets/fsdd_8k.npz")
def test_spoken_digits_at_a_microphone_are_recognized_as_well_as_stated() -> None:
    from spoken_digits_mic import model
    from train_spoken_digits import TEST, load_recordings
    from train_spoken_digits_mic import recognized, sounds

    assert model is not None
    part = [(pcm, digit) for pcm, digit, index in load_recordings() if index in TEST]
    recordings, frames = recognized(model, sounds(model, part, 0, louder=False))
    assert recordings == 99.5
    assert round(frames, 2) == 97.37
