"""The registered operator of fixed-point requantization, and the computation of its multipliers from real scales."""

import math

import torch
from torch import Tensor

from nnhw.errors import InputError

FRACTION_BITS = 31
"""Fraction bits of a multiplier."""
MOST_LEFT, MOST_RIGHT = 30, 31
"""Greatest exponent, and greatest negative exponent, of a scale."""
DOUBLE, SINGLE = "double", "single"
"""Names of the two roundings; `rescale` states them."""
ROUNDINGS = (DOUBLE, SINGLE)


def quantized_multiplier(scale: float) -> tuple[int, int]:
    """Return (multiplier, exponent) for which multiplier / 2**31 * 2**exponent is closest to a real scale.

    The multiplier has 31 significant bits, rounded, ties away from zero. Scales below all exponents become 0, scales
    above them the greatest possible one.

    Raises
    ------
    InputError: the scale is negative, infinite or NaN.

    Source
    ------
    QuantizeMultiplier of TensorFlow Lite; Jacob et al., arXiv:1712.05877, section 2.2.
    """
    if not (math.isfinite(scale) and scale >= 0):
        raise InputError(f"a rescaling needs scales that are finite and not negative, got {scale!r}")
    mantissa, exponent = math.frexp(scale)
    multiplier = math.floor(mantissa * (1 << FRACTION_BITS) + 0.5)  # exact: 53 bits hold both
    # Rounded up to a power of two, which has one bit more.
    if multiplier == 1 << FRACTION_BITS:
        multiplier, exponent = multiplier >> 1, exponent + 1
    if exponent < -MOST_RIGHT:
        return 0, 0
    return (multiplier, exponent) if exponent <= MOST_LEFT else ((1 << FRACTION_BITS) - 1, MOST_LEFT)


def checked_rounding(rounding: str) -> str:
    """Return the name of a rounding if there is one of this name. Raises: InputError."""
    if rounding not in ROUNDINGS:
        raise InputError(f"a rescaling needs the rounding 'double' or 'single', got {rounding!r}")
    return rounding


def _along_channels(parameter: Tensor, x: Tensor, name: str) -> Tensor:
    """View a parameter of integers, one or one for each channel, so that it broadcasts over `x`."""
    if x.dim() < 2 or not x.is_floating_point():
        raise InputError(f"nnhw::rescale needs floating-point x [N, channels, ..], got {x.dtype} {list(x.shape)}")
    if parameter.is_floating_point() or parameter.numel() not in (1, x.shape[1]):
        raise InputError(
            f"nnhw::rescale needs 1 or {x.shape[1]} integers as {name} for x of shape {list(x.shape)}, got "
            f"{parameter.dtype} of shape {list(parameter.shape)}"
        )
    return parameter.to(torch.int64).reshape(1, -1, *[1] * (x.dim() - 2))


def _channelwise(x: Tensor, multiplier: Tensor, exponent: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three parameters as they broadcast over `x`. Raises: InputError for those that do not."""
    return (
        _along_channels(multiplier, x, "multiplier"),
        _along_channels(exponent, x, "exponent"),
        _along_channels(bias, x, "bias"),
    )


@torch.library.custom_op("nnhw::rescale", mutates_args=())
def rescale(
    x: Tensor,
    multiplier: Tensor,
    exponent: Tensor,
    bias: Tensor,
    offset: int,
    low: int,
    high: int,
    rounding: str = DOUBLE,
    shift: int = 0,
) -> Tensor:
    """Requantize integers: clamp(round((x + bias) * 2**shift * multiplier / 2**31 * 2**exponent) + offset, low, high).

    Computed in 64-bit integers whatever the dtype of `x` is. With s = (x + bias) * 2**shift, l = max(exponent, 0) and
    r = max(-exponent, 0), rounding is

        'double':  s * 2**l * multiplier / 2**31 to the nearest integer, ties up; this / 2**r to the nearest, ties away
                   from zero
        'single':  once, to the nearest integer, ties up

    The gradient is the straight-through estimator: the real factor where the result is inside of low..high, else zero.

    Parameters
    ----------
    x: integers, held in a floating-point tensor [N, channels, ..].
    multiplier: 0..2**31 - 1; 1 element, or one per channel; as integers, like the next two.
    exponent: -31..30.
    bias: added to x.
    offset: added to the rounded number.
    low, high: least and greatest result.
    shift: 0 or more.

    Returns
    -------
    Integers in a tensor of the shape and dtype of `x`, which has to hold them: float32 has all up to 2**24.

    Range: s * 2**l * multiplier must be below 2**62.

    Raises
    ------
    InputError for parameters that do not fit `x`, and for x that are no integers.

    Source
    ------
    TensorFlow Lite's MultiplyByQuantizedMultiplier in its builds of double and of single rounding; CMSIS-NN's
    arm_nn_requantize.
    """
    factor, power, added = _channelwise(x, multiplier, exponent, bias)
    whole = x.to(torch.int64)
    if not torch.equal(whole.to(x.dtype), x):
        raise InputError("nnhw::rescale needs integers, such as the sums of a layer behind a quantizer with scale 1")
    product = (whole + added << shift) * factor
    if checked_rounding(rounding) == SINGLE:
        rounded = _rounded(product, FRACTION_BITS - power)
    else:
        once = _rounded(product << power.clamp(min=0), torch.full_like(power, FRACTION_BITS))
        # Ties up of the magnitude are ties away from zero.
        rounded = once.sign() * _rounded(once.abs(), (-power).clamp(min=0))
    return (rounded + offset).clamp(low, high).to(x.dtype)


def _rounded(number: Tensor, shift: Tensor) -> Tensor:
    """Return number / 2**shift to the nearest integer, ties up; also for a shift of 0."""
    # `+` binds more tightly than `>>`. The half is 2**shift >> 1, which is 0 for a shift of 0; 2**(shift - 1) is not.
    return number + (torch.ones_like(shift) << shift >> 1) >> shift


@rescale.register_fake
def _rescale_fake(
    x: Tensor,
    multiplier: Tensor,
    exponent: Tensor,
    bias: Tensor,
    offset: int,
    low: int,
    high: int,
    rounding: str = DOUBLE,
    shift: int = 0,
) -> Tensor:
    # torch calls it with the arguments of the operator, so it has the same signature. It makes the same checks, so that
    # torch.export refuses what a run would refuse.
    _channelwise(x, multiplier, exponent, bias)
    checked_rounding(rounding)
    return torch.empty_like(x)


def _rescale_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]  # torch's own context object
    x, multiplier, exponent, bias, ctx.offset, ctx.low, ctx.high, _, ctx.shift = inputs
    ctx.save_for_backward(x, multiplier, exponent, bias)


def _rescale_backward(ctx, grad):  # type: ignore[no-untyped-def]
    x, *parameters = ctx.saved_tensors
    multiplier, exponent, bias = _channelwise(x, *parameters)
    factor = torch.ldexp(multiplier.to(x.dtype), exponent + (ctx.shift - FRACTION_BITS))
    result = (x + bias) * factor + ctx.offset
    inside = (ctx.low <= result) & (result <= ctx.high)
    return grad * factor * inside, *(None,) * 8


rescale.register_autograd(_rescale_backward, setup_context=_rescale_setup)
