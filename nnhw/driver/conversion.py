"""Conversion of a user's images (torch tensors of any kind, arrays, lists) to NumPy, without changing a value."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from nnhw.errors import InputError

SMALL = np.uint8(8)
"""More than normalized pixels and features are, and less than most pixels of a picture in bytes."""
LOOKED_AT = 16
"""Images that are enough to see whether the input of a model tells bytes apart."""


def as_array(images: Any) -> tuple[np.ndarray, Any]:
    """Return (images as an array of real numbers, the module torch if they were a tensor, else None).

    bfloat16 and floats of 8 bits become float32, which holds their values exactly; sparse tensors become dense ones.

    Raises
    ------
    InputError: the images are something else, such as complex numbers, text, or Python objects.
    """
    # Not imported: a program that has tensors has torch, and all others are spared seconds of import.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(images, torch.Tensor):
        return _checked(_of_tensor(images, torch)), torch
    if hasattr(images, "toarray"):  # a sparse matrix of SciPy
        images = images.toarray()
    try:
        array = np.asarray(images)
    except (ValueError, TypeError) as error:
        raise InputError(f"images: they are no array of numbers ({error}); give an array [N, ..]") from None
    return _checked(array), None


def check_bytes(images: np.ndarray, encode: Callable[[np.ndarray], np.ndarray]) -> None:
    """Refuse uint8 images for a model that was made for small numbers, such as pixels divided by 255.

    Whether it was, its own input tells: where all values from `SMALL` on become the same codes, the pixels of a picture
    are lost. Models whose input takes 0 to 255 tell them apart.

    Parameters
    ----------
    images: [N, ..].
    encode: gives the codes of images, an array with a row for each.

    Raises
    ------
    InputError: they are uint8, and every value above `SMALL` is the same to the model.
    """
    if images.dtype != np.uint8 or not images.size:
        return
    large = images[images.reshape(len(images), -1).max(axis=1) > SMALL][:LOOKED_AT]
    if len(large) and np.array_equal(encode(large), encode(np.minimum(large, SMALL))):
        raise InputError(
            f"images: they are uint8 with values up to {large.max()}, but to the input of this model all values from "
            f"{SMALL} on are the same, as it was made for smaller numbers; give them as the model was trained with "
            "them, such as (x / 255).astype(np.float32); if the values are meant as they are, x.astype(np.float32)"
        )


def _of_tensor(images: Any, torch: Any) -> np.ndarray:
    """Return a tensor as an array, whatever its layout (sparse too) and its device."""
    kind = str(images.dtype).removeprefix("torch.")
    try:
        tensor = images.detach()
        if tensor.layout != torch.strided:
            tensor = tensor.to_dense()
        tensor = tensor.cpu().resolve_conj().resolve_neg()
        if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
            tensor = tensor.to(torch.float32)
        return np.asarray(tensor.numpy())
    except (TypeError, RuntimeError) as error:
        line = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"images: a torch tensor of {kind} cannot become an array of numbers ({line}); give float32 or integers"
        ) from None


def _checked(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "buif":
        raise InputError(
            f"images: they hold {array.dtype}, but real numbers are needed; convert them to float32 or integers"
        )
    return array
