"""Traced operations on whole sequences, [batch, steps, ..] or [steps, batch, ..], as operations on each step.

An operation that does not touch the axes of batch and steps is translated for one step, with its axes counted without
that of the steps. Operations that reorder or select steps have ops of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from nnhw.errors import CaptureError
from nnhw.ir.ops import LastStep, ReverseSteps
from nnhw.nn.kinds import CONVERTED

from .calls import Call, evaluate
from .constant_folding import REPEATS
from .values import Batch, Codes, Float, PerImage, Stacked, StepsFirst, TracedConstant, Value

if TYPE_CHECKING:
    from .translator import Handler, Translator

_AXES = ("axis", "dim", "dim0", "dim1", "dims")
"""Names of arguments that are axes, in operators of ATen and of nnhw."""
_FILLED: Mapping[str, Callable[[Call], float]] = {
    **dict.fromkeys(("zeros", "new_zeros", "zeros_like"), lambda _: 0.0),
    **dict.fromkeys(("ones", "new_ones", "ones_like"), lambda _: 1.0),
    **dict.fromkeys(("full", "new_full", "full_like"), lambda call: call["fill_value"]),
}
"""Operations that make a tensor of one number --> that number."""
SCAN = "torch.ops.higher_order.scan"
FLIP = "aten.flip.default"
_WHOLE = ("_operator.getitem", SCAN, FLIP)
"""Operators whose handlers take whole sequences."""
_ALL = 2**63 - 1
"""End of a slice that has none, as ATen writes it."""


def each_image(translator: Translator, call: Call) -> PerImage | None:
    """Return the result of a call that makes the same numbers for each image; None for any other call."""
    shape = getattr(call.node.meta.get("val"), "shape", ())
    axis = translator.batch_axis(shape)
    if axis is None or not isinstance(call.node.target, torch._ops.OpOverload):
        return None
    if call.operation in _FILLED:
        # What it is made like gives the shape and the dtype alone, whatever that is.
        sizes = [size for place, size in enumerate(shape) if place != axis]
        filled = torch.full(sizes, _FILLED[call.operation](call), dtype=call.node.meta["val"].dtype)
        return PerImage(TracedConstant(filled, call.node.name), axis)
    given = call.arguments.get("self")
    if call.operation in CONVERTED and isinstance(given, PerImage):
        tensor = given.constant.tensor.to(call.node.meta["val"].dtype)
        return PerImage(TracedConstant(tensor, given.constant.label), axis)
    if not any(isinstance(value, Batch | PerImage) for value in call.values) or _is_for_one_image(call):
        return None
    if not all(isinstance(value, Batch | PerImage | TracedConstant) for value in call.values):
        return None
    try:
        one, two = (evaluate(_for_images(call, images)) for images in (1, 2))
    except RuntimeError:  # torch's error for operands, such as a constant of one image, that have no result for two
        return None
    if not torch.equal(one.repeat_interleave(2, dim=axis), two):
        return None  # such as torch.arange(x.shape[0])
    return PerImage(TracedConstant(one.squeeze(axis), call.node.name), axis)


def _is_for_one_image(call: Call) -> bool:
    """Return whether a call repeats a constant along its first axis, for which `computed_constant` has a form."""
    times = call.arguments.get(REPEATS.get(call.operator, ""), [None])
    return isinstance(times[0], Batch) and isinstance(call["self"], TracedConstant)


def _for_images(call: Call, images: int) -> Call:
    """Return a call of constants for a batch of so many images."""

    def of(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [of(item) for item in value]
        if isinstance(value, Batch):
            return images
        return value.repeated(images) if isinstance(value, PerImage) else value

    return replace(call, arguments={name: of(value) for name, value in call.arguments.items()})


def broadcast(call: Call) -> Call:
    """Return a call in which numbers that are the same for each image are a constant [1, ..], as its handler expects.

    Raises: CaptureError for numbers whose batch is not the first axis.
    """

    def of(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [of(item) for item in value]
        if isinstance(value, PerImage) and value.axis:
            raise CaptureError(
                f"{call} reads numbers that are the same for each image, with the batch as axis {value.axis}; make the "
                f"batch the first axis"
            )
        return value.repeated(1) if isinstance(value, PerImage) else value

    if call.operator in _WHOLE or not any(isinstance(value, PerImage) for value in call.values):
        return call
    return replace(call, arguments={name: of(value) for name, value in call.arguments.items()})


def by_step(translator: Translator, call: Call, handler: Handler) -> Any:
    """Translate a call by its handler; a call that reads sequences as one on each step."""
    if any(isinstance(value, Stacked) for value in call.values) and call.operator not in _WHOLE:
        return _unstacked(call)
    if call.operator in _WHOLE or not any(map(translator.is_sequence, call.values)):
        return handler(translator, call)
    if call.operator in _MOVES:
        moved = _MOVES[call.operator](translator, call)
        if moved is not None:
            return moved
    # Axes are counted by the order of the traced tensor, which must be one for all operands.
    turned = [isinstance(value, StepsFirst) for value in call.values if translator.is_sequence(value)]
    if any(turned) and not all(turned):
        raise CaptureError(
            f"{call} joins a sequence [batch, steps, ..] with one [steps, batch, ..]; let both have one order, by "
            f"transpose(0, 1)"
        )
    result = handler(translator, _of_one_step(translator, call))
    return _turned(result) if any(turned) else result


def _unstacked(call: Call) -> Value:
    """Return one or more of several stacked values, which may only be read by indices along their first axis."""
    stacked = call.arguments.get("self")
    if call.operator == "aten.cat.default" and call.arguments.get("dim", 0) == 0:
        listed = [value for value in call["tensors"] if isinstance(value, Stacked)]
        if len(listed) == len(call["tensors"]):
            return Stacked(tuple(part for one in listed for part in one.parts))
    if isinstance(stacked, Stacked) and call.arguments.get("dim") == 0:
        if call.operator == "aten.select.int":
            return stacked.parts[call["index"]]
        if call.operator == "aten.squeeze.dim" and len(stacked.parts) == 1:
            return stacked.parts[0]
    raise CaptureError(
        f"{call} reads values that are stacked in front of the batch, such as the last states of several layers; take "
        f"one of them, as in states[-1], or stack them along dim=1"
    )


def last_step(translator: Translator, call: Call, value: Codes | Float, suffix: str = "") -> Codes | Float:
    """Return the last step of a sequence."""
    return replace(value, name=translator.emit(call, LastStep(), value.name, suffix=suffix))


def reversed_steps(translator: Translator, call: Call, value: Codes | Float, suffix: str = "") -> Codes | Float:
    """Return a sequence from its last step to its first."""
    return replace(value, name=translator.emit(call, ReverseSteps(), value.name, suffix=suffix))


def flip(translator: Translator, call: Call) -> Value:
    """The steps of a sequence from the last to the first; no other axis can be reversed."""
    value = call["self"]
    if not translator.is_sequence(value) or [_axis(translator, value, axis) for axis in call["dims"]] != [1]:
        raise CaptureError(
            f"{call} reverses something else than the steps of a sequence that a loop runs over; use slices such as "
            f"x[:, 1:4], chunk, split or torch.cat, or a 1x1 convolution"
        )
    result = reversed_steps(translator, call, plain(value))
    return StepsFirst(result) if isinstance(value, StepsFirst) else result


def plain(value: Any) -> Any:
    """Return a value without the mark `StepsFirst`, which says that its traced axes are in another order."""
    return value.value if isinstance(value, StepsFirst) else value


def _turned(result: Any) -> Any:
    if isinstance(result, list):
        return [_turned(item) for item in result]
    return StepsFirst(result) if isinstance(result, Codes | Float) else result


def _rank(translator: Translator, value: Any) -> int:
    """Return the number of a traced sequence's axes."""
    return len(translator.builder.type_of(plain(value).name).shape) + 2


def _axis(translator: Translator, value: Any, axis: int) -> int:
    """Return an axis of a sequence, counted from 0, as it is in the order [batch, steps, ..]."""
    axis %= _rank(translator, value)
    return 1 - axis if isinstance(value, StepsFirst) and axis < 2 else axis


def _of_one_step(translator: Translator, call: Call) -> Call:
    """Return a call with each sequence replaced by one step, and axes counted without that of the steps."""
    first = next(value for value in call.values if translator.is_sequence(value))
    ranks = max(_rank(translator, value) for value in call.values if translator.is_sequence(value))
    added = call.operation in ("unsqueeze", "stack")

    def axis_of(axis: int) -> int:
        # The quantizer's axis -1 is no last axis: it says that there is one scale.
        if axis == -1 and call.operation == "quantize":  # one scale
            return axis
        # unsqueeze and stack count their axis among those of the result, which has one more.
        axis %= ranks + added
        if axis < 2:
            place = _axis(translator, first, axis)
            where = ("batch", "steps")[place]
            raise CaptureError(
                f"{call} works along the {where} of a sequence, of which an accelerator sees one step at a time; let a "
                f"loop over the steps compute it (torch._higher_order_ops.scan), or take the last step in front of it"
            )
        return axis - 1

    def step_of(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(step_of(item) for item in value)
        if isinstance(value, TracedConstant) and value.tensor.dim() == ranks and value.codes is None:
            # A constant with an axis for steps has size 1 there: the same values count for each step.
            precise = None if value.precise is None else value.precise.squeeze(1)
            return replace(value, tensor=value.tensor.squeeze(1), precise=precise)
        return plain(value)

    given: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if name in _AXES and isinstance(value, int) and not isinstance(value, bool):
            given[name] = axis_of(value)
        elif name in _AXES and isinstance(value, list | tuple):
            given[name] = [axis_of(axis) for axis in value]
        else:
            given[name] = step_of(value)
    return replace(call, arguments=given)


def _transpose(translator: Translator, call: Call) -> Value | None:
    """Exchange the axes of batch and steps; None if the call moves others."""
    value = call["self"]
    axes = {_axis(translator, value, call["dim0"]), _axis(translator, value, call["dim1"])}
    return _exchanged(value) if axes == {0, 1} else None


def _permute(translator: Translator, call: Call) -> Value | None:
    """Exchange the axes of batch and steps; None if the call moves any other axis."""
    rank = _rank(translator, call["self"])
    axes = [axis % rank for axis in call["dims"]]
    return _exchanged(call["self"]) if axes == [1, 0, *range(2, rank)] else None


def _exchanged(value: Any) -> Value:
    return value.value if isinstance(value, StepsFirst) else StepsFirst(value)


def _select(translator: Translator, call: Call) -> Value | None:
    """Take the last step of a sequence, or the first; None if the call selects along another axis."""
    value = call["self"]
    if _axis(translator, value, call["dim"]) != 1:
        return None
    if call["index"] == -1:
        return last_step(translator, call, plain(value))
    # There is one op that takes a step, the last: of the reversed sequence that is the first.
    if call["index"] == 0:
        return last_step(translator, call, reversed_steps(translator, call, plain(value), "reversed"))
    raise CaptureError(
        f"{call} takes step {call['index']} of a sequence of any length; take the last step, [:, -1], or the first"
    )


def _slice(translator: Translator, call: Call) -> Value | None:
    """Return the sequence for a slice that takes all steps, or all of the batch; None for slices along other axes."""
    value = call["self"]
    axis = _axis(translator, value, call["dim"])
    if axis > 1:
        return None
    if call["start"] in (None, 0) and call["step"] == 1 and call["end"] in (None, _ALL):
        return value  # type: ignore[no-any-return]
    where = ("batch", "steps")[axis]
    raise CaptureError(f"{call} takes a part of the {where} of a sequence; take all of it, or the last step, [:, -1]")


_MOVES: dict[str, Callable[[Translator, Call], Value | None]] = {
    "aten.transpose.int": _transpose,
    "aten.swapaxes.default": _transpose,
    "aten.permute.default": _permute,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
}
"""Operations that may move steps or take some; they return None where they leave steps alone."""
