"""Traced linear operators, pooling and reshaping: what works on codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnhw.errors import CaptureError
from nnhw.ir import Op, TensorType
from nnhw.ir.ops import Add, Conv2d, Flatten, Linear, MaxPool2d, Reshape

from .calls import Call
from .translator import Handler, KnownResult, Translator
from .values import Codes, Constant, Float, Value


def linear(translator: Translator, call: Call) -> Value:
    """y = x W^T + b."""
    if len(call.node.meta["val"].shape) != 2:
        raise CaptureError(
            f"{call} needs an input of shape [batch, inputs], and makes the shape "
            f"{translator.show(call.node.meta['val'].shape)}; put nn.Flatten() in front"
        )
    return _weighted(translator, call, Linear())


def conv2d(translator: Translator, call: Call) -> Value:
    """Convolution with padding by zeros."""
    if len(call.node.meta["val"].shape) != 4:
        raise CaptureError(f"{call} needs an input of shape [batch, channels, height, width]")
    stride, dilation = _pair(call["stride"]), _pair(call["dilation"])
    padding = _same_padding(call) if isinstance(call["padding"], str) else _pair(call["padding"])
    return _weighted(translator, call, Conv2d(stride, padding, dilation, call["groups"]))


def max_pool2d(translator: Translator, call: Call) -> Value:
    """Max pooling; of codes where it can be, for scales are positive."""
    kernel = _pair(call["kernel_size"])
    stride = _pair(call["stride"]) if call["stride"] else kernel
    if _pair(call["padding"]) != (0, 0) or _pair(call["dilation"]) != (1, 1):
        raise CaptureError(
            f"{call} has padding={call['padding']} and dilation={call['dilation']}; only padding=0 and dilation=1 "
            f"are supported"
        )
    result = _layout(translator, call, call["self"], MaxPool2d(kernel, stride))
    if translator.shape(result) != translator.result_shape(call):
        raise CaptureError(f"{call} has ceil_mode=True and a rest at the border; use ceil_mode=False")
    return result


def reshape(translator: Translator, call: Call) -> Value:
    """flatten, view, squeeze and the like: anything that keeps the batch axis and the order of elements."""
    value: Codes | Float = call.values[0]  # type: ignore[assignment]
    shape = translator.result_shape(call)
    if shape == translator.shape(value):
        return value
    return _layout(translator, call, value, Flatten() if len(shape) == 1 else Reshape(shape))


def _layout(translator: Translator, call: Call, value: Any, op: Op) -> Codes | Float:
    if isinstance(value, Codes) and not value.scale.ndim:
        return Codes(translator.emit(call, op, value.name), value.scale, value.quantized)
    return Float(translator.emit(call, op, translator.floats(value, call.location)))


def _weighted(translator: Translator, call: Call, op: Op) -> Value:
    codes, weight = _operands(translator, call)
    assert weight.codes is not None
    assert weight.scale is not None
    assert weight.dtype is not None
    type = TensorType(weight.codes.shape, weight.dtype)
    name = translator.builder.constant(weight.label, weight.codes, type, call.location)
    sums = translator.emit(call, op, codes.name, name)
    rank = len(translator.builder.type_of(sums).shape)
    # One documented order: the scale of the sums is input scale times weight scale, rounded once.
    scale = codes.scale * _per_output(weight.scale, rank)
    result = Codes(sums, scale, quantized=False)
    return result if call["bias"] is None else _biased(translator, call, result, rank)


def _biased(translator: Translator, call: Call, sums: Codes, rank: int) -> Value:
    bias = call["bias"]
    if not isinstance(bias, Constant):
        raise CaptureError(f"{call} computes its bias from the model's input; it must be a parameter")
    shape = (-1,) + (1,) * (rank - 1)
    name = translator.parameter(bias, call, tuple(np.empty(bias.tensor.shape).reshape(shape).shape))
    return Float(translator.emit(call, Add(), translator.floats(sums, call.location), name, suffix="bias"))


def _operands(translator: Translator, call: Call) -> tuple[Codes, Constant]:
    """Return input and weights; if both are wrong, both are noted."""
    try:
        codes = _codes(call)
    except CaptureError as error:
        try:
            _weights(call)
        except CaptureError as second:
            translator.problems.append(error)
            raise second from error
        raise
    return codes, _weights(call)


def _codes(call: Call) -> Codes:
    value = call["input"]
    if not isinstance(value, Codes) or not value.quantized:
        raise KnownResult(
            f"{call} needs quantized inputs, but there is no quantizer in front of it; put one there, such as "
            f"nnhw.nn.Sign(), nnhw.nn.QuantReLU(4), or nnhw.nn.UInt(8, scale=2**-8) for an image"
        )
    if value.scale.ndim:
        raise CaptureError(f"{call} needs inputs with one scale, but the quantizer in front has one per channel")
    return value


def _weights(call: Call) -> Constant:
    weight = call["weight"]
    if not isinstance(weight, Constant):
        raise CaptureError(f"{call} computes its weights from the model's input; they must be a parameter")
    if weight.codes is None:
        layer = {"linear": "QuantLinear", "conv2d": "QuantConv2d"}[call.operator.split(".")[1]]
        raise KnownResult(
            f"{call} needs quantized weights, but they are {str(weight.tensor.dtype).removeprefix('torch.')}; "
            f"use nnhw.nn.{layer}"
        )
    assert weight.scale is not None
    if weight.scale.ndim and weight.scale.size != weight.scale.shape[0]:
        raise CaptureError(f"{call} needs weights with one scale, or one per output; use axis=0 in their quantizer")
    return weight


def _per_output(scale: np.ndarray, rank: int) -> np.ndarray:
    return scale.reshape((-1,) + (1,) * (rank - 1)) if scale.ndim else scale


def _same_padding(call: Call) -> tuple[int, int]:
    if call["padding"] == "valid":
        return 0, 0
    reach = [
        step * (size - 1) for size, step in zip(call["weight"].tensor.shape[2:], _pair(call["dilation"]), strict=True)
    ]
    if any(size % 2 for size in reach):
        raise CaptureError(f"{call} has padding='same' and an even kernel, so that borders differ; pad by a number")
    return reach[0] // 2, reach[1] // 2


def _pair(sizes: Any) -> tuple[int, int]:
    """Return (height, width) of what torch gives as a list of one or two numbers, or as one number."""
    if isinstance(sizes, int):
        return sizes, sizes
    return sizes[0], sizes[-1]


HANDLERS: dict[str, Handler] = {
    "aten.linear.default": linear,
    "aten.conv2d.default": conv2d,
    "aten.conv2d.padding": conv2d,
    "aten.max_pool2d.default": max_pool2d,
    "aten.flatten.using_ints": reshape,
    "aten.view.default": reshape,
    "aten.reshape.default": reshape,
    "aten.squeeze.dim": reshape,
    "aten.unsqueeze.default": reshape,
}
