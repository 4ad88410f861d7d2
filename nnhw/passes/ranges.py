"""Range analysis: an interval for each element of each integer value, which holds it for every input of the model."""

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
"""Lower and upper bound of each element, int64 [1, *shape] each."""


def element_ranges(graph: Graph) -> dict[str, Interval]:
    """Return the interval of each integer value that is no constant, by name.

    Inputs and values computed from floats have the range of their type. All others follow from the intervals of their
    operands, element by element, so that borders, zero weights and saturated codes are seen.
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
    """Return the integer values that are the same for every input of the model, int64 [1, *shape] by node name."""
    known = element_ranges(graph) if ranges is None else ranges
    return {name: interval[0] for name, interval in known.items() if is_constant(interval)}


def _data_names(graph: Graph, node: Node) -> list[str]:
    return [name for name in node.inputs if name not in graph.constants]


def _product(op: Op, data: list[Interval], constants: list[np.ndarray]) -> Interval:
    """Rule of layers: for the least sum, positive weights multiply the low ends, and negative weights the high ends."""
    (low, high), (weight,) = data[0], constants
    rising, falling = np.maximum(weight, 0), np.minimum(weight, 0)
    least = op.evaluate(low, rising) + op.evaluate(high, falling)
    return least, op.evaluate(high, rising) + op.evaluate(low, falling)


def _weighted_sum(op: Op, data: list[Interval], _: list[np.ndarray]) -> Interval:
    assert isinstance(op, WeightedSum)
    ends = [(low, high) if factor > 0 else (high, low) for (low, high), factor in zip(data, op.factors, strict=True)]
    return op.evaluate(*(end[0] for end in ends)), op.evaluate(*(end[1] for end in ends))


def _corners(op: Op, data: list[Interval], _: list[np.ndarray]) -> Interval:
    """Rule of products of two values: the extremes are products of two ends."""
    corners = np.stack([op.evaluate(left, right) for left in data[0] for right in data[1]])
    return corners.min(axis=0), corners.max(axis=0)


def _monotone(op: Op, data: list[Interval], constants: list[np.ndarray]) -> Interval:
    """Rule of ops that never fall in any operand."""
    low, high = (op.evaluate(*(interval[end] for interval in data), *constants) for end in (0, 1))
    return low, high


def _either_way(op: Op, data: list[Interval], constants: list[np.ndarray]) -> Interval:
    """Rule of ops that rise in some channels and fall in others."""
    low, high = _monotone(op, data, constants)
    return np.minimum(low, high), np.maximum(low, high)


def _step_table(op: Op, data: list[Interval], constants: list[np.ndarray]) -> Interval:
    """Rule of tables: the least and the greatest code between the steps that both ends reach."""
    (low, high), (thresholds, codes) = data[0], constants
    first, last = _reached(thresholds, low), _reached(thresholds, high)
    spread = (-1,) + (1,) * (low.ndim - 2)
    # A table may rise and fall, so the codes of both ends are not enough.
    least = most = codes[np.arange(len(codes)).reshape(spread), first]
    for step in range(codes.shape[1]):
        column = codes[:, step].reshape(spread)
        inside = (first <= step) & (step <= last)
        least = np.where(inside, np.minimum(least, column), least)
        most = np.where(inside, np.maximum(most, column), most)
    return least, most


def _reached(thresholds: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return, for values [1, channels, ..], how many thresholds of its channel each value reaches."""
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
