"""Handlers of traced linear operators: products and convolutions of codes with quantized weights."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from nnhw.errors import CaptureError
from nnhw.ir import Op, TensorType
from nnhw.ir.ops import Add, Conv2d, Linear, Pad

from .attention import ProductAxes, computed_matmul, computed_product, is_computed
from .calls import Call
from .layout import as_image, like, permuted, placed, reshaped
from .recoding import recoded
from .translator import Handler, Translator, Unquantized
from .values import Codes, Float, TracedConstant, Value

_LAYERS = {
    "linear": "QuantLinear",
    "conv1d": "QuantConv1d",
    "conv2d": "QuantConv2d",
    "conv_transpose1d": "QuantConvTranspose1d",
    "conv_transpose2d": "QuantConvTranspose2d",
}
_FEW_LEVELS = 256
"""Most different numbers of weights that somebody has quantized."""
SIZES = {2: "length", 3: "height, width"}
"""Names of an image's sizes in messages, by its number of axes."""


class _Axes(NamedTuple):
    """The axes of a product as letters, as in einsum, without the batch: axes not in `out` are summed."""

    x: str
    weight: str
    out: str


def linear(translator: Translator, call: Call) -> Value:
    """y = x W^T + b, along the last axis."""
    codes, weight = operands(translator, call, call["input"], call["weight"], (-1,))
    lead = string.ascii_lowercase[: len(translator.shape(codes)) - 1]
    sums = _product(translator, call, codes, weight, _Axes(f"{lead}I", "OI", f"{lead}O"))
    return biased(translator, call, sums, call["bias"], axis=len(lead))


def matmul(translator: Translator, call: Call) -> Value:
    """x W, along the last axis; where W has a matrix for each of x, it is a convolution with groups.

    Both operands may be computed, as in attention.
    """
    right = call.arguments.get("other", call.arguments.get("mat2"))
    if is_computed(call["self"]) and is_computed(right):
        return computed_matmul(translator, call, call["self"], right)
    if isinstance(call["self"], TracedConstant):
        raise CaptureError(f"{call} has its constant on the left; use x @ weight, with the constant on the right")
    codes, weight = operands(translator, call, call["self"], right, (-2,))
    return _product(translator, call, codes, weight, _matrices(call, translator.shape(codes), weight))


def einsum(translator: Translator, call: Call) -> Value:
    """A product of a value with weights, each axis by its letter, as in 'bhi,hio->bho'."""
    equation = call["equation"].replace(" ", "")
    axes, arrow, out = equation.partition("->")
    terms = axes.split(",")
    if len(terms) != 2 or not all(term.isalpha() and len(set(term)) == len(term) for term in (*terms, out or "a")):
        raise CaptureError(
            f"{call} has '{equation}'; it needs two operands, each axis with a letter of its own and no '...', as in "
            "'bri,io->bro'"
        )
    if not arrow:
        out = "".join(sorted(letter for letter in axes if letter.isalpha() and axes.count(letter) == 1))
    if all(map(is_computed, call["tensors"])):
        return _computed_einsum(translator, call, equation, terms, out)
    # The weights may be the first operand of einsum; False sorts before True.
    (x, x_axes), (weight, weight_axes) = sorted(
        zip(call["tensors"], terms, strict=True), key=lambda operand: isinstance(operand[0], TracedConstant)
    )
    if x_axes[0] in weight_axes:
        raise CaptureError(f"{call} has '{equation}'; the batch, here '{x_axes[0]}', must not be an axis of weights")
    if out[:1] != x_axes[0]:
        raise CaptureError(f"{call} has '{equation}'; the batch, here '{x_axes[0]}', must stay the first axis")
    alone = [letter for letter in axes if letter.isalpha() and axes.count(letter) == 1 and letter not in out]
    if alone:
        raise CaptureError(f"{call} sums along '{alone[0]}' of one operand alone; sum in front of it, or behind")
    summed = tuple(index for index, letter in enumerate(weight_axes) if letter not in out)
    codes, weight = operands(translator, call, x, weight, summed)
    product = _repeated(call, translator.shape(codes), weight.tensor.shape, _Axes(x_axes[1:], weight_axes, out[1:]))
    return _product(translator, call, codes, weight, product)


def _computed_einsum(translator: Translator, call: Call, equation: str, terms: Sequence[str], out: str) -> Value:
    """The product of two computed values, each axis by its letter."""
    batch = terms[0][0]
    if terms[1][0] != batch or out[:1] != batch:
        raise CaptureError(
            f"{call} has '{equation}'; the batch must be the first axis of both computed values and of the result, as "
            f"in 'bhqd,bhkd->bhqk'"
        )
    letters = "".join(terms)
    alone = [letter for letter in letters if letters.count(letter) == 1 and letter not in out]
    if alone:
        raise CaptureError(f"{call} sums along '{alone[0]}' of one operand alone; sum in front of it, or behind")
    axes = ProductAxes(terms[0][1:], terms[1][1:], out[1:])
    left, right = call["tensors"]
    return computed_product(translator, call, left, right, axes)


def _repeated(call: Call, shape: Sequence[int], weights: Sequence[int], axes: _Axes) -> _Axes:
    """Return axes in which an axis that torch repeats, from size 1, has a letter of its own."""
    unused = (letter for letter in string.ascii_letters if letter not in "".join(axes))
    for letter, size in zip(axes.x, shape, strict=True):
        place = axes.weight.find(letter)
        if place < 0 or size == weights[place]:
            continue
        if letter not in axes.out:
            raise CaptureError(
                f"{call} sums along '{letter}', which has {size} and {weights[place]} elements; expand it"
            )
        side = "x" if size == 1 else "weight"
        # The axis of size 1 gets a letter that the other operand does not have, so that the product repeats it.
        axes = axes._replace(**{side: getattr(axes, side).replace(letter, next(unused))})
    return axes


def convolution(translator: Translator, call: Call) -> Value:
    """conv1d and conv2d with padding by zeros; one dimension is an image of height 1."""
    codes, weight = operands(translator, call, call["input"], call["weight"], (1, 2, -1))
    assert weight.codes is not None
    rank = weight.codes.ndim - 1
    if len(translator.shape(codes)) != rank:
        raise CaptureError(f"{call} needs an input of shape [batch, channels, {SIZES[rank]}]")
    # Sequences [channels, length] are images of height 1, so that one engine serves both.
    flat = rank == 2
    taps = weight.codes[:, :, None, :] if flat else weight.codes
    stride, dilation = pair(call["stride"], flat), pair(call["dilation"], flat, 1)
    image = as_image(translator, call, codes)
    if isinstance(call["padding"], str):
        before, after = _named_padding(call, taps.shape[2:], dilation)
    else:
        before = after = pair(call["padding"], flat, 0)
    if before != after:
        image = placed(translator, call, image, Pad(before, after), "border")
        before = (0, 0)
    assert isinstance(image, Codes)
    op = Conv2d(stride, before, dilation, call["groups"])
    sums = weighted(
        translator, call, image, TracedConstant(weight.tensor, weight.label, taps, weight.scale, weight.dtype), op
    )
    return biased(translator, call, like(translator, call, sums, rank), call["bias"], axis=0)


def _matrices(call: Call, shape: tuple[int, ...], weight: TracedConstant) -> _Axes:
    """Return the axes of a product of matrices; along axes before the last two, weights may be shared."""
    sizes = tuple(weight.tensor.shape)
    batches = list(sizes[:-2])
    while batches and batches[0] == 1:
        batches.pop(0)
    if not 1 < len(sizes) <= len(shape) + 1 or len(batches) > max(0, len(shape) - 2):
        raise CaptureError(
            f"{call} needs constant weights [inputs, outputs], or such matrices for the axes between the batch and the "
            f"last two of {['batch', *shape]}, got {list(weight.tensor.shape)}"
        )
    x = string.ascii_lowercase[: len(shape)]
    named, out = [], list(x[:-1])
    for place, size in enumerate(batches, len(shape) - 2 - len(batches)):
        named.append(x[place] if size == shape[place] else x[place].upper())
        if size > 1:
            out[place] = named[-1]
    # Axes of size 1 in front of the matrices get letters of their own, which the result does not have.
    unused = "".join(string.ascii_uppercase[-2 - index] for index in range(len(sizes) - 2 - len(batches)))
    return _Axes(x, f"{unused}{''.join(named)}{x[-1]}Z", f"{''.join(out)}Z")


def _product(translator: Translator, call: Call, codes: Codes, weight: TracedConstant, axes: _Axes) -> Codes | Float:
    """Return the sums of products along the axes that the result does not have.

    Axes of both operands and the result become groups of channels, axes of x and the result the pixels of a 1x1
    convolution. An axis that is only in one operand and not in the result has size 1.
    """
    shape, codes_of = translator.shape(codes), weight.codes
    assert codes_of is not None
    sizes = dict(zip(axes.weight, codes_of.shape, strict=True)) | dict(zip(axes.x, shape, strict=True))
    groups = [axis for axis in axes.out if axis in axes.x and axis in axes.weight]
    rows = [axis for axis in axes.out if axis not in axes.weight]
    outputs = [axis for axis in axes.out if axis not in axes.x]
    inputs = [axis for axis in axes.x if axis not in axes.out]

    def count(names: Sequence[str]) -> int:
        return math.prod(sizes[axis] for axis in names)

    matrices = _matrix(weight, axes, [*groups, *outputs], count([*groups, *outputs]))
    # One vector of an image is a linear layer; several are the pixels of a convolution.
    if count(rows) == count(groups) == 1:
        flat = reshaped(translator, call, codes, (count(inputs),), "flat")
        assert isinstance(flat, Codes)
        sums = weighted(translator, call, flat, matrices, Linear())
        return reshaped(translator, call, sums, tuple(sizes[axis] for axis in axes.out), "rows")
    order = tuple(axes.x.index(axis) for axis in (*groups, *inputs, *rows))
    first = permuted(translator, call, codes, order, "columns")
    pixels = reshaped(translator, call, first, (count(groups) * count(inputs), 1, count(rows)), "as_2d")
    assert isinstance(pixels, Codes)
    assert matrices.codes is not None
    taps = replace(matrices, codes=matrices.codes[:, :, None, None])
    sums = weighted(translator, call, pixels, taps, Conv2d(groups=count(groups)))
    made = [*groups, *outputs, *rows]
    last = reshaped(translator, call, sums, tuple(sizes[axis] for axis in made), "channels")
    return permuted(translator, call, last, tuple(made.index(axis) for axis in axes.out), "rows")


def _matrix(weight: TracedConstant, axes: _Axes, outputs: Sequence[str], count: int) -> TracedConstant:
    """Return weights as a matrix [outputs, inputs], the inputs in the order of x; one scale, or one for each output."""
    assert weight.codes is not None
    assert weight.scale is not None
    summed = sorted((axis for axis in axes.weight if axis not in outputs), key=axes.x.find)
    order = [axes.weight.index(axis) for axis in (*outputs, *summed)]
    scale = weight.scale
    if scale.ndim:
        scale = np.broadcast_to(scale, weight.codes.shape).transpose(order).reshape(count, -1)[:, 0]
    return replace(weight, codes=weight.codes.transpose(order).reshape(count, -1), scale=scale)


def weighted(translator: Translator, call: Call, codes: Codes, weight: TracedConstant, op: Op) -> Codes:
    """Return the sums of products of codes and weights."""
    assert weight.codes is not None
    assert weight.scale is not None
    assert weight.dtype is not None
    type = TensorType(weight.codes.shape, weight.dtype)
    name = translator.builder.constant(weight.label, weight.codes, type, call.location)
    sums = translator.emit(call, op, codes.name, name)
    rank = len(translator.builder.type_of(sums).shape)
    # One documented order: the scale of the sums is input scale times weight scale, rounded once.
    scale = codes.scale * _along(weight.scale, rank, 0)
    return Codes(sums, scale, quantized=False)


def biased(translator: Translator, call: Call, sums: Codes | Float, bias: Any, axis: int) -> Value:
    """Return sums and their bias, if there is one, along an axis."""
    if bias is None:
        return sums
    if not isinstance(bias, TracedConstant):
        raise CaptureError(f"{call} computes its bias from the model's input; it must be a parameter")
    shape = _along(np.empty(bias.tensor.shape), len(translator.shape(sums)), axis).shape
    name = translator.parameter(bias, call, shape)
    return Float(translator.emit(call, Add(), translator.floats(sums, call.location), name, suffix="bias"))


def operands(
    translator: Translator, call: Call, x: Any, weight: Any, summed: tuple[int, ...]
) -> tuple[Codes, TracedConstant]:
    """Return (input codes, weights) of a layer; if both are wrong, both problems are noted.

    Parameters
    ----------
    summed: axes of the weights that are summed, so that they must share a scale.
    """
    try:
        codes = _codes(translator, call, recoded(translator, call, x) if isinstance(x, Float) else x)
    except CaptureError as error:
        try:
            _weights(call, weight, summed)
        except CaptureError as second:
            # Both operands are wrong: both problems are reported.
            translator.problems.append(error)
            raise second from error
        raise
    return codes, _weights(call, weight, summed)


def _codes(translator: Translator, call: Call, value: Any) -> Codes:
    if not isinstance(value, Codes) or not value.quantized:
        raise translator.unquantized(
            call,
            value,
            "but there is no quantizer in front of it; put one there, such as nnhw.nn.Sign(), nnhw.nn.QuantReLU(4), or "
            "nnhw.nn.UInt(8, scale=2**-8) for an image",
        )
    if value.scale.ndim:
        raise CaptureError(
            f"{call} needs inputs with one scale, but the quantizer in front has one per channel; give it one scale, "
            f"with axis=-1, and let a batch norm in front of it make the channels alike"
        )
    return value


def _weights(call: Call, weight: Any, summed: tuple[int, ...]) -> TracedConstant:
    if not isinstance(weight, TracedConstant):
        raise CaptureError(f"{call} computes its weights from the model's input; they must be a parameter")
    if weight.codes is None:
        layer = _LAYERS.get(call.operator.split(".")[1])
        remedy = f"use nnhw.nn.{layer}" if layer else "use nnhw.nn.QuantLinear, or put a quantizer behind the parameter"
        kind = str(weight.tensor.dtype).removeprefix("torch.")
        raise Unquantized(f"{call} needs quantized weights, but they are {kind}{_levels(weight)}; {remedy}")
    assert weight.scale is not None
    rank = weight.codes.ndim
    inside = {axis % rank for axis in summed}
    if any(weight.scale.shape[axis] > 1 for axis in inside if weight.scale.ndim):
        free = max(set(range(rank)) - inside, default=0)
        raise CaptureError(
            f"{call} needs weights with one scale, or one per output; use axis={free} in their quantizer"
        )
    return weight


def _levels(weight: TracedConstant) -> str:
    """Return which numbers weights are, in words, if they are few; else nothing."""
    levels = np.unique(weight.doubles.cpu().numpy())
    if len(levels) > min(_FEW_LEVELS, weight.tensor.numel() // 2):
        return ""
    shown = ", ".join(f"{level:.6g}" for level in levels[:4])
    more = ", .." if len(levels) > 4 else ""
    return f": {len(levels)} different numbers, {shown}{more}, that are not whole multiples of one number"


def _along(values: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """Shape one number per channel so that it broadcasts along `axis` of `rank` axes."""
    if not values.ndim:
        return values
    return values.reshape((1,) * axis + (-1,) + (1,) * (rank - 1 - axis))


def _named_padding(
    call: Call, kernel: tuple[int, ...], dilation: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the (rows, columns) of padding in front and behind; of an odd number, 'same' puts one more behind."""
    if call["padding"] == "valid":
        return (0, 0), (0, 0)
    rows, columns = (step * (size - 1) for size, step in zip(kernel, dilation, strict=True))
    return (rows // 2, columns // 2), (rows - rows // 2, columns - columns // 2)


def pair(sizes: Any, flat: bool, rest: int = 1) -> tuple[int, int]:
    """Return (height, width) of a size that torch has as one number, or as a list of one or two.

    Parameters
    ----------
    flat: the layer has one dimension, so the height is `rest`.
    """
    if isinstance(sizes, int):
        sizes = [sizes]
    return (rest if flat else sizes[0]), sizes[-1]


HANDLERS: dict[str, Handler] = {
    "aten.linear.default": linear,
    "aten.matmul.default": matmul,
    "aten.mm.default": matmul,
    "aten.bmm.default": matmul,
    "aten.einsum.default": einsum,
    "aten.conv1d.default": convolution,
    "aten.conv1d.padding": convolution,
    "aten.conv2d.default": convolution,
    "aten.conv2d.padding": convolution,
}
