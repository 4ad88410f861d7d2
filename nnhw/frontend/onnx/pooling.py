"""Builders of ONNX's pooling, reductions and resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .elementwise import UnaryNode
from .layout import keep_batch, moved
from .linear import Padded, chain, ones, padding_of
from .node import Build, OnnxNode
from .values import Traced, Value


def max_pool(node: OnnxNode) -> Value:
    """MaxPool, with any padding."""
    x = node.traced(0)
    rank = len(x.shape) - 2
    kernel = list(node.take("kernel_shape"))
    strides, dilations = ones(node, "strides", rank), ones(node, "dilations", rank)
    pads = padding_of(node, x.shape[2:], kernel, strides, dilations)
    ceil = bool(node.take("ceil_mode", 0))
    node.take("storage_order")
    _check_rank(node, rank)
    begin, end = pads[:rank], pads[rank:]
    # torch pads max pooling by the same on both sides, and by half of the kernel at most.
    fits = begin == end and all(2 * width <= size for width, size in zip(begin, kernel, strict=True))
    kind = nn.MaxPool1d if rank == 1 else nn.MaxPool2d
    layer: nn.Module = kind(
        _sizes(kernel), _sizes(strides), _sizes(begin) if fits else 0, dilation=_sizes(dilations), ceil_mode=ceil
    )
    if fits:
        return moved(node, layer, x)
    # A border that is data for torch needs a number that wins no window. ONNX's has minus infinity, which is no code.
    lowest = _lowest(x)
    if lowest is None:
        raise node.refusal(f"has pads={pads}, others in front than behind; put Relu or a quantizer in front, or Pad")
    return moved(node, Padded(pads, layer, lowest), x)


def _lowest(x: Traced) -> float | None:
    """Return a number that no element of a value is below; None where nothing is known of it."""
    if x.coding is not None:
        coding = x.coding
        return float((coding.low - coding.zero_point.reshape(-1)[0]) * coding.unit.reshape(-1)[0])
    return 0.0 if x.positive else None


def average_pool(node: OnnxNode) -> Value:
    """AveragePool, with the padding that torch's has, or counted padding of any widths."""
    x = node.floats(0)
    kernel = list(node.take("kernel_shape"))
    return node.emit(average_layer(node, x.shape, kernel), x, positive=x.positive)


def average_layer(node: OnnxNode, shape: Sequence[int], kernel: Sequence[int]) -> nn.Module:
    """Return the layer of an average pooling.

    Parameters
    ----------
    shape: of its input, [N, channels, ..].
    kernel: sizes of the window.
    """
    rank = len(shape) - 2
    _check_rank(node, rank)
    strides = ones(node, "strides", rank)
    pads = padding_of(node, shape[2:], kernel, strides, [1] * rank)
    ceil, counted = bool(node.take("ceil_mode", 0)), bool(node.take("count_include_pad", 0))
    if any(number != 1 for number in node.take("dilations", [1])):
        raise node.refusal("has dilations; use 1")
    kind = nn.AvgPool1d if rank == 1 else nn.AvgPool2d
    begin, end = pads[:rank], pads[rank:]
    if begin == end and all(2 * width <= size for width, size in zip(begin, kernel, strict=True)):
        return kind(_sizes(kernel), _sizes(strides), _sizes(begin), ceil_mode=ceil, count_include_pad=counted)
    if not counted or ceil:
        raise node.refusal(f"has pads={pads}, others in front than behind; use equal ones, or count_include_pad=1")
    return Padded(pads, kind(_sizes(kernel), _sizes(strides)))


def global_pool(kinds: Sequence[Callable[[int], nn.Module]]) -> Build:
    """Return the builder of a pooling of whole images. `kinds`: torch's layer for sequences, and that for images."""

    def build(node: OnnxNode) -> Value:
        x = node.traced(0) if node.op == "GlobalMaxPool" else node.floats(0)
        _check_rank(node, len(x.shape) - 2)
        return moved(node, kinds[len(x.shape) - 3](1), x)

    return build


def _check_rank(node: OnnxNode, rank: int) -> None:
    if rank not in (1, 2):
        raise node.refusal(f"has an input of {rank + 2} axes; use images or sequences")


def _sizes(numbers: Sequence[int]) -> Any:
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def reduction(function: Callable[..., Tensor]) -> Build:
    """Return the builder of a mean, a sum or a maximum over axes of an image."""

    def build(node: OnnxNode) -> Value:
        x = node.floats(0)
        attribute = node.take("axes")
        axes = attribute if attribute is not None else node.integers(1, "axes")
        keep, nothing = bool(node.take("keepdims", 1)), node.take("noop_with_empty_axes", 0)
        # Without axes, ONNX reduces all of them, or none where this attribute says so.
        if not axes and nothing:
            return x
        axes = tuple(node.axis(axis, len(x.shape)) for axis in axes or range(len(x.shape)))
        if 0 in axes:
            raise node.refusal("reduces the batch, too; give the axes of an image")
        return node.emit(UnaryNode(function, dim=axes, keepdim=keep), x, positive=x.positive)

    return build


def resize(node: OnnxNode) -> Value:
    """Resize and Upsample: nearest neighbours, by whole factors."""
    x = node.traced(0)
    mode, scales, sizes = node.take("mode", "nearest"), node.take("scales"), None
    # Version 11 put the region of interest (`roi`) in front of the scales.
    place = 1 if node.op == "Upsample" or node.version < 11 else 2
    if scales is None and node.given(place) and node.known(place, "scales").size:
        scales = node.known(place, "scales").reshape(-1).tolist()
    if node.op == "Resize" and scales is None:
        sizes = node.integers(3, "sizes")
    way, nearest = (
        node.take("coordinate_transformation_mode", "half_pixel"),
        node.take("nearest_mode", "round_prefer_floor"),
    )
    for name in ("cubic_coeff_a", "exclude_outside", "extrapolation_value", "antialias"):
        node.take(name)
    if node.take("axes") or node.take("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise node.refusal("has axes or an aspect ratio; export it with scales for all axes")
    # For whole factors, half_pixel with rounding picks the same pixels as asymmetric with floor.
    plain = (way == "asymmetric" and nearest == "floor") or (way == "half_pixel" and nearest.startswith("round"))
    if mode != "nearest" or (node.op == "Resize" and node.version > 10 and not plain):
        raise node.refusal(f"has mode='{mode}', {way}, {nearest}; use mode='nearest' with asymmetric and floor")
    if sizes is not None:
        keep_batch(node, sizes[0], f"makes the sizes {sizes}")
        scales = [1.0, *(new / old for new, old in zip(sizes[1:], x.shape[1:], strict=True))]
    if scales is None or any(scale != int(scale) or scale < 1 for scale in scales):
        raise node.refusal(f"has the scales {scales}; use whole numbers of 1 or more")
    return moved(node, _nearest(node, [float(int(scale)) for scale in scales], len(x.shape)), x)


def _nearest(node: OnnxNode, scales: Sequence[float], rank: int) -> nn.Module:
    """Return the layer that repeats pixels, of images with the channels as first or as last axis behind the batch."""
    if len(scales) != rank or rank not in (3, 4) or scales[0] != 1 or 1 not in (scales[1], scales[-1]):
        raise node.refusal(
            f"has the scales {scales} for values of {rank} axes; use images or sequences, with 1 for batch and channels"
        )
    if scales[1] == 1:
        return nn.Upsample(scale_factor=tuple(scales[2:]), mode="nearest")
    first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    return chain(
        channels_first=UnaryNode(torch.permute, dims=first),
        nearest=nn.Upsample(scale_factor=tuple(scales[1:-1]), mode="nearest"),
        channels_last=UnaryNode(torch.permute, dims=last),
    )


TABLE: dict[str, Build] = {
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": global_pool((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)),
    "GlobalMaxPool": global_pool((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)),
    "ReduceMean": reduction(torch.mean),
    "ReduceSum": reduction(torch.sum),
    "ReduceMax": reduction(torch.amax),
    "Resize": resize,
    "Upsample": resize,
}
