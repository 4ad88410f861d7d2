"""Operators that move, join and cut values, and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .building import Build, Node
from .elementwise import Function
from .layers import Padded, ones, padding_of
from .values import BATCH, EXAMPLES, Coding, Traced, Value

_INT64_MAX = 2**31  # ends of slices at or above this are those of the axis


def moved(node: Node, layer: nn.Module, x: Traced, **facts: Any) -> Traced:
    """Add a step that moves elements: integers stay what they are."""
    if x.coding is not None and x.coding.axis >= 0:
        raise node.refusal("moves integers that have a scale for each channel; use one scale")
    return node.emit(layer, x, coding=x.coding, positive=x.positive, **facts)


class Reshaped(nn.Module):
    """The elements of each image in another shape, in the same order."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        """[N, ..] --> [N, *shape]."""
        return x.reshape(x.shape[0], *self.shape)


def reshape(node: Node) -> Value:
    """Reshape, which keeps the batch as first axis."""
    x, target = node.traced(0), node.integers(1, "shape")
    assert target is not None
    node.take("allowzero")
    if x.constant:
        return node.emit(Function(torch.reshape, shape=tuple(target)), x)
    sizes = [int(x.shape[axis]) if size == 0 and axis < len(x.shape) else size for axis, size in enumerate(target)]
    images = int(np.prod(x.shape[1:]))
    if sizes[0] not in (BATCH, EXAMPLES, -1):  # a size of the batch that was written into the file
        if sizes[0] != node.builder.batch:
            raise node.refusal(f"makes the shape {target}, whose first axis is not the batch")
        node.builder.fixed_batch = True
    elif sizes[0] == -1 and -1 not in sizes[1:] and int(np.prod(sizes[1:])) != images:
        raise node.refusal(f"makes the shape {target} of images of {images} numbers, and so mixes images")
    rest = [images // -int(np.prod(sizes[1:])) if size == -1 else size for size in sizes[1:]]
    if BATCH in rest or int(np.prod(rest)) != images:
        raise node.refusal(f"makes the shape {target} of images of {images} numbers, and so mixes images")
    return moved(node, nn.Flatten() if len(rest) == 1 else Reshaped(rest), x)


def flatten(node: Node) -> Value:
    """Flatten, behind the batch."""
    axis = node.take("axis", 1)
    x = node.traced(0)
    if axis % len(x.shape) != 1:
        raise node.refusal(f"has axis={axis}, and so mixes images; use axis=1")
    return moved(node, nn.Flatten(), x)


def transpose(node: Node) -> Value:
    """Transpose."""
    x = node.traced(0)
    axes = node.take("perm", list(reversed(range(len(x.shape)))))
    return moved(node, Function(torch.permute, dims=tuple(axes)), x)


def _axes(node: Node, rank: int) -> list[int] | None:
    axes = node.take("axes") if node.version < 13 else node.integers(1, "axes")
    return None if axes is None else [axis % rank for axis in axes]


def squeeze(node: Node) -> Value:
    """Squeeze."""
    x = node.traced(0)
    axes = _axes(node, len(x.shape))
    axes = [axis for axis, size in enumerate(x.shape) if size == 1] if axes is None else axes
    return moved(node, Function(torch.squeeze, dim=tuple(axes)), x)


def unsqueeze(node: Node) -> Value:
    """Unsqueeze."""
    x = node.traced(0)
    given = node.take("axes") if node.version < 13 else node.integers(1, "axes")
    axes = sorted(axis % (len(x.shape) + len(given or [])) for axis in given or [])
    return moved(node, Function(_unsqueezed, axes=tuple(axes)), x)


def _unsqueezed(x: Tensor, axes: Sequence[int]) -> Tensor:
    for axis in axes:
        x = x.unsqueeze(axis)
    return x


class Joined(nn.Module):
    """Values one behind the other."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, *parts: Tensor) -> Tensor:
        """Join."""
        return torch.cat(parts, self.axis)


def concat(node: Node) -> Value:
    """Concat, along any axis but the batch."""
    parts = [node.traced(place) for place in range(len(node.inputs))]
    axis = node.take("axis", 1) % len(parts[0].shape)
    codings = [part.coding for part in parts]
    coding = codings[0]
    if coding is not None and not all(other is not None and _alike(coding, other) for other in codings):
        raise node.refusal("joins integers of different scales; use QLinearConcat, or quantize with one scale")
    if coding is None and any(codings):
        raise node.refusal("joins integers and floats; put DequantizeLinear in front of it")
    return node.emit(Joined(axis), *parts, coding=coding, positive=all(part.positive for part in parts))


def _alike(one: Coding, other: Coding) -> bool:
    return one.scale is not None and other.scale is not None and one.real == other.real and one.same(
        other.scale, other.zero_point
    )


def split(node: Node) -> list[Value]:
    """Split, along any axis but the batch."""
    x = node.traced(0)
    axis = node.take("axis", 0) % len(x.shape)
    sizes = node.take("split") if node.version < 13 else node.integers(1, "sizes")
    count = node.take("num_outputs", len(node.proto.output))
    if sizes is None:
        step = -(-x.shape[axis] // count)
        sizes = [min(step, x.shape[axis] - step * part) for part in range(count)]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return [
        moved(node, Function(torch.narrow, dim=axis, start=start, length=size), x, result=number)
        for number, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]


class Sliced(nn.Module):
    """Parts of some axes."""

    def __init__(self, parts: Sequence[tuple[int, int, int]]) -> None:
        super().__init__()
        self.parts = tuple(slice(*part) for part in parts)

    def forward(self, x: Tensor) -> Tensor:
        """Cut."""
        return x[(slice(None), *self.parts)]


def cut(node: Node) -> Value:
    """Slice with constant bounds and steps above 0, along any axis but the batch."""
    x = node.traced(0)
    if node.version < 10:
        starts, ends, axes, steps = node.take("starts"), node.take("ends"), node.take("axes"), None
    else:
        starts, ends, axes, steps = (node.integers(place, "bounds") for place in range(1, 5))
    axes = list(range(len(starts))) if axes is None else [axis % len(x.shape) for axis in axes]
    parts = [(0, int(size), 1) for size in x.shape]
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        if step < 1:
            raise node.refusal(f"has the step {step}, but elements stream forwards; use steps of 1 or more")
        size = int(x.shape[axis])
        parts[axis] = (*slice(start, min(end, _INT64_MAX), step).indices(size)[:2], step)
    if parts[0] != (0, EXAMPLES, 1):
        raise node.refusal("cuts the batch; leave that to whoever calls the model")
    return moved(node, Sliced(parts[1:]), x)


def gather(node: Node) -> Value:
    """Gather of one index, or of indices at equal distances, along any axis but the batch."""
    x, indices = node.traced(0), node.known(1, "indices")
    axis = node.take("axis", 0) % len(x.shape)
    numbers = [int(index) % int(x.shape[axis]) for index in indices.reshape(-1)]
    if indices.ndim == 0 and axis:
        return moved(node, Function(torch.select, dim=axis, index=numbers[0]), x)
    steps = set(np.diff(numbers).tolist())
    if not axis or indices.ndim != 1 or len(steps) > 1 or min(steps, default=1) < 1:
        raise node.refusal("picks elements in no steps of one size; use Slice")
    parts = [(0, int(size), 1) for size in x.shape]
    parts[axis] = numbers[0], numbers[-1] + 1, steps.pop() if steps else 1
    return moved(node, Sliced(parts[1:]), x)


def pad(node: Node) -> Value:
    """Pad by one value."""
    x, mode = node.traced(0), node.take("mode", "constant")
    pads = node.take("pads") if node.version < 11 else node.integers(1, "widths")
    value = node.take("value", 0.0)
    if node.version >= 11 and node.given(2):
        value = float(node.known(2, "value").reshape(-1)[0])
    axes = node.integers(3, "axes")
    if mode != "constant" or pads is None:
        raise node.refusal(f"has mode='{mode}'; use mode='constant'")
    if axes is not None:
        pads = _spread(pads, axes, len(x.shape))
    rank = len(x.shape)
    if pads[0] or pads[rank] or min(pads) < 0:
        raise node.refusal(f"has pads={pads}; use borders of 0 or more, and none of the batch")
    inner = [*pads[1:rank], *pads[rank + 1 :]]
    while len(inner) > 2 and not inner[0] and not inner[len(inner) // 2]:
        half = len(inner) // 2
        inner = [*inner[1:half], *inner[half + 1 :]]
    if x.coding is not None:  # the value is one of the file's integers
        value = (value - float(x.coding.zero_point.reshape(-1)[0])) * float(x.coding.unit.reshape(-1)[0])
    return moved(node, Padded(inner, nn.Identity(), value), x)


def _spread(pads: Sequence[int], axes: Sequence[int], rank: int) -> list[int]:
    whole = [0] * 2 * rank
    for number, axis in enumerate(axes):
        whole[axis % rank], whole[axis % rank + rank] = pads[number], pads[number + len(axes)]
    return whole


def max_pool(node: Node) -> Value:
    """MaxPool."""
    x = node.traced(0)
    rank = len(x.shape) - 2
    kernel = list(node.take("kernel_shape"))
    strides, dilations = ones(node, "strides", rank), ones(node, "dilations", rank)
    pads = padding_of(node, x.shape[2:], kernel, strides, dilations)
    ceil = bool(node.take("ceil_mode", 0))
    node.take("storage_order")
    _check_rank(node, rank)
    begin, end = pads[:rank], pads[rank:]
    fits = begin == end and all(2 * width <= size for width, size in zip(begin, kernel, strict=True))
    kind = nn.MaxPool1d if rank == 1 else nn.MaxPool2d
    layer: nn.Module = kind(
        _sizes(kernel), _sizes(strides), _sizes(begin) if fits else 0, dilation=_sizes(dilations), ceil_mode=ceil
    )
    if fits:
        return moved(node, layer, x)
    lowest = _lowest(x)
    if lowest is None:
        raise node.refusal(f"has pads={pads}, others in front than behind; put Relu or a quantizer in front, or Pad")
    return moved(node, Padded(pads, layer, lowest), x)


def _lowest(x: Traced) -> float | None:
    """Return a number below which a value never is."""
    if x.coding is not None:
        coding = x.coding
        return float((coding.low - coding.zero_point.reshape(-1)[0]) * coding.unit.reshape(-1)[0])
    return 0.0 if x.positive else None


def average_pool(node: Node) -> Value:
    """AveragePool."""
    x = node.floats(0)
    kernel = list(node.take("kernel_shape"))
    return node.emit(average_layer(node, x.shape, kernel), x, positive=x.positive)


def average_layer(node: Node, shape: Sequence[int], kernel: Sequence[int]) -> nn.Module:
    """Return average pooling of an input of a shape."""
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
    """Return the builder of a pooling of whole images: for sequences, and for images."""

    def build(node: Node) -> Value:
        x = node.traced(0) if node.op == "GlobalMaxPool" else node.floats(0)
        _check_rank(node, len(x.shape) - 2)
        return moved(node, kinds[len(x.shape) - 3](1), x)

    return build


def _check_rank(node: Node, rank: int) -> None:
    if rank not in (1, 2):
        raise node.refusal(f"has an input of {rank + 2} axes; use images or sequences")


def _sizes(numbers: Sequence[int]) -> Any:
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def reduction(function: Callable[..., Tensor]) -> Build:
    """Return the builder of a mean, a sum or a maximum over axes."""

    def build(node: Node) -> Value:
        x = node.floats(0)
        attribute = node.take("axes")
        axes = attribute if attribute is not None else node.integers(1, "axes")
        keep, nothing = bool(node.take("keepdims", 1)), node.take("noop_with_empty_axes", 0)
        if not axes and nothing:
            return x
        axes = tuple(axis % len(x.shape) for axis in axes or range(len(x.shape)))
        if 0 in axes:
            raise node.refusal("reduces the batch, too; give the axes of an image")
        return node.emit(Function(function, dim=axes, keepdim=keep), x, positive=x.positive)

    return build


def resize(node: Node) -> Value:
    """Resize and Upsample: nearest neighbours, by whole factors."""
    x = node.traced(0)
    mode, scales, sizes = node.take("mode", "nearest"), node.take("scales"), None
    place = 1 if node.op == "Upsample" else 2
    if scales is None and node.given(place) and node.known(place, "scales").size:
        scales = node.known(place, "scales").reshape(-1).tolist()
    if node.op == "Resize" and scales is None:
        sizes = node.integers(3, "sizes")
    way, nearest = node.take("coordinate_transformation_mode", "half_pixel"), node.take("nearest_mode", "round_prefer_floor")
    for name in ("cubic_coeff_a", "exclude_outside", "extrapolation_value", "antialias"):
        node.take(name)
    if node.take("axes") or node.take("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise node.refusal("has axes or an aspect ratio; export it with scales for all axes")
    plain = (way == "asymmetric" and nearest == "floor") or (way == "half_pixel" and nearest.startswith("round"))
    if mode != "nearest" or (node.op == "Resize" and node.version > 10 and not plain):
        raise node.refusal(f"has mode='{mode}', {way}, {nearest}; use mode='nearest' with asymmetric and floor")
    if sizes is not None:
        scales = [1.0, *(new / old for new, old in zip(sizes[1:], x.shape[1:], strict=True))]
    if scales is None or any(scale != int(scale) or scale < 1 for scale in scales) or scales[:2] != [1.0, 1.0]:
        raise node.refusal(f"has the scales {scales}; use whole numbers for height and width, and 1 for the others")
    factors = tuple(float(int(scale)) for scale in scales[2:])
    return moved(node, nn.Upsample(scale_factor=factors, mode="nearest"), x)


def depth_to_space(node: Node) -> Value:
    """DepthToSpace with mode='CRD', as torch does it."""
    size = node.take("blocksize")
    if node.take("mode", "DCR") != "CRD":
        raise node.refusal("has mode='DCR'; use mode='CRD'")
    return moved(node, nn.PixelShuffle(size), node.traced(0))


TABLE: dict[str, Build] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Transpose": transpose,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Concat": concat,
    "Split": split,
    "Slice": cut,
    "Gather": gather,
    "Pad": pad,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": global_pool((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)),
    "GlobalMaxPool": global_pool((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)),
    "ReduceMean": reduction(torch.mean),
    "ReduceSum": reduction(torch.sum),
    "ReduceMax": reduction(torch.amax),
    "Resize": resize,
    "Upsample": resize,
    "DepthToSpace": depth_to_space,
}
