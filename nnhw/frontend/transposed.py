"""Handler of traced transposed convolutions, as convolutions that compute several pixels at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnhw.errors import CaptureError
from nnhw.ir import IntType
from nnhw.ir.ops import Conv2d, Pad

from .calls import Call
from .layout import as_image, like, part, placed, shuffled
from .linear import SIZES, biased, operands, pair, weighted
from .translator import Handler, Translator
from .values import Codes, Float, TracedConstant, Value


def transposed_convolution(translator: Translator, call: Call) -> Value:
    """conv_transpose1d and conv_transpose2d: a convolution that computes stride x stride pixels at once.

    Of output pixel q * stride + r only the taps j * stride + r of the kernel meet a pixel of the input, which is q - j.
    So it is a convolution whose outputs are those of each r, shuffled to pixels, of which the padding is cut off.
    """
    codes, weight = operands(translator, call, call["input"], call["weight"], (0, 2, -1))
    assert weight.codes is not None
    rank = weight.codes.ndim - 1
    if len(translator.shape(codes)) != rank:
        raise CaptureError(f"{call} needs an input of shape [batch, channels, {SIZES[rank]}]")
    flat = rank == 2
    stride, dilation = pair(call["stride"], flat), pair(call["dilation"], flat)
    if dilation != (1, 1):
        raise CaptureError(f"{call} has dilation={call['dilation']}; a transposed convolution needs dilation=1")
    groups, kernels = call["groups"], weight.codes[:, :, None, :] if flat else weight.codes
    taps = _taps_of_pixels(kernels, stride, groups)
    scale = np.asarray(weight.scale)
    if scale.ndim:
        scale = np.broadcast_to(scale, weight.codes.shape)[0].reshape(kernels.shape[1], -1)[:, 0]
        scale = np.tile(scale.repeat(stride[0] * stride[1]), groups)
    # Where a stride does not divide the kernel, taps of 0 fill it up, which the type has to hold.
    cut = any(size % step for size, step in zip(kernels.shape[2:], stride, strict=True))
    dtype = _with_zero(weight.dtype) if cut else weight.dtype
    image = as_image(translator, call, codes)
    sizes, offsets = (1, *translator.result_shape(call)[1:])[-2:], pair(call["padding"], flat, 0)
    image, starts = _framed(translator, call, image, taps.shape[2:], stride, offsets, sizes)
    assert isinstance(image, Codes)
    whole = TracedConstant(weight.tensor, weight.label, taps, scale, dtype)
    sums: Codes | Float = weighted(translator, call, image, whole, Conv2d(groups=groups))
    sums = shuffled(translator, call, sums, stride)
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True), 1):
        sums = part(translator, call, sums, axis, start, start + size, f"part_{axis}")
    return biased(translator, call, like(translator, call, sums, rank), call["bias"], axis=0)


def _taps_of_pixels(codes: np.ndarray, stride: tuple[int, int], groups: int) -> np.ndarray:
    """Return the weights of the convolution that computes a transposed one.

    Parameters
    ----------
    codes: [inputs, outputs / groups, kernel rows, kernel columns].

    Returns
    -------
    int64 [outputs * stride rows * stride columns, inputs / groups, rows, columns], zero where there is no tap.
    """
    inputs, outputs, *kernel = codes.shape
    (rows, columns), (step_y, step_x) = (-(-size // step) for size, step in zip(kernel, stride, strict=True)), stride
    full = np.zeros((inputs, outputs, rows * step_y, columns * step_x), dtype=np.int64)
    full[:, :, : kernel[0], : kernel[1]] = codes
    # Reversed, as output pixel q meets tap j at input pixel q - j.
    taps = full.reshape(groups, inputs // groups, outputs, rows, step_y, columns, step_x)[:, :, :, ::-1, :, ::-1]
    return np.ascontiguousarray(taps.transpose(0, 2, 4, 6, 1, 3, 5)).reshape(-1, inputs // groups, rows, columns)


def _framed(
    translator: Translator,
    call: Call,
    image: Codes | Float,
    kernel: Sequence[int],
    stride: tuple[int, int],
    offsets: tuple[int, int],
    sizes: Sequence[int],
) -> tuple[Codes | Float, list[int]]:
    """Return (image with the border that is needed, first row and column of the result to keep)."""
    before, after, starts = [], [], []
    for size, reach, step, offset, wanted in zip(
        translator.shape(image)[1:], kernel, stride, offsets, sizes, strict=True
    ):
        before.append(max(0, reach - 1 - offset // step))
        after.append(max(0, (offset + wanted - 1) // step - size + 1))
        starts.append(offset - (reach - 1 - before[-1]) * step)
    if any((*before, *after)):
        image = placed(translator, call, image, Pad((before[0], before[1]), (after[0], after[1])), "border")
    return image, starts


def _with_zero(dtype: IntType | None) -> IntType:
    """Return the type of weights of which some are zero."""
    assert dtype is not None
    return IntType(min(dtype.low, 0), max(dtype.high, 0))


HANDLERS: dict[str, Handler] = {
    "aten.conv_transpose1d.default": transposed_convolution,
    "aten.conv_transpose2d.input": transposed_convolution,
}
