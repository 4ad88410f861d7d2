"""Builders of ONNX's arithmetic and activations."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .node import Build, OnnxNode
from .values import Known, TensorCoding, Traced, Value

# torch's Softplus returns x itself above a threshold; ONNX's has none.
_SOFTPLUS_END = 88.0  # beyond it, e**x is infinite in float32
POWERS = (0.5, 1.0, 2.0, 3.0, -1.0)
"""Exponents of Pow for which the IR has an operator."""


class BinaryNode(nn.Module):
    """A function of two operands, of which one may be constant.

    Parameters
    ----------
    function: of two tensors.
    constant: the constant operand, made float32; None where both operands are computed.
    first: the constant is the first operand.
    """

    constant: Tensor | None

    def __init__(self, function: Callable[..., Tensor], constant: np.ndarray | None = None, first: bool = False):
        super().__init__()
        self.register_buffer("constant", None if constant is None else torch.from_numpy(np.array(constant, np.float32)))
        self.function, self.first = function, first

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """Return function(x, other), or with the constant in its place."""
        other = self.constant if other is None else other
        return self.function(other, x) if self.first else self.function(x, other)


class UnaryNode(nn.Module):
    """A function of one tensor, called with fixed keyword arguments."""

    def __init__(self, function: Callable[..., Tensor], **options: Any) -> None:
        super().__init__()
        self.function, self.options = function, options

    def forward(self, x: Tensor) -> Tensor:
        """Return function(x, **options)."""
        return self.function(x, **self.options)


def binary(function: Callable[..., Tensor]) -> Build:
    """Return the builder of a function of two values, or of a value and a constant."""

    def build(node: OnnxNode) -> Value:
        left, right = node[0], node[1]
        if len(node.inputs) != 2:
            raise node.refusal(f"has {len(node.inputs)} inputs; export it with two")
        if isinstance(right, Known) and not right.depends_on_batch:
            x, constant = node.floats(0), _broadcast(node, right.array, node.floats(0))
            # Differences may be negative; sums, products, quotients and extremes of such numbers are not.
            positive = x.positive and bool((constant >= 0).all()) and function is not operator.sub
            return node.emit(BinaryNode(function, constant), x, positive=positive)
        if isinstance(left, Known) and not left.depends_on_batch:
            x, constant = node.floats(1), _broadcast(node, left.array, node.floats(1))
            return node.emit(BinaryNode(function, constant, first=True), x)
        return node.emit(BinaryNode(function), node.floats(0), node.floats(1))

    return build


def _broadcast(node: OnnxNode, array: np.ndarray, value: Traced) -> np.ndarray:
    """Return a constant without axes of size 1 in front, such as that of the batch.

    Raises: CaptureError where it has other numbers for each image.
    """
    if array.ndim > len(value.shape):
        raise node.refusal(
            f"has a constant of the shape {list(array.shape)} for values of {len(value.shape)} axes, and so makes "
            f"axes in front of the batch; use a constant with as many axes, or fewer"
        )
    while array.ndim == len(value.shape) and array.ndim > 1 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == len(value.shape) and array.ndim > 1:
        raise node.refusal(
            f"has a constant of the shape {list(array.shape)}, with numbers for each image of a batch; "
            f"use the same for all"
        )
    return array


def simple(layer: Callable[[], nn.Module], **facts: Any) -> Build:
    """Return the builder of an operator without attributes. `facts`: of its result, as `Traced` has them."""
    return lambda node: node.emit(layer(), node.floats(0), **facts)


def relu(node: OnnxNode) -> Value:
    """Relu."""
    return node.emit(nn.ReLU(), node.floats(0), positive=True)


def leaky_relu(node: OnnxNode) -> Value:
    """LeakyRelu."""
    return node.emit(nn.LeakyReLU(node.take("alpha", 0.01)), node.floats(0))


def prelu(node: OnnxNode) -> Value:
    """PRelu, with one slope, or one for each channel."""
    x, slope = node.floats(0), node.known(1, "slope")
    channels = x.shape[1] if len(x.shape) > 1 else 1
    layout = [1] * (len(x.shape) - 1)
    layout[:1] = [channels]
    aligned = (
        # ONNX aligns slopes with the last axes; torch has one for each channel, which is the first axis of an image.
        slope.reshape((1,) * (len(x.shape) - 1 - slope.ndim) + slope.shape) if slope.ndim < len(x.shape) else slope
    )
    if slope.size != 1 and list(aligned.shape) != layout and list(aligned.shape) != [1, *layout]:
        raise node.refusal(f"has slopes of the shape {list(slope.shape)}; use one, or one for each channel")
    layer = nn.PReLU(slope.size)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.array(slope, np.float32)).reshape(-1))
    return node.emit(layer, x)


def clip(node: OnnxNode) -> Value:
    """Clip, with constant bounds, either of which may be missing."""
    x = node.traced(0)
    if x.coding is not None:
        # The quantizer in front has taken over these bounds (qdq._clipped).
        _check_bounds(node, x.coding)
        return x
    low, high = node.take("min"), node.take("max")
    if len(node.inputs) > 1:
        bounds = [node.optional(place, "bounds") for place in (1, 2)]
        low, high = (None if bound is None else float(bound.reshape(-1)[0]) for bound in bounds)
    if low is None and high is None:
        return x
    if low == 0 and high is None:
        return node.emit(nn.ReLU(), x, positive=True)
    if low is not None and high is not None and low < high:
        return node.emit(nn.ReLU6() if (low, high) == (0, 6) else nn.Hardtanh(low, high), x, positive=low >= 0)
    return node.emit(UnaryNode(torch.clamp, min=low, max=high), x)


def _check_bounds(node: OnnxNode, coding: TensorCoding) -> None:
    bounds = [node.optional(place, "bounds") for place in (1, 2)]
    low, high = (None if bound is None else int(bound.reshape(-1)[0]) for bound in bounds)
    # What a Clip alone reads was quantized within its bounds: here, they may cut nothing more.
    if low is None or high is None or low > coding.low or high < coding.high:
        raise node.refusal("bounds integers that others read, too; put it directly behind QuantizeLinear")


def hard_sigmoid(node: OnnxNode) -> Value:
    """HardSigmoid: max(0, min(1, alpha * x + beta))."""
    alpha, beta = node.take("alpha", 0.2), node.take("beta", 0.5)
    # The numbers of torch's own layer.
    if np.float32(alpha) == np.float32(1 / 6) and beta == 0.5:
        return node.emit(nn.Hardsigmoid(), node.floats(0), positive=True)
    return node.emit(UnaryNode(_hard_sigmoid, alpha=alpha, beta=beta), node.floats(0), positive=True)


def _hard_sigmoid(x: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.clamp(x * alpha + beta, 0.0, 1.0)


def elu(node: OnnxNode) -> Value:
    """Elu."""
    return node.emit(nn.ELU(node.take("alpha", 1.0)), node.floats(0))


def selu(node: OnnxNode) -> Value:
    """Selu, with the factors of its definition."""
    own = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}
    if any(abs(node.take(name, value) - value) > 1e-6 for name, value in own.items()):
        raise node.refusal("has other factors than those of its definition; use Elu")
    return node.emit(nn.SELU(), node.floats(0))


def celu(node: OnnxNode) -> Value:
    """Celu."""
    return node.emit(nn.CELU(node.take("alpha", 1.0)), node.floats(0))


def gelu(node: OnnxNode) -> Value:
    """Gelu: exact, or its approximation by tanh."""
    return node.emit(nn.GELU(approximate=node.take("approximate", "none")), node.floats(0))


def swish(node: OnnxNode) -> Value:
    """Swish: x * sigmoid(alpha * x), with alpha 1."""
    if node.take("alpha", 1.0) != 1.0:
        raise node.refusal("has a factor; use alpha=1")
    return node.emit(nn.SiLU(), node.floats(0))


def softplus(node: OnnxNode) -> Value:
    """Softplus; with a threshold, above which it is x, where an exporter has written one (see `patterns`)."""
    return node.emit(nn.Softplus(threshold=node.take("threshold", _SOFTPLUS_END)), node.floats(0), positive=True)


def power(node: OnnxNode) -> Value:
    """Pow with the exponent 0.5, 1, 2, 3 or -1."""
    exponent = node.known(1, "exponent")
    if exponent.size != 1 or float(exponent.reshape(-1)[0]) not in POWERS:
        raise node.refusal(f"has the exponent {exponent.reshape(-1)[:3].tolist()}; use one of {POWERS}")
    return node.emit(UnaryNode(torch.pow, exponent=float(exponent.reshape(-1)[0])), node.floats(0))


def softmax(kind: type[nn.Softmax | nn.LogSoftmax]) -> Build:
    """Return the builder of Softmax or LogSoftmax along one axis."""

    def build(node: OnnxNode) -> Value:
        x = node.floats(0)
        # Before version 13 softmax went over all axes from `axis` on, not over one.
        old = node.version < 13
        axis = node.axis(node.take("axis", 1 if old else -1), len(x.shape))
        if not axis or (old and axis != len(x.shape) - 1):
            raise node.refusal(f"has axis={axis} of {len(x.shape)}; use the last axis")
        return node.emit(kind(dim=axis), x)

    return build


def argmax(node: OnnxNode) -> Value:
    """ArgMax: the index of the greatest number, the first of equal ones."""
    x = node.floats(0)
    axis = node.axis(node.take("axis", 0), len(x.shape))
    if not axis or node.take("select_last_index", 0):
        raise node.refusal("is along the batch, or takes the last of equal ones; use axis=1 and select_last_index=0")
    return node.emit(UnaryNode(torch.argmax, dim=axis, keepdim=bool(node.take("keepdims", 1))), x)


def top(node: OnnxNode) -> list[Value]:
    """TopK of the one greatest number: the number and its index, the first of equal ones."""
    x = node.floats(0)
    count = node.take("k") if node.version < 10 else node.known(1, "k").reshape(-1).tolist()
    axis = node.axis(node.take("axis", -1), len(x.shape))
    node.take("sorted")
    if count not in (1, [1]) or not node.take("largest", 1) or not axis:
        raise node.refusal(
            f"has k={count}, takes the smallest values, or runs along the batch; use k=1, largest=1 and axis=-1"
        )
    number = node.emit(UnaryNode(torch.amax, dim=axis, keepdim=True), x, result=1)
    return [number, node.emit(UnaryNode(torch.argmax, dim=axis, keepdim=True), x)]


def same(node: OnnxNode) -> Value:
    """Identity and Dropout: the input itself, as in eval mode."""
    node.take("ratio")
    node.take("is_test")
    if node.op == "Dropout":
        node.take("seed")
        if node.given(2) and bool(node.known(2, "mode").any()):
            raise node.refusal("is in training mode; export the model in eval mode")
    return node[0]


def cast(node: OnnxNode) -> Value:
    """Cast from floats or integers to float32 or float64."""
    to = node.take("to")
    node.take("saturate")
    if to not in (1, 10, 11, 16):
        raise node.refusal("makes integers of values that depend on the input; use QuantizeLinear")
    if to in (10, 16):
        raise node.refusal("computes in less precision than float32, in which every step rounds; export with float32")
    x = node.traced(0)
    if x.coding is None:
        return x if x.like.is_floating_point() else node.emit(UnaryNode(torch.Tensor.float), x)
    if x.coding.real or x.coding.zero_point.any():
        raise node.refusal("takes integers with a zero point for numbers; use DequantizeLinear")
    # The same step: it holds the integers as floats already.
    return Traced(x.key, x.like, x.constant)


TABLE: dict[str, Build] = {
    "Add": binary(operator.add),
    "Sub": binary(operator.sub),
    "Mul": binary(operator.mul),
    "Div": binary(operator.truediv),
    "Min": binary(torch.minimum),
    "Max": binary(torch.maximum),
    "Relu": relu,
    "LeakyRelu": leaky_relu,
    "PRelu": prelu,
    "Clip": clip,
    "Sigmoid": simple(nn.Sigmoid, positive=True),
    "Tanh": simple(nn.Tanh),
    "HardSigmoid": hard_sigmoid,
    "HardSwish": simple(nn.Hardswish),
    "Elu": elu,
    "Selu": selu,
    "Celu": celu,
    "Gelu": gelu,
    "Mish": simple(nn.Mish),
    "Swish": swish,
    "Softplus": softplus,
    "Softsign": simple(nn.Softsign),
    "Abs": simple(lambda: UnaryNode(torch.abs), positive=True),
    "Neg": simple(lambda: UnaryNode(torch.neg)),
    "Exp": simple(lambda: UnaryNode(torch.exp), positive=True),
    "Sqrt": simple(lambda: UnaryNode(torch.sqrt), positive=True),
    "Reciprocal": simple(lambda: UnaryNode(torch.reciprocal)),
    "Floor": simple(lambda: UnaryNode(torch.floor)),
    "Ceil": simple(lambda: UnaryNode(torch.ceil)),
    "Round": simple(lambda: UnaryNode(torch.round)),
    "Pow": power,
    "Softmax": softmax(nn.Softmax),
    "LogSoftmax": softmax(nn.LogSoftmax),
    "ArgMax": argmax,
    "TopK": top,
    "Identity": same,
    "Dropout": same,
    "Cast": cast,
}
