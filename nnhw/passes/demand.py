"""Demand analysis: which channels, rows and columns of each value some result depends on. `drop_unread` cuts the rest.

The needed part of a value is a box: a set of places along each axis. Starting from the results, boxes grow until all
ops are consistent: an op needs the operands of what it computes, and an elementwise op needs equal boxes of operand and
result, since neither can have elements that the other lacks.
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
"""The needed places of a value: for each axis bool [size]."""
MOST_PRIME = 7
"""Greatest prime factor that a layer's number of channels may get, unless it had a greater one before. The cells of an
engine are a divisor of its channels, so 61 channels, which only 1 and 61 cells divide, would take longer than 63."""
MOST_LANES = 64
"""Parts of a concatenation have to begin at a multiple of the lanes of a shared engine, a power of two. A part whose
size is a multiple of such a power stays one, up to this power."""


@dataclass
class MaskedNode:
    """A node and the masks that its rule may extend, in place.

    Parameters
    ----------
    node: the node.
    result: mask of the node's value.
    operands: mask of each operand that is not a constant, in the node's order.
    constants: the node's constants, in its order.
    """

    node: Node
    result: Mask
    operands: list[Mask]
    constants: list[np.ndarray]


def demanded(graph: Graph) -> dict[str, Mask]:
    """Return the mask of each value that is not a constant, by name; that of an unneeded value is False everywhere.

    Inputs and outputs of the graph are needed whole, and so are float values that are needed at all.
    """
    masks = {node.name: [np.zeros(size, bool) for size in node.type.shape] for node in graph.nodes}
    for name in (*graph.outputs, *(node.name for node in graph.inputs)):
        _fill(masks[name])
    places = [_place(graph, node, masks) for node in graph.nodes if node.name not in graph.constants]
    before = -1
    # Masks only grow, so the same count twice is a fixed point. Sizes are rounded up only then: it may need further
    # operands, and then the loop goes on.
    while before != (before := _count(masks)):
        # From the results backwards, so that most demands arrive in one round.
        for place in reversed(places):
            _RULES.get(type(place.node.op), _whole)(place.node.op, place)
        if before == _count(masks):
            for place in places:
                _round_up(place)
    return {place.node.name: place.result for place in places}


def is_needed(mask: Mask) -> bool:
    """Return whether any element of a value is needed; a scalar, which has no axes, always is."""
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
    """Let two axes, or views of parts of them, need the same places, in place."""
    either = left | right
    left[:], right[:] = either, either


def _round_up(place: MaskedNode) -> None:
    """Keep some unneeded channels so that their number still has small factors; see `MOST_PRIME`, `MOST_LANES`."""
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
    """Extend a mask to `count` channels, by the first ones that nobody needs."""
    channels[np.flatnonzero(~channels)[: count - int(channels.sum())]] = True


def _whole(op: Op, place: MaskedNode) -> None:
    """Rule of ops without a rule of their own: whole operands for a whole result."""
    if is_needed(place.result):
        for mask in (place.result, *place.operands):
            _fill(mask)


def _elementwise(op: Op, place: MaskedNode) -> None:
    """Rule of elementwise ops: the same places of result and operands."""
    if is_needed(place.result):
        for operand in place.operands:
            for own, other in zip(place.result, operand, strict=True):
                _share(own, other)


def _repeated(op: Product, place: MaskedNode) -> None:
    """Rule of products: as `_elementwise`; along an axis that is repeated, the operand's one place is needed."""
    if is_needed(place.result):
        for operand in place.operands:
            for own, other in zip(place.result, operand, strict=True):
                if own.size == other.size:
                    _share(own, other)
                else:
                    other[:] = True


def _extreme(op: Op, place: MaskedNode) -> None:
    """Rule of maximum and minimum: `_elementwise` for integers; float ones may have constants, which are not cut."""
    (_elementwise if place.node.type.is_int else _whole)(op, place)


def _channelwise(op: Op, place: MaskedNode) -> None:
    """Rule of ops that keep channels apart, such as pools: the same channels of both, each with its whole map."""
    if is_needed(place.result):
        for axis in (*place.result[1:], *place.operands[0][1:]):
            axis[:] = True
        _share(place.result[0], place.operands[0][0])


def _product(op: Op, place: MaskedNode) -> None:
    """Rule of layers: the inputs that have a weight other than 0 for some needed output, and at least one input."""
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
    # A layer without inputs could not be built; one input keeps a layer whose weights are all 0.
    if not operand[0].any():
        operand[0][0] = True


def _grouped(op: Conv2d, place: MaskedNode) -> None:
    """Rule of grouped convolutions: depthwise ones are channelwise; others are whole, as all groups have one size."""
    if op.groups == place.operands[0][0].size == place.result[0].size:
        _channelwise(op, place)
    else:
        _whole(op, place)


def _concat(op: Concat, place: MaskedNode) -> None:
    """Rule of concatenations: each operand needs the places of its part of the result."""
    if not is_needed(place.result):
        return
    start = 0
    for operand in place.operands:
        size = operand[op.axis].size
        # A view, so that `_share` writes into the mask of the result.
        part = place.result[op.axis][start : start + size]
        start += size
        if part.any():
            for number, (own, other) in enumerate(zip(place.result, operand, strict=True)):
                _share(part if number == op.axis else own, other)


def _slice(op: Slice, place: MaskedNode) -> None:
    """Rule of slices: the same places of the result and of that part of the operand."""
    if is_needed(place.result):
        for number, (own, other) in enumerate(zip(place.result, place.operands[0], strict=True)):
            _share(own, other[op.start : op.stop] if number == op.axis else other)


def _permute(op: Permute, place: MaskedNode) -> None:
    """Rule of permutations: the same places, axis by axis."""
    if is_needed(place.result):
        for own, axis in zip(place.result, op.axes, strict=True):
            _share(own, place.operands[0][axis])


def _flatten(op: Flatten, place: MaskedNode) -> None:
    """Rule of flattening: the smallest box of the operand that holds all needed elements, and all elements in it."""
    if not is_needed(place.result):
        return
    operand, own = place.operands[0], place.result[0]
    # A channel, row or column is dropped only if none of its elements is needed.
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
