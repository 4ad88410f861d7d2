"""Handlers of traced products of two computed values, integer softmax and integer normalization."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nnhw.errors import CaptureError
from nnhw.ir import IntType, TensorType
from nnhw.ir.ops import IntegerNorm, IntegerSoftmax, MatrixProduct
from nnhw.nn.integers import RECIPROCAL_BITS, integer_epsilon, power_table

from .calls import Call
from .layout import permuted, reshaped
from .recoding import recoded
from .translator import Handler, Translator
from .values import Codes, Float, TracedConstant, Value


class ProductAxes(NamedTuple):
    """The axes of a product of two values as letters, without the batch, as in einsum: axes not in `out` are summed."""

    left: str
    right: str
    out: str


def is_computed(value: Any) -> bool:
    """Return whether a value depends on the model's input."""
    return isinstance(value, Codes | Float)


def computed_matmul(translator: Translator, call: Call, left: Any, right: Any) -> Value:
    """The product of two computed matrices, or of one pair for each of the axes in front."""
    shapes = [translator.shape(side) for side in (left, right)]
    if len({len(shape) for shape in shapes}) != 1 or len(shapes[0]) < 2 or shapes[0][:-2] != shapes[1][:-2]:
        given = " and ".join(translator.show(["batch", *shape]) for shape in shapes)
        raise CaptureError(
            f"{call} multiplies two computed values of the shapes {given}; it needs [batch, .., m, k] and "
            f"[batch, .., k, n] with equal axes in front; bring them to that with reshape and transpose"
        )
    lead = string.ascii_lowercase[: len(shapes[0]) - 2]
    return computed_product(translator, call, left, right, ProductAxes(f"{lead}MK", f"{lead}KN", f"{lead}MN"))


def computed_product(translator: Translator, call: Call, left: Any, right: Any, axes: ProductAxes) -> Value:
    """Return the sums of products of two computed values, along the axes that the result does not have."""
    values = codes_in(translator, call, left), codes_in(translator, call, right)
    sizes = _sizes(translator, call, values, axes)
    lead = [axis for axis in axes.out if axis in axes.left and axis in axes.right]
    rows = [axis for axis in axes.out if axis not in axes.right]
    columns = [axis for axis in axes.out if axis not in axes.left]
    inner = [axis for axis in axes.left if axis not in axes.out]
    groups = tuple(sizes[axis] for axis in lead)
    first, left_turned = _matrices(translator, call, values[0], axes.left, (lead, rows, inner), sizes, "left")
    second, right_turned = _matrices(translator, call, values[1], axes.right, (lead, inner, columns), sizes, "right")
    op = MatrixProduct(left_turned, right_turned)
    scale = values[0].scale * values[1].scale
    sums = Codes(translator.emit(call, op, first.name, second.name), scale, quantized=False)
    assert translator.shape(sums)[: len(groups)] == groups
    made = [*lead, *rows, *columns]
    whole = reshaped(translator, call, sums, tuple(sizes[axis] for axis in made), "axes")
    return permuted(translator, call, whole, tuple(made.index(axis) for axis in axes.out), "order")


def _sizes(translator: Translator, call: Call, values: Sequence[Codes], axes: ProductAxes) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for value, letters in zip(values, axes, strict=False):
        for letter, size in zip(letters, translator.shape(value), strict=True):
            if sizes.setdefault(letter, size) != size:
                raise CaptureError(
                    f"{call} multiplies along an axis of {sizes[letter]} and {size} elements; both computed values "
                    f"need the same number"
                )
    return sizes


def _matrices(
    translator: Translator,
    call: Call,
    value: Codes,
    letters: str,
    order: tuple[list[str], list[str], list[str]],
    sizes: dict[str, int],
    suffix: str,
) -> tuple[Codes | Float, bool]:
    """Return (value as matrices [lead .., first, last], whether they are transposed, so that nothing has to move)."""
    lead, first, last = order
    # The engine reads either order of a matrix, so that k.transpose(-2, -1) moves nothing.
    turned = list(letters) == [*lead, *last, *first]
    names = [*lead, *last, *first] if turned else [*lead, *first, *last]
    moved = permuted(translator, call, value, tuple(letters.index(axis) for axis in names), f"{suffix}_order")
    sides = (last, first) if turned else (first, last)
    shape = (*(sizes[axis] for axis in lead), *(math.prod(sizes[axis] for axis in side) for side in sides))
    return reshaped(translator, call, moved, shape, suffix), turned


def codes_in(translator: Translator, call: Call, value: Any) -> Codes:
    """Return a computed value as codes with one scale. Raises: Unquantized, CaptureError."""
    if isinstance(value, Float):
        value = recoded(translator, call, value)
    if not isinstance(value, Codes) or not value.quantized:
        raise translator.unquantized(
            call,
            value,
            "but there is no quantizer in front of it; put one there, such as "
            "nnhw.nn.QuantIdentity(8, scale='observed')",
        )
    if value.scale.ndim:
        raise CaptureError(
            f"{call} needs inputs with one scale, but the quantizer in front has one per channel; give it one scale, "
            f"with axis=-1"
        )
    return value


def integer_softmax(translator: Translator, call: Call) -> Value:
    """Softmax of codes by integers, as nnhw.nn.QuantSoftmax has it."""
    codes = _codes_of_scale(translator, call)
    kept = call["keep"]
    if kept is not None and not isinstance(kept, TracedConstant):
        raise CaptureError(f"{call} computes its mask from the model's input; it must be a constant")
    keep = np.array(1) if kept is None else kept.tensor.detach().cpu().numpy().astype(np.int64)
    # A mask may have an axis of size 1 for the batch.
    keep = keep[0] if keep.ndim == len(translator.shape(codes)) + 1 and len(keep) == 1 else keep
    table = power_table(call["scale"].tensor, call["distances"]).cpu().numpy()
    names = [
        translator.builder.constant(f"{translator.label(call)}.{role}", array, type, call.location)
        for role, array, type in (
            ("table", table, TensorType(table.shape, IntType(0, (1 << RECIPROCAL_BITS) - 1))),
            ("keep", keep, TensorType(keep.shape, IntType(0, 1))),
        )
    ]
    op = IntegerSoftmax(_image_axis(translator, call, codes), call["bits"], call["high"])
    return Codes(translator.emit(call, op, codes.name, *names), np.array(2.0 ** -call["bits"]), quantized=True)


def integer_norm(translator: Translator, call: Call) -> Value:
    """Normalization of codes by integers, as nnhw.nn.QuantLayerNorm and QuantRMSNorm have it."""
    codes = _codes_of_scale(translator, call)
    axis, rank = _image_axis(translator, call, codes), len(translator.shape(codes))
    epsilon = integer_epsilon(call["scale"].tensor, call["eps"], translator.shape(codes)[axis])
    # The weights behind belong to features, so features become the channels.
    order = (axis, *(other for other in range(rank) if other != axis))
    first = permuted(translator, call, codes, order, "columns")
    name = translator.emit(call, IntegerNorm(0, epsilon, call["fraction_bits"], call["centered"]), first.name)
    normal = Codes(name, np.array(2.0 ** -call["fraction_bits"]), quantized=False)
    return permuted(translator, call, normal, tuple(order.index(place) for place in range(rank)), "rows")


def _codes_of_scale(translator: Translator, call: Call) -> Codes:
    """Return the codes that a call reads, which must have the scale that the call is given."""
    codes, scale = codes_in(translator, call, call["x"]), call["scale"]
    if not isinstance(scale, TracedConstant):
        raise CaptureError(f"{call} computes its scale from the model's input; use a fixed scale, or scale='observed'")
    given = float(scale.tensor.double().reshape(()))
    if float(codes.scale) != given:
        raise CaptureError(
            f"{call} is told the scale {given:g}, but the codes that it reads have {float(codes.scale):g}; give it the "
            f"scale of the quantizer in front"
        )
    return codes


def _image_axis(translator: Translator, call: Call, value: Codes) -> int:
    axis = call["axis"] % (len(translator.shape(value)) + 1)
    if axis == 0:
        raise CaptureError(f"{call} works along the batch; use dim=1 or dim=-1")
    return int(axis) - 1


HANDLERS: dict[str, Handler] = {
    "nnhw.integer_softmax.default": integer_softmax,
    "nnhw.integer_norm.default": integer_norm,
}
