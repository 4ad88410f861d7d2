"""Rounding noise: bounds on how far rounding, in any order of sums, can move each value of a graph.

It tells a true difference between two evaluations of a model from one that rounding explains.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np

from .graph import Graph, Node
from .ops import (
    AsSteps,
    BatchNorm,
    Constant,
    Conv2d,
    Dequantize,
    FixedSoftmax,
    Greater,
    GreaterEqual,
    LastStep,
    Linear,
    LogSoftmax,
    MatrixProduct,
    Op,
    Quantize,
    Rescale,
    ReverseSteps,
    Scan,
    Sign,
    Softmax,
    SumPool2d,
    WeightedSum,
    Where,
)
from .ops.base import along_shape
from .ops.elementwise import Binary

_OWN_ROUNDINGS = 8
"""Roundings of one op at most: the operations of its formula, and the error of a library function in it."""
_MOVED = ("max_pool2d", "pad", "upsample", "concat", "flatten", "reshape", "permute", "slice")
"""Ops that only move elements, so that bounds move in the same way."""

_HALF = 0.5
_EXACT = (Greater, GreaterEqual, Sign)
"""Ops whose results are a few whole numbers, which nothing rounds."""

Values = Mapping[str, np.ndarray]


def rounding_noise(graph: Graph, values: Values, unit_roundoff: float) -> dict[str, np.ndarray]:
    """Bound the distance of each float value from the exact one if every operation is rounded.

    A running error analysis: a sum of n terms is off by at most n roundings of the sum of magnitudes, whatever the
    order of the terms; other ops pass the bounds of their operands on, and add their own roundings. The codes of
    quantizers count as exact, so bounds start from 0 behind each quantizer.

    Parameters
    ----------
    values: arrays [N, *shape] of all nodes but constants, for the same images; of sequences, the steps are images
        (`folded`). Bodies of loops are analysed separately, as graphs.
    unit_roundoff: greatest relative error of one rounding: 2**-53 for float64, 2**-24 for float32.

    Returns
    -------
    For each float node, by name, the greatest distance, an array like its value; infinite where no bound is known. Also
    for integers in front of a rescale, which other evaluations hold as floats: 0 where none of their sums is rounded.

    Source
    ------
    Higham, "Accuracy and Stability of Numerical Algorithms", 2002, chapters 3 and 4.
    """
    analysis = _Analysis(graph, values, unit_roundoff)
    # Bounds may become infinite or NaN on their way, which is handled where they are stored.
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            analysis.visit(node)
    return analysis.bounds


class _Analysis:
    def __init__(self, graph: Graph, values: Values, unit_roundoff: float) -> None:
        self._graph = graph
        self._values = {**values, **graph.constants}
        self._roundoff = unit_roundoff
        # One unit for all ops: that of the longest sum, which is more than enough for the others.
        self._unit = unit_roundoff * (_OWN_ROUNDINGS + _longest_sum(graph))
        self._magnitudes: dict[str, np.ndarray] = {}
        self.bounds: dict[str, np.ndarray] = {}

    def visit(self, node: Node) -> None:
        """Bound one value; of an integer, note its magnitude: the sum of the magnitudes of its terms."""
        if node.type.is_int:
            self._magnitudes[node.name] = self._magnitude(node)
            if isinstance(node.op, Rescale):
                size = self._magnitudes[node.inputs[0]]
                # A float holds all integers up to 1 / roundoff exactly, so smaller sums are never rounded.
                self.bounds[node.inputs[0]] = np.where(size * self._roundoff <= 1, 0, np.floor(self._unit * size))
            return
        if isinstance(node.op, Constant):
            self.bounds[node.name] = self._unit * np.abs(self._values[node.name])
        elif not node.inputs:
            self.bounds[node.name] = np.zeros_like(self._values[node.name])
        else:
            bound = self._bound(node)
            # NaN, such as infinity minus infinity, bounds nothing.
            self.bounds[node.name] = np.where(np.isnan(bound), np.inf, bound)

    def _magnitude(self, node: Node) -> np.ndarray:
        value = np.abs(self._values[node.name])
        if isinstance(node.op, Linear | Conv2d | MatrixProduct | SumPool2d) or node.op.name in _MOVED:
            # The same op on magnitudes adds the magnitudes of all terms, so that nothing cancels.
            inputs = [self._magnitudes[name] for name in node.inputs]
            return node.op.evaluate(*inputs)
        if isinstance(node.op, WeightedSum):
            sizes = WeightedSum(tuple(map(abs, node.op.factors)))
            return sizes.evaluate(*(self._magnitudes[name] for name in node.inputs))
        return value

    def _bound(self, node: Node) -> np.ndarray:
        op, inputs = node.op, [self._values[name] for name in node.inputs]
        if isinstance(op, Dequantize):
            scaled: np.ndarray = self._unit * op.evaluate(self._magnitudes[node.inputs[0]], inputs[1])
            return scaled
        if isinstance(op, FixedSoftmax):
            # It is a function of codes, which are exact.
            return np.zeros_like(self._values[node.name])
        # The values in its body are bounded as a graph of its own; what a whole loop adds up is not.
        if isinstance(op, Scan):
            return np.full_like(self._values[node.name], np.inf)
        errors = [self.bounds[name] for name in node.inputs]
        if isinstance(op, LastStep | AsSteps | ReverseSteps):
            return self._of_steps(node, errors[0])
        if op.name in _MOVED:
            return op.evaluate(*errors)
        if isinstance(op, Softmax | LogSoftmax):
            return self._along_axis(op, inputs[0], errors[0])
        if isinstance(op, BatchNorm):
            return self._batch_norm(op, inputs, errors[0])
        return self._of_elements(op, inputs, errors)

    def _of_elements(self, op: Op, inputs: list[np.ndarray], errors: list[np.ndarray]) -> np.ndarray:
        """Bound a function of single elements."""
        if isinstance(op, Where):
            # A condition is 0 or 1, and undecided where its bound reaches halfway.
            errors = [np.where(errors[0] < _HALF, 0.0, errors[0]), *errors[1:]]
        carried = _carried(op, inputs, errors)
        if isinstance(op, _EXACT):
            return carried
        sized = inputs if isinstance(op, Binary) else inputs[:1]
        return carried + self._unit * _size(op.evaluate(*inputs), *sized)

    def _of_steps(self, node: Node, error: np.ndarray) -> np.ndarray:
        """Bound the steps of a sequence, which are folded into the batch."""
        if isinstance(node.op, LastStep):
            last: np.ndarray = error.reshape(len(self._values[node.name]), -1, *node.type.shape)[:, -1]
            return last
        if isinstance(node.op, AsSteps):
            return error.reshape(self._values[node.name].shape)
        # The order of steps is not known here: take the greatest bound for all.
        return np.full_like(error, error.max())

    def _along_axis(self, op: Softmax | LogSoftmax, x: np.ndarray, error: np.ndarray) -> np.ndarray:
        # If each x is off by e at most, numerator and sum change by factors of at most exp(e): a share by exp(2 e).
        axis = op.axis + 1
        moved = 2 * error.max(axis=axis, keepdims=True) + self._unit * (1 + 2 * np.abs(x).max(axis=axis, keepdims=True))
        result = op.evaluate(x)
        grown: np.ndarray = np.expm1(moved) * result if isinstance(op, Softmax) else moved + self._unit * np.abs(result)
        return grown

    def _batch_norm(self, op: BatchNorm, inputs: list[np.ndarray], error: np.ndarray) -> np.ndarray:
        x, weight, bias, mean, variance = inputs
        channels = (-1,) + (1,) * (x.ndim - 2)
        alpha = np.abs(weight / np.sqrt(variance + op.eps))
        shift = np.abs(bias) + np.abs(mean) * alpha
        moved: np.ndarray = error + self._unit * np.abs(x)
        return moved * alpha.reshape(channels) + self._unit * shift.reshape(channels)


def _longest_sum(graph: Graph) -> int:
    """Return the number of terms of the longest sum in a graph."""
    lengths = [1]
    for node in graph.nodes:
        if isinstance(node.op, Linear | Conv2d):
            lengths.append(math.prod(graph.node(node.inputs[1]).type.shape[1:]) + 1)
        elif isinstance(node.op, MatrixProduct):
            lengths.append(node.op.sides(graph.node(node.inputs[0]).type.shape, node.op.transpose_left)[1])
        elif isinstance(node.op, SumPool2d):
            lengths.append(math.prod(node.op.kernel))
    return max(lengths)


def _carried(op: Op, inputs: list[np.ndarray], errors: list[np.ndarray]) -> np.ndarray:
    """Return how far a result moves if each operand moves by up to its error.

    Only the corners are evaluated: ops are monotone on so short a way.
    """
    result = op.evaluate(*inputs)
    rank = max(array.ndim for array in inputs) - 1
    spread = [along_shape(error, rank) if error.ndim <= rank else error for error in errors]
    operands = [along_shape(array, rank) if array.ndim <= rank else array for array in inputs]
    moved = np.zeros_like(result)
    for signs in itertools.product((-1.0, 1.0), repeat=len(inputs)):
        corner = [array + sign * error for array, sign, error in zip(operands, signs, spread, strict=True)]
        moved = np.maximum(moved, np.abs(op.evaluate(*corner) - result))
    return moved


def _size(*arrays: np.ndarray) -> np.ndarray:
    """Return the sum of the magnitudes of a result (the first array) and of its operands."""
    rank = arrays[0].ndim - 1
    total = np.abs(arrays[0])
    for array in arrays[1:]:
        total = total + np.abs(along_shape(array, rank) if array.ndim <= rank else array)
    return total


def decided(node: Node, inputs: list[np.ndarray], error: np.ndarray, unit_roundoff: float) -> tuple[np.ndarray, ...]:
    """Return the least and the greatest code that a quantizer or rescale can give if its operand is off by `error`.

    Parameters
    ----------
    inputs: its operands. error: bound on the first one, see `rounding_noise`; both for the same images.
    """
    if isinstance(node.op, Rescale):
        reach = error.astype(np.int64)
        ends = [node.op.evaluate(inputs[0] + side, *inputs[1:]) for side in (-reach, reach)]
        # What a float cannot hold of the result: 0 unless it has more bits than a float's significand.
        unheld = np.floor(np.abs(ends) * unit_roundoff).astype(np.int64)
        return ends[0] - unheld[0], ends[1] + unheld[1]
    assert isinstance(node.op, Quantize)
    x, scale = inputs
    # The sum with an offset is rounded, too.
    size = np.abs(x) + abs(node.op.offset) * along_shape(scale, x.ndim - 1)
    reach = error + _OWN_ROUNDINGS * unit_roundoff * size
    return node.op.evaluate(x - reach, scale), node.op.evaluate(x + reach, scale)
