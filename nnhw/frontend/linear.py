"""Traced linear operators: matrix products and convolutions of codes with quantized weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnhw.errors import CaptureError
from nnhw.ir import Op, TensorType
from nnhw.ir.ops import Add, Conv2d, Linear, Pad

from .calls import Call
from .layout import as_image, like, permuted, placed, reshaped
from .translator import Handler, KnownResult, Translator
from .values import Codes, Constant, Float, Value

_LAYERS = {"linear": "QuantLinear", "conv1d": "QuantConv1d", "conv2d": "QuantConv2d"}


def linear(translator: Translator, call: Call) -> Value:
    """y = x W^T + b, along the last axis."""
    codes, weight = _operands(translator, call, call["input"], call["weight"], outputs_axis=0)
    return _product(translator, call, codes, weight, call["bias"])


def matmul(translator: Translator, call: Call) -> Value:
    """x W, along the last axis: a linear layer whose weights are transposed."""
    right = call.arguments.get("other", call.arguments.get("mat2"))
    if isinstance(call["self"], Constant):
        raise CaptureError(f"{call} has its constant on the left; use x @ weight, with the constant on the right")
    codes, weight = _operands(translator, call, call["self"], right, outputs_axis=1)
    if weight.tensor.ndim != 2:
        raise CaptureError(f"{call} needs constant weights [inputs, outputs], got {list(weight.tensor.shape)}")
    assert weight.codes is not None
    assert weight.scale is not None
    turned = Constant(weight.tensor.t(), weight.label, weight.codes.T, weight.scale.T, weight.dtype)
    return _product(translator, call, codes, turned, None)


def convolution(translator: Translator, call: Call) -> Value:
    """conv1d and conv2d with padding by zeros; one dimension is an image of height 1."""
    codes, weight = _operands(translator, call, call["input"], call["weight"], outputs_axis=0)
    assert weight.codes is not None
    rank = weight.codes.ndim - 1
    if len(translator.shape(codes)) != rank:
        sizes = "height, width" if rank == 3 else "length"
        raise CaptureError(f"{call} needs an input of shape [batch, channels, {sizes}]")
    flat = rank == 2
    taps = weight.codes[:, :, None, :] if flat else weight.codes
    stride, dilation = _pair(call["stride"], flat), _pair(call["dilation"], flat, 1)
    image = as_image(translator, call, codes)
    if isinstance(call["padding"], str):
        before, after = _named_padding(call, taps.shape[2:], dilation)
    else:
        before = after = _pair(call["padding"], flat, 0)
    if before != after:
        image = placed(translator, call, image, Pad(before, after), "border")
        before = (0, 0)
    assert isinstance(image, Codes)
    op = Conv2d(stride, before, dilation, call["groups"])
    sums = _weighted(
        translator, call, image, Constant(weight.tensor, weight.label, taps, weight.scale, weight.dtype), op
    )
    return _biased(translator, call, like(translator, call, sums, rank), call["bias"], axis=0)


def _product(translator: Translator, call: Call, codes: Codes, weight: Constant, bias: Any) -> Value:
    """Return x W^T + b. Along the last of several axes it is a 1x1 convolution, with that axis as channels."""
    *lead, inputs = translator.shape(codes)
    assert weight.codes is not None
    outputs = len(weight.codes)
    count = math.prod(lead)
    if count == 1:
        flat = reshaped(translator, call, codes, (inputs,), "flat")
        assert isinstance(flat, Codes)
        sums = _weighted(translator, call, flat, weight, Linear())
        return _biased(
            translator, call, reshaped(translator, call, sums, (*lead, outputs), "rows"), bias, axis=len(lead)
        )
    first = permuted(translator, call, codes, (len(lead), *range(len(lead))), "columns")
    pixels = reshaped(translator, call, first, (inputs, 1, count), "as_2d")
    assert isinstance(pixels, Codes)
    taps = Constant(weight.tensor, weight.label, weight.codes[:, :, None, None], weight.scale, weight.dtype)
    sums = _weighted(translator, call, pixels, taps, Conv2d())
    last = reshaped(translator, call, sums, (outputs, *lead), "channels")
    rows = permuted(translator, call, last, (*range(1, len(lead) + 1), 0), "rows")
    return _biased(translator, call, rows, bias, axis=len(lead))


def _weighted(translator: Translator, call: Call, codes: Codes, weight: Constant, op: Op) -> Codes:
    assert weight.codes is not None
    assert weight.scale is not None
    assert weight.dtype is not None
    type = TensorType(weight.codes.shape, weight.dtype)
    name = translator.builder.constant(weight.label, weight.codes, type, call.location)
    sums = translator.emit(call, op, codes.name, name)
    rank = len(translator.builder.type_of(sums).shape)
    # One documented order: the scale of the sums is input scale times weight scale, rounded once.
    scale = codes.scale * _along(weight.scale, rank, 0)
    return Codes(sums, scale, quantized=False)


def _biased(translator: Translator, call: Call, sums: Codes | Float, bias: Any, axis: int) -> Value:
    if bias is None:
        return sums
    if not isinstance(bias, Constant):
        raise CaptureError(f"{call} computes its bias from the model's input; it must be a parameter")
    shape = _along(np.empty(bias.tensor.shape), len(translator.shape(sums)), axis).shape
    name = translator.parameter(bias, call, shape)
    return Float(translator.emit(call, Add(), translator.floats(sums, call.location), name, suffix="bias"))


def _operands(translator: Translator, call: Call, x: Any, weight: Any, outputs_axis: int) -> tuple[Codes, Constant]:
    """Return input and weights; if both are wrong, both are noted."""
    try:
        codes = _codes(call, x)
    except CaptureError as error:
        try:
            _weights(call, weight, outputs_axis)
        except CaptureError as second:
            translator.problems.append(error)
            raise second from error
        raise
    return codes, _weights(call, weight, outputs_axis)


def _codes(call: Call, value: Any) -> Codes:
    if isinstance(value, Float) and value.spoiled:
        raise KnownResult(f"{call} needs quantized inputs, but {value.spoiled}")
    if not isinstance(value, Codes) or not value.quantized:
        raise KnownResult(
            f"{call} needs quantized inputs, but there is no quantizer in front of it; put one there, such as "
            f"nnhw.nn.Sign(), nnhw.nn.QuantReLU(4), or nnhw.nn.UInt(8, scale=2**-8) for an image"
        )
    if value.scale.ndim:
        raise CaptureError(f"{call} needs inputs with one scale, but the quantizer in front has one per channel")
    return value


def _weights(call: Call, weight: Any, outputs_axis: int) -> Constant:
    if not isinstance(weight, Constant):
        raise CaptureError(f"{call} computes its weights from the model's input; they must be a parameter")
    if weight.codes is None:
        layer = _LAYERS.get(call.operator.split(".")[1])
        remedy = f"use nnhw.nn.{layer}" if layer else "use nnhw.nn.QuantLinear, or put a quantizer behind the parameter"
        raise KnownResult(
            f"{call} needs quantized weights, but they are {str(weight.tensor.dtype).removeprefix('torch.')}; {remedy}"
        )
    assert weight.scale is not None
    if weight.scale.ndim and weight.scale.size != weight.scale.shape[outputs_axis]:
        raise CaptureError(
            f"{call} needs weights with one scale, or one per output; use axis={outputs_axis} in their quantizer"
        )
    return weight


def _along(values: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """Shape one number per channel so that it broadcasts along `axis` of `rank` axes."""
    if not values.ndim:
        return values
    return values.reshape((1,) * axis + (-1,) + (1,) * (rank - 1 - axis))


def _named_padding(
    call: Call, kernel: tuple[int, ...], dilation: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the rows and columns in front and behind; of an odd number, 'same' puts the greater half behind."""
    if call["padding"] == "valid":
        return (0, 0), (0, 0)
    rows, columns = (step * (size - 1) for size, step in zip(kernel, dilation, strict=True))
    return (rows // 2, columns // 2), (rows - rows // 2, columns - columns // 2)


def _pair(sizes: Any, flat: bool, rest: int = 1) -> tuple[int, int]:
    """Return (height, width) of what torch gives as a list of one or two numbers, or as one number.

    Parameters
    ----------
    flat: of one dimension, so that the height gets `rest`.
    """
    if isinstance(sizes, int):
        sizes = [sizes]
    return (rest if flat else sizes[0]), sizes[-1]


HANDLERS: dict[str, Handler] = {
    "aten.linear.default": linear,
    "aten.matmul.default": matmul,
    "aten.mm.default": matmul,
    "aten.conv1d.default": convolution,
    "aten.conv1d.padding": convolution,
    "aten.conv2d.default": convolution,
    "aten.conv2d.padding": convolution,
}
