"""Builders of ONNX's operators that move, join and cut values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .elementwise import UnaryNode
from .linear import Padded
from .node import Build, OnnxNode
from .values import BATCH, EXAMPLES, TensorCoding, Traced, Value

_FLATTEN = "export x.flatten(1) or x.reshape(x.shape[0], ..)"
_END_MAX = 2**31  # exporters write greater numbers for the end of an axis


def moved(node: OnnxNode, layer: nn.Module, x: Traced, **facts: Any) -> Traced:
    """Add a step that moves elements: the result is coded as the input is, and never below 0 if that is not.

    Parameters
    ----------
    facts: of the result, see `Traced`; they take precedence over those of the input.
    """
    # The axis of the scales would have to move with the elements; no exporter writes that between integers.
    if x.coding is not None and x.coding.axis >= 0:
        raise node.refusal("moves integers that have a scale for each channel; use one scale")
    return node.emit(layer, x, **{"coding": x.coding, "positive": x.positive, **facts})


class ReshapeNode(nn.Module):
    """The elements of each image in another shape, in the same order."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        """[N, ..] --> [N, *shape]."""
        return x.reshape(x.shape[0], *self.shape)


class Rearranged(nn.Module):
    """The elements of each image: first in one shape, then with its axes in another order, then in another shape."""

    def __init__(self, given: Sequence[int], order: Sequence[int], made: Sequence[int]) -> None:
        super().__init__()
        self.given, self.axes, self.made = tuple(given), (0, *(axis + 1 for axis in order)), tuple(made)

    def forward(self, x: Tensor) -> Tensor:
        """[N, ..] --> [N, *made]."""
        return x.reshape(x.shape[0], *self.given).permute(self.axes).reshape(x.shape[0], *self.made)


def _is_single(node: OnnxNode, x: Traced) -> bool:
    """Return whether a value belongs to the only image that a file takes, so that its first axis may become another."""
    return x.bare or (node.builder.batch == 1 and not x.constant)


def _single(node: OnnxNode, x: Traced, sizes: Sequence[int], order: Sequence[int] | None = None) -> Traced:
    """Move the elements of the only image that a file takes; its batch of 1 is an axis like any other of size 1.

    Parameters
    ----------
    sizes: the result's shape in the file.
    order: the input's axes in the file, as the result has them.
    """
    node.builder.fixed_batch = True
    given = x.file_shape
    # Whichever axis of size 1 comes first is the batch of the module's value.
    bare = not sizes or sizes[0] != 1
    made = tuple(sizes if bare else sizes[1:])
    moves = [axis for axis in (range(len(given)) if order is None else order) if given[axis] != 1]
    if moves == sorted(moves):
        return replace(x, bare=bare) if made == x.shape[1:] else moved(node, ReshapeNode(made), x, bare=bare)
    axes = sorted(moves)
    layer = Rearranged([given[axis] for axis in axes], [axes.index(axis) for axis in moves], made)
    return moved(node, layer, x, bare=bare)


def _resolved(node: OnnxNode, target: Sequence[int], given: Sequence[int]) -> list[int]:
    """Return the shape that Reshape makes of the shape of the only image. Raises: CaptureError if it does not fit."""
    sizes = [given[axis] if size == 0 and axis < len(given) else size for axis, size in enumerate(target)]
    sizes = [1 if size == BATCH else size for size in sizes]
    known = math.prod(size for size in sizes if size != -1)
    sizes = [math.prod(given) // known if size == -1 and known else size for size in sizes]
    if math.prod(sizes) != math.prod(given) or min(sizes, default=1) < 1:
        raise node.refusal(f"cannot reshape {list(given)} to {list(target)}; export the model again")
    return sizes


def keep_batch(node: OnnxNode, size: int, what: str, remedy: str = "keep the batch as first axis") -> None:
    """Note that the size of the batch is written into a constant of the file, if it is.

    Raises: CaptureError if the size is another one. `what`: what the node does, for the message.
    """
    if size in (BATCH, EXAMPLES):
        return
    if size != node.builder.batch:
        raise node.refusal(f"{what}, whose first axis is not the batch; {remedy}")
    node.builder.fixed_batch = True


def reshape(node: OnnxNode) -> Value:
    """Reshape, which keeps the batch as first axis; in a file with a batch of 1, to any shape."""
    x, target = node.traced(0, bare=True), node.integers(1, "shape")
    assert target is not None
    if node.take("allowzero", 0) and 0 in target:
        raise node.refusal(f"makes the shape {target} without any numbers (allowzero); use a shape without 0")
    if _is_single(node, x):
        whole = _resolved(node, target, x.file_shape)
        if x.bare or whole[:1] != [1]:
            return _single(node, x, whole)
    # A size of 0 stands for that of the input's axis in the same place.
    sizes = [int(x.shape[axis]) if size == 0 and axis < len(x.shape) else size for axis, size in enumerate(target)]
    if x.constant:
        return node.emit(UnaryNode(torch.reshape, shape=tuple(sizes)), x)
    images = int(np.prod(x.shape[1:]))
    if sizes[0] != -1:
        keep_batch(node, sizes[0], f"makes the shape {target}", _FLATTEN)
    elif -1 not in sizes[1:] and int(np.prod(sizes[1:])) != images:
        raise node.refusal(f"makes the shape {target} of images of {images} numbers, and so mixes images; {_FLATTEN}")
    rest = [images // -int(np.prod(sizes[1:])) if size == -1 else size for size in sizes[1:]]
    if BATCH in rest or int(np.prod(rest)) != images:
        raise node.refusal(f"makes the shape {target} of images of {images} numbers, and so mixes images; {_FLATTEN}")
    return moved(node, nn.Flatten() if len(rest) == 1 else ReshapeNode(rest), x)


def flatten(node: OnnxNode) -> Value:
    """Flatten of all axes behind the batch; in a file with a batch of 1, of any axes."""
    axis, x = node.take("axis", 1), node.traced(0, bare=True)
    rank = len(x.file_shape)
    # The axis may stand behind the last one: the result has one column then.
    axis = axis if axis == rank else node.axis(axis, rank)
    if _is_single(node, x) and (x.bare or axis != 1):
        return _single(node, x, [math.prod(x.file_shape[:axis]), math.prod(x.file_shape[axis:])])
    if not axis or math.prod(x.shape[1:axis]) != 1:
        raise node.refusal(f"has axis={axis}, and so mixes images; use axis=1")
    return moved(node, nn.Flatten(), x)


def transpose(node: OnnxNode) -> Value:
    """Transpose; in a file with a batch of 1, that moves with the others."""
    x = node.traced(0, bare=True)
    axes = list(node.take("perm", list(reversed(range(len(x.file_shape))))))
    if sorted(axes) != list(range(len(x.file_shape))):
        raise node.refusal(f"has perm={axes} for values of {len(x.file_shape)} axes; name each of them once")
    if _is_single(node, x) and (x.bare or axes[0]):
        return _single(node, x, [x.file_shape[axis] for axis in axes], axes)
    return moved(node, UnaryNode(torch.permute, dims=tuple(axes)), x)


def _axes(node: OnnxNode, rank: int) -> list[int] | None:
    axes = node.take("axes") if node.version < 13 else node.integers(1, "axes")
    return None if axes is None else [node.axis(axis, rank) for axis in axes]


def squeeze(node: OnnxNode) -> Value:
    """Squeeze; in a file with a batch of 1, that may go away with the others."""
    x = node.traced(0, bare=True)
    given = x.file_shape
    axes = _axes(node, len(given))
    if axes is None:
        # A file that leaves the batch open keeps it.
        first = 0 if _is_single(node, x) or x.constant else 1
        axes = [axis for axis, size in enumerate(given) if size == 1 and axis >= first]
    if any(given[axis] != 1 for axis in axes):
        raise node.refusal(f"removes the axes {axes} of the shape {list(given)}; give axes of size 1")
    if _is_single(node, x) and (x.bare or 0 in axes):
        return _single(node, x, [size for axis, size in enumerate(given) if axis not in axes])
    if 0 in axes and not x.constant:
        raise node.refusal("removes the axis of the batch; give the axes behind it that have the size 1")
    return moved(node, UnaryNode(torch.squeeze, dim=tuple(axes)), x)


def unsqueeze(node: OnnxNode) -> Value:
    """Unsqueeze; in a file with a batch of 1, also in front of it."""
    x = node.traced(0, bare=True)
    given = node.take("axes") if node.version < 13 else node.integers(1, "axes")
    # Ascending: each axis counts among those of the result.
    axes = sorted(node.axis(axis, len(x.file_shape) + len(given or [])) for axis in given or [])
    if _is_single(node, x) and (x.bare or 0 in axes):
        sizes = list(x.file_shape)
        for axis in axes:
            sizes.insert(axis, 1)
        return _single(node, x, sizes)
    return moved(node, UnaryNode(_unsqueezed, axes=tuple(axes)), x)


def _unsqueezed(x: Tensor, axes: Sequence[int]) -> Tensor:
    for axis in axes:
        x = x.unsqueeze(axis)
    return x


class ConcatNode(nn.Module):
    """Values joined along an axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, *parts: Tensor) -> Tensor:
        """Join tensors whose sizes are the same but along the axis."""
        return torch.cat(parts, self.axis)


def concat(node: OnnxNode) -> Value:
    """Concat, along any axis but the batch."""
    parts = [node.traced(place) for place in range(len(node.inputs))]
    axis = node.axis(node.take("axis", 1), len(parts[0].shape))
    codings = [part.coding for part in parts]
    coding = codings[0]
    if coding is not None and not all(other is not None and _alike(coding, other) for other in codings):
        raise node.refusal("joins integers of different scales; use QLinearConcat, or quantize with one scale")
    if coding is None and any(codings):
        raise node.refusal("joins integers and floats; put DequantizeLinear in front of it")
    return node.emit(ConcatNode(axis), *parts, coding=coding, positive=all(part.positive for part in parts))


def _alike(one: TensorCoding, other: TensorCoding) -> bool:
    return (
        one.scale is not None
        and other.scale is not None
        and one.real == other.real
        and one.same(other.scale, other.zero_point)
    )


def split(node: OnnxNode) -> list[Value]:
    """Split, along any axis but the batch."""
    x = node.traced(0)
    axis = node.axis(node.take("axis", 0), len(x.shape))
    sizes = node.take("split") if node.version < 13 else node.integers(1, "sizes")
    count = node.take("num_outputs", len(node.proto.output))
    if sizes is None:
        # The last part may be shorter, as ONNX has it.
        step = -(-x.shape[axis] // count)
        sizes = [min(step, x.shape[axis] - step * part) for part in range(count)]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return [
        moved(node, UnaryNode(torch.narrow, dim=axis, start=start, length=size), x, result=number)
        for number, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]


class Sliced(nn.Module):
    """A range of each axis behind the batch; `parts` are (start, end, step)."""

    def __init__(self, parts: Sequence[tuple[int, int, int]]) -> None:
        super().__init__()
        self.parts = tuple(slice(*part) for part in parts)

    def forward(self, x: Tensor) -> Tensor:
        """Return the parts."""
        return x[(slice(None), *self.parts)]


def cut(node: OnnxNode) -> Value:
    """Slice with constant bounds and steps above 0, along any axis but the batch."""
    x = node.traced(0)
    if node.version < 10:
        starts, ends, axes, steps = node.take("starts"), node.take("ends"), node.take("axes"), None
    else:
        starts, ends, axes, steps = (node.integers(place, "bounds") for place in range(1, 5))
    axes = list(range(len(starts))) if axes is None else [node.axis(axis, len(x.shape)) for axis in axes]
    parts = [(0, int(size), 1) for size in x.shape]
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        if step < 1:
            raise node.refusal(f"has the step {step}, but elements stream forwards; use steps of 1 or more")
        size = int(x.shape[axis])
        parts[axis] = (*slice(start, min(end, _END_MAX), step).indices(size)[:2], step)
    # In a file with a batch of 1, these are all of its images.
    if parts[0] != (0, EXAMPLES, 1):
        if node.builder.batch != 1 or parts[0][0] != 0 or parts[0][1] < 1:
            raise node.refusal("cuts the batch; leave that to whoever calls the model")
        node.builder.fixed_batch = True
    return moved(node, Sliced(parts[1:]), x)


def gather(node: OnnxNode) -> Value:
    """Gather of one index, or of indices at equal distances, along any axis but the batch."""
    x, indices = node.traced(0), node.known(1, "indices")
    axis = node.axis(node.take("axis", 0), len(x.shape))
    size, given = int(x.shape[axis]), [int(index) for index in indices.reshape(-1)]
    if not axis and not indices.ndim and given[0] in (0, -1) and _is_single(node, x):
        return _single(node, x, x.file_shape[1:])
    for index in given:
        if axis and not -size <= index < size:
            raise node.refusal(f"picks element {index} along an axis of {size}; use {-size} to {size - 1}")
    numbers = [index % size for index in given]  # negative indices count from the end
    if indices.ndim == 0 and axis:
        return moved(node, UnaryNode(torch.select, dim=axis, index=numbers[0]), x)
    # The engines cut ranges out of a stream: indices at equal distances are a range with a step.
    steps = set(np.diff(numbers).tolist())
    if not axis or indices.ndim != 1 or len(steps) > 1 or min(steps, default=1) < 1:
        raise node.refusal("picks elements in no steps of one size; use Slice")
    parts = [(0, int(size), 1) for size in x.shape]
    parts[axis] = numbers[0], numbers[-1] + 1, steps.pop() if steps else 1
    return moved(node, Sliced(parts[1:]), x)


def pad(node: OnnxNode) -> Value:
    """Pad with a border of one value."""
    x, mode = node.traced(0), node.take("mode", "constant")
    pads = node.take("pads") if node.version < 11 else node.integers(1, "widths")
    value = node.take("value", 0.0)
    if node.version >= 11 and node.given(2):
        value = float(node.known(2, "value").reshape(-1)[0])
    axes = node.integers(3, "axes")
    if mode != "constant":
        raise node.refusal(f"has mode='{mode}'; use mode='constant'")
    if pads is None:
        raise node.refusal("has no widths (pads) of its border; export the model again")
    if axes is not None:
        pads = _spread(pads, [node.axis(axis, len(x.shape)) for axis in axes], len(x.shape))
    rank = len(x.shape)
    if pads[0] or pads[rank] or min(pads) < 0:
        raise node.refusal(f"has pads={pads}; use borders of 0 or more, and none of the batch")
    inner = [*pads[1:rank], *pads[rank + 1 :]]
    # torch's pad takes the last axes alone: axes without a border are dropped from the front.
    while len(inner) > 2 and not inner[0] and not inner[len(inner) // 2]:
        half = len(inner) // 2
        inner = [*inner[1:half], *inner[half + 1 :]]
    if x.coding is not None:  # the value is one of the file's integers
        value = (value - float(x.coding.zero_point.reshape(-1)[0])) * float(x.coding.unit.reshape(-1)[0])
    return moved(node, Padded(inner, nn.Identity(), value), x, positive=x.positive and value >= 0)


def _spread(pads: Sequence[int], axes: Sequence[int], rank: int) -> list[int]:
    whole = [0] * 2 * rank
    for number, axis in enumerate(axes):
        whole[axis], whole[axis + rank] = pads[number], pads[number + len(axes)]
    return whole


def depth_to_space(node: OnnxNode) -> Value:
    """DepthToSpace with mode='CRD', the order of torch's PixelShuffle."""
    size = node.take("blocksize")
    # DCR has the blocks in front of the channels, which torch's PixelShuffle does not do.
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
    "DepthToSpace": depth_to_space,
}
