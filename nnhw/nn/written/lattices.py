"""Numbers as integer codes times a scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

GREATEST_CODE = 255
"""Greatest magnitude of a code: 8 bits, or the odd numbers among 9 for 2 * k / 255 - 1."""
_ROUNDINGS = 64
"""Roundings of float64, relative to the greatest number, that the computation of a number may add up."""
OFTEN = 4
"""How often a level occurs, at least, on average, among weights that somebody has quantized."""
_NEAR = 2.0**-20
"""Share of the scale below which a remainder is one of rounding, where the scale is searched."""


@dataclass(frozen=True, eq=False)
class Lattice:
    """Numbers as codes times a scale.

    Parameters
    ----------
    scale: float64, above 0: one, [1], or one for each channel.
    low, high: least and greatest code.
    bipolar: the codes are -1 and +1 alone.
    """

    scale: Tensor
    low: int
    high: int
    bipolar: bool


def lattice_of(numbers: Tensor) -> Lattice | None:
    """Return the greatest scale of which all numbers are multiples; None if there is none with small codes.

    Parameters
    ----------
    numbers: [N], float64, computed with some roundings each.
    """
    scale = _scale_of(numbers, torch.finfo(torch.float64).eps * _ROUNDINGS)
    return None if scale is None else _lattice(numbers, scale)


def _lattice(numbers: Tensor, scale: float) -> Lattice:
    codes = torch.round(numbers / scale)
    bipolar = set(codes.tolist()) == {-1.0, 1.0}
    return Lattice(torch.tensor([scale], dtype=torch.float64), int(codes.min()), int(codes.max()), bipolar)


def lattice_of_weights(weights: Tensor, axis: int | None) -> Lattice | None:
    """Return weights as codes times one scale, or a scale for each index along an axis; None if they are neither.

    Parameters
    ----------
    weights: float64.
    axis: of the outputs; None: there is none.
    """
    one = _lattice_of_weights(weights, axis, torch.finfo(torch.float64).eps * _ROUNDINGS)
    # Weights that were stored as float32 are rounded to it; among few levels of many weights that is no coincidence.
    if one is None and weights.numel() >= OFTEN * len(torch.unique(weights)):
        one = _lattice_of_weights(weights, axis, torch.finfo(torch.float32).eps)
    return one


def _lattice_of_weights(weights: Tensor, axis: int | None, rounding: float) -> Lattice | None:
    numbers = torch.unique(weights)
    scale = _scale_of(numbers, rounding)
    if scale is not None:
        return _lattice(numbers, scale)
    if axis is None:
        return None
    channels = [torch.unique(channel) for channel in weights.movedim(axis, 0)]
    # A channel of zeros takes any scale.
    found = [_scale_of(channel, rounding) if bool(channel.any()) else 1.0 for channel in channels]
    scales = [scale for scale in found if scale is not None]
    if len(scales) < len(channels):
        return None
    codes = torch.cat([torch.round(channel / scale) for channel, scale in zip(channels, scales, strict=True)])
    bipolar = set(codes.tolist()) == {-1.0, 1.0}
    return Lattice(torch.tensor(scales, dtype=torch.float64), int(codes.min()), int(codes.max()), bipolar)


def _scale_of(numbers: Tensor, rounding: float) -> float | None:
    """Return the greatest scale of which all numbers are multiples, up to rounding relative to the greatest one."""
    sizes = torch.unique(numbers.abs())
    sizes = sizes[sizes > 0]
    if not len(sizes) or len(sizes) > GREATEST_CODE or not bool(torch.isfinite(sizes).all()):
        return None
    greatest = float(sizes[-1])
    scale = 0.0
    for size in sizes.tolist():
        scale = _divisor(size, scale, greatest / GREATEST_CODE * 0.5)
        if not scale:
            return None
    # Each number tells the scale, more or less rounded: the one that fits all others best is taken.
    tried = sizes / torch.round(sizes / scale)
    apart = (torch.round(sizes / scale) * tried[:, None] - sizes).abs().amax(dim=1)
    scale = float(tried[int(apart.argmin())])
    if not math.isfinite(scale) or scale < torch.finfo(torch.float32).tiny:
        return None
    is_exact = float(apart.min()) <= rounding * greatest
    return scale if is_exact and round(greatest / scale) <= GREATEST_CODE else None


def _divisor(left: float, right: float, least: float) -> float:
    """Return the greatest common divisor of two numbers, up to rounding; 0 below the least one that counts."""
    left, right = max(left, right), min(left, right)
    while right > left * _NEAR:
        rest = left % right
        # What is left of rounding is next to 0 or to the divisor.
        if min(rest, right - rest) <= right * _NEAR:
            rest = 0.0
        left, right = right, min(rest, right - rest) if rest else 0.0
        if left < least:
            return 0.0
    return left
