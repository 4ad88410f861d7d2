"""Conversion of a user's images (torch tensors of any kind, arrays, lists) to NumPy, without changing a value."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from nnhw.errors import InputError


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
