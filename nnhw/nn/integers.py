"""Registered operators of integer softmax and integer normalization: training computes what the hardware computes.

The integers are those of the IR's operators of the same names, whose docstrings state them; docs/attention.md says why.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nnhw.errors import InputError

RECIPROCAL_BITS = 16
"""Bits of a power in the table, and of a reciprocal."""
ROOT_BITS = 18
"""Bits of the number whose reciprocal square root is taken."""
MOST_FRACTION_BITS = 15
"""Fraction bits of a result: a code of 16 bits holds it and its sign."""
_EPSILON_MAX = (1 << 62) - 1
"""Greatest integer for eps: with a variance added, int64 still holds it."""


def power_table(scale: Tensor, distances: int) -> Tensor:
    """Return exp(-scale * distance) for the distances 0, 1, .. of two codes, in steps of 1 / 65535: int64 [distances].

    The table ends with its first 0; a larger distance is looked up as the last one.
    """
    steps = torch.arange(distances, dtype=torch.float64, device=scale.device)
    powers = torch.round(torch.exp(-scale.double().reshape(()) * steps) * ((1 << RECIPROCAL_BITS) - 1)).long()
    # Powers fall: the first that is rounded to 0 stands for all greater distances.
    return powers[: int(powers.count_nonzero()) + 1]


def integer_epsilon(scale: Tensor, eps: float, count: int) -> int:
    """Return the integer that stands for `eps` in a normalization of `count` codes.

    `eps` is added to the variance of numbers, which are codes times the scale. The integer is added to count**2 times
    the variance of the codes.
    """
    return min(round(count * count * eps / float(scale.double()) ** 2), _EPSILON_MAX)


def codes_of(who: str, x: Tensor, scale: Tensor) -> Tensor:
    """Return the int64 codes of numbers that are codes times a scale.

    Raises: InputError for NaN, and for other numbers.
    """
    if scale.numel() != 1:
        raise InputError(f"{who} needs codes with one scale, got {scale.numel()} scales; quantize with axis=-1")
    codes = torch.round(x / scale)
    if not torch.equal(codes * scale, x):
        raise InputError(
            f"{who} needs codes times the scale {scale.item():g}, got other numbers, or NaN; put the quantizer of this "
            "scale directly in front of it"
        )
    return codes.long()


def _bit_length(number: Tensor) -> Tensor:
    """Return the number of bits of positive integers below 2**63.

    It is taken from the exponent of a float64, which is corrected where that was rounded up to the next power of two.
    """
    # As a double, a number above 2**53 may be rounded up to the next power of two.
    length = torch.frexp(number.double())[1].long()
    return length - (number >> (length - 1) == 0).long()


def _rounded_shift(number: Tensor, shift: Tensor) -> Tensor:
    """Return number / 2**shift to the nearest integer, ties up."""
    # `+` binds more tightly than `>>`: it is (number + half) >> shift.
    return number + (torch.ones_like(shift) << (shift - 1)) >> shift


def _reciprocal_root(number: Tensor) -> tuple[Tensor, Tensor]:
    """Return (r, s), r of 16 bits, for which r / 2**s is about 1 / sqrt(number)."""
    # number = mantissa * 4**half, with a mantissa of 17 or 18 bits: only a power of 4 has a root that is a shift.
    half = (_bit_length(number) + 1 >> 1) - ROOT_BITS // 2
    mantissa = torch.where(half < 0, number << (-2 * half).clamp(min=0), number >> (2 * half).clamp(min=0))
    # Less 1, so that the quotient by the least mantissa, 2**16, still has 32 bits, and its root 16.
    square = ((1 << (ROOT_BITS + 2 * RECIPROCAL_BITS - 2)) - 1) // mantissa
    # Exact: float64 holds 32 bits, and a root of them never rounds up to the next integer.
    root = torch.sqrt(square.double()).long()
    return root, half + (ROOT_BITS // 2 + RECIPROCAL_BITS - 1)


def _checked_bits(who: str, bits: int) -> None:
    if not 1 <= bits <= MOST_FRACTION_BITS:
        raise InputError(f"{who} needs 1 to {MOST_FRACTION_BITS} fraction bits, got {bits}")


@torch.library.custom_op("nnhw::integer_softmax", mutates_args=())
def integer_softmax(
    x: Tensor, scale: Tensor, keep: Tensor | None, distances: int, axis: int, bits: int, high: int
) -> Tensor:
    """Softmax of codes along an axis, in steps of 2**-bits, up to high * 2**-bits.

    The gradient is that of softmax with these shares.

    Parameters
    ----------
    x: codes times the scale, [N, ..].
    scale: 1 element.
    keep: true or 1 for elements that take part, without the batch axis; None: all do.
    distances: number of codes, which is the length of the table of powers.
    axis: axis of the softmax, not that of the batch.
    bits: fraction bits of a share, 1 to 15.
    high: the greatest share, in steps of 2**-bits; 1 to 2**bits.

    Returns
    -------
    Tensor of the shape and dtype of `x`.

    Raises
    ------
    InputError: x holds numbers that are no codes, or `keep` removes all elements of a row.
    """
    _checked_bits("integer_softmax", bits)
    if not 1 <= high <= 1 << bits:
        raise InputError(f"integer_softmax of {bits} fraction bits needs high within 1..{1 << bits}, got {high}")
    codes = codes_of("integer_softmax", x, scale)
    kept = torch.ones_like(codes, dtype=torch.bool) if keep is None else keep.bool().expand_as(codes)
    if not bool(kept.any(dim=axis).all()):
        raise InputError("integer_softmax has rows of which keep leaves no element; let each row keep one or more")
    table = power_table(scale, distances)
    # Among the kept elements only: distances from a removed one could leave all of them the power 0.
    greatest = codes.masked_fill(~kept, torch.iinfo(torch.int64).min).amax(dim=axis, keepdim=True)
    power = table[(greatest - codes).clamp(0, len(table) - 1)] * kept
    total = power.sum(dim=axis, keepdim=True)
    # The reciprocal has 16 bits, its first bit set; less 1, so that it has no 17th for a total that is a power of two.
    shift = _bit_length(total) + (RECIPROCAL_BITS - 1)
    factor = ((torch.ones_like(shift) << shift) - 1) // total
    shares = _rounded_shift(power * factor, shift - bits).clamp(max=high)
    return shares.to(x.dtype) * 2.0**-bits


@integer_softmax.register_fake
def _integer_softmax_fake(
    x: Tensor, scale: Tensor, keep: Tensor | None, distances: int, axis: int, bits: int, high: int
) -> Tensor:
    return torch.empty_like(x)


def _integer_softmax_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]  # torch's own context object
    ctx.axis = inputs[4]
    ctx.save_for_backward(output)


def _integer_softmax_backward(ctx, grad):  # type: ignore[no-untyped-def]
    (shares,) = ctx.saved_tensors
    return shares * (grad - (grad * shares).sum(dim=ctx.axis, keepdim=True)), *(None,) * 6


integer_softmax.register_autograd(_integer_softmax_backward, setup_context=_integer_softmax_setup)


@torch.library.custom_op("nnhw::integer_norm", mutates_args=())
def integer_norm(x: Tensor, scale: Tensor, eps: float, axis: int, fraction_bits: int, centered: bool) -> Tensor:
    """Normalize codes along an axis: (x - mean) / sqrt(variance + eps), or x / sqrt(mean of squares + eps).

    Results are in steps of 2**-fraction_bits. The gradient is that of the float normalization, at the integer result.

    Parameters
    ----------
    x: codes times the scale, [N, ..].
    scale: 1 element.
    axis: axis of the normalization, not that of the batch.
    fraction_bits: fraction bits of a result, 1 to 15.
    centered: the mean is subtracted.

    Returns
    -------
    Tensor of the shape and dtype of `x`.

    Raises
    ------
    InputError: x holds numbers that are no codes.
    """
    _checked_bits("integer_norm", fraction_bits)
    codes, count = codes_of("integer_norm", x, scale), x.shape[axis]
    total = codes.sum(dim=axis, keepdim=True) * int(centered)
    spread = count * (codes * codes).sum(dim=axis, keepdim=True) - total * total
    # Equal elements have no spread, and 0 has no reciprocal root.
    factor, shift = _reciprocal_root((spread + integer_epsilon(scale, eps, count)).clamp(min=1))
    result = _rounded_shift((count * codes - total) * factor, shift - fraction_bits)
    return result.to(x.dtype) * 2.0**-fraction_bits


@integer_norm.register_fake
def _integer_norm_fake(x: Tensor, scale: Tensor, eps: float, axis: int, fraction_bits: int, centered: bool) -> Tensor:
    return torch.empty_like(x)


def _integer_norm_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, _, ctx.eps, ctx.axis, _, ctx.centered = inputs
    ctx.save_for_backward(x, output)


def _integer_norm_backward(ctx, grad):  # type: ignore[no-untyped-def]
    x, normal = ctx.saved_tensors
    centre = x.mean(dim=ctx.axis, keepdim=True) * int(ctx.centered)
    factor = torch.rsqrt((x - centre).square().mean(dim=ctx.axis, keepdim=True) + ctx.eps)
    along = normal * (grad * normal).mean(dim=ctx.axis, keepdim=True)
    mean = grad.mean(dim=ctx.axis, keepdim=True) * int(ctx.centered)
    return factor * (grad - mean - along), *(None,) * 5


integer_norm.register_autograd(_integer_norm_backward, setup_context=_integer_norm_setup)
