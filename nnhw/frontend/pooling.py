"""Handlers of traced pooling. Average pooling sums codes exactly; scale and divisor come after the sum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from nnhw.errors import CaptureError
from nnhw.ir.ops import Divide, MaxPool2d, Pad, SumPool2d

from .calls import Call
from .layout import as_image, like, permuted, placed, reshaped
from .recoding import recoded
from .scales import moved
from .translator import Handler, Translator
from .values import Codes, Float, Value

Pair = tuple[int, int]


def max_pool(translator: Translator, call: Call) -> Value:
    """Max pooling; of codes where it can be, for scales are positive."""
    value = call["self"]
    rank = len(translator.shape(value))
    # The IR's windows are of neighbouring rows and columns.
    if _pair(call["dilation"], rank, 1) != (1, 1):
        raise CaptureError(
            f"{call} has dilation={call['dilation']}; only dilation=1 is supported; use a larger kernel "
            "without dilation"
        )
    kernel, stride, padding = _window(call, rank)
    image = as_image(translator, call, value)
    counts = _counts(translator.shape(image), kernel, stride, padding, call["ceil_mode"])
    # Windows that ceil_mode adds reach beyond the padding; where windows leave a rest, not all of the padding is read.
    after = _reach(translator.shape(image), kernel, stride, padding, counts)
    result = placed(translator, call, image, MaxPool2d(kernel, stride, padding, after))
    return like(translator, call, result, rank)


def adaptive_max_pool(translator: Translator, call: Call) -> list[Value | None]:
    """Max pooling with a given number of windows; of torch's two results the indices are not captured."""
    value = call["self"]
    rank = len(translator.shape(value))
    image = as_image(translator, call, value)
    kernel = _equal_windows(call, translator.shape(image), _pair(call["output_size"], rank, 1))
    return [like(translator, call, placed(translator, call, image, MaxPool2d(kernel, kernel)), rank), None]


def average_pool(translator: Translator, call: Call) -> Value:
    """Average pooling; windows at the border may have different divisors."""
    codes = _codes(translator, call)
    rank = len(translator.shape(codes))
    kernel, stride, padding = _window(call, rank)
    image = as_image(translator, call, codes)
    shape = translator.shape(image)
    counts = _counts(shape, kernel, stride, padding, call["ceil_mode"])
    override = call.arguments.get("divisor_override")
    divisors = np.array(override) if override else _divisors(call, shape, kernel, stride, padding, counts)
    after = _reach(shape, kernel, stride, padding, counts)
    if any(padding + after):
        image = placed(translator, call, image, Pad(padding, after), "border")
    return _average(translator, call, image, kernel, stride, divisors, rank)


def adaptive_average_pool(translator: Translator, call: Call) -> Value:
    """Average pooling with as many windows as are asked for."""
    codes = _codes(translator, call)
    rank = len(translator.shape(codes))
    image = as_image(translator, call, codes)
    kernel = _equal_windows(call, translator.shape(image), _pair(call["output_size"], rank, 1))
    return _average(translator, call, image, kernel, kernel, np.array(kernel[0] * kernel[1]), rank)


def mean(translator: Translator, call: Call) -> Value:
    """The mean over height, width or both, or over the rows of [batch, rows, features]."""
    return _over_axes(translator, call, divide=True)


def total(translator: Translator, call: Call) -> Value:
    """The sum over height, width or both, or over the rows of [batch, rows, features]."""
    return _over_axes(translator, call, divide=False)


def greatest(translator: Translator, call: Call) -> Value:
    """The greatest value over height, width or both, or over the rows of [batch, rows, features]."""
    image, kernel = _reduced(translator, call, call["self"])
    return _kept(translator, call, placed(translator, call, image, MaxPool2d(kernel, kernel)))


def _over_axes(translator: Translator, call: Call, divide: bool) -> Value:
    if call["dtype"] not in (None, torch.float32, torch.float64):
        raise CaptureError(f"{call} computes in {call['dtype']}; only float32 and float64 are supported")
    image, kernel = _reduced(translator, call, _codes(translator, call))
    divisors = np.array(kernel[0] * kernel[1] if divide else 1)
    return _kept(translator, call, _average(translator, call, image, kernel, kernel, divisors, rank=3))


def _average(
    translator: Translator, call: Call, image: Any, kernel: Pair, stride: Pair, divisors: np.ndarray, rank: int
) -> Codes | Float:
    """Return the average of each window: an integer sum of codes, whose real value is divided.

    Parameters
    ----------
    divisors: one for all windows, int64 [], or one for each, int64 [rows, columns].
    """
    # Scales change as by MaxPool2d, which has the same windows.
    scale = moved(image.scale, translator.shape(image), MaxPool2d(kernel, stride))
    sums = Codes(translator.emit(call, SumPool2d(kernel, stride), image.name), scale, quantized=False)
    result = like(translator, call, sums, rank)
    if (divisors == 1).all():
        return result
    if divisors.ndim:
        divisors = divisors.reshape(1, -1) if rank == 2 else divisors[np.newaxis]
    count = translator.array(f"{translator.label(call)}.count", divisors, call.location)
    return Float(translator.emit(call, Divide(), translator.floats(result, call.location), count, suffix="mean"))


def _kept(translator: Translator, call: Call, value: Codes | Float) -> Codes | Float:
    """Return an image in the shape of the call's result, in which reduced axes have size 1 or are gone."""
    return reshaped(translator, call, value, translator.result_shape(call), "kept")


def _codes(translator: Translator, call: Call) -> Codes:
    value = call["self"]
    if isinstance(value, Float):
        value = recoded(translator, call, value)
    if not isinstance(value, Codes) or not value.quantized:
        raise translator.unquantized(
            call,
            value,
            "for its sums must be exact; put a quantizer in front of it, such as nnhw.nn.QuantReLU(4) or "
            "nnhw.nn.QuantIdentity(8)",
        )
    return value


def _window(call: Call, rank: int) -> tuple[Pair, Pair, Pair]:
    """Return kernel, stride and padding as (height, width)."""
    kernel = _pair(call["kernel_size"], rank, 1)
    return kernel, _pair(call["stride"] or call["kernel_size"], rank, 1), _pair(call["padding"], rank, 0)


def _pair(sizes: Any, rank: int, rest: int) -> Pair:
    if isinstance(sizes, int):
        sizes = [sizes]
    return (rest if rank == 2 else sizes[0]), sizes[-1]


def _counts(shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair, ceil_mode: bool) -> Pair:
    """Return the number of windows along height and width; as in torch, none starts behind the border."""
    counts = []
    for size, span, step, border in zip(shape[1:], kernel, stride, padding, strict=True):
        free = size + 2 * border - span
        count = (free + step - 1 if ceil_mode else free) // step + 1
        counts.append(count - 1 if ceil_mode and (count - 1) * step >= size + border else count)
    return counts[0], counts[1]


def _reach(shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair, counts: Pair) -> Pair:
    """Return how many rows and columns the last windows reach beyond the image, 0 or more."""
    ends = [
        (count - 1) * step + span - border - size
        for size, span, step, border, count in zip(shape[1:], kernel, stride, padding, counts, strict=True)
    ]
    return max(ends[0], 0), max(ends[1], 0)


def _divisors(
    call: Call, shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair, counts: Pair
) -> np.ndarray:
    """Return the divisor of all windows, int64 [], or of each, int64 [rows, columns], where they differ."""
    covered = []
    for size, span, step, border, count in zip(shape[1:], kernel, stride, padding, counts, strict=True):
        starts = np.arange(count) * step - border
        # Torch counts the padding where it is told to, but never what ceil_mode adds behind it.
        low, high = (-border, size + border) if call["count_include_pad"] else (0, size)
        covered.append(np.minimum(starts + span, high) - np.maximum(starts, low))
    divisors = np.outer(*covered)
    return np.array(divisors[0, 0]) if (divisors == divisors[0, 0]).all() else divisors


def _equal_windows(call: Call, shape: tuple[int, ...], counts: Pair) -> Pair:
    if any(size % count for size, count in zip(shape[1:], counts, strict=True)):
        raise CaptureError(
            f"{call} makes {list(counts)} of {list(shape[1:])}, with windows of different sizes; use sizes that "
            f"divide evenly, or a pooling with kernel and stride"
        )
    return shape[1] // counts[0], shape[2] // counts[1]


def _reduced(translator: Translator, call: Call, value: Any) -> tuple[Codes | Float, Pair]:
    """Return (image, window) for a reduction over axes, which becomes a pooling with one window."""
    shape = translator.shape(value)
    rank = len(shape) + 1
    given = call["dim"] if call["dim"] is not None else []
    axes = {axis % rank for axis in ([given] if isinstance(given, int) else given)}
    if rank < 3 or not axes or 0 in axes or len(axes) == rank - 1:
        raise CaptureError(
            f"{call} goes over the axes {sorted(axes) or 'of the whole tensor'}; only height and width, or rows, are "
            f"supported: use dim=(2, 3), dim=2 for [batch, channels, length], or dim=1 for [batch, rows, features]"
        )
    # Axes that are neither height nor width come last, and become one row of pixels.
    if 1 in axes or rank > 4:
        kept, gone = ([axis - 1 for axis in range(1, rank) if (axis in axes) == side] for side in (False, True))
        rows = math.prod(shape[axis] for axis in gone)
        last = permuted(translator, call, value, (*kept, *gone), "columns")
        return reshaped(translator, call, last, (math.prod(shape) // rows, 1, rows), "as_2d"), (1, rows)
    sides = [size if axis in axes else 1 for axis, size in enumerate(shape[1:], start=2)]
    return as_image(translator, call, value), ((sides[0] if rank == 4 else 1), sides[-1])


HANDLERS: dict[str, Handler] = {
    "aten.max_pool1d.default": max_pool,
    "aten.max_pool2d.default": max_pool,
    "aten.adaptive_max_pool1d.default": adaptive_max_pool,
    "aten.adaptive_max_pool2d.default": adaptive_max_pool,
    "aten.avg_pool1d.default": average_pool,
    "aten.avg_pool2d.default": average_pool,
    "aten.adaptive_avg_pool1d.default": adaptive_average_pool,
    "aten.adaptive_avg_pool2d.default": adaptive_average_pool,
    "aten.mean.dim": mean,
    "aten.sum.dim_IntList": total,
    "aten.amax.default": greatest,
}
