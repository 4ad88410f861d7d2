"""Reorderings of a stream as a sequence of steps, in each of which two neighbouring loops over the elements swap."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import combinations
from math import prod

from nnhw.ir import Op
from nnhw.ir.ops import Flatten, Permute, Reshape
from nnhw.mapping.layers import Loops

Digit = tuple[str, int]
"""One loop over elements: its name and its count. A digit may be divided; names of its parts begin with its name."""
Digits = list[Digit]
"""Nested loops, the outermost first."""


def transposes(shape: tuple[int, ...], ops: Sequence[Op]) -> list[Loops]:
    """Return the steps that bring the stream of a tensor into the stream order of the tensor behind reordering ops.

    The index of an element is a number with several digits, one for each axis. A permutation moves digits; a reshape
    groups them to other axes, and divides a digit whose axis begins within it. If an axis begins at no such place, the
    steps of the ops so far are made first, and all elements are one digit from there on.

    Parameters
    ----------
    shape: shape of the tensor that streams; it streams pixel by pixel, channels innermost.
    ops: `flatten`, `reshape` and `permute` in order.

    Returns
    -------
    Loop counts (outer, rows, columns, run) of each step, in order: rows and columns swap. Empty if the order stays.
    """
    steps: list[Loops] = []
    axes: list[Digits] = [[(f"{axis}:", size)] for axis, size in enumerate(shape)]
    stream = _streamed(axes)
    for op in ops:
        if isinstance(op, Permute):
            axes = [axes[axis] for axis in op.axes]
            continue
        assert isinstance(op, Flatten | Reshape)
        flat = [digit for axis in axes for digit in axis]
        sizes = op.shape if isinstance(op, Reshape) else (prod(count for _, count in flat),)
        divided = _divided(flat, sizes)
        if divided is None:
            steps += _steps(stream, flat)
            stream = [("all", prod(sizes))]
            divided = _divided(stream, sizes)
            assert divided is not None
        axes = divided
        parts = [digit for axis in axes for digit in axis]
        # Digits that the reshape has divided are divided in the stream's order, too.
        stream = [part for name, _ in stream for part in parts if part[0].startswith(name)]
    return [*steps, *_steps(stream, _streamed(axes))]


def _streamed(axes: Sequence[Digits]) -> Digits:
    """Return the digits of a tensor in stream order: the first axis, that of channels, is the innermost loop."""
    return [digit for axis in (*axes[1:], axes[0]) for digit in axis]


def _divided(digits: Digits, sizes: Sequence[int]) -> list[Digits] | None:
    """Distribute digits over the axes of a shape, some of them in two parts; None if a digit cannot be divided so."""
    waiting, axes = list(reversed(digits)), list[Digits]()
    for size in sizes:
        axis: Digits = []
        while size > 1:
            name, count = waiting.pop()
            # An axis of one element moves nothing.
            if count == 1:
                continue
            if size % count == 0:
                axis.append((name, count))
                size //= count
            elif count % size == 0:
                axis.append((f"{name}+", size))
                waiting.append((f"{name}-", count // size))
                size = 1
            else:
                return None
        axes.append(axis)
    return axes


def _steps(stream: Digits, wanted: Digits) -> list[Loops]:
    """Return the fewest steps from one order of digits to another; among equally few, those with the least buffers."""
    # Digits that follow one another in both orders stay together: they are one loop of the search, a run.
    now, target = [digit for digit in stream if digit[1] > 1], [digit for digit in wanted if digit[1] > 1]
    runs: list[Digits] = []
    for digit in target:
        place = now.index(digit)
        follows = bool(runs) and place > 0 and now[place - 1] == runs[-1][-1]
        runs[-1:] = [[*runs[-1], digit]] if follows else [*runs[-1:], [digit]]
    counts = [prod(count for _, count in run) for run in runs]
    # Runs are numbered as they are wanted, so the search ends at 0, 1, 2, ...
    start = tuple(sorted(range(len(runs)), key=lambda run: now.index(runs[run][0])))

    def count(order: Sequence[int]) -> int:
        return prod(counts[run] for run in order)

    # Dijkstra's search over the orders of runs; the price of a path is (steps, buffered elements).
    known: set[tuple[int, ...]] = set()
    waiting: list[tuple[int, int, tuple[int, ...], list[Loops]]] = [(0, 0, start, [])]
    while True:
        length, room, order, steps = heappop(waiting)
        if order == tuple(range(len(runs))):
            return steps
        if order in known:
            continue
        known.add(order)
        for first, middle, end in combinations(range(len(order) + 1), 3):
            outer, rows, columns, run = order[:first], order[first:middle], order[middle:end], order[end:]
            loops = (count(outer), count(rows), count(columns), count(run))
            swapped = (*outer, *columns, *rows, *run)
            # A step buffers one of its outer iterations.
            heappush(waiting, (length + 1, room + prod(loops[1:]), swapped, [*steps, loops]))
