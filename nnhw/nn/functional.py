"""The two registered PyTorch operators that all quantizers of `nnhw.nn` consist of.

`torch.export` keeps each call as one node, in eval and in training mode: a frontend recognizes
`torch.ops.nnhw.quantize.default` and needs no pattern matching.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from nnhw.errors import InputError

_FLOAT32_EXPONENT_BIAS = 127
_FLOAT32_MANTISSA_BITS = 23
_FLOAT32_EXPONENT_MIN, _FLOAT32_EXPONENT_MAX = -126, 127
"""Exponents of normal numbers, of which alone the exponent field of float32 is the exponent plus its bias."""


def along_axis(parameter: Tensor, x: Tensor, axis: int) -> Tensor:
    """View a scale or zero point so that it broadcasts over `x`.

    Parameters
    ----------
    parameter: 1 element, or one element per index of `x` along `axis`.
    axis: -1 for per tensor, else the channel axis of `x`.

    Returns
    -------
    `parameter` in the dtype of `x`, shape [1, .., C or 1, .., 1].

    Raises
    ------
    InputError if the number of elements does not fit.
    """
    if not x.is_floating_point():
        raise InputError(f"nnhw::quantize needs a floating-point tensor, got {x.dtype}; convert it with .float()")
    if not -1 <= axis < x.dim():
        raise InputError(
            f"nnhw::quantize needs axis -1 (per tensor) or 0 to {x.dim() - 1} for a tensor of shape "
            f"{tuple(x.shape)}, got {axis}"
        )
    channels = 1 if axis == -1 else x.shape[axis]
    if parameter.numel() not in (1, channels):
        raise InputError(
            f"nnhw::quantize needs 1 or {channels} scales and zero points for axis {axis} of a tensor of shape "
            f"{tuple(x.shape)}, got {parameter.numel()}; give one value per channel, or one value and axis=-1"
        )
    shape = [parameter.numel() if dim == axis else 1 for dim in range(x.dim())]
    return parameter.to(x.dtype).reshape(shape)


def _half_away(number: Tensor) -> Tensor:
    whole = number.trunc()
    return whole + torch.copysign(((number - whole).abs() >= 0.5).to(number.dtype), number)


def _half_up(number: Tensor) -> Tensor:
    whole = number.floor()
    return whole + (number - whole >= 0.5).to(number.dtype)


ROUNDINGS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "half_even": torch.round,
    "half_away": _half_away,
    "half_up": _half_up,
    "floor": torch.floor,
    "ceil": torch.ceil,
}
"""Rounding to integers, by name. No function adds 0.5 to a number, as that sum would be rounded itself."""


def checked_rounding(who: str, rounding: str) -> str:
    """Return the name of a rounding if there is one of this name. Raises: InputError."""
    if rounding not in ROUNDINGS:
        raise InputError(f"{who} needs the rounding {', '.join(ROUNDINGS)}, got {rounding!r}")
    return rounding


@torch.library.custom_op("nnhw::quantize", mutates_args=())
def quantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    qmin: int,
    qmax: int,
    axis: int,
    bipolar: bool,
    rounding: str = "half_even",
    reciprocal: bool = False,
    zero_point_first: bool = False,
) -> Tensor:
    """Quantize: round `x` to the nearest number that an integer code stands for.

    Every step is elementwise in the dtype of `x`:

        affine:  code = clamp(round(x / scale) + zero_point, qmin, qmax)
        bipolar: code = +1 if x >= 0 else -1            (so sign(0) = sign(-0.0) = +1)
        result = (code - zero_point) * scale

    NaN stays NaN. The gradient is the straight-through estimator: it passes unchanged where `x` lies within
    the representable range [(qmin - zero_point) * scale, (qmax - zero_point) * scale], ends included, and is
    zero elsewhere; for a bipolar code that range is |x| <= scale. Scales and zero points get no gradient.

    Parameters
    ----------
    x: any shape, floating point.
    scale: positive; 1 element, or one per channel.
    zero_point: integers, held in a floating-point tensor; 1 element, or one per channel.
    qmin, qmax: smallest and largest code; -1 and 1 if bipolar.
    axis: channel axis of `x` for per-channel scales, or -1.
    rounding: one of `ROUNDINGS`.
    reciprocal: instead of x / scale compute x * (1 / scale), each step in float32 whatever the dtype of `x`.
    zero_point_first: round(x / scale + zero_point) instead of round(x / scale) + zero_point.

    Returns
    -------
    Tensor of the shape and dtype of `x`.

    Raises
    ------
    InputError if `axis`, `scale` and `x` do not fit each other, or there is no such rounding.

    Source
    ------
    Straight-through estimator: Bengio, Leonard, Courville, arXiv:1308.3432. Its window for signs: Courbariaux
    et al., "Binarized Neural Networks", arXiv:1602.02830. Affine codes: Jacob et al., arXiv:1712.05877.
    """
    step = along_axis(scale, x, axis)
    offset = along_axis(zero_point, x, axis)
    if bipolar:
        sign = torch.copysign(torch.ones((), dtype=x.dtype, device=x.device), x + 0.0)  # -0.0 + 0.0 is +0.0
        nan_or_zero = x.clamp(-1, 1) * 0  # copysign loses NaN; comparisons would keep it, 8 times slower
        return (sign + nan_or_zero) * step
    rounded = ROUNDINGS[checked_rounding("nnhw::quantize", rounding)]
    steps = x.float() * (1.0 / step.float()) if reciprocal else x / step
    # The sum with 0.0 makes 0.0 of -0.0.
    code = rounded(steps + offset.to(steps.dtype)) + 0.0 if zero_point_first else rounded(steps) + offset
    return (code.clamp(qmin, qmax).to(x.dtype) - offset) * step


@quantize.register_fake
def _quantize_fake(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    qmin: int,
    qmax: int,
    axis: int,
    bipolar: bool,
    rounding: str = "half_even",
    reciprocal: bool = False,
    zero_point_first: bool = False,
) -> Tensor:
    # With the checks of the operator itself, so that torch.export refuses what a run would refuse.
    along_axis(scale, x, axis)
    checked_rounding("nnhw::quantize", rounding)
    return torch.empty_like(x)


def _quantize_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]  # torch's own context object
    x, scale, zero_point, ctx.qmin, ctx.qmax, ctx.axis, ctx.bipolar, *_ = inputs
    ctx.save_for_backward(x, scale, zero_point)


def _quantize_backward(ctx, grad):  # type: ignore[no-untyped-def]
    x, scale, zero_point = ctx.saved_tensors
    step = along_axis(scale, x, ctx.axis)
    if ctx.bipolar:
        inside = x.abs() <= step
    else:
        offset = along_axis(zero_point, x, ctx.axis)
        inside = ((ctx.qmin - offset) * step <= x) & (x <= (ctx.qmax - offset) * step)
    # autograd wants one gradient for each argument; nothing but x is trained.
    return grad * inside, *(None,) * 9


quantize.register_autograd(_quantize_backward, setup_context=_quantize_setup)


@torch.library.custom_op("nnhw::power_of_two_scale", mutates_args=())
def power_of_two_scale(x: Tensor, peak_code: int, axis: int) -> Tensor:
    """Find the scale that puts the largest |x| at or under `peak_code`, rounded up to a power of two.

    A tensor (or channel) of zeros gets the scale 1. One that holds NaN or infinity gets NaN, so that nothing
    computed from it can pass for a number. There is no gradient.

    Parameters
    ----------
    x: any shape, floating point.
    peak_code: the largest code, at least 1.
    axis: channel axis of `x`, or -1 for one scale.

    Returns
    -------
    Scales in the dtype of `x`, shape [1] or [x.shape[axis]]; each is exactly 2**n with -126 <= n <= 127.
    """
    magnitude = x.detach().abs()
    peak = magnitude.amax().reshape(1) if axis == -1 else magnitude.transpose(0, axis).flatten(1).amax(dim=1)
    ratio = peak.to(torch.float64) / peak_code
    mantissa, exponent = torch.frexp(ratio)  # ratio = mantissa * 2**exponent, 0.5 <= mantissa < 1
    # A ratio that is a power of two is not rounded up to the next one.
    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent)
    exponent = exponent.clamp(_FLOAT32_EXPONENT_MIN, _FLOAT32_EXPONENT_MAX).to(torch.int32)
    # Built from its bits: pow and exp2 of a vector library need not be exact.
    scale = ((exponent + _FLOAT32_EXPONENT_BIAS) << _FLOAT32_MANTISSA_BITS).view(torch.float32).to(x.dtype)
    scale = torch.where(ratio == 0, torch.ones_like(scale), scale)
    return torch.where(torch.isfinite(ratio), scale, torch.full_like(scale, torch.nan))


@power_of_two_scale.register_fake
def _power_of_two_scale_fake(x: Tensor, peak_code: int, axis: int) -> Tensor:
    return x.new_empty(1 if axis == -1 else x.shape[axis])


def _power_of_two_scale_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.mark_non_differentiable(output)


def _power_of_two_scale_backward(ctx, grad):  # type: ignore[no-untyped-def]
    return None, None, None


power_of_two_scale.register_autograd(_power_of_two_scale_backward, setup_context=_power_of_two_scale_setup)
