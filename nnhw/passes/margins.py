"""Margins: whether the last bits of functions such as tanh can change a code of a region.

A function such as tanh comes out with other last bits in PyTorch than here, and may fall by some of them where it rises
(`Op.waver` has a bound w). So each value is followed as an interval: an op's results at both ends of its operand, and
at turns between, widened by 2 w on both sides. An interval decides if the code of both ends is the same.

Why twice w: let f rise, and let the interval at the sum s decide for a code. Each f(t) with t <= s is at most f(s), and
its computed value at most f(s) + w; the interval goes to the computed f(s) + 2 w >= f(s) + w. So no computed value
below s reaches a higher code, whatever its last bits are; the same holds above s, and where f falls. All further ops
are one IEEE operation each, or widened again. Hence two sums of one piece that decide for one code decide for all
between.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from nnhw.errors import LoweringError
from nnhw.ir import IntType, Node
from nnhw.ir.ops import Op, Quantize

from .regions import CHUNK, Region

IN_A_ROW = 3
"""Where the codes of so many consecutive sums depend on last bits, these are no single ties: the function is flat."""
Interval = tuple[np.ndarray, np.ndarray]
"""Least and greatest value, arrays of one shape."""


class Margins:
    """Evaluates a region in intervals that hold whatever last bits its functions may have."""

    def __init__(self, region: Region, columns: np.ndarray | None = None) -> None:
        """Evaluate columns of these classes, int [columns]; by default each class of the region once."""
        self._region = region
        self._graph = region.flat([region.quantizer.name])
        self._columns = np.arange(len(region.classes[0])) if columns is None else columns

    @property
    def exact(self) -> bool:
        """Whether each op of the region is exact in its direction, in all last bits."""
        return not any(_wavers(node.op) for node in self._region.nodes)

    def codes(self, *values: np.ndarray, library: bool = False) -> Interval:
        """Return the least and the greatest code that last bits may lead to, int64 [N, columns] each.

        Parameters
        ----------
        values: integers of each source, [N] or [N, columns].
        library: widen the results only of functions that PyTorch may compute with other last bits.
        """
        rows = max(CHUNK // len(self._columns), 1)
        spread = [array if array.ndim == 2 else array[:, np.newaxis] for array in values]
        parts = [
            self._codes([array[start : start + rows] for array in spread], library)
            for start in range(0, len(spread[0]), rows)
        ]
        least, greatest = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return least, greatest

    @property
    def library(self) -> list[Node]:
        """The nodes that PyTorch may compute with other last bits."""
        return [node for node in self._region.nodes if node.op.from_library]

    def undecided(self, *values: np.ndarray) -> np.ndarray:
        """Return where PyTorch may take another code, bool [N, columns]."""
        least, greatest = self.codes(*values, library=True)
        result: np.ndarray = least != greatest
        return result

    def check_around(self, places: np.ndarray, sums: IntType) -> None:
        """Apply `check_rows` to the `2 * IN_A_ROW` sums around each place, int64 [N, columns].

        Raises: LoweringError that names the functions.
        """
        if not self.library:
            return
        around = places + np.arange(-IN_A_ROW, IN_A_ROW).reshape(-1, 1, 1)
        inside = (around >= sums.low) & (around <= sums.high)
        torn = self.undecided(around.clip(sums.low, sums.high).reshape(-1, places.shape[1]))
        self.check_rows(torn.reshape(around.shape) & inside, 0)

    def check_rows(self, torn: np.ndarray, *axes: int) -> None:
        """Check that codes do not depend on last bits, but for single ties.

        Parameters
        ----------
        torn: bool, where PyTorch may take another code.
        axes: the axes of consecutive sums, along which no three neighbours may be torn. Of signs no sum may be.

        Raises: LoweringError that names the functions.
        """
        rows = [np.moveaxis(torn, axis, 0) for axis in axes]
        flat = any((row[:-2] & row[1:-1] & row[2:]).any() for row in rows)
        if flat or (self._region.codes.bipolar and torn.any()):
            raise LoweringError(_undecided(self._region, self.library))

    def _codes(self, values: Sequence[np.ndarray], library: bool) -> Interval:
        found: dict[str, Interval] = {}
        for name, constant in self._graph.constants.items():
            array = constant[self._columns] if constant.ndim else constant
            found[name] = array, array
        for node, array in zip(self._graph.inputs, values, strict=True):
            wide = np.broadcast_to(array, (len(array), len(self._columns)))
            found[node.name] = wide, wide
        for node in self._graph.nodes:
            if node.name not in found:
                found[node.name] = _interval(node, found, library)
        return found[self._graph.outputs[0]]


def _wavers(op: Op) -> bool:
    return type(op).waver is not Op.waver


def _interval(node: Node, found: Mapping[str, Interval], library: bool) -> Interval:
    operands = [found[name] for name in node.inputs]
    if isinstance(node.op, Quantize):
        # NaN, such as of infinity minus infinity, may be any code: the interval gets both ends.
        operands[0] = np.nan_to_num(operands[0][0], nan=-np.inf), np.nan_to_num(operands[0][1], nan=np.inf)
    with np.errstate(all="ignore"):
        results = [_around(node.op, point, library) for point in _points(node.op, operands)]
    if len(results) == 1:
        return results[0]
    lows, highs = zip(*results, strict=True)
    return np.minimum.reduce(lows), np.maximum.reduce(highs)


def _points(op: Op, operands: Sequence[Interval]) -> list[tuple[np.ndarray, ...]]:
    """Return operands among whose results are the least and the greatest: all corners, and turns between two ends."""
    points = list(itertools.product(*((low,) if low is high else (low, high) for low, high in operands)))
    if len(points) > 1:
        low, high = operands[0]
        for turn in op.turns():
            points += [(np.clip(place, low, high),) for place in (turn, np.nextafter(turn, np.inf))]
    return points


def _around(op: Op, point: tuple[np.ndarray, ...], library: bool) -> Interval:
    """Return the interval of a result: 2 w to both sides, but no further than 0 and the op's limits."""
    result = op.evaluate(*point)
    bound = op.waver(point[0], result) if op.from_library or not library else None
    if bound is None:
        return result, result
    least, most = op.limits()
    low = np.maximum(result - 2.0 * bound, least)
    high = np.minimum(result + 2.0 * bound, most)
    # Last bits carry no result across 0: the interval of a negative result ends there, that of any other begins there.
    negative = np.signbit(result)
    return np.where(negative, low, np.maximum(low, 0.0)), np.where(negative, np.minimum(high, 0.0), high)


def _undecided(region: Region, nodes: Sequence[Node]) -> str:
    remedy = "choose a scale with other, or wider, steps"
    if region.codes.bipolar:
        remedy = "leave the function out, or put a quantizer of two or more bits, or ReLU or hardtanh, in its place"
    sources, functions = (" and ".join(map(str, some)) for some in (region.sources, nodes))
    return (
        f"{region.quantizer} takes its code from the last bits of {functions} for some values of {sources}: "
        f"they lie closer to the step between two codes than PyTorch is exact, whose last bits depend on the machine. "
        f"Either the function tends to a limit that lies on the step, or the scale is too fine; {remedy}"
    )
