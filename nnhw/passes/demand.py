"""Which parts of each value somebody needs, so that what nobody needs can go.

A part is a box: of each axis, some of its places. Demand grows until it is consistent: what an op computes it needs
operands for, and ops that go along a value element by element keep as much of it as the value has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnhw.ir import Graph, Node, Op
from nnhw.ir.ops import (
    Concat,
    Conv2d,
    Flatten,
    Linear,
    Maximum,
    MaxPool2d,
    Minimum,
    Pad,
    Permute,
    Product,
    Rescale,
    Slice,
    StepTable,
    SumPool2d,
    Threshold,
    Upsample,
    WeightedSum,
)

Mask = list[np.ndarray]
"""Places that are needed, bool [size] for each axis."""
MOST_PRIME = 7
"""A layer gets no number of channels with a greater prime factor, unless it had one: engines take a divisor of the
channels at once, so that 61 channels, which only one or 61 cells divide, would take longer than 63."""
MOST_LANES = 64
"""Parts of a concatenation begin at a multiple of the lanes of a shared engine, a power of two: where they do, they
stay multiples of as large a power as before, up to this one."""


@dataclass
class MaskedNode:
    """A node with the masks that its rule lets grow.

    Parameters
    ----------
    result: of the node's own value.
    operands: of each operand that is not a constant.
    constants: of the node.
    """

    node: Node
    result: Mask
    operands: list[Mask]
    constants: list[np.ndarray]


def demanded(graph: Graph) -> dict[str, Mask]:
    """Return the places that are needed of each value but constants, by name; a value that nobody needs has none.

    The caller's input, results of the graph and everything in float are needed whole.
    """
    masks = {node.name: [np.zeros(size, bool) for size in node.type.shape] for node in graph.nodes}
    for name in (*graph.outputs, *(node.name for node in graph.inputs)):
        _fill(masks[name])
    places = [_place(graph, node, masks) for node in graph.nodes if node.name not in graph.constants]
    before = -1
    while before != (before := _count(masks)):
        for place in reversed(places):
            _RULES.get(type(place.node.op), _whole)(place.node.op, place)
        if before == _count(masks):
            for place in places:
                _round_up(place)
    return {place.node.name: place.result for place in places}


def is_needed(mask: Mask) -> bool:
    """Return whether anything of a value is needed; a value without axes has no parts to leave out."""
    return all(axis.any() for axis in mask)


def is_whole(mask: Mask) -> bool:
    """Return whether every part of a value is needed."""
    return all(axis.all() for axis in mask)


def _place(graph: Graph, node: Node, masks: Mapping[str, Mask]) -> MaskedNode:
    constants = [graph.constants[name] for name in node.inputs if name in graph.constants]
    return MaskedNode(node, masks[node.name], [masks[value.name] for value in _data(graph, node)], constants)


def _data(graph: Graph, node: Node) -> list[Node]:
    """Return the operands that are no constants, each as often as it is read."""
    return [graph.node(name) for name in node.inputs if name not in graph.constants]


def _count(masks: Mapping[str, Mask]) -> int:
    return sum(int(axis.sum()) for mask in masks.values() for axis in mask)


def _fill(mask: Mask) -> None:
    for axis in mask:
        axis[:] = True


def _share(left: np.ndarray, right: np.ndarray) -> None:
    """Let two axes, or parts of them, need the same places."""
    either = left | right
    left[:], right[:] = either, either


def _round_up(place: MaskedNode) -> None:
    """Keep some channels that nobody needs, so that engines divide their number as they did before."""
    if isinstance(place.node.op, Linear | Conv2d) and is_needed(place.result):
        channels = place.result[0]
        most = max(MOST_PRIME, greatest_prime(channels.size))
        _keep(
            channels,
            next(count for count in range(int(channels.sum()), channels.size + 1) if greatest_prime(count) <= most),
        )
    elif isinstance(place.node.op, Concat) and place.node.op.axis == 0:
        parts = [operand[0] for operand in place.operands if is_needed(operand)]
        for channels in parts if len(parts) > 1 else ():
            step = math.gcd(channels.size, MOST_LANES)
            _keep(channels, -(-int(channels.sum()) // step) * step)


def greatest_prime(number: int) -> int:
    """Return the greatest prime factor of a number; 1 of 1."""
    factor, greatest = 2, 1
    while number > 1:
        if number % factor:
            factor += 1
        else:
            number, greatest = number // factor, factor
    return greatest


def _keep(channels: np.ndarray, count: int) -> None:
    """Keep so many channels in all: the first ones that nobody needs."""
    channels[np.flatnonzero(~channels)[: count - int(channels.sum())]] = True


def _whole(op: Op, place: MaskedNode) -> None:
    """Need all of an op whose parts are not told apart."""
    if is_needed(place.result):
        for mask in (place.result, *place.operands):
            _fill(mask)


def _elementwise(op: Op, place: MaskedNode) -> None:
    """Keep of the operands what the result has; the other way round, where the operand has more."""
    if is_needed(place.result):
        for operand in place.operands:
            for own, other in zip(place.result, operand, strict=True):
                _share(own, other)


def _repeated(op: Product, place: MaskedNode) -> None:
    """Do as `_elementwise`; of an axis that is repeated, need its one place."""
    if is_needed(place.result):
        for operand in place.operands:
            for own, other in zip(place.result, operand, strict=True):
                if own.size == other.size:
                    _share(own, other)
                else:
                    other[:] = True


def _extreme(op: Op, place: MaskedNode) -> None:
    """Do as `_elementwise` for integers; floats are needed whole, for their constants have places, too."""
    (_elementwise if place.node.type.is_int else _whole)(op, place)


def _channelwise(op: Op, place: MaskedNode) -> None:
    """Need whole maps of some channels, the same in operand and result."""
    if is_needed(place.result):
        for axis in (*place.result[1:], *place.operands[0][1:]):
            axis[:] = True
        _share(place.result[0], place.operands[0][0])


def _product(op: Op, place: MaskedNode) -> None:
    """Need those inputs that have a weight other than 0 for some output that is needed; at least one."""
    if not is_needed(place.result):
        return
    if isinstance(op, Conv2d) and op.groups > 1:
        _grouped(op, place)
        return
    weight, operand = place.constants[0], place.operands[0]
    for axis in (*place.result[1:], *operand[1:]):
        axis[:] = True
    read = weight.reshape(*weight.shape[:2], -1)[place.result[0]].any(axis=(0, 2))
    operand[0][:] |= read
    if not operand[0].any():
        operand[0][0] = True


def _grouped(op: Conv2d, place: MaskedNode) -> None:
    """Depthwise convolutions keep channels; of other groups all stay, as their number and widths belong together."""
    if op.groups == place.operands[0][0].size == place.result[0].size:
        _channelwise(op, place)
    else:
        _whole(op, place)


def _concat(op: Concat, place: MaskedNode) -> None:
    """Need the parts of the operands that the result has."""
    if not is_needed(place.result):
        return
    start = 0
    for operand in place.operands:
        size = operand[op.axis].size
        part = place.result[op.axis][start : start + size]
        start += size
        if part.any():
            for number, (own, other) in enumerate(zip(place.result, operand, strict=True)):
                _share(part if number == op.axis else own, other)


def _slice(op: Slice, place: MaskedNode) -> None:
    """Need of the operand what the result has, and the other way round."""
    if is_needed(place.result):
        for number, (own, other) in enumerate(zip(place.result, place.operands[0], strict=True)):
            _share(own, other[op.start : op.stop] if number == op.axis else other)


def _permute(op: Permute, place: MaskedNode) -> None:
    """Need the same places in another order of axes."""
    if is_needed(place.result):
        for own, axis in zip(place.result, op.axes, strict=True):
            _share(own, place.operands[0][axis])


def _flatten(op: Flatten, place: MaskedNode) -> None:
    """Need whole boxes of the operand: a channel goes if none of its elements is needed."""
    if not is_needed(place.result):
        return
    operand, own = place.operands[0], place.result[0]
    wanted = own.reshape([axis.size for axis in operand])
    for number, axis in enumerate(operand):
        axis |= wanted.any(axis=tuple(other for other in range(wanted.ndim) if other != number))
    box = np.ones((1,), bool)
    for axis in operand:
        box = np.multiply.outer(box, axis)
    own[:] = box.reshape(-1)


_Rule = Callable[[Any, MaskedNode], None]
_RULES: dict[type[Op], _Rule] = {
    Linear: _product,
    Conv2d: _product,
    Threshold: _elementwise,
    StepTable: _elementwise,
    Rescale: _elementwise,
    WeightedSum: _elementwise,
    Minimum: _extreme,
    Maximum: _extreme,
    Product: _repeated,
    MaxPool2d: _channelwise,
    SumPool2d: _channelwise,
    Pad: _channelwise,
    Upsample: _channelwise,
    Concat: _concat,
    Slice: _slice,
    Permute: _permute,
    Flatten: _flatten,
}
