"""Fixed-point requantization as a layer, for int8 networks of other tools that are ported by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from nnhw.errors import InputError

from .rescale_operator import (
    DOUBLE,
    FRACTION_BITS,
    MOST_LEFT,
    MOST_RIGHT,
    checked_rounding,
    quantized_multiplier,
    rescale,
)

Numbers = float | Sequence[float] | Tensor
Integers = int | Sequence[int] | Tensor


class Rescale(nn.Module):
    """Requantization of integer sums as in TensorFlow Lite and CMSIS-NN: by a 32-bit multiplier and a shift.

    It is put behind a layer whose weights and inputs are integers (quantizers with scale 1), and returns integers
    again: the distances of codes from their zero point, so that 0 stands for 0.0,

        clamp(round((x + bias) * scale) + zero_point, qmin, qmax) - zero_point

    Parameters
    ----------
    scale: real factor from sums to codes, in other tools input scale * weight scale / output scale; one number, or one
        for each channel (axis 1).
    bias: integers that are added to the sums; one, or one for each channel.
    zero_point: the code of 0.0.
    qmin, qmax: least and greatest code; a fused activation narrows them: qmin=zero_point is a ReLU.
    rounding: 'double' as in the reference kernels of TensorFlow Lite and in CMSIS-NN, or 'single' as in builds of both
        with single rounding and in some vendors' libraries.

    Raises
    ------
    InputError: numbers out of range.

    Source
    ------
    Jacob et al., arXiv:1712.05877; `nnhw.nn.rescale_operator.rescale` states the arithmetic.
    """

    multiplier: Tensor
    exponent: Tensor
    bias: Tensor

    def __init__(
        self,
        scale: Numbers,
        bias: Integers = 0,
        *,
        zero_point: int = 0,
        qmin: int = -128,
        qmax: int = 127,
        rounding: str = DOUBLE,
    ) -> None:
        super().__init__()
        scales = torch.as_tensor(scale, dtype=torch.float64).reshape(-1)
        pairs = [quantized_multiplier(number) for number in scales.tolist()]
        self._set([pair[0] for pair in pairs], [pair[1] for pair in pairs], bias)
        if qmin > qmax:
            raise InputError(f"Rescale needs qmin <= qmax, got {qmin} and {qmax}")
        self.zero_point, self.qmin, self.qmax = zero_point, qmin, qmax
        self.rounding = checked_rounding(rounding)

    @classmethod
    def from_multiplier(
        cls,
        multiplier: Integers,
        shift: Integers,
        bias: Integers = 0,
        *,
        zero_point: int = 0,
        qmin: int = -128,
        qmax: int = 127,
        rounding: str = DOUBLE,
    ) -> Self:
        """Return the layer with multipliers and shifts as other tools list them: scale = multiplier / 2**31 * 2**shift.

        Parameters
        ----------
        multiplier: 0..2**31 - 1; one, or one for each channel.
        shift: -31..30, above 0 to the left.
        """
        # The scale is replaced at once.
        layer = cls(0.0, zero_point=zero_point, qmin=qmin, qmax=qmax, rounding=rounding)
        layer._set(multiplier, shift, bias)
        return layer

    def forward(self, x: Tensor) -> Tensor:
        """[N, channels, ..] of integers; shape and dtype stay."""
        low, high = self.qmin - self.zero_point, self.qmax - self.zero_point
        result: Tensor = rescale(x, self.multiplier, self.exponent, self.bias, 0, low, high, self.rounding)
        return result

    def extra_repr(self) -> str:
        """Return what the text of the layer shows of it."""
        return f"zero_point={self.zero_point}, qmin={self.qmin}, qmax={self.qmax}, rounding={self.rounding!r}"

    def _set(self, multiplier: Integers, exponent: Integers, bias: Integers) -> None:
        limits = {
            "multiplier": (0, (1 << FRACTION_BITS) - 1),
            "exponent": (-MOST_RIGHT, MOST_LEFT),
            "bias": (-(1 << 31), (1 << 31) - 1),
        }
        for (name, (low, high)), given in zip(limits.items(), (multiplier, exponent, bias), strict=True):
            numbers = torch.as_tensor(given).detach().reshape(-1)
            whole = numbers.to(torch.int64)
            if not numbers.numel() or not torch.equal(whole.to(numbers.dtype), numbers):
                raise InputError(f"Rescale needs integers as {name}, got {given}")
            if int(whole.min()) < low or int(whole.max()) > high:
                raise InputError(f"Rescale needs {name} in {low}..{high}, got {int(whole.min())}..{int(whole.max())}")
            self.register_buffer(name, whole)
