"""Softmax and normalization layers that compute with integers, in training as on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nnhw.errors import InputError

from .activations import QuantIdentity
from .integers import MOST_FRACTION_BITS, integer_norm, integer_softmax
from .quantizers import PER_TENSOR, Quantizer

NORM_FRACTION_BITS = 10
"""Fraction bits of normalized numbers, before weight and bias: steps of 1 / 1024, for numbers of about -4 to 4."""


class QuantSoftmax(nn.Module):
    """Softmax of codes: shares in steps of 2**-fraction_bits, by a table of powers and one reciprocal for each row.

    With as many fraction bits as bits, the share 1.0 becomes one step less; with more, steps are finer and large shares
    are clipped. A layer behind it needs no quantizer in front: shares are unsigned codes.

    Parameters
    ----------
    dim: axis along which shares add up to about 1; not that of the batch.
    bits: bits of a share, 1 to 8.
    fraction_bits: `bits` to 15; default: `bits`.
    input_quant: number format of the input, with one scale; default: 8 bits with an observed scale.
    keep: true or 1 for elements that take part, without the batch axis; default: all do.

    Members
    -------
    keep: buffer of booleans, or None.

    Source: no division but one for each row, as in Kim et al., I-BERT, arXiv:2101.01321; powers by a table here.
    """

    keep: Tensor | None

    def __init__(
        self,
        dim: int = -1,
        *,
        bits: int = 8,
        fraction_bits: int | None = None,
        input_quant: Quantizer | None = None,
        keep: Tensor | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= bits <= 8:
            raise InputError(f"QuantSoftmax needs 1 to 8 bits, got {bits}")
        self.dim, self.bits = dim, bits
        self.fraction_bits = bits if fraction_bits is None else fraction_bits
        if not bits <= self.fraction_bits <= MOST_FRACTION_BITS:
            raise InputError(
                f"QuantSoftmax of {bits} bits needs {bits} to {MOST_FRACTION_BITS} fraction bits, got {fraction_bits}"
            )
        self.input_quant = checked_input(self, input_quant)
        self.register_buffer("keep", None if keep is None else keep.bool())

    def forward(self, input: Tensor) -> Tensor:
        """[N, ..] --> the same shape."""
        # Before its scale is read: an observed scale is updated by the call.
        codes = self.input_quant(input)
        quant = self.input_quant
        axis = image_axis(self, self.dim, input)
        distances, high = quant.qmax - quant.qmin + 1, (1 << self.bits) - 1
        result: Tensor = integer_softmax(codes, quant.scale, self.keep, distances, axis, self.fraction_bits, high)
        return result

    def extra_repr(self) -> str:
        """Return what the text of the layer shows of it."""
        return f"dim={self.dim}, bits={self.bits}, fraction_bits={self.fraction_bits}"


class QuantLayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` over the last axis of codes; mean, deviation and divisor are integers.

    The weight and bias of each feature are applied in PyTorch's floats, as those of a batch norm are, up to the next
    quantizer.

    Parameters
    ----------
    normalized_shape: size of the last axis.
    input_quant: number format of the input, with one scale; default: 8 bits with an observed scale.
    options: options of `nn.LayerNorm` (eps, elementwise_affine, bias).

    Raises: InputError for more axes than one.
    """

    def __init__(
        self, normalized_shape: int | list[int], *, input_quant: Quantizer | None = None, **options: Any
    ) -> None:
        super().__init__(normalized_shape, **options)
        check_one_axis(self, self.normalized_shape)
        self.input_quant = checked_input(self, input_quant)

    def forward(self, input: Tensor) -> Tensor:
        """[N, .., features] --> the same shape."""
        return _normalized(self, input, self.eps, centered=True)


class QuantRMSNorm(nn.RMSNorm):
    """`nn.RMSNorm` over the last axis of codes; see `QuantLayerNorm`."""

    def __init__(
        self, normalized_shape: int | list[int], *, input_quant: Quantizer | None = None, **options: Any
    ) -> None:
        super().__init__(normalized_shape, **options)
        check_one_axis(self, self.normalized_shape)
        self.input_quant = checked_input(self, input_quant)

    def forward(self, x: Tensor) -> Tensor:
        """[N, .., features] --> the same shape."""
        return _normalized(self, x, rms_eps(self), centered=False)


def rms_eps(layer: nn.RMSNorm) -> float:
    """Return the eps of a layer; if it has none, that of float32, as in torch."""
    return torch.finfo(torch.float32).eps if layer.eps is None else layer.eps


def check_one_axis(layer: nn.Module, shape: tuple[int, ...]) -> None:
    """Raise InputError for a normalization over several axes."""
    if len(shape) != 1:
        raise InputError(
            f"{type(layer).__name__} needs one axis, the last one, got normalized_shape={list(shape)}; flatten the "
            "axes in front of it"
        )


def image_axis(layer: nn.Module, dim: int, x: Tensor) -> int:
    """Return the axis of a tensor, counted from the first. Raises: InputError for that of the batch."""
    axis = dim % x.dim()
    if axis == 0:
        raise InputError(f"{type(layer).__name__} works along the batch, got dim={dim}; use dim=1 or dim=-1")
    return axis


def checked_input(layer: nn.Module, quant: Quantizer | None) -> Quantizer:
    """Return the quantizer of a layer's input. Raises: InputError for one with several scales."""
    if quant is None:
        return QuantIdentity(8, scale="observed")
    if not isinstance(quant, Quantizer) or quant.axis != PER_TENSOR or quant.scale is None:
        raise InputError(
            f"{type(layer).__name__} needs input_quant to be a quantizer with one scale, a number or 'observed', such "
            f"as QuantIdentity(8, scale='observed'), got {quant!r}"
        )
    return quant


def _normalized(layer: QuantLayerNorm | QuantRMSNorm, x: Tensor, eps: float, centered: bool) -> Tensor:
    if x.shape[-1:] != layer.normalized_shape:
        raise InputError(
            f"{type(layer).__name__} needs a last axis of {layer.normalized_shape[0]}, got {list(x.shape)}"
        )
    # Before its scale is read: an observed scale is updated by the call.
    codes = layer.input_quant(x)
    scale = layer.input_quant.scale
    assert isinstance(scale, Tensor)
    axis = image_axis(layer, -1, x)
    normal: Tensor = integer_norm(codes, scale, eps, axis, NORM_FRACTION_BITS, centered)
    if layer.weight is not None:
        normal = normal * layer.weight
    bias = getattr(layer, "bias", None)
    return normal if bias is None else normal + bias
