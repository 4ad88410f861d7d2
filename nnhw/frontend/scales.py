"""Scales of codes after operations that move elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnhw.errors import CaptureError
from nnhw.ir import Op
from nnhw.ir.ops import MaxPool2d, Pad


def moved(scale: np.ndarray, shape: tuple[int, ...], op: Op) -> np.ndarray:
    """Return the scale of codes of `shape` after an op that moves, repeats, pads or selects elements.

    Raises: CaptureError where elements of different scales would be combined.
    """
    if not scale.ndim:
        return scale
    if isinstance(op, Pad | MaxPool2d):
        aligned = scale.reshape((1,) * (len(shape) - scale.ndim) + scale.shape)
        if aligned.shape[1:] != (1,) * (len(shape) - 1):
            raise CaptureError(f"{op.name} needs codes with one scale per channel, got scales {list(scale.shape)}")
        return scale
    return compressed(op.evaluate(np.broadcast_to(scale, shape)[None])[0])


def compressed(scale: np.ndarray) -> np.ndarray:
    """Return the smallest array that broadcasts to `scale`: axes along which it does not change have size 1, or are
    gone.
    """
    for axis in range(scale.ndim):
        first = scale.take([0], axis=axis)
        if (scale == first).all():
            scale = first
    return scale.reshape(()) if scale.size == 1 else np.ascontiguousarray(scale)


def merged(scales: Sequence[np.ndarray], axis: int, shapes: Sequence[tuple[int, ...]]) -> np.ndarray | None:
    """Return the scale of a concatenation along `axis`; None if its parts have different scales."""
    first = scales[0]
    if all(not scale.ndim for scale in scales):
        return first if all(scale == first for scale in scales) else None
    full = [np.broadcast_to(scale, shape) for scale, shape in zip(scales, shapes, strict=True)]
    if axis == 0:
        return compressed(np.concatenate(full, axis=0))
    same = all(scale.shape == first.shape and (scale == first).all() for scale in scales)
    return compressed(np.concatenate(full, axis=axis)) if same else None
