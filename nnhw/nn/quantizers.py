"""Quantizer modules: number formats with a scale, for weights and for activations."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from nnhw.errors import InputError

from .functional import checked_rounding, power_of_two_scale, quantize

ScaleChoice = float | Sequence[float] | Tensor | Literal["max_abs", "observed"]

BITS_MIN, BITS_MAX = 2, 8
"""Fewest bits of a signed integer, and most bits of any."""
PER_TENSOR = -1
"""The axis of a quantizer that has one scale for all channels."""


class Quantizer(nn.Module):
    """A number format: integer codes `qmin` to `qmax`, and a scale, the real number that one step stands for.

    The scale is one of
    - a number, or one number per channel: fixed. Powers of two keep float32 models exact;
    - "max_abs": found from the tensor at each call, see `power_of_two_scale`. For weights;
    - "observed": found in the same way from the largest magnitude seen so far in training mode, and kept in
      eval mode. For activations. NaN until the first training batch, so that a model without one does not go unnoticed.

    Parameters
    ----------
    qmin, qmax: smallest and largest code.
    scale: see above.
    axis: channel axis of the quantized tensor for one scale per channel, or -1 for one scale.
    bipolar: the codes are -1 and +1, without 0.
    zero_point: the code that stands for 0.
    rounding: "half_even" as PyTorch rounds, "half_away", "half_up", "floor" or "ceil".

    Members
    -------
    scale: float32 buffer, shape [1] or [channels]; None if the scale is "max_abs".
    zero_point: float32 buffer of shape [1] that holds an integer.

    Raises
    ------
    InputError for scales that are not positive and finite, or that do not fit `axis`.
    """

    scale: Tensor | None
    zero_point: Tensor
    peak: Tensor
    rounding: str = "half_even"

    def __init__(
        self,
        qmin: int,
        qmax: int,
        scale: ScaleChoice,
        axis: int = PER_TENSOR,
        *,
        bipolar: bool = False,
        zero_point: int = 0,
        rounding: str = "half_even",
    ) -> None:
        super().__init__()
        self.qmin, self.qmax, self.axis, self.bipolar = qmin, qmax, axis, bipolar
        self.rounding = checked_rounding(type(self).__name__, rounding)
        self.scale_source = _scale_source(type(self).__name__, scale, axis)
        self.register_buffer("scale", _scale_buffer(type(self).__name__, scale, axis))
        self.register_buffer("zero_point", _zero_point_buffer(type(self).__name__, zero_point, qmin, qmax))
        if self.scale_source == "observed":
            self.register_buffer("peak", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Quantize `x`; shape and dtype stay."""
        scale = self._scale_of(x)
        result: Tensor = quantize(
            x, scale, self.zero_point, self.qmin, self.qmax, self.axis, self.bipolar, self.rounding
        )
        return result

    def _scale_of(self, x: Tensor) -> Tensor:
        scale: Tensor
        if self.scale is None:
            scale = power_of_two_scale(x, self.qmax, self.axis)
            return scale
        if self.scale_source == "observed" and self.training:
            self.peak.copy_(torch.maximum(self.peak, x.detach().abs().amax()))
            scale = power_of_two_scale(self.peak, self.qmax, PER_TENSOR)
            self.scale.copy_(scale)
            return scale
        return self.scale

    def extra_repr(self) -> str:
        """Return what the text of the layer shows of it."""
        scale = self.scale.tolist() if self.scale is not None and self.scale_source == "fixed" else self.scale_source
        rounding = "" if self.rounding == "half_even" else f", rounding={self.rounding}"
        return f"codes {self.qmin}..{self.qmax}, scale={scale}, axis={self.axis}{rounding}"


class Bipolar(Quantizer):
    """One bit: +1 where the value is at least 0 (so for 0 and -0.0), else -1; times the scale.

    Source: Courbariaux et al., BinaryConnect, arXiv:1511.00363.
    """

    def __init__(self, scale: ScaleChoice = 1.0, axis: int = PER_TENSOR) -> None:
        super().__init__(-1, 1, scale, axis, bipolar=True)


class Ternary(Quantizer):
    """Codes -1, 0 and +1: 0 where the value is at most half the scale in magnitude.

    Source: Li, Liu, "Ternary Weight Networks", arXiv:1605.04711.
    """

    def __init__(self, scale: ScaleChoice = "max_abs", axis: int = PER_TENSOR) -> None:
        super().__init__(-1, 1, scale, axis)


class Int(Quantizer):
    """Signed integers of 2 to 8 bits in two's complement.

    Parameters
    ----------
    bits: 2 to 8.
    scale, axis, zero_point, rounding: see `Quantizer`.
    narrow_range: leave out the most negative code, so that the range is symmetric.
    """

    def __init__(
        self,
        bits: int = 8,
        scale: ScaleChoice = "max_abs",
        axis: int = PER_TENSOR,
        *,
        narrow_range: bool = False,
        zero_point: int = 0,
        rounding: str = "half_even",
    ) -> None:
        _check_bits(type(self).__name__, bits)
        qmin = -(1 << (bits - 1)) + int(narrow_range)
        super().__init__(qmin, (1 << (bits - 1)) - 1, scale, axis, zero_point=zero_point, rounding=rounding)


class UInt(Quantizer):
    """Unsigned integers of 1 to 8 bits; values below the range become its least value.

    Parameters
    ----------
    bits: 1 to 8; the codes of one bit are 0 and 1, those of `Bipolar` are -1 and +1.
    scale, axis, zero_point, rounding: see `Quantizer`.
    """

    def __init__(
        self,
        bits: int = 8,
        scale: ScaleChoice = "max_abs",
        axis: int = PER_TENSOR,
        *,
        zero_point: int = 0,
        rounding: str = "half_even",
    ) -> None:
        _check_bits(type(self).__name__, bits, least=1)
        super().__init__(0, (1 << bits) - 1, scale, axis, zero_point=zero_point, rounding=rounding)


def _check_bits(name: str, bits: int, least: int = BITS_MIN) -> None:
    if not isinstance(bits, int) or not least <= bits <= BITS_MAX:
        remedy = "; for one bit use Bipolar or UInt" if bits == 1 else ""
        raise InputError(f"{name} needs bits from {least} to {BITS_MAX}, got {bits!r}{remedy}")


def _scale_source(name: str, scale: ScaleChoice, axis: int) -> Literal["fixed", "max_abs", "observed"]:
    if not isinstance(scale, str):
        return "fixed"
    if scale == "observed" and axis != PER_TENSOR:
        raise InputError(f"{name} needs axis=-1 for scale='observed', got axis={axis}; observe one scale")
    if scale not in ("max_abs", "observed"):
        raise InputError(f"{name} needs scale to be a number, 'max_abs' or 'observed', got {scale!r}")
    return scale


def _scale_buffer(name: str, scale: ScaleChoice, axis: int) -> Tensor | None:
    if isinstance(scale, str):
        return torch.full((1,), math.nan) if scale == "observed" else None
    values = torch.as_tensor(scale, dtype=torch.float32).detach().clone().reshape(-1)
    if values.numel() == 0 or not bool((torch.isfinite(values) & (values > 0)).all()):
        raise InputError(f"{name} needs scales that are positive and finite, got {scale!r}")
    if axis < PER_TENSOR or (axis == PER_TENSOR and values.numel() != 1):
        raise InputError(
            f"{name} needs axis=-1 with one scale, or the channel axis with one scale per channel, "
            f"got axis={axis} and {values.numel()} scales"
        )
    return values


def _zero_point_buffer(name: str, zero_point: int, qmin: int, qmax: int) -> Tensor:
    if not isinstance(zero_point, int) or not qmin <= zero_point <= qmax:
        raise InputError(f"{name} needs an integer zero_point from {qmin} to {qmax}, got {zero_point!r}")
    return torch.full((1,), float(zero_point))
