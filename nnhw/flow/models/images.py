"""A folder of pictures as calibration data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from nnhw.errors import InputError

MOST_IMAGES = 1024
"""Pictures that are read, evenly spread over the folder: as many as `nnhw.quantize` takes of a `Dataset`."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".webp", ".tif", ".tiff")
_MODES = {1: "L", 3: "RGB"}


def load_images(folder: Path, shape: Sequence[int]) -> np.ndarray:
    """Return the pictures in a folder and in the folders below it, float32 [N, channels, height, width] in 0..1.

    They are read in the order of their paths and converted to grey (1 channel) or RGB (3 channels). They are not
    resized: how pictures are cropped and scaled belongs to the model.

    Parameters
    ----------
    shape: shape of one image of the model, (channels, height, width).

    Raises
    ------
    InputError: the folder has no picture, or one that cannot be read or has another size; or the model's input has
        neither 1 nor 3 channels.
    """
    if len(shape) != 3 or shape[0] not in _MODES:
        raise InputError(
            f"calibration data '{folder}' is a folder, of pictures, but the model takes images of shape {list(shape)}, "
            "neither grey [1, height, width] nor RGB [3, height, width]; give an .npy file"
        )
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not found:
        raise InputError(f"calibration data '{folder}' has no picture in it, none of {', '.join(SUFFIXES)}")
    places = np.linspace(0, len(found) - 1, min(len(found), MOST_IMAGES)).round().astype(int)
    return np.stack([_read(found[place], shape) for place in places])


def _read(path: Path, shape: Sequence[int]) -> np.ndarray:
    channels, height, width = shape
    try:
        with Image.open(path) as picture:
            size = picture.size
            pixels = np.asarray(picture.convert(_MODES[channels]), np.float32) / np.float32(255)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, ValueError) as error:
        raise InputError(f"picture '{path}' cannot be read: {error}; take it out of the folder") from None
    if size != (width, height):
        raise InputError(
            f"picture '{path}' has {size[0]} x {size[1]} pixels, and the model takes {width} x {height}; resize the "
            "pictures as you do for the model"
        )
    return pixels[np.newaxis] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
