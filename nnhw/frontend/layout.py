"""Handlers of traced operators that move, repeat or join elements without computing: codes remain codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import fx

from nnhw.errors import CaptureError
from nnhw.ir import IntType, Op, TensorType
from nnhw.ir.ops import Broadcast, Concat, Flatten, Pad, Permute, Reshape, Slice, Upsample

from .calls import Call
from .constant_folding import ORDERS, SHAPES
from .scales import merged, moved
from .translator import Handler, Translator
from .values import Codes, Float, Stacked, TracedConstant, Turned, Value

_IN_FRONT_OF_LOOPS = ("aten.flip.default", "aten.clone.default", "aten.contiguous.default", "nnhw.quantize.default")
"""Operators of [steps, batch, ..] that may stand in front of a loop."""


def reshape(translator: Translator, call: Call) -> Value:
    """flatten, view, squeeze and the like: anything that keeps the batch axis and the order of elements."""
    value: Codes | Float = call.values[0]  # type: ignore[assignment]
    return reshaped(translator, call, value, translator.result_shape(call))


def permute(translator: Translator, call: Call) -> Value:
    """permute, transpose, movedim and the like."""
    value: Codes | Float = call.values[0]  # type: ignore[assignment]
    axes = _axes(call, len(translator.shape(value)) + 1)
    # Taking one place of the new first axis brings the batch to the front again.
    if axes[0] != 0 and call.node.users and all(map(_takes_first, call.node.users)):
        return Turned(value, tuple(axes))
    if axes[1:2] == [0] and any(map(_reaches_loop, call.node.users)):
        rest = tuple(axis - 1 for axis in (axes[0], *axes[2:]))
        return translator.as_steps(call, permuted(translator, call, value, rest, suffix="order"))
    if axes[0] != 0:
        raise CaptureError(f"{call} moves the batch, which must stay the first axis; permute the other axes alone")
    return permuted(translator, call, value, tuple(axis - 1 for axis in axes[1:]))


def _takes_first(node: fx.Node) -> bool:
    """Return whether a traced call selects from the first axis, which then is gone, as in q, k, v = qkv.unbind(0)."""
    if str(node.target) not in ("aten.select.int", "aten.unbind.int"):
        return False
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    return isinstance(dim, int) and dim == 0


def _reaches_loop(node: fx.Node) -> bool:
    """Return whether a traced call is a loop over steps, or moves or copies what a loop reads."""
    if str(node.target) == "scan":
        return True
    return str(node.target) in _IN_FRONT_OF_LOOPS and any(map(_reaches_loop, node.users))


def channel_shuffle(translator: Translator, call: Call) -> Value:
    """Channels of each group in turn."""
    channels, *sides = translator.shape(call["self"])
    groups = call["groups"]
    return _rearranged(translator, call, (groups, channels // groups, *sides), (1, 0, *range(2, 2 + len(sides))))


def pixel_shuffle(translator: Translator, call: Call) -> Value:
    """Channels become pixels of a larger image, and the other way round."""
    shape = translator.shape(call["self"])
    if len(shape) != 3:
        raise CaptureError(
            f"{call} needs an input of shape [batch, channels, height, width], got {len(shape) + 1} axes"
        )
    channels, height, width = shape
    if "upscale_factor" in call.arguments:
        return shuffled(translator, call, call["self"], (call["upscale_factor"], call["upscale_factor"]))
    factor = call["downscale_factor"]
    return _rearranged(translator, call, (channels, height // factor, factor, width // factor, factor), (0, 2, 4, 1, 3))


def pad(translator: Translator, call: Call) -> Value:
    """A border of one value around height and width."""
    if call.arguments.get("mode", "constant") != "constant":
        raise CaptureError(
            f"{call} has mode='{call['mode']}'; only mode='constant' is supported; use nn.ZeroPad2d, or "
            f"padding_mode='zeros' of a convolution"
        )
    value, widths = call["self"], [int(width) for width in call["pad"]]
    if not any(widths):
        return value  # type: ignore[no-any-return]
    rank = len(translator.shape(value))
    if min(widths) < 0 or any(widths[2 * min(rank - 1, 2) :]):
        raise CaptureError(
            f"{call} has pad={widths}; only borders of height and width, of 0 or more, are supported: for channels "
            f"use torch.cat, or a 1x1 convolution"
        )
    # torch's widths begin with the last axis.
    left, right, top, bottom = (*widths, 0, 0)[:4]
    border = float(call["value"] or 0.0)
    op = Pad((top, left), (bottom, right), border)
    image = as_image(translator, call, value)
    if isinstance(image, Codes):
        code = _code_of(translator, image, border)
        if code is None:
            spoiled = _no_code(translator, call, image, border) if image.quantized else ""
            image = Float(translator.floats(image, call.location), spoiled)
        else:
            op = Pad((top, left), (bottom, right), float(code))
    return like(translator, call, placed(translator, call, image, op), rank)


def upsample(translator: Translator, call: Call) -> Value:
    """Nearest-neighbour upsampling by whole factors."""
    value = call.values[0]
    assert isinstance(value, Codes | Float)
    before, after = translator.shape(value), translator.result_shape(call)
    if any(new % old for old, new in zip(before[1:], after[1:], strict=True)) or not _is_plain(call, before, after):
        raise CaptureError(
            f"{call} makes {list(after[1:])} of {list(before[1:])}; only whole factors are supported, with which each "
            f"element is repeated equally often"
        )
    factors = [new // old for old, new in zip(before[1:], after[1:], strict=True)]
    image = as_image(translator, call, value)
    op = Upsample((factors[0] if len(factors) == 2 else 1, factors[-1]))
    return like(translator, call, placed(translator, call, image, op), len(before))


def concat(translator: Translator, call: Call) -> Value:
    """Concatenated tensors; codes if all of them have one scale, or values that are codes of one common scale."""
    parts = values_of(translator, call, call["tensors"])
    if len(parts) == 1:
        return parts[0]
    rank = len(translator.shape(parts[0])) + 1
    axis = call["dim"] % rank - 1
    if axis < 0:
        raise CaptureError(f"{call} joins along the batch, got dim={call['dim']}; use dim=1")
    codes = [part for part in parts if isinstance(part, Codes) and part.quantized]
    shapes = [translator.shape(part) for part in parts]
    scale = merged([part.scale for part in codes], axis, shapes) if len(codes) == len(parts) else None
    if scale is not None:
        return Codes(translator.emit(call, Concat(axis), *(part.name for part in codes)), scale, quantized=True)
    names = [translator.floats(part, call.location) for part in parts]
    spoiled = _unlike(call, codes) if len(codes) == len(parts) else ""
    return Float(translator.emit(call, Concat(axis), *names), spoiled)


def _unlike(call: Call, parts: Sequence[Codes]) -> str:
    """Return why codes that are joined are no codes, and what to do."""
    scales = [f"{part.scale.flat[0]:.6g}" + " .." * (part.scale.size > 1) for part in parts]
    return (
        f"{call} joins codes of the scales {', '.join(scales[:-1])} and {scales[-1]}, whose values are not all 8-bit "
        f"codes of one common scale; put one quantizer behind it, or give the quantizers of its branches the same "
        f"scale"
    )


def stack(translator: Translator, call: Call) -> Value:
    """Tensors one behind the other along an axis of their own."""
    parts = values_of(translator, call, call["tensors"])
    shape = translator.shape(parts[0])
    axis = call["dim"] % (len(shape) + 2)
    if axis == 0:
        return Stacked(tuple(parts))
    slices = [reshaped(translator, call, part, (*shape[: axis - 1], 1, *shape[axis - 1 :]), "slice") for part in parts]
    return concat(translator, replace(call, arguments={"tensors": slices, "dim": axis}))


def values_of(translator: Translator, call: Call, parts: Sequence[Any]) -> list[Codes | Float]:
    """Return the operands of a concatenation, with constants as values, such as a class token in front of patches.

    Raises: CaptureError for integers, for constants alone, and for constants that are not quantized.
    """
    computed = [part for part in parts if isinstance(part, Codes | Float)]
    if not computed or not all(isinstance(part, Codes | Float | TracedConstant) for part in parts):
        raise CaptureError(f"{call} joins constants or integers with values; join values that are computed alone")
    return [
        as_value(translator, call, part, computed[0]) if isinstance(part, TracedConstant) else part for part in parts
    ]


def as_value(translator: Translator, call: Call, constant: TracedConstant, like: Codes | Float) -> Codes:
    """Return a quantized constant as codes, the same for each image of a value.

    A constant [rows, features] is stored as [features, rows], like the sums of a layer, and permuted back, so that
    passes can move both permutations together.

    Raises: CaptureError for a constant that is not quantized, or has another scale for each element.
    """
    rank = len(translator.shape(like))
    if constant.codes is None or constant.scale is None or constant.dtype is None:
        raise CaptureError(
            f"{call} joins the constant '{constant.label}', which is not quantized, with codes; quantize it, such as "
            f"by nnhw.nn.Int(8)(constant), and with the scale of the codes where it is concatenated with them"
        )
    codes = constant.codes
    if codes.ndim > rank:
        if codes.ndim > rank + 1 or codes.shape[0] != 1:
            raise CaptureError(f"{call} has a constant of shape {list(codes.shape)}, which differs from image to image")
        codes = codes[0]
    if constant.scale.size != 1:
        raise CaptureError(f"{call} needs one scale for the constant '{constant.label}', got {constant.scale.size}")
    turned = codes.ndim == 2
    array = np.ascontiguousarray(codes.T if turned else codes)
    name = translator.builder.constant(constant.label, array, TensorType(array.shape, constant.dtype), call.location)
    value = Codes(
        translator.emit(call, Broadcast(), like.name, name, suffix="constant"), constant.scale.reshape(()), True
    )
    if not turned:
        return value
    rows = placed(translator, call, value, Permute((1, 0)), "constant_rows")
    assert isinstance(rows, Codes)
    return rows


def _rearranged(translator: Translator, call: Call, divided: tuple[int, ...], axes: tuple[int, ...]) -> Codes | Float:
    """Return a value whose axes are divided, permuted and joined."""
    parts = reshaped(translator, call, call["self"], divided, "divided")
    return reshaped(translator, call, permuted(translator, call, parts, axes, "order"), translator.result_shape(call))


def reshaped(
    translator: Translator, call: Call, value: Codes | Float, shape: tuple[int, ...], suffix: str = ""
) -> Codes | Float:
    """Return a value in another shape; no node is added if it has this shape, or had it before another reshape."""
    # Reshapes of a reshape start from the first value, so that chains of them leave one node, or none.
    before = translator.reshaped.get(value.name, value)
    for same in (value, before):
        if shape == translator.shape(same):
            return same
    value = before
    result = placed(translator, call, value, Flatten() if len(shape) == 1 else Reshape(shape), suffix)
    translator.reshaped[result.name] = value
    return result


def permuted(
    translator: Translator, call: Call, value: Codes | Float, axes: tuple[int, ...], suffix: str = ""
) -> Codes | Float:
    """Return a value with its image axes in another order; no permutation is added that cancels, or is a reshape."""
    if value.name in translator.permuted:
        value, first = translator.permuted[value.name]
        axes = tuple(first[axis] for axis in axes)
    shape = translator.shape(value)
    # Users permute forth and back around layers: such pairs leave nothing in the graph.
    if axes == tuple(range(len(axes))):
        return value
    if [axis for axis in axes if shape[axis] > 1] == [axis for axis in range(len(axes)) if shape[axis] > 1]:
        return reshaped(translator, call, value, tuple(shape[axis] for axis in axes), suffix)
    result = placed(translator, call, value, Permute(axes), suffix)
    translator.permuted[result.name] = (value, axes)
    return result


def part(
    translator: Translator, call: Call, value: Codes | Float, axis: int, start: int, stop: int, suffix: str = ""
) -> Codes | Float:
    """Return a range of an axis; the value itself where that is all of it."""
    if (start, stop) == (0, translator.shape(value)[axis]):
        return value
    return placed(translator, call, value, Slice(axis, start, stop), suffix)


def shuffled(translator: Translator, call: Call, value: Codes | Float, factor: tuple[int, int]) -> Codes | Float:
    """Return an image whose channels became pixels: rows and columns times `factor`."""
    channels, height, width = translator.shape(value)
    rows, columns = factor
    divided = reshaped(translator, call, value, (channels // (rows * columns), rows, columns, height, width), "divided")
    ordered = permuted(translator, call, divided, (0, 3, 1, 4, 2), "order")
    shape = (channels // (rows * columns), height * rows, width * columns)
    return reshaped(translator, call, ordered, shape, "shuffled")


def as_image(translator: Translator, call: Call, value: Any) -> Codes | Float:
    """Return [channels, length] as [channels, 1, length], and [channels, height, width] as it is.

    Raises: CaptureError for any other number of axes.
    """
    shape = translator.shape(value)
    if len(shape) not in (2, 3):
        raise CaptureError(
            f"{call} needs an input of shape [batch, channels, height, width] or [batch, channels, length], got "
            f"{len(shape) + 1} axes"
        )
    return reshaped(translator, call, value, (shape[0], 1, shape[1]), "as_2d") if len(shape) == 2 else value


def like(translator: Translator, call: Call, value: Codes | Float, rank: int) -> Codes | Float:
    """Undo `as_image`: return an image as [channels, length] if `rank` is 2, else as it is."""
    shape = translator.shape(value)
    return reshaped(translator, call, value, (shape[0], shape[2]), "as_1d") if rank == 2 else value


def placed(translator: Translator, call: Call, value: Codes | Float, op: Op, suffix: str = "") -> Codes | Float:
    """Add an op that moves, repeats or selects elements of a channel; codes keep their scales."""
    if isinstance(value, Codes):
        scale = moved(value.scale, translator.shape(value), op)
        return Codes(translator.emit(call, op, value.name, suffix=suffix), scale, value.quantized)
    return Float(translator.emit(call, op, translator.floats(value, call.location), suffix=suffix), value.spoiled)


def _axes(call: Call, rank: int) -> list[int]:
    """Return for each axis of the result the axis of the operand that it is, found by running the operator in torch."""
    sizes = list(range(2, 2 + rank))  # all different
    target: Any = call.node.target
    schema = [argument.name for argument in target._schema.arguments]
    result = target(torch.empty(sizes, device="meta"), *(call[name] for name in schema[1:]))
    return [sizes.index(size) for size in result.shape]


def _code_of(translator: Translator, value: Codes, border: float) -> int | None:
    """Return the code of a border's value; None if the value has none."""
    if border == 0.0:
        return 0
    dtype = translator.builder.type_of(value.name).dtype
    # 0.5 is no code: so there is none for codes with several scales, and for sums.
    code = border / float(value.scale) if not value.scale.ndim and value.quantized else 0.5
    assert isinstance(dtype, IntType)
    if not code.is_integer() or code * float(value.scale) != border or not dtype.holds(np.array([int(code)])):
        return None
    return int(code)


def _no_code(translator: Translator, call: Call, value: Codes, border: float) -> str:
    """Return why a border's value has no code among the codes that it surrounds, and what to do."""
    if value.scale.ndim:
        return f"{call} puts a border of {border} around codes with one scale per channel; use value=0.0"
    dtype, scale = translator.builder.type_of(value.name).int_dtype, float(value.scale)
    around = np.unique(np.clip([np.floor(border / scale), np.ceil(border / scale)], dtype.low, dtype.high)) + 0.0
    values = sorted((around * scale).tolist(), key=lambda value: abs(value - border))
    return (
        f"{call} puts a border of {border} around codes of the scale {scale}, and no code has that value: the nearest "
        f"{'value is' if len(values) == 1 else 'values are'} {' and '.join(map(str, values))}; use value={values[0]}, "
        f"or put a quantizer behind the padding"
    )


def _is_plain(call: Call, before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Return whether torch repeats each element equally often; it may not, as it computes indices in float32."""
    target: Any = call.node.target
    for axis in range(1, len(before)):
        line = [before[k] if k == axis else 1 for k in range(1, len(before))]
        wide = [after[k] if k == axis else 1 for k in range(1, len(before))]
        arguments = dict(call.arguments)
        image = torch.arange(before[axis], dtype=torch.float32).reshape(1, 1, *line)
        scales = arguments.get("scale_factors")
        if scales is not None:
            scales = [scales[k - 1] if k == axis else 1.0 for k in range(1, len(before))]
        # torch is asked itself, on one axis at a time: its rule for indices depends on the overload and on float32.
        result = target(image, None if scales is not None else wide, scales)
        if not torch.equal(result.flatten(), image.flatten().repeat_interleave(after[axis] // before[axis])):
            return False
    return True


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(SHAPES, reshape),
    **dict.fromkeys(ORDERS, permute),
    "aten.channel_shuffle.default": channel_shuffle,
    "aten.pixel_shuffle.default": pixel_shuffle,
    "aten.pixel_unshuffle.default": pixel_shuffle,
    "aten.view_as.default": reshape,
    "aten.reshape_as.default": reshape,
    "aten.pad.default": pad,
    "aten.constant_pad_nd.default": pad,
    "aten.upsample_nearest1d.vec": upsample,
    "aten.upsample_nearest2d.vec": upsample,
    "aten._upsample_nearest_exact1d.vec": upsample,
    "aten._upsample_nearest_exact2d.vec": upsample,
    "aten.cat.default": concat,
    "aten.stack.default": stack,
}
