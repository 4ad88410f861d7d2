"""Layers and builders of TFLite's elementwise operators: sums, products with constants, activations, softmax."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from nnhw.nn.rescale_operator import quantized_multiplier

from . import fixed_point
from .linear import from_image, to_image
from .model_file import FileTensor
from .moving import Channelwise
from .requantization import WIDE, RescaleCall, Site, Whole, bounded
from .torch_operators import fixed_softmax, lookup

_LEFT = 20
"""Fraction bits of the fixed-point numbers that ADD and SUB add."""


class Sum(nn.Module):
    """ADD and SUB of two values: both are rescaled to one fixed point, added, and rescaled to the result's codes."""

    def __init__(self, first: RescaleCall, second: RescaleCall, result: RescaleCall, difference: bool) -> None:
        super().__init__()
        self.first, self.second, self.result, self.difference = first, second, result, difference

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Distances (code - zero point) of two values of one shape --> those of their sum or difference."""
        left, right = self.first(to_image(a)), self.second(to_image(b))
        return from_image(self.result(left - right if self.difference else left + right))


class SumWithConstant(nn.Module):
    """ADD and SUB of a value and a constant, which is the bias of the last rescaling."""

    def __init__(self, first: RescaleCall, result: RescaleCall) -> None:
        super().__init__()
        self.first, self.result = first, result

    def forward(self, x: Tensor) -> Tensor:
        """Distances of the value --> distances of the sum, of the same shape."""
        return from_image(self.result(self.first(to_image(x))))


class Multiplication(nn.Module):
    """MUL with constants, one or one for each channel: a depthwise 1x1 convolution.

    Parameters
    ----------
    factors: int64 [channels].
    """

    def __init__(self, factors: np.ndarray, rescaled: RescaleCall) -> None:
        super().__init__()
        self.factors, self.rescaled = Whole(factors.reshape(-1, 1, 1, 1)), rescaled

    def forward(self, x: Tensor) -> Tensor:
        """Distances of the value --> distances of the product, of the same shape."""
        image = to_image(x) if x.dim() == 4 else x.reshape(*x.shape, *[1] * (4 - x.dim()))
        made = self.rescaled(functional.conv2d(image, self.factors(), groups=image.shape[1]))
        return from_image(made) if x.dim() == 4 else made.reshape(x.shape)


class CodeFunction(nn.Module):
    """A function of one code, as a table.

    Parameters
    ----------
    values: the function's value for each distance of a code from its zero point, from `low` on.
    """

    values: Tensor

    def __init__(self, values: list[int], low: int) -> None:
        super().__init__()
        self.register_buffer("values", torch.tensor(values))
        self.low = low

    def forward(self, x: Tensor) -> Tensor:
        """Any shape of distances --> the same shape of values."""
        result: Tensor = lookup(x, self.values, self.low)
        return result


class Probabilities(nn.Module):
    """SOFTMAX along the last axis, in steps of 1 / 256.

    Parameters
    ----------
    multiplier, left, least: see `softmax_factor`.
    """

    def __init__(self, multiplier: int, left: int, least: int) -> None:
        super().__init__()
        self.multiplier, self.left, self.least = multiplier, left, least

    def forward(self, x: Tensor) -> Tensor:
        """[N, .., channels] of distances --> distances of the result from its zero point, -128."""
        result: Tensor = fixed_softmax(x, self.multiplier, self.left, self.least)
        return result


def added(site: Site) -> nn.Module:
    """Build an ADD or SUB."""
    a, b, made = site.given(0), site.given(1), site.made
    site.check_codes(a, b, made)
    difference = site.operator.kind == "SUB"
    # TFLite's unit of both operands, by which their factors are at most 1/2.
    twice = 2 * max(a.scale, b.scale)
    first, second = (RescaleCall([x.scale / twice], 0, -WIDE, WIDE, site.rounding, _LEFT) for x in (a, b))
    factor = twice / ((1 << _LEFT) * made.scale)
    if factor >= 1:
        raise site.refusal("has scales too far apart; convert the model again")
    if a.data is None and b.data is None:
        if a.shape != b.shape:
            raise site.refusal(f"adds values of the shapes {list(a.shape)} and {list(b.shape)}; both need one shape")
        if a is b:
            raise site.refusal("adds a value to itself; multiply it by a constant instead")
        return Sum(first, second, RescaleCall([factor], 0, *site.bounds(), site.rounding), difference)
    value, constant = (a, b) if b.data is not None else (b, a)
    if difference and constant is a:
        raise site.refusal("subtracts a value from a constant; add its negative instead")
    # TFLite rescales the constant for each element anew; the result is always the same.
    scaled = _scaled(constant, second if constant is b else first)
    row = _per_channel(site, value, constant, scaled)
    sign = -1 if difference else 1
    result = RescaleCall([factor], sign * row, *site.bounds(), site.rounding)
    return SumWithConstant(first if value is a else second, result)


def _scaled(constant: FileTensor, rescaled: RescaleCall) -> np.ndarray:
    assert constant.data is not None
    codes = torch.from_numpy(constant.data.astype(np.float64).reshape(1, 1, -1) - constant.zero_point)
    return rescaled(codes).numpy().astype(np.int64).reshape(constant.shape)


def _per_channel(site: Site, value: FileTensor, constant: FileTensor, numbers: np.ndarray) -> np.ndarray:
    """Return constants as one number, or one for each channel of a value.

    Raises
    ------
    CaptureError: they are neither, or have more axes than the value, which the result gets, too.
    """
    if site.made.shape != value.shape:
        raise site.refusal(
            f"makes {list(site.made.shape)} of {list(value.shape)} and a constant of {list(constant.shape)}; the "
            f"result needs the shape of the computed value"
        )
    if numbers.size == 1:
        return numbers.reshape(1)
    axis = len(value.shape) - 1
    if (
        numbers.size != value.shape[-1]
        or (len(constant.shape) and constant.shape[-1] != numbers.size)
        or axis not in (1, 3)
    ):
        raise site.refusal(
            f"has a constant of shape {list(constant.shape)} for {list(value.shape)}; one number is needed, or one for "
            f"each channel"
        )
    return numbers.reshape(-1)


def multiplied(site: Site) -> nn.Module:
    """Build a MUL."""
    a, b, made = site.given(0), site.given(1), site.made
    site.check_codes(a, b, made)
    if a.data is None and b.data is None:
        raise site.refusal("multiplies two values that both depend on the input; there is no engine for that")
    value, constant = (a, b) if b.data is not None else (b, a)
    assert constant.data is not None
    factors = _per_channel(site, value, constant, constant.data.astype(np.int64) - constant.zero_point)
    if not 2 <= len(value.shape) <= 4:
        raise site.refusal(f"multiplies {list(value.shape)}; values of 2 to 4 axes are supported")
    channels = value.shape[3] if len(value.shape) == 4 else value.shape[1]
    # In float64 as TFLite Micro has it; TFLite itself multiplies and divides these scales in float32.
    rescaled = RescaleCall([a.scale * b.scale / made.scale], 0, *site.bounds(), site.rounding)
    return Multiplication(np.broadcast_to(factors, channels), rescaled)


def rectified(site: Site) -> nn.Module:
    """Build a RELU, RELU6 or RELU_N1_TO_1."""
    x, made = site.given(0), site.made
    site.check_codes(x, made)
    # The bounds are those of a fused activation of the same name.
    own = replace(site, operator=replace(site.operator, options={"FusedActivationFunction": site.operator.kind}))
    # In float64 as TFLite Micro has it; TFLite itself divides these scales in float32.
    return Channelwise(RescaleCall([x.scale / made.scale], 0, *own.bounds(), site.rounding))


def limited(site: Site) -> nn.Module:
    """Build a MAXIMUM or MINIMUM with one constant."""
    a, b, made = site.given(0), site.given(1), site.made
    site.check_same(a, b, made)
    value, constant = (a, b) if b.data is not None else (b, a)
    if constant.data is None or value.data is not None or constant.data.size != 1:
        raise site.refusal("compares two computed values; one of them must be a single constant")
    bound = int(constant.data.reshape(-1)[0]) - constant.zero_point
    low, high = made.distances.low, made.distances.high
    return Channelwise(bounded(bound, high) if site.operator.kind == "MAXIMUM" else bounded(low, bound))


def logistic(site: Site) -> nn.Module:
    """Build a LOGISTIC or TANH of int8: a table of what the reference kernels compute."""
    x, made = site.given(0), site.made
    site.check_codes(x, made)
    is_tanh = site.operator.kind == "TANH"
    stated = (1 / 128, 0) if is_tanh else (1 / 256, -128)
    if (made.scale, made.zero_point) != stated:
        raise site.refusal(f"has a result of scale {made.scale} and zero point {made.zero_point}, not {stated}")
    # A number with 4 integer bits in front of the point has 27 behind it.
    factor = quantized_multiplier(x.scale * (1 << 27))
    reach = fixed_point.radius(4, factor[1])

    def value(distance: int) -> int:
        if abs(distance) >= reach:
            return (127 if distance > 0 else -128) - made.zero_point
        whole = fixed_point.multiplied(distance, factor, site.rounding)
        if is_tanh:
            return max(-128, min(fixed_point.halved(fixed_point.tanh(whole), 24), 127))
        return max(0, min(fixed_point.halved(fixed_point.logistic(whole), 23), 255))

    return Channelwise(CodeFunction(fixed_point.table(x, value), x.distances.low))


def leaky(site: Site) -> nn.Module:
    """Build a LEAKY_RELU."""
    x, made = site.given(0), site.made
    site.check_codes(x, made)
    alpha = site.option("Alpha")
    if not 0 <= alpha < math.inf:
        raise site.refusal(f"has the slope {alpha}; slopes of 0 or more are supported")
    plain, below = (quantized_multiplier(factor * x.scale / made.scale) for factor in (1.0, alpha))
    low, high = made.distances.low, made.distances.high

    def value(distance: int) -> int:
        whole = fixed_point.multiplied(distance, plain if distance >= 0 else below, site.rounding)
        return max(low, min(whole, high))

    return Channelwise(CodeFunction(fixed_point.table(x, value), x.distances.low))


def hard_swish(site: Site) -> nn.Module:
    """Build a HARD_SWISH: a table of what the reference kernel computes with 16 bits."""
    x, made = site.given(0), site.made
    site.check_codes(x, made)
    fine = x.scale / 128  # TFLite computes with 7 more bits
    (out, out_exponent), (part, part_exponent) = (
        _short(quantized_multiplier(float(np.float32(scale))))
        for scale in (np.float32(fine) / np.float32(made.scale), np.float32(fine) / np.float32(3 / 32768))
    )
    low, high = made.distances.low, made.distances.high
    if out_exponent > 0:
        raise site.refusal("has a result of much finer steps than its input; convert the model again")

    def value(distance: int) -> int:
        # The steps of the kernel, each of which rounds or saturates to 16 bits.
        whole = distance << 7
        share = whole
        if part_exponent > 0:
            share = _short_saturated(share << (part_exponent - 1))
        share = _short_product(share, part)
        if part_exponent > 0:
            share = _short_saturated(share << 1)
        elif part_exponent < 0:
            share = fixed_point.halved(share, -part_exponent)
        share = (share + (1 << 15)) >> 1
        product = share * _short_product(whole, out)
        cut = product >> 15 if product >= 0 else -(-product >> 15)
        return max(low, min(fixed_point.halved(cut, -out_exponent), high))

    return Channelwise(CodeFunction(fixed_point.table(x, value), x.distances.low))


def _short(factor: tuple[int, int]) -> tuple[int, int]:
    """Return a quantized multiplier (multiplier, exponent) with 15 bits instead of 31."""
    return min((factor[0] + (1 << 15)) >> 16, 32767), factor[1]


def _short_product(a: int, b: int) -> int:
    return min((a * b + (1 << 14)) >> 15, 32767)


def _short_saturated(x: int) -> int:
    return max(-32768, min(x, 32767))


def softmax(site: Site) -> nn.Module:
    """Build a SOFTMAX of int8."""
    x, made = site.given(0), site.made
    site.check_codes(x, made)
    if (made.scale, made.zero_point) != (1 / 256, -128):
        raise site.refusal(f"has a result of scale {made.scale} and zero point {made.zero_point}, not 1/256 and -128")
    factor = softmax_factor(x.scale, float(site.option("Beta")), site.rounding)
    if factor is None:
        raise site.refusal("has a scale so small, or a beta so small, that its kernel refuses it; convert it again")
    return Probabilities(*factor)


def softmax_factor(scale: float, beta: float, rounding: str) -> tuple[int, int, int] | None:
    """Return the multiplier of a softmax, its shift left in bits, and the least distance from the greatest code that
    counts; None for scales that TFLite does not take.
    """
    # TFLite's own limits of the factor, see its PreprocessSoftmaxScaling.
    most = float((1 << (30 if rounding == "single" else 31)) - 1)
    factor = min(beta * scale * (1 << 26), most)
    if not factor > 1:
        return None
    multiplier, left = quantized_multiplier(factor)
    return multiplier, left, -fixed_point.radius(5, left)


BUILDERS = {
    "ADD": added,
    "SUB": added,
    "MUL": multiplied,
    "RELU": rectified,
    "RELU6": rectified,
    "RELU_N1_TO_1": rectified,
    "MAXIMUM": limited,
    "MINIMUM": limited,
    "LOGISTIC": logistic,
    "TANH": logistic,
    "LEAKY_RELU": leaky,
    "HARD_SWISH": hard_swish,
    "SOFTMAX": softmax,
}
