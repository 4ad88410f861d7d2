"""Traced operations on constants alone: computed at once, and quantized weights keep their codes where they can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nnhw.errors import CaptureError
from nnhw.ir import IntType

from .calls import Call, evaluate, evaluated
from .scales import compressed
from .values import Batch, TracedConstant

SHAPES = tuple(
    f"aten.{name}"
    for name in (
        "flatten.using_ints", "view.default", "reshape.default", "squeeze.dim", "squeeze.dims", "squeeze.default",
        "unsqueeze.default", "unflatten.int",
    )
)  # fmt: skip
ORDERS = tuple(
    f"aten.{name}"
    for name in (
        "permute.default", "transpose.int", "t.default", "mT.default", "numpy_T.default", "swapaxes.default",
        "swapdims.default", "movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist",
    )
)  # fmt: skip
COPIES = tuple(
    f"aten.{name}"
    for name in (
        "clone.default", "contiguous.default", "detach.default", "alias.default", "expand.default", "repeat.default",
        "slice.Tensor", "select.int", "flip.default", "expand_as.default", "broadcast_to.default", "tile.default",
    )
)  # fmt: skip

_CAT = "aten.cat.default"

REPEATS = {
    "aten.expand.default": "size",
    "aten.broadcast_to.default": "size",
    "aten.repeat.default": "repeats",
    "aten.tile.default": "dims",
}
"""Operators that repeat a constant --> the argument that says how often, or to which size."""


def computed_constant(call: Call) -> TracedConstant | list[TracedConstant | None] | float:
    """Return the result of a call whose arguments are constants; of several results all, of a number the number.

    What is repeated for each image of the batch stays one: [1, ..].
    """
    call = _for_one_image(call)
    made = evaluated(call)
    if isinstance(made, int | float):
        return made
    if isinstance(made, list | tuple) and all(isinstance(part, torch.Tensor) for part in made):
        exact = evaluated(call, double=True)
        return [
            TracedConstant(
                part, f"{call.node.name}_{number}", precise=wide.double() if part.is_floating_point() else None
            )
            for number, (part, wide) in enumerate(zip(made, exact, strict=True))
        ]
    tensor, precise = evaluate(call), _precise(call)
    if call.operator == _CAT and (joined := _joined(call)) is not None:
        return TracedConstant(tensor, call.node.name, *joined, precise)
    source = call.values[0] if call.values else None
    keeps = call.operator in SHAPES + ORDERS + COPIES
    if not keeps or not isinstance(source, TracedConstant) or source.codes is None or source.scale is None:
        return TracedConstant(tensor, _label(call, source, tensor), precise=precise)
    scale = source.scale
    if scale.ndim:
        scale = compressed(_rearranged(call, np.broadcast_to(scale, source.codes.shape)))
    return TracedConstant(tensor, source.label, _rearranged(call, source.codes), scale, source.dtype, precise)


def shaped_constant(call: Call, shape: tuple[int, ...]) -> TracedConstant:
    """Return a constant in the shape of a computed value: bias.view(1, -1).expand_as(y). It stays one for all images.

    Parameters
    ----------
    shape: of the value, without the batch.

    Raises: CaptureError for a constant that cannot have this shape.
    """
    given = tuple(call["self"].tensor.shape)
    fits = len(given) <= len(shape) + 1 and all(
        size in (1, wanted) for size, wanted in zip(given[::-1], (*shape[::-1], 1), strict=False)
    )
    if not fits:
        raise CaptureError(
            f"{call} cannot expand a constant of shape {list(given)} to [batch, {', '.join(map(str, shape))}]; give "
            f"the constant the shape of one image, with a first axis of size 1"
        )
    like = TracedConstant(torch.zeros(1, *shape), call.node.name)
    made = computed_constant(replace(call, arguments={**call.arguments, "other": like}))
    assert isinstance(made, TracedConstant)
    return made


def _joined(call: Call) -> tuple[np.ndarray, np.ndarray, IntType] | None:
    """Return codes, scales and range of quantized constants that are concatenated; None where one is not quantized."""
    codes, scales, ranges = [], [], []
    for part in call["tensors"]:
        if not isinstance(part, TracedConstant) or part.codes is None or part.scale is None or part.dtype is None:
            return None
        codes.append(part.codes)
        scales.append(np.broadcast_to(part.scale, part.codes.shape))
        ranges.append(part.dtype)
    axis = call.arguments.get("dim", 0)
    low, high = min(kind.low for kind in ranges), max(kind.high for kind in ranges)
    whole = IntType(low, high, bipolar=all(kind.bipolar for kind in ranges))
    return np.concatenate(codes, axis), compressed(np.concatenate(scales, axis)), whole


def _for_one_image(call: Call) -> Call:
    """Let a constant [1, ..] be repeated once, instead of once for each image."""
    name = REPEATS.get(call.operator)
    if name is None or not isinstance(call["self"], TracedConstant) or not isinstance(call[name][0], Batch):
        return call
    shape = call["self"].tensor.shape
    if len(shape) == len(call[name]) and shape[0] != 1:
        return call
    return replace(call, arguments={**call.arguments, name: [1, *call[name][1:]]})


def _label(call: Call, source: object, result: torch.Tensor) -> str:
    """Return the name of a result: what is only a copy, such as weight[:], keeps the name that its user knows."""
    copy = isinstance(source, TracedConstant) and call.operator in COPIES and torch.equal(source.tensor, result)
    return source.label if isinstance(source, TracedConstant) and copy else call.node.name


def _precise(call: Call) -> torch.Tensor | None:
    """Return the result of computing in float64, as the reference does; None for what is no float."""
    try:
        result = evaluate(call, double=True)
    except RuntimeError:  # an operator that torch has for float32 alone
        return None
    return result.to(torch.float64) if result.is_floating_point() else None


def _rearranged(call: Call, array: np.ndarray) -> np.ndarray:
    target: Any = call.node.target
    names = [argument.name for argument in target._schema.arguments if not argument.kwarg_only]
    others = (call[name] for name in names[1:])
    plain = (other.tensor if isinstance(other, TracedConstant) else other for other in others)
    result: np.ndarray = target(torch.from_numpy(np.array(array)), *plain).numpy()
    return result
