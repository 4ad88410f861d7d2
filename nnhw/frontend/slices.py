"""Handlers of traced operators that take a part of a tensor, or split it into parts."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

from nnhw.errors import CaptureError

from .calls import Call
from .layout import concat, part, permuted, reshaped
from .translator import Handler, Translator
from .values import Batch, Codes, Float, Turned, Unknown, Value


def take(translator: Translator, call: Call) -> Value:
    """x[:, start:stop:step], along any axis but the batch."""
    value, axis = call["self"], _axis(translator, call)
    size = translator.shape(value)[axis] if axis >= 0 else None
    if size is None:
        if call["start"] in (None, 0) and call["step"] == 1 and call["end"] in (None, 2**63 - 1):
            return value  # type: ignore[no-any-return]
        raise CaptureError(f"{call} takes a part of the batch; take it of other axes, as in x[:, 1:]")
    places = range(size)[call["start"] : call["end"] : call["step"]]
    if not places:
        raise CaptureError(f"{call} takes nothing of {size} elements; give a range within them")
    return _every(translator, call, value, axis, places)


def select(translator: Translator, call: Call) -> Value:
    """The elements at one index of an axis, without that axis."""
    if isinstance(call["self"], Turned):
        return _first(translator, call, call["self"], call["index"])
    value, axis = call["self"], _own_axis(translator, call)
    place = call["index"] % translator.shape(value)[axis]
    return _single(translator, call, value, axis, place)


def narrow(translator: Translator, call: Call) -> Value:
    """`length` elements of an axis, from `start` on."""
    value, axis = call["self"], _own_axis(translator, call)
    start = call["start"] % translator.shape(value)[axis]
    return part(translator, call, value, axis, start, start + call["length"])


def split(translator: Translator, call: Call) -> list[Value | None]:
    """All parts of an axis, of which those that are read become slices."""
    value, axis = call["self"], _own_axis(translator, call)
    sizes = [tensor.shape[axis + 1] for tensor in call.node.meta["val"]]
    starts = [0, *accumulate(sizes)]
    if any(sizes[index] == 0 for index in _read(call)):
        raise CaptureError(f"{call} has a part without elements, which is read; the parts have {sizes}")
    return [
        part(translator, call, value, axis, start, start + size, str(index)) if index in _read(call) else None
        for index, (start, size) in enumerate(zip(starts, sizes, strict=False))
    ]


def unbind(translator: Translator, call: Call) -> list[Value | None]:
    """A value for each index of an axis, without that axis; those that are read become slices."""
    if isinstance(call["self"], Turned):
        return [
            _first(translator, call, call["self"], index, str(index)) if index in _read(call) else None
            for index in range(len(call.node.meta["val"]))
        ]
    value, axis = call["self"], _own_axis(translator, call)
    return [
        _single(translator, call, value, axis, index, str(index)) if index in _read(call) else None
        for index in range(len(call.node.meta["val"]))
    ]


def item(translator: Translator, call: Call) -> Value:
    """One of several results."""
    results: list[Value | None] = call.arguments[0]  # type: ignore[index]
    result = results[call.arguments[1]]  # type: ignore[index]
    if result is None and not call.node.users:
        return Unknown()
    if result is None:
        raise CaptureError(f"{call} uses the indices of a pooling, which do not exist in hardware; use its values")
    return result


def _own_axis(translator: Translator, call: Call) -> int:
    """Return the axis of the image that a call takes parts of. Raises: CaptureError if it is the batch."""
    axis = _axis(translator, call)
    if axis < 0:
        raise CaptureError(f"{call} takes parts of the batch; take them of other axes, with dim=1 or more")
    return axis


def _axis(translator: Translator, call: Call) -> int:
    """Return the axis of the image that a call names, -1 for the batch. Raises: CaptureError for unknown bounds."""
    if any(isinstance(value, Batch) for value in call.values):
        raise CaptureError(f"{call} depends on the size of the batch; give fixed numbers")
    rank = len(translator.shape(call["self"])) + 1
    return int(call["dim"]) % rank - 1


def _read(call: Call) -> set[Any]:
    """Return the indices of the parts of a call's result that are read."""
    return {user.args[1] for user in call.node.users if user.users}


def _every(translator: Translator, call: Call, value: Codes | Float, axis: int, places: range) -> Value:
    """Return the elements at equal distances along an axis."""
    if len(places) == 1 or places.step == 1:
        return part(translator, call, value, axis, places[0], places[-1] + 1)
    shape, count, step = translator.shape(value), len(places), places.step
    # The axis is cut into groups of `step` elements, of which each gives one. The first group may begin in front of the
    # first element that is taken, so that the last group does not reach beyond the end of the axis.
    first = min(places[0], shape[axis] - count * step)
    if first < 0:  # there is not room for whole groups: the last element is taken by itself
        whole, last = _every(translator, call, value, axis, places[:-1]), places[-1]
        parts = [whole, part(translator, call, value, axis, last, last + 1, "last")]
        return concat(translator, replace(call, arguments={"tensors": parts, "dim": axis + 1}))
    # [groups, step] in place of the axis: what is taken is the same place of each group.
    whole = part(translator, call, value, axis, first, first + count * step, "whole")
    grouped = reshaped(translator, call, whole, (*shape[:axis], count, step, *shape[axis + 1 :]), "grouped")
    place = places[0] - first
    taken = part(translator, call, grouped, axis + 1, place, place + 1, "taken")
    return reshaped(translator, call, taken, (*shape[:axis], count, *shape[axis + 1 :]))


def _single(
    translator: Translator, call: Call, value: Codes | Float, axis: int, place: int, suffix: str = ""
) -> Codes | Float:
    """Return the elements at one index of an axis, without that axis."""
    shape = translator.shape(value)
    kept = part(translator, call, value, axis, place, place + 1, f"{suffix}.part" if suffix else "part")
    return reshaped(translator, call, kept, (*shape[:axis], *shape[axis + 1 :]), suffix)


def _first(translator: Translator, call: Call, turned: Turned, place: int, suffix: str = "") -> Codes | Float:
    """Return the elements at one index of the first axis of a `Turned` value, which makes the batch the first axis
    again.

    Raises: CaptureError if it is not.
    """
    first, *others = turned.axes
    if others[0] != 0:
        raise CaptureError(f"{call} leaves another axis than the batch as the first one; permute the other axes alone")
    place %= translator.shape(turned.value)[first - 1]
    taken = _single(translator, call, turned.value, first - 1, place, suffix)
    return permuted(translator, call, taken, tuple(axis - 1 - (axis > first) for axis in others[1:]), f"{suffix}order")


HANDLERS: dict[str, Handler] = {
    "aten.slice.Tensor": take,
    "aten.select.int": select,
    "aten.narrow.default": narrow,
    "aten.chunk.default": split,
    "aten.split.Tensor": split,
    "aten.split_with_sizes.default": split,
    "aten.tensor_split.sections": split,
    "aten.tensor_split.indices": split,
    "aten.unbind.int": unbind,
    "_operator.getitem": item,
}
