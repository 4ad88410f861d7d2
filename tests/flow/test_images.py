"""A folder of pictures as calibration data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from nnhw.cli import app
from nnhw.errors import InputError
from nnhw.flow.models import images
from nnhw.flow.models.images import load_images

MODEL = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 2)).eval()
example_input = torch.rand(4, 3, 6, 8)
"""


def pictures(folder: Path, count: int = 6, size: tuple[int, int] = (8, 6), mode: str = "RGB") -> np.ndarray:
    """Write pictures into two folders below one; return their pixels in the order of paths."""
    rng, made = np.random.default_rng(0), []
    for number in range(count):
        shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
        pixels = rng.integers(0, 256, shape, np.uint8)
        path = folder / ("cats" if number < count // 2 else "dogs") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        made.append(pixels)
    (folder / "notes.txt").write_text("no picture")
    return np.stack(made)


def test_pictures_are_numbers_in_0_to_1_by_channels(tmp_path: Path) -> None:
    pixels = pictures(tmp_path)
    loaded = load_images(tmp_path, (3, 6, 8))
    assert loaded.dtype == np.float32
    assert np.array_equal(loaded, pixels.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255))


def test_grey_pictures_have_one_channel(tmp_path: Path) -> None:
    pixels = pictures(tmp_path, mode="L")
    assert np.array_equal(load_images(tmp_path, (1, 6, 8)), pixels[:, np.newaxis].astype(np.float32) / np.float32(255))


def test_of_many_pictures_some_are_read_evenly_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = pictures(tmp_path, count=7)
    monkeypatch.setattr(images, "MOST_IMAGES", 3)
    loaded = load_images(tmp_path, (3, 6, 8))
    assert np.array_equal(loaded, pixels[[0, 3, 6]].transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255))


def test_what_is_no_calibration_data_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no picture in it"):
        load_images(tmp_path, (3, 6, 8))
    pictures(tmp_path)
    with pytest.raises(InputError, match=r"0\.png' has 8 x 6 pixels, and the model takes 8 x 8; resize the pictures"):
        load_images(tmp_path, (3, 8, 8))
    with pytest.raises(InputError, match=r"the model takes images of shape \[16\], neither grey"):
        load_images(tmp_path, (16,))
    (tmp_path / "cats" / "broken.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"picture '.*broken\.png' cannot be read: .*; take it out of the folder"):
        load_images(tmp_path, (3, 6, 8))


def test_command_line_takes_a_folder(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures", count=12)
    (tmp_path / "net.py").write_text(MODEL, encoding="utf-8")
    result = CliRunner().invoke(app, ["check", str(tmp_path / "net.py"), "--calibrate", str(tmp_path / "pictures")])
    assert result.exit_code == 0, result.output
    assert "no problems" in result.output
