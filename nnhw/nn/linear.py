"""Linear and convolution layers whose weights are quantized at each call."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nnhw.errors import InputError

from .quantizers import Bipolar, Quantizer


class QuantLinear(nn.Linear):
    """`nn.Linear` that computes with quantized weights and trains the float weights behind them.

    Parameters
    ----------
    weight_quant: number format of the weights; default: one bit.
    options: options of `nn.Linear` (bias, device, dtype).

    Source: latent weights: Courbariaux et al., BinaryConnect, arXiv:1511.00363.
    """

    def __init__(
        self, in_features: int, out_features: int, *, weight_quant: Quantizer | None = None, **options: Any
    ) -> None:
        super().__init__(in_features, out_features, **options)
        self.weight_quant = _weight_format(self, weight_quant)

    def forward(self, input: Tensor) -> Tensor:
        """[N, .., in_features] --> [N, .., out_features]."""
        return functional.linear(input, self.weight_quant(self.weight), self.bias)


class _QuantConvolution(nn.Module):
    """What the convolutions have in common: they are made as torch's class, which stands behind this one as a base.

    Parameters
    ----------
    kernel_size: one number, or one for each axis.
    weight_quant: number format of the weights; default: one bit.
    options: options of torch's class (stride, padding, ..).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        *,
        weight_quant: Quantizer | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, **options)
        self.weight_quant = _weight_format(self, weight_quant)


class QuantConv1d(_QuantConvolution, nn.Conv1d):
    """`nn.Conv1d` that computes with quantized weights; see `QuantLinear`."""

    def forward(self, input: Tensor) -> Tensor:
        """[N, in_channels, T] --> [N, out_channels, T']."""
        result: Tensor = self._conv_forward(input, self.weight_quant(self.weight), self.bias)
        return result


class QuantConv2d(_QuantConvolution, nn.Conv2d):
    """`nn.Conv2d` that computes with quantized weights; see `QuantLinear`."""

    def forward(self, input: Tensor) -> Tensor:
        """[N, in_channels, H, W] --> [N, out_channels, H', W']."""
        result: Tensor = self._conv_forward(input, self.weight_quant(self.weight), self.bias)
        return result


class QuantConvTranspose1d(_QuantConvolution, nn.ConvTranspose1d):
    """`nn.ConvTranspose1d` that computes with quantized weights; see `QuantLinear`. Outputs are their axis 1."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """[N, in_channels, T] --> [N, out_channels, T']."""
        weight, extra = self.weight_quant(self.weight), _extra(self, input, output_size)
        padding: Any = self.padding  # a number or numbers: transposed convolutions take no name such as 'same'
        return functional.conv_transpose1d(
            input, weight, self.bias, self.stride, padding, extra, self.groups, self.dilation
        )


class QuantConvTranspose2d(_QuantConvolution, nn.ConvTranspose2d):
    """`nn.ConvTranspose2d` that computes with quantized weights; see `QuantLinear`. Outputs are their axis 1."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """[N, in_channels, H, W] --> [N, out_channels, H', W']."""
        weight, extra = self.weight_quant(self.weight), _extra(self, input, output_size)
        padding: Any = self.padding  # a number or numbers: transposed convolutions take no name such as 'same'
        return functional.conv_transpose2d(
            input, weight, self.bias, self.stride, padding, extra, self.groups, self.dilation
        )


QuantLayer = QuantLinear | QuantConv1d | QuantConv2d | QuantConvTranspose1d | QuantConvTranspose2d
"""A layer with quantized weights."""


class Scale(nn.Module):
    """Multiplication by one constant, to scale the integers of a last layer to the size of logits.

    A power of two does not change their significant bits.

    Raises: InputError if the factor is not positive and finite.
    """

    factor: Tensor

    def __init__(self, factor: float) -> None:
        super().__init__()
        if not (math.isfinite(factor) and factor > 0):
            raise InputError(f"Scale needs a factor that is positive and finite, got {factor!r}")
        self.register_buffer("factor", torch.tensor(float(factor)))

    def forward(self, input: Tensor) -> Tensor:
        """Any shape; shape and dtype stay."""
        return input * self.factor

    def extra_repr(self) -> str:
        """Return what the text of the layer shows of it."""
        return f"{self.factor.item()}"


def _extra(layer: nn.ConvTranspose1d | nn.ConvTranspose2d, input: Tensor, output_size: list[int] | None) -> list[int]:
    """Return the output padding with which torch reaches a requested output size."""
    sizes = (layer.stride, layer.padding, layer.kernel_size, len(layer.kernel_size), layer.dilation)
    result: list[int] = layer._output_padding(input, output_size, *sizes)  # type: ignore[arg-type]
    return result


def _weight_format(layer: nn.Module, weight_quant: Quantizer | None) -> Quantizer:
    if weight_quant is None:
        return Bipolar()
    if not isinstance(weight_quant, Quantizer):
        raise InputError(
            f"{type(layer).__name__} needs weight_quant to be a quantizer such as Bipolar() or Int(4), "
            f"got {weight_quant!r}"
        )
    # Weights are all there at each call, so their greatest magnitude needs no history.
    if weight_quant.scale_source == "observed":
        raise InputError(f"{type(layer).__name__} needs a weight scale that is a number or 'max_abs', got 'observed'")
    return weight_quant
