"""Pooling layers that end in a truncation, as exact sums of codes."""

from __future__ import annotations

from dataclasses import replace

import torch
from brevitas.nn import TruncAdaptiveAvgPool2d, TruncAvgPool2d
from brevitas.quant_tensor import IntQuantTensor
from torch import Tensor, nn

from .coding import truncating
from .handlers import QuantizeCall
from .values import PlainQuantTensor, plain_result

TRUNCATED = (TruncAvgPool2d, TruncAdaptiveAvgPool2d)
_NO_BIT = 1e-5  # what rounding of scales to float32 can make of a whole number of bits


class TruncatedPool(nn.Module):
    """Average pooling whose mean keeps the upper bits of a sum.

    Brevitas divides by the number of pixels first, and cleans up what that did to the sum by rounding. Here the sum is
    truncated as it is, and what is left gets the scale that Brevitas gives to it.

    Parameters
    ----------
    layer: as it was called.
    given, made: its argument and its result.
    """

    def __init__(self, layer: TruncAvgPool2d | TruncAdaptiveAvgPool2d, given: IntQuantTensor, made: IntQuantTensor):
        super().__init__()
        self.kernel, self.stride = _windows(layer, given, made)
        self.trunc_quant = layer.trunc_quant
        # Not the result's scale, which Brevitas has rounded to float32: the codes must be those of the exact sum.
        scale = given.scale * 2.0 ** round(_bits(layer, given, made)[0])
        self.sums = QuantizeCall(replace(truncating(layer.trunc_quant, made), scale=scale.detach().reshape(-1)))
        self.register_buffer("rescale", (made.scale / scale).detach())

    def forward(self, x: Tensor | PlainQuantTensor) -> PlainQuantTensor:
        """Add, truncate, and scale."""
        # A divisor of 1 makes a sum of the mean: integers, which are exact.
        sums = nn.functional.avg_pool2d(plain_result(x), self.kernel, self.stride, divisor_override=1)
        result: PlainQuantTensor = self.trunc_quant.export_handler(self.sums(sums) * self.rescale)[0]
        return result


def refusal_of_truncation(layer: nn.Module, given: IntQuantTensor, made: IntQuantTensor) -> str:
    """Return why a layer with a truncation has no exact form here; empty if it has one."""
    sizes = given.value.shape[2:], made.value.shape[2:]
    if getattr(layer, "ceil_mode", False):
        return "has windows beyond the edge (ceil_mode), whose mean is of fewer pixels; use ceil_mode=False"
    if isinstance(layer, TruncAdaptiveAvgPool2d) and any(size % count for size, count in zip(*sizes, strict=True)):
        return (
            f"has windows of different sizes, for {list(sizes[1])} do not divide {list(sizes[0])}; use TruncAvgPool2d"
        )
    bits = _bits(layer, given, made)
    if max(abs(number - round(bits[0])) for number in bits) > _NO_BIT:
        return f"truncates by {bits[0]:g} bits; use whole bits (TruncMsbScaling), the same for all channels"
    if (given.zero_point != 0).any():
        return "truncates codes with a zero point, which is no code of the mean; use a quantizer without one in front"
    return ""


def _bits(layer: nn.Module, given: IntQuantTensor, made: IntQuantTensor) -> list[float]:
    """Return how many bits of a sum are truncated, for each channel; Brevitas computes its scales in float32."""
    height, width = _windows(layer, given, made)[0]
    divisor = getattr(layer, "divisor_override", None) or height * width
    bits: list[float] = torch.log2(made.scale.double() * divisor / given.scale.double()).flatten().tolist()
    return bits


def _windows(layer: nn.Module, given: IntQuantTensor, made: IntQuantTensor) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return height and width of the windows, and their strides."""
    if isinstance(layer, TruncAdaptiveAvgPool2d):
        height, width = (size // count for size, count in zip(given.value.shape[2:], made.value.shape[2:], strict=True))
        return (height, width), (height, width)
    assert isinstance(layer, TruncAvgPool2d)
    return _pair(layer.kernel_size), _pair(layer.stride)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)
