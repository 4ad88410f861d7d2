"""Handlers of traced operators on two values that both depend on the model's input: products, maxima of codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnhw.errors import CaptureError
from nnhw.ir import Op
from nnhw.ir.ops import Dequantize, Divide, Maximum, Minimum, Multiply, Product, Sigmoid, Upsample
from nnhw.ir.ops.product import product_shape

from .calls import Call
from .layout import as_image, like, part, placed
from .recoding import recoded
from .translator import Handler, Translator, Unquantized
from .values import Codes, Float, Value

Computed = Codes | Float


def paired(translator: Translator, call: Call, op: Op, left: Any, right: Any, suffix: str = "") -> Codes | None:
    """Return the result of an op of two values as integers, if both are codes; else None: it is an op of floats.

    mul(code * s, code * t)     --> product(code, code) * (s * t)
    maximum(code * s, code * s) --> maximum(code, code) * s

    A function of one value alone, such as y * sigmoid(y), stays an op of floats, and so does what the host computes
    behind the last layer.

    Raises
    ------
    CaptureError: values whose shapes no op of floats and no product has.
    """
    if not isinstance(left, Computed) or not isinstance(right, Computed):
        return None
    shapes = translator.shape(left), translator.shape(right)
    if isinstance(op, Maximum | Minimum):
        return _extreme(translator, call, op, left, right, suffix) if shapes[0] == shapes[1] else None
    if not isinstance(op, Multiply):
        return None
    # Both are functions of one value, and so is the product: it needs no engine for products.
    if shapes[0] == shapes[1] and len(_sources(translator, left) | _sources(translator, right)) == 1:
        return None
    sides = [recoded(translator, call, side) if isinstance(side, Float) else side for side in (left, right)]
    codes = [side for side in sides if isinstance(side, Codes) and side.quantized]
    fits = product_shape(*shapes) is not None
    if len(codes) == 2 and fits:
        scale = np.multiply(codes[0].scale, codes[1].scale)
        name = translator.emit(call, Product(), codes[0].name, codes[1].name, suffix=suffix)
        return Codes(name, scale, quantized=False)
    if shapes[0] == shapes[1]:
        return None
    raise _not_codes(translator, call, shapes) if fits else _unlike(translator, call, shapes)


def check_shapes(translator: Translator, call: Call, op: Op, shapes: list[tuple[int, ...]]) -> None:
    """Refuse an op of floats whose operands have different shapes. Raises: CaptureError."""
    if len(set(shapes)) < 2:
        return
    given = _given(translator, shapes)
    if isinstance(op, Divide):
        raise CaptureError(
            f"{call} divides values of the shapes {given}, which both depend on the model's input; there is no engine "
            f"for that: divide by constants, or multiply by codes of the reciprocal"
        )
    raise CaptureError(f"{call} joins values of the shapes {given}; both must have the same shape")


def glu(translator: Translator, call: Call) -> Value:
    """One half of an axis times the sigmoid of the other one: for a model's end, as it has no quantizer inside."""
    value: Codes | Float = call["self"]
    shape = translator.shape(value)
    axis = int(call["dim"]) % (len(shape) + 1) - 1
    if axis < 0:
        raise CaptureError(f"{call} halves the batch, got dim={call['dim']}; use dim=1 or dim=-1")
    half = shape[axis] // 2
    first, second = (
        part(translator, call, value, axis, start, start + half, name) for start, name in ((0, "value"), (half, "gate"))
    )
    gate = translator.emit(call, Sigmoid(), translator.floats(second, call.location), suffix="sigmoid")
    return Float(translator.emit(call, Multiply(), translator.floats(first, call.location), gate))


def expand(translator: Translator, call: Call) -> Value:
    """A value repeated along height, width or both, where it has size 1: expand, expand_as and broadcast_to."""
    value: Codes | Float = call["self"]
    before, after = translator.shape(value), translator.result_shape(call)
    if before == after:
        return value
    repeated = [axis for axis, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
    if len(before) != len(after) or len(after) not in (2, 3) or 0 in repeated:
        raise CaptureError(
            f"{call} makes {translator.show(['batch', *after])} of {translator.show(['batch', *before])}; only height "
            f"and width of size 1 are repeated: a product repeats what it must by itself"
        )
    factors = [new // old for old, new in zip(before[1:], after[1:], strict=True)]
    op = Upsample((factors[0] if len(factors) == 2 else 1, factors[-1]))
    return like(translator, call, placed(translator, call, as_image(translator, call, value), op), len(before))


def _extreme(translator: Translator, call: Call, op: Op, left: Computed, right: Computed, suffix: str) -> Codes | None:
    """Return the maximum or minimum of codes with the same scale, as codes; None for anything else."""
    if not (isinstance(left, Codes) and isinstance(right, Codes) and left.quantized and right.quantized):
        return None
    if left.name == right.name or not (left.scale == right.scale).all():
        return None
    # Equal scales may be stored as one number or as one per channel: the fuller one is kept.
    scale = max(left.scale, right.scale, key=lambda scale: scale.ndim)
    return Codes(translator.emit(call, op, left.name, right.name, suffix=suffix), scale, quantized=True)


def _sources(translator: Translator, value: Computed) -> set[str]:
    """Return the names of the integers, or inputs of the model, of which a value is a function."""
    if isinstance(value, Codes):
        return {value.name}
    graph = translator.builder.build([value.name])
    # Back to the next integers: all in between are floats, which are functions of these.
    found: set[str] = set()
    waiting = [graph.node(value.name)]
    while waiting:
        node = waiting.pop()
        data = graph.data_inputs(node)
        if isinstance(node.op, Dequantize) or not data:
            found.add(data[0].name if data else node.name)
        else:
            waiting += data
    return found


def _given(translator: Translator, shapes: Any) -> str:
    return " and ".join(translator.show(["batch", *shape]) for shape in shapes)


def _not_codes(translator: Translator, call: Call, shapes: tuple[tuple[int, ...], ...]) -> CaptureError:
    return Unquantized(
        f"{call} multiplies values of the shapes {_given(translator, shapes)}, which both depend on the model's input; "
        f"an engine multiplies codes: put a quantizer on each of the two, directly in front of the product, such as "
        f"nnhw.nn.UInt(8, scale=2**-8) behind a sigmoid"
    )


def _unlike(translator: Translator, call: Call, shapes: tuple[tuple[int, ...], ...]) -> CaptureError:
    return CaptureError(
        f"{call} multiplies values of the shapes {_given(translator, shapes)}; one of them must have the shape of the "
        f"result, the other one as many axes with the same sizes or 1, such as [batch, channels, 1, 1] for a map"
    )


HANDLERS: dict[str, Handler] = {
    "aten.glu.default": glu,
    "aten.expand.default": expand,
    "aten.expand_as.default": expand,
    "aten.broadcast_to.default": expand,
}
