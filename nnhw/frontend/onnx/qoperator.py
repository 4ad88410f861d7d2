"""Operators on integers: those of ONNX, and those that ONNX Runtime adds in the domain com.microsoft.

A value is the distance of the file's integer from its zero point. Sums are multiplied by one float32 number, which ONNX
Runtime computes from the three scales, and rounded half to even.

Source: onnxruntime/core/providers/cpu/quantization, onnxruntime/contrib_ops/cpu/quantization, and
onnxruntime/core/mlas/lib/{quantize,qladd,qlmul,qlgavgpool}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from .layout import ConcatNode
from .linear import Computed, MatMulNode, chain, conv_layer
from .node import Build, OnnxNode
from .pooling import average_layer
from .qdq import BIAS_MAX, integer_operand, integer_weight, limits_of, tapped
from .quantizing import PER_TENSOR, Convention, QuantizeNode, Requantized
from .values import Known, TensorCoding, Traced, Value

_SUMS = (-(1 << 31), (1 << 31) - 1)
"""Range of the sums of ConvInteger and MatMulInteger, which are int32."""


def _scale(node: OnnxNode, place: int) -> np.ndarray:
    return node.known(place, "scale").astype(np.float32)


def _one_scale(node: OnnxNode, place: int) -> np.ndarray:
    """Return the scale [] of a whole tensor. Raises: CaptureError for several, such as one for each row."""
    scale = _scale(node, place)
    if scale.size != 1:
        raise node.refusal(f"has {scale.size} scales as its input {place}; use one: only weights may have several")
    return scale.reshape(())


def _zero_point(node: OnnxNode, place: int) -> np.ndarray:
    array = node.optional(place, "zero point")
    return np.zeros(1, np.int32) if array is None else array.astype(np.int32).reshape(-1)


def _result(node: OnnxNode, scale: int, zero_point: int, like: int) -> TensorCoding:
    """Return the coding of the result. `scale`, `zero_point`, `like`: the places of its scale, its zero point, and of
    an input of its type, which counts where there is no zero point.
    """
    given = node[zero_point] if node.given(zero_point) else None
    if isinstance(given, Known):
        low, high = limits_of(node, given.type)
    else:
        coding = node.traced(like).coding
        low, high = (coding.low, coding.high) if coding is not None else (0, 255)
    zero = _zero_point(node, zero_point)
    if zero.size != 1:
        raise node.refusal(f"has {zero.size} zero points of its result; use one")
    return TensorCoding(_one_scale(node, scale).reshape(1), zero, low, high)


def _requantized(
    node: OnnxNode,
    layer: nn.Module | None,
    operands: list[Traced],
    factors: tuple[np.ndarray, ...],
    coding: TensorCoding,
    *,
    divisor: float = 1.0,
    first: bool = False,
    part: tuple[int, int, int] | None = None,
) -> Traced:
    """Add a step that computes sums, multiplies them by factors, and quantizes them.

    Parameters
    ----------
    layer, factors, divisor: see `Requantized`.
    operands: of the layer.
    coding: of the result.
    first: the zero point is added before rounding.
    part: axis, start and end of the part of the file's tensor that has these codes; None for all of it.
    """
    # Without a zero point both orders are the same; the plain one needs no further step.
    first = first and bool(coding.zero_point.any())
    convention: Convention = (coding.low, coding.high, PER_TENSOR, False, "half_even", False, first)
    codes = QuantizeNode(np.ones(1), coding.zero_point, convention)
    # The parts of one node's result need layers with names of their own.
    result = part[1] + 1 if part else 0
    made = node.emit(Requantized(layer, factors, divisor, codes), *operands, result=result, coding=coding)
    return tapped(node, made, coding, node.proto.output[0], part)


def _multiplier(one: np.ndarray, other: np.ndarray, result: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    """Return the float32 number that sums are multiplied by, rounded in the steps of ONNX Runtime."""
    # All factors are float32 arrays, so that NumPy rounds behind each operation.
    product = one * other if alpha == 1.0 else np.float32(alpha) * one * other
    return (product / result).astype(np.float32)


def _bias(node: OnnxNode, place: int) -> Known | None:
    """Return an integer bias as float32; None if there is none. Raises: CaptureError where float32 is not exact."""
    array = node.optional(place, "bias")
    if array is None:
        return None
    if np.abs(array.astype(np.int64)).max(initial=0) >= BIAS_MAX:
        raise node.refusal(f"has a bias of {BIAS_MAX} or more; use a larger scale of the weights")
    return Known(node.proto.input[place], array.astype(np.float32))


def _per_channel(scale: np.ndarray, rank: int) -> np.ndarray:
    """Shape one number per channel so that it broadcasts to [channels, ..]."""
    return scale.reshape(()) if scale.size == 1 else scale.reshape(-1, *(1,) * (rank - 2))


def qlinear_conv(node: OnnxNode) -> Value:
    """QLinearConv: a convolution of codes to codes."""
    x = integer_operand(node, 0, _zero_point(node, 2))
    weight = integer_weight(node, 3, _zero_point(node, 5), 0)
    layer, more = conv_layer(node, weight, _bias(node, 8), x.shape)
    coding = _result(node, 6, 7, 0)
    multiplier = _multiplier(_one_scale(node, 1), _scale(node, 4), _one_scale(node, 6))
    return _requantized(node, layer, [x, *more], (_per_channel(multiplier, len(x.shape)),), coding)


def conv_integer(node: OnnxNode) -> Value:
    """ConvInteger: a convolution of codes to integer sums."""
    x = integer_operand(node, 0, _zero_point(node, 2))
    weight = integer_weight(node, 1, _zero_point(node, 3), 0)
    layer, more = conv_layer(node, weight, None, x.shape)
    return node.emit(layer, x, *more, coding=TensorCoding(None, np.zeros(1, np.int32), *_SUMS))


def qlinear_matmul(node: OnnxNode) -> Value:
    """QLinearMatMul, with constant weights [inputs, outputs]: a product of codes to codes."""
    x = integer_operand(node, 0, _zero_point(node, 2))
    weight = integer_weight(node, 3, _zero_point(node, 5), -1)
    multiplier = _multiplier(_one_scale(node, 1), _scale(node, 4), _one_scale(node, 6))
    factor = multiplier.reshape(-1) if multiplier.size > 1 else multiplier.reshape(())
    return _requantized(node, MatMulNode(), [x, weight], (factor,), _result(node, 6, 7, 0))


def matmul_integer(node: OnnxNode) -> Value:
    """MatMulInteger: a product of codes to integer sums."""
    x = integer_operand(node, 0, _zero_point(node, 2))
    weight = integer_weight(node, 1, _zero_point(node, 3), -1)
    return node.emit(MatMulNode(), x, weight, coding=TensorCoding(None, np.zeros(1, np.int32), *_SUMS))


def qgemm(node: OnnxNode) -> Value:
    """QGemm of com.microsoft: a linear layer of codes to codes, or to floats where the result has no scale."""
    alpha = node.take("alpha", 1.0)
    if node.take("transA", 0):
        raise node.refusal("transposes its first operand, and so the batch; export it with transA=0")
    transposed = bool(node.take("transB", 0))
    x = integer_operand(node, 0, _zero_point(node, 2))
    weight = integer_weight(node, 3, _zero_point(node, 5), 0 if transposed else 1)
    bias = _bias(node, 6)
    layer = Computed(functional.linear if transposed else _affine, None if bias is None else bias.array.reshape(-1))
    if not node.given(7):
        scale = (np.float32(alpha) * _one_scale(node, 1) * _scale(node, 4)).astype(np.float32)
        return node.emit(Scaled(layer, _row(scale)), x, weight)
    multiplier = _multiplier(_one_scale(node, 1), _scale(node, 4), _one_scale(node, 7), alpha)
    return _requantized(node, layer, [x, weight], (_row(multiplier),), _result(node, 7, 8, 0))


def _row(scale: np.ndarray) -> np.ndarray:
    return scale.reshape(-1) if scale.size > 1 else scale.reshape(())


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.linear(x, weight.t(), bias)


class Scaled(nn.Module):
    """The result of a layer times a factor."""

    factor: Tensor

    def __init__(self, layer: nn.Module, factor: np.ndarray) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("factor", torch.from_numpy(np.array(factor, np.float32)))

    def forward(self, *operands: Tensor) -> Tensor:
        """Return layer(*operands) * factor."""
        result: Tensor = self.layer(*operands) * self.factor
        return result


class QLinearAddNode(nn.Module):
    """x * one + y * other."""

    def __init__(self, one: float, other: float) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Two tensors of one shape --> the same shape."""
        return x * self.one + y * self.other


def qlinear_add(node: OnnxNode) -> Value:
    """QLinearAdd of com.microsoft: each operand times its scale by that of the result; rounded with the zero point."""
    coding = _result(node, 6, 7, 0)
    ratios = [(_one_scale(node, place) / _one_scale(node, 6)).astype(np.float32) for place in (1, 4)]
    operands = [_addend(node, place) for place in (0, 3)]
    layer = QLinearAddNode(*map(float, ratios))
    return _requantized(node, layer, operands, (), coding, first=True)


def _addend(node: OnnxNode, place: int) -> Traced:
    zero_point = _zero_point(node, place + 2)
    if isinstance(node[place], Known):
        return integer_weight(node, place, zero_point, 0)
    return integer_operand(node, place, zero_point)


def qlinear_mul(node: OnnxNode) -> Value:
    """QLinearMul of com.microsoft, of which one operand must be constant."""
    known = [place for place in (0, 3) if isinstance(node[place], Known)]
    if len(known) != 1:
        raise node.refusal("multiplies two values that both depend on the input; the engines multiply by constants")
    place = known[0]
    x = integer_operand(node, 3 - place, _zero_point(node, 5 - place))
    constant = node.known(place, "operand").astype(np.float32) - _zero_point(node, place + 2).astype(np.float32)
    # Without axes of one element in front, such as that of the batch.
    while constant.ndim and constant.shape[0] == 1:
        constant = constant[0]
    ratio = _multiplier(_one_scale(node, 1), _scale(node, 4), _one_scale(node, 6)).reshape(())
    return _requantized(node, None, [x], (constant, ratio), _result(node, 6, 7, 3 - place), first=True)


def qlinear_average_pool(node: OnnxNode) -> Value:
    """QLinearAveragePool of com.microsoft, with channels first."""
    _no_channels_last(node)
    x = integer_operand(node, 0, _zero_point(node, 2))
    layer = average_layer(node, x.shape, list(node.take("kernel_shape")))
    return _requantized(node, layer, [x], (_one_scale(node, 1),), _result(node, 3, 4, 0), divisor=_one(node, 3))


class SummedUp(nn.Module):
    """The sum of each channel."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, ..] --> [N, C, 1 ..]."""
        return x.sum(dim=tuple(range(2, x.dim())), keepdim=True)


def qlinear_global_average_pool(node: OnnxNode) -> Value:
    """QLinearGlobalAveragePool of com.microsoft: the sum of each channel times one number, scale and count in one."""
    _no_channels_last(node)
    x = integer_operand(node, 0, _zero_point(node, 2))
    # The product of scale and count is rounded to float32 before the division, as in qlgavgpool.cpp.
    count = np.float32(np.prod(x.shape[2:]))
    multiplier = (_one_scale(node, 1) / (_one_scale(node, 3) * count)).astype(np.float32)
    return _requantized(node, SummedUp(), [x], (multiplier,), _result(node, 3, 4, 0))


def _no_channels_last(node: OnnxNode) -> None:
    if node.take("channels_last", 0):
        raise node.refusal("has the channels last; use channels_last=0")


def _one(node: OnnxNode, place: int) -> float:
    return float(_one_scale(node, place))


def activation(layer: Callable[[OnnxNode], nn.Module]) -> Build:
    """Return the builder of an activation of codes to codes. `layer`: makes the float function of a node."""

    def build(node: OnnxNode) -> Value:
        x = integer_operand(node, 0, _zero_point(node, 2))
        numbers = chain(numbers=Scaled(nn.Identity(), _one_scale(node, 1)), function=layer(node))
        return _requantized(node, numbers, [x], (), _result(node, 3, 4, 0), divisor=_one(node, 3))

    return build


def qlinear_concat(node: OnnxNode) -> Value:
    """QLinearConcat of com.microsoft: parts with another scale than the result's are quantized again."""
    coding, axis, start, parts = _result(node, 0, 1, 2), node.take("axis"), 0, []
    for place in range(2, len(node.inputs), 3):
        part = integer_operand(node, place, _zero_point(node, place + 2))
        stop = start + part.shape[axis]
        if not coding.same(_scale(node, place + 1), _zero_point(node, place + 2)):
            factor = _one_scale(node, place + 1)
            where = axis % len(part.shape), start, stop
            part = _requantized(node, None, [part], (factor,), coding, divisor=_one(node, 0), part=where)
        parts.append(part)
        start = stop
    return node.emit(ConcatNode(axis), *parts, coding=coding)


STANDARD: dict[str, Build] = {
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "ConvInteger": conv_integer,
    "MatMulInteger": matmul_integer,
}
MICROSOFT: dict[str, Build] = {
    "QLinearAdd": qlinear_add,
    "QLinearMul": qlinear_mul,
    "QLinearAveragePool": qlinear_average_pool,
    "QLinearGlobalAveragePool": qlinear_global_average_pool,
    "QLinearConcat": qlinear_concat,
    "QLinearSigmoid": activation(lambda node: nn.Sigmoid()),
    "QLinearLeakyRelu": activation(lambda node: nn.LeakyReLU(node.take("alpha", 0.01))),
    "QGemm": qgemm,
    "QLinearConv": qlinear_conv,
}
