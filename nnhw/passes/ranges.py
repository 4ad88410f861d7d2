"""What each element of a value is at least and at most, for every input: intervals through the integer ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    Reshape,
    Slice,
    StepTable,
    SumPool2d,
    Threshold,
    Upsample,
    WeightedSum,
)

Interval = tuple[np.ndarray, np.ndarray]
"""Least and greatest value of each element, int64 [1, *shape]; what lies between them need not occur."""


def element_ranges(graph: Graph) -> dict[str, Interval]:
    """Return the interval of each integer value, by name.

    A value that is computed from floats, and an input, has the range of its type. All others follow from what their
    operands can be, element by element, so that borders, zero weights and saturated codes are seen.
    """
    found: dict[str, Interval] = {}
    for node in graph.nodes:
        if not node.type.is_int or node.name in graph.constants:
            continue
        data = graph.data_inputs(node)
        rule = _RULES.get(type(node.op))
        if rule is None or not data or any(operand.name not in found for operand in data):
            kind = node.type.int_dtype
            found[node.name] = np.full((1, *node.type.shape), kind.low), np.full((1, *node.type.shape), kind.high)
        else:
            constants = [graph.constants[name] for name in node.inputs if name in graph.constants]
            found[node.name] = rule(node.op, [found[operand] for operand in _data_names(graph, node)], constants)
    return found


def is_constant(interval: Interval) -> bool:
    """Return whether a value is the same for every input."""
    return bool((interval[0] == interval[1]).all())


def constant_values(graph: Graph, ranges: Mapping[str, Interval] | None = None) -> dict[str, np.ndarray]:
    """Return the integer values [1, *shape], by node, that are the same for every input."""
    known = element_ranges(graph) if ranges is None else ranges
    return {name: interval[0] for name, interval in known.items() if is_constant(interval)}


def _data_names(graph: Graph, node: Node) -> list[str]:
    return [name for name in node.inputs if name not in graph.constants]


def _product(op: Op, data: list[Interval], constants: list[np.ndarray]) -> Interval:
    """Products with weights: positive ones take an end as it is, negative ones the other end."""
    (low, high), (weight,) = data[0], constants
    rising, falling = np.maximum(weight, 0), np.minimum(weight, 0)
    least = op.evaluate(low, rising) + op.evaluate(high, falling)
    return least, op.evaluate(high, rising) + op.evaluate(low, falling)


def _weighted_sum(op: Op, data: list[Interval], _: list[np.ndarray]) -> Interval:
    assert isinstance(op, WeightedSum)
    ends = [(low, high) if factor > 0 else (high, low) for (low, high), factor in zip(data, op.factors, strict=True)]
    return op.evaluate(*(end[0] for end in ends)), op.evaluate(*(end[1] for end in ends))


def _corners(op: Op, data: list[Interval], _: list[np.ndarray]) -> Interval:
    """Products of two values: an end of one times an end of the other."""
    corners = np.stack([op.evaluate(left, right) for left in data[0] for right in data[1]])
    return corners.min(axis=0), corners.max(axis=0)


def _monotone(op: Op, data: list[Interval], constants: list[np.ndarray]) -> Interval:
    """An op that never falls in any operand."""
    low, high = (op.evaluate(*(interval[end] for interval in data), *constants) for end in (0, 1))
    return low, high


def _either_way(op: Op, data: list[Interval], constants: list[np.ndarray]) -> Interval:
    """An op that rises in some channels and falls in others."""
    low, high = _monotone(op, data, constants)
    return np.minimum(low, high), np.maximum(low, high)


def _step_table(op: Op, data: list[Interval], constants: list[np.ndarray]) -> Interval:
    """Codes of a table: the least and the greatest between the steps that both ends reach."""
    (low, high), (thresholds, codes) = data[0], constants
    first, last = _reached(thresholds, low), _reached(thresholds, high)
    spread = (-1,) + (1,) * (low.ndim - 2)
    least = most = codes[np.arange(len(codes)).reshape(spread), first]
    for step in range(codes.shape[1]):
        column = codes[:, step].reshape(spread)
        inside = (first <= step) & (step <= last)
        least = np.where(inside, np.minimum(least, column), least)
        most = np.where(inside, np.maximum(most, column), most)
    return least, most


def _reached(thresholds: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return how many thresholds of its channel are at most each of the values [1, channels, ..]."""
    columns = [np.searchsorted(row, values[0, channel], side="right") for channel, row in enumerate(thresholds)]
    return np.stack(columns)[None]


_Rule = Callable[[Any, list[Interval], list[np.ndarray]], Interval]
_RULES: dict[type[Op], _Rule] = {
    Linear: _product,
    Conv2d: _product,
    WeightedSum: _weighted_sum,
    Product: _corners,
    Threshold: _either_way,
    StepTable: _step_table,
    **dict.fromkeys(
        (
            *(Rescale, MaxPool2d, SumPool2d, Minimum, Maximum),
            *(Pad, Upsample, Concat, Flatten, Reshape, Permute, Slice),
        ),
        _monotone,
    ),
}
