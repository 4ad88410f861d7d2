"""Conversion of a user's images (torch tensors of any kind, arrays, lists) to NumPy, and of results to their form."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nnhw.errors import InputError

SMALL = np.uint8(8)
"""Larger than normalized pixels and features, and smaller than most pixels of an 8-bit image."""
LOOKED_AT = 16
"""Number of images that show whether the input of a model tells bytes apart."""
Answer = Callable[[np.ndarray], Any]
"""Gives results the form of the images: a tensor for tensors, floats of their dtype."""
_BFLOAT16_BITS, _BFLOAT16_LEAST_EXPONENT = 8, -133
"""Significant bits, and exponent of the smallest number above 0."""


def as_array(images: Any) -> tuple[np.ndarray, Answer]:
    """Return images as an array of real numbers, without changing a value, and a function for their results.

    bfloat16 and floats of 8 bits become float32, which holds their values exactly; sparse tensors become dense ones.

    That function makes a tensor of results where images were a tensor, and rounds floats once, to the nearest number of
    the images' dtype. Where images are integers or floats of 8 bits, and where results are integers, all bits stay.
    It raises InputError for a result beyond the dtype's range.

    Raises
    ------
    InputError: the images are something else, such as complex numbers, text, or Python objects.
    """
    # Not imported: a program that has tensors has torch, and all others are spared seconds of import.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(images, torch.Tensor):
        return _checked(_of_tensor(images, torch)), partial(_as_tensor, dtype=images.dtype, torch=torch)
    if hasattr(images, "toarray"):  # a sparse matrix of SciPy
        images = images.toarray()
    try:
        array = np.asarray(images)
    except (ValueError, TypeError) as error:
        raise InputError(f"images: they are no array of numbers ({error}); give an array [N, ..]") from None
    array = _checked(array)
    return array, partial(_as_float, dtype=array.dtype)


def _as_tensor(values: np.ndarray, dtype: Any, torch: Any) -> Any:
    """Return results as a tensor; floats in the dtype of the images, if PyTorch computes in it."""
    if dtype == torch.bfloat16 and values.dtype.kind == "f":
        return torch.from_numpy(_as_bfloat16(values)).to(dtype)
    # By NumPy, as PyTorch rounds float64 to float32 first, and that to float16.
    kinds = {torch.float16: np.float16, torch.float32: np.float32}
    return torch.from_numpy(_as_float(values, np.dtype(kinds.get(dtype, np.float64))))


def _as_float(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return floats rounded to `dtype` if it is a floating-point type; return everything else unchanged."""
    if values.dtype.kind != "f" or dtype.kind != "f":
        return values
    with np.errstate(over="ignore"):
        made = values.astype(dtype, copy=False)
    return _in_range(made, values, str(dtype))


def _as_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return floats rounded to those of bfloat16, which NumPy has not; in float32, which holds them."""
    exponent = np.maximum(np.frexp(values)[1] - _BFLOAT16_BITS, _BFLOAT16_LEAST_EXPONENT)
    with np.errstate(over="ignore"):
        made = np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent).astype(np.float32)
    return _in_range(made, values, "bfloat16")


def _in_range(made: np.ndarray, values: np.ndarray, name: str) -> np.ndarray:
    beyond = ~np.isfinite(made)
    if beyond.any():
        raise InputError(
            f"images: they are {name}, so the results are {name}, but {values[beyond][0]:g} is out of its range; "
            "use float32 or float64 images"
        )
    return made


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
    codes = encode(large) if len(large) else None
    if codes is not None and np.array_equal(codes, encode(np.minimum(large, SMALL))):
        end = next(end for end in range(SMALL + 1) if np.array_equal(codes, encode(np.minimum(large, np.uint8(end)))))
        raise InputError(
            f"images: they are uint8 with values up to {large.max()}, but the input of this model does not "
            f"distinguish values from {end} on, so it was made for smaller numbers; scale the images as in training, "
            "such as (x / 255).astype(np.float32), or use x.astype(np.float32) if the values are right as they are"
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
