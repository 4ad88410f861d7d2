"""Builders of ONNX's linear layers and of its batch normalization."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from .finn import weights_of
from .node import Build, OnnxNode
from .values import Known, Traced, Value

_CONVS: dict[int, type[nn.Conv1d | nn.Conv2d]] = {1: nn.Conv1d, 2: nn.Conv2d}
_TRANSPOSED: dict[int, type[nn.ConvTranspose1d | nn.ConvTranspose2d]] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d}
_FUNCTIONS: dict[tuple[bool, int], Callable[..., Tensor]] = {
    (False, 1): functional.conv1d,
    (False, 2): functional.conv2d,
    (True, 1): functional.conv_transpose1d,
    (True, 2): functional.conv_transpose2d,
}
_SAME = ("SAME_UPPER", "SAME_LOWER")
"""Values of auto_pad by which the result has the input's size, over the strides."""


class Computed(nn.Module):
    """A layer whose weights are computed, such as by a quantizer: a function of torch with fixed keyword arguments.

    Parameters
    ----------
    function: of input, weights and bias.
    bias: a constant; None where the bias is the third operand, or there is none.
    """

    bias: Tensor | None

    def __init__(self, function: Callable[..., Tensor], bias: np.ndarray | None, **options: Any) -> None:
        super().__init__()
        self.register_buffer("bias", None if bias is None else _tensor(bias))
        self.function, self.options = function, options

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return function(x, weight, bias, **options)."""
        return self.function(x, weight, self.bias if bias is None else bias, **self.options)


def convolution(node: OnnxNode) -> Value:
    """Conv, of images or of sequences."""
    operands = [node.floats(0)]
    bias = node[2] if node.given(2) else None
    layer, more = conv_layer(node, weights_of(node), bias, tuple(operands[0].shape))
    return node.emit(layer, *operands, *more)


def conv_layer(
    node: OnnxNode, weight: Value, bias: Value | None, shape: Sequence[int], border: float = 0.0
) -> tuple[nn.Module, list[Traced]]:
    """Return a convolution, and its operands behind the first one.

    Parameters
    ----------
    weight: [outputs, inputs / groups, *kernel].
    shape: of its input, [N, channels, ..].
    border: value of the padding where that is not the same on both sides.

    Raises
    ------
    CaptureError: it is neither of images nor of sequences, or its shapes do not fit.
    """
    sizes = _shape_of(weight)
    rank = len(sizes) - 2
    if rank not in _CONVS or len(shape) != rank + 2:
        raise node.refusal(f"has weights of the shape {sizes} for values of {len(shape)} axes; use images or sequences")
    kernel = _kernel_of(node, sizes)
    strides, dilations = ones(node, "strides", rank), ones(node, "dilations", rank)
    pads = padding_of(node, shape[2:], kernel, strides, dilations)
    options: dict[str, Any] = {"stride": strides, "dilation": dilations, "groups": node.take("group", 1)}
    begin, end = pads[:rank], pads[rank:]
    # torch pads both sides by the same; other borders become a layer in front (`Padded`).
    options["padding"] = tuple(begin) if begin == end else 0
    more = [] if isinstance(weight, Known) else [weight]
    if isinstance(weight, Known) and not isinstance(bias, Traced):
        kind: Callable[..., nn.Module] = _CONVS[rank]
        layer = kind(sizes[1] * options["groups"], sizes[0], tuple(kernel), bias=bias is not None, **options)
        _fill(layer, weight.array, None if bias is None else bias.array)
    else:
        more = [node.builder.constant_step(node, weight, 1) if isinstance(weight, Known) else weight]
        more += [bias] if isinstance(bias, Traced) else []
        constant = bias.array if isinstance(bias, Known) else None
        layer = Computed(_FUNCTIONS[False, rank], constant, **options)
    return (layer if begin == end else Padded(pads, layer, border)), more


def transposed_convolution(node: OnnxNode) -> Value:
    """ConvTranspose, of images or of sequences."""
    x, weight = node.floats(0), weights_of(node)
    bias = node.known(2, "bias") if node.given(2) else None
    sizes = _shape_of(weight)
    rank = len(sizes) - 2
    if rank not in _CONVS:
        raise node.refusal(f"has weights of the shape {sizes}; use images or sequences")
    kernel = _kernel_of(node, sizes)
    strides, dilations = ones(node, "strides", rank), ones(node, "dilations", rank)
    extra = list(node.take("output_padding", [0] * rank))
    pads = _cut_of(node, x.shape[2:], _Window(kernel, strides, dilations), extra)
    # What is cut off behind may be less than in front: that is an output padding. What is more is cut off by a layer.
    extra = [more + front - back for more, front, back in zip(extra, pads[:rank], pads[rank:], strict=True)]
    steps = [max(pair) for pair in zip(strides, dilations, strict=True)]
    if any(more >= step for more, step in zip(extra, steps, strict=True)):
        raise node.refusal(f"adds {extra} elements at the end, but fewer than {steps} can be added; put Pad behind it")
    options: dict[str, Any] = {
        "stride": tuple(strides),
        "padding": tuple(pads[:rank]),
        "output_padding": tuple(max(more, 0) for more in extra),
        "groups": node.take("group", 1),
        "dilation": tuple(dilations),
    }
    layer: nn.Module
    if isinstance(weight, Traced):
        layer, more = Computed(_FUNCTIONS[True, rank], bias, **options), [weight]
    else:
        kind: Callable[..., nn.Module] = _TRANSPOSED[rank]
        layer = kind(sizes[0], sizes[1] * options["groups"], tuple(kernel), bias=bias is not None, **options)
        layer, more = _fill(layer, weight.array, bias), []
    behind = [max(-more, 0) for more in extra]
    return node.emit(Cropped(layer, behind) if any(behind) else layer, x, *more)


@dataclass(frozen=True)
class _Window:
    """Sizes of a kernel, its strides and its dilations, along each axis."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]


def _cut_of(node: OnnxNode, shape: Sequence[int], window: _Window, extra: Sequence[int]) -> list[int]:
    """Return the elements that a transposed convolution cuts off in front of each axis, then behind each.

    Parameters
    ----------
    shape: sizes of the input's axes behind the channels.
    extra: elements that are added behind each axis.

    Raises
    ------
    CaptureError: they are less than none, or auto_pad has a value that is not known.
    """
    rank = len(shape)
    auto, result = node.take("auto_pad", "NOTSET"), list(node.take("output_shape", []))[-rank:]
    pads = list(node.take("pads", [0] * 2 * rank))
    if auto in _SAME:
        result = result or [size * stride for size, stride in zip(shape, window.strides, strict=True)]
    elif auto not in ("NOTSET", "", "VALID"):
        raise node.refusal(f"has auto_pad='{auto}'; use {', '.join(_SAME)}, VALID or NOTSET")
    elif not result and auto == "VALID":
        pads = [0] * 2 * rank
    if result:
        whole = [
            (size - 1) * stride + (taps - 1) * dilation + 1 + more
            for size, taps, stride, dilation, more in zip(
                shape, window.kernel, window.strides, window.dilations, extra, strict=True
            )
        ]
        # Of an odd number, all but SAME_UPPER cut one more off in front.
        pads = _halves([size - kept for size, kept in zip(whole, result, strict=True)], auto == "SAME_UPPER")
    if len(pads) != 2 * rank or min(pads) < 0:
        raise node.refusal(f"has pads={pads}; export it with two of 0 or more for each axis")
    return pads


def _halves(totals: Sequence[int], behind: bool) -> list[int]:
    """Split a number of elements for each axis: those in front, then those behind. `behind`: where an odd one goes."""
    less, more = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return less + more if behind else more + less


class Cropped(nn.Module):
    """A layer, then its result without the last elements of the last axes.

    Parameters
    ----------
    counts: elements that are cut off, for each of these axes.
    """

    def __init__(self, layer: nn.Module, counts: Sequence[int]) -> None:
        super().__init__()
        self.layer, self.ends = layer, tuple(slice(None, -count or None) for count in counts)

    def forward(self, *operands: Tensor) -> Tensor:
        """Return the layer's result, cut."""
        return self.layer(*operands)[(..., *self.ends)]  # type: ignore[no-any-return]


class Padded(nn.Module):
    """A border of one value around the last axes, then a layer.

    Parameters
    ----------
    pads: elements of the border as ONNX has them: in front of each axis, then behind each.
    layer: reads the input with its border.
    value: of the border.
    """

    def __init__(self, pads: Sequence[int], layer: nn.Module, value: float = 0.0) -> None:
        super().__init__()
        rank = len(pads) // 2
        # torch's pad begins with the last axis, and has both sides of an axis together.
        self.pads = [pads[axis + side * rank] for axis in reversed(range(rank)) for side in (0, 1)]
        self.value, self.layer = value, layer

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        """Return the layer's result for x with its border; `more` are the layer's other operands."""
        result: Tensor = self.layer(functional.pad(x, self.pads, value=self.value), *more)
        return result


def padding_of(
    node: OnnxNode, shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Return the elements of padding in front of each axis, then behind each; auto_pad is resolved.

    Parameters
    ----------
    shape: sizes of the input's axes behind the channels.
    """
    auto, pads = node.take("auto_pad", "NOTSET"), list(node.take("pads", [0] * 2 * len(kernel)))
    if auto in ("NOTSET", ""):
        if len(pads) != 2 * len(kernel) or min(pads) < 0:
            raise node.refusal(f"has pads={pads}; export it with two of 0 or more for each axis")
        return pads
    if auto == "VALID":
        return [0] * 2 * len(kernel)
    if auto not in _SAME:
        raise node.refusal(f"has auto_pad='{auto}'; use {', '.join(_SAME)}, VALID or NOTSET")
    # ONNX Runtime refuses such convolutions, and pads such poolings as if they had no dilations.
    if any(dilation != 1 for dilation in dilations):
        raise node.refusal(
            f"has auto_pad='{auto}' and dilations={list(dilations)}, which ONNX Runtime does not pad as ONNX "
            f"specifies; export it with pads"
        )
    totals = [
        max((-(-size // stride) - 1) * stride + taps - size, 0)
        for size, taps, stride in zip(shape, kernel, strides, strict=True)
    ]
    # Of an odd number, the name says on which side there is one more.
    return _halves(totals, auto == "SAME_UPPER")


def ones(node: OnnxNode, name: str, rank: int) -> tuple[int, ...]:
    """Return an attribute with one number for each axis, 1 by default."""
    return tuple(int(number) for number in node.take(name, [1] * rank))


def gemm(node: OnnxNode) -> Value:
    """Gemm: alpha * A B + beta * C, with constants in the places of B and C."""
    x = node.floats(0)
    alpha, beta = node.take("alpha", 1.0), node.take("beta", 1.0)
    if node.take("transA", 0):
        raise node.refusal("transposes its first operand, and so the batch; export it with transA=0")
    transposed, weight = bool(node.take("transB", 0)), weights_of(node)
    bias = node[2] if node.given(2) else None
    if isinstance(bias, Known):
        if bias.array.ndim > 1 and bias.array.shape[0] != 1:
            raise node.refusal(
                f"has a bias of the shape {list(bias.array.shape)}, with numbers for each image of a batch; use the "
                f"same for all"
            )
        bias = Known(bias.name, (bias.array * np.float32(beta)).reshape(-1) if beta != 1 else bias.array.reshape(-1))
    if isinstance(weight, Known) and not isinstance(bias, Traced):
        array = weight.array if transposed else weight.array.T
        return node.emit(dense(array * np.float32(alpha) if alpha != 1 else array, bias), x)
    if alpha != 1 or (isinstance(bias, Traced) and beta != 1):
        raise node.refusal(f"has alpha={alpha} and beta={beta} with computed weights; export it with 1")
    weight = node.builder.constant_step(node, weight, 1) if isinstance(weight, Known) else weight
    return linear_of(node, x, weight, bias, transposed)


def dense(weight: np.ndarray, bias: Known | None = None) -> nn.Linear:
    """Return a linear layer with constant weight [outputs, inputs] and, if given, bias [outputs]."""
    outputs, inputs = weight.shape
    array = None if bias is None else np.broadcast_to(bias.array, (outputs,))
    layer = nn.Linear(inputs, outputs, bias=bias is not None)
    _fill(layer, weight, array)
    return layer


def linear_of(node: OnnxNode, x: Traced, weight: Traced, bias: Value | None, transposed: bool) -> Traced:
    """Return x times computed weights: [outputs, inputs] if `transposed`, else [inputs, outputs]."""
    if not transposed:
        weight = node.emit(TransposeNode(), weight)
    constant = bias.array if isinstance(bias, Known) else None
    if constant is not None:
        constant = np.broadcast_to(constant, (weight.shape[0],))
    more = [bias] if isinstance(bias, Traced) else []
    return node.emit(Computed(functional.linear, constant), x, weight, *more)


class TransposeNode(nn.Module):
    """A matrix with its axes exchanged."""

    def forward(self, x: Tensor) -> Tensor:
        """[a, b] --> [b, a]."""
        return x.t()


class MatMulNode(nn.Module):
    """x @ weight."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """[N, .., inputs], [inputs, outputs] --> [N, .., outputs]."""
        return torch.matmul(x, weight)


def matmul(node: OnnxNode) -> Value:
    """MatMul: a value times constant or quantized weights [inputs, outputs], along the last axis."""
    if isinstance(node[0], Known):
        raise node.refusal("has its constant on the left; export it as x @ weight, with the constant on the right")
    x, weight = node.floats(0), weights_of(node)
    if isinstance(weight, Known) and weight.array.ndim == 2:
        return node.emit(dense(weight.array.T), x)
    if isinstance(weight, Known) or weight is node[1]:
        weight = node.floats(1)
    return node.emit(MatMulNode(), x, weight)


def batch_normalization(node: OnnxNode) -> Value:
    """BatchNormalization in eval mode, with the file's mean and variance."""
    epsilon, momentum = node.take("epsilon", 1e-5), node.take("momentum", 0.9)
    if node.take("training_mode", 0) or node.take("spatial", 1) != 1 or sum(map(bool, node.proto.output)) > 1:
        raise node.refusal("is in training mode, or has statistics for each pixel; export the model in eval mode")
    x = node.floats(0)
    names = ("weight", "bias", "running_mean", "running_var")
    arrays = [node.known(place + 1, name) for place, name in enumerate(names)]
    kinds: dict[int, type[nn.BatchNorm1d | nn.BatchNorm2d]] = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}
    # torch's layers check the number of axes; ONNX has one operator for all.
    if len(x.shape) not in kinds:
        raise node.refusal(f"has an input of {len(x.shape)} axes; use images, sequences or vectors")
    # ONNX's momentum weights the old statistics, torch's the new ones.
    layer = kinds[len(x.shape)](x.shape[1], eps=epsilon, momentum=1 - momentum)
    with torch.no_grad():
        for name, array in zip(names, arrays, strict=True):
            getattr(layer, name).copy_(_tensor(array))
    return node.emit(layer, x)


def chain(**layers: nn.Module) -> nn.Module:
    """Return layers that run one after the other, by their names."""
    return nn.Sequential(OrderedDict(layers))


def _kernel_of(node: OnnxNode, sizes: list[int]) -> list[int]:
    """Return the sizes of a kernel by the shape of its weights. Raises: CaptureError if the node states others."""
    kernel = list(node.take("kernel_shape", sizes[2:]))
    if kernel != sizes[2:]:
        raise node.refusal(f"has kernel_shape={kernel} for weights of the shape {sizes}; export the model again")
    return kernel


def _shape_of(value: Value) -> list[int]:
    return list(value.array.shape if isinstance(value, Known) else value.shape)


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array, np.float32))


def _fill(layer: nn.Module, weight: np.ndarray, bias: np.ndarray | None) -> nn.Module:
    """Set weights and bias of a layer, and return it."""
    for name, array in (("weight", weight), ("bias", bias)):
        if array is not None:
            setattr(layer, name, nn.Parameter(_tensor(array), requires_grad=False))
    return layer


TABLE: dict[str, Build] = {
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Gemm": gemm,
    "MatMul": matmul,
    "BatchNormalization": batch_normalization,
}
