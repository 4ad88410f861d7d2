"""A network as the tasks of a shared engine. Layers that one pass over the data can compute become one task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from nnhw.errors import MappingError, raise_all
from nnhw.ir import IntType
from nnhw.mapping.common_steps import NoCommonStepsError
from nnhw.mapping.layers import ConcatLayer, Layer, Shape, StepFunction, SumLayer
from nnhw.mapping.shared.program.lines import fit_lines, fit_ranked, identity
from nnhw.mapping.shared.program.pieces import find_moves
from nnhw.mapping.shared.program.tasks import STREAMING, Task, read_move, read_task


@dataclass(frozen=True)
class StoredValue:
    """An IR value that is stored in memory.

    Parameters
    ----------
    shape: shape of the feature map.
    element: type of its codes.
    borders: values of the borders that windows read around it.
    """

    shape: Shape
    element: IntType
    borders: tuple[int, ...] = ()

    @property
    def range(self) -> tuple[int, int]:
        """(lowest, highest) number that a stored code must be able to be, borders included."""
        return min(self.element.low, *self.borders, 1 << 62), max(self.element.high, *self.borders, -(1 << 62))


@dataclass(frozen=True)
class TaskNetwork:
    """The tasks of a shared engine, in the order in which they run.

    Parameters
    ----------
    source: name of the value that comes in.
    output: name of the value that leaves: codes, or the sums of the last task.
    tasks: the tasks, each behind those that it reads.
    concats: the concatenations: values whose channels are those of other values side by side.
    values: all values in memory, by name.
    loaded: whether the input comes over the link, so that the host may shift its codes; else from another engine.
    sent: whether the output leaves over the link.
    plans: its memory plans that are known, see `plan_memory`.
    """

    source: str
    output: str
    tasks: tuple[Task, ...]
    concats: tuple[ConcatLayer, ...]
    values: dict[str, StoredValue]
    loaded: bool = True
    sent: bool = True
    plans: dict[Hashable, Any] = field(init=False, default_factory=dict, repr=False, compare=False)

    @cached_property
    def products(self) -> int:
        """Products of a frame."""
        return sum(task.products for task in self.tasks)


def read_network(layers: Sequence[Layer], source: tuple[str, Shape, IntType], output: str) -> TaskNetwork:
    """Return the tasks of layers, with their lines.

    Parameters
    ----------
    source: name, shape and type of the network's input.
    output: name of the value that leaves, as codes, or as sums if its layer has no function.

    Raises
    ------
    MappingError: what no array runs, all at once.
    """
    problems: list[MappingError] = []
    name, shape, element = source
    elements = {name: element} | {layer.node: layer.element for layer in layers}
    tasks: list[Task] = []
    concats = tuple(layer for layer in layers if isinstance(layer, ConcatLayer))
    shapes = {name: shape} | {layer.node: layer.shape for layer in layers}
    problems += [_reshaped(layer) for layer in layers if not _reads_whole(layer, shapes)]
    problems += [_not_channels(layer) for layer in concats if not _joins_channels(layer, shapes)]
    moves = find_moves(layers, shapes, output)
    replaced = {node for move in moves.values() for node in move.replaced}
    for layer in layers:
        if isinstance(layer, ConcatLayer) or layer.node in replaced:
            continue
        move = moves.get(layer.node)
        with _collected(problems):
            tasks += [read_task(layer, elements)] if move is None else read_move(move)
    raise_all(problems)
    lined: list[Task] = []
    for task in _fuse(tasks, concats, output):
        with _collected(problems):
            lined.append(_with_lines(task, output))
    raise_all(problems)
    values = {name: StoredValue(shape, element)}
    values |= {task.node: StoredValue(task.shape, task.element) for task in lined if task.lines}
    values |= {layer.node: StoredValue(layer.extent, layer.element) for layer in concats}
    values |= {name: StoredValue(move.last.shape, move.last.element) for name, move in moves.items()}
    # Border elements are read as codes, so the zero of the stored codes must allow for their value.
    for task in lined:
        if task.window.has_border:
            value = values[task.sources[0]]
            values[task.sources[0]] = replace(value, borders=(*value.borders, task.window.border))
    return TaskNetwork(name, output, tuple(lined), concats, values)


def _source(layer: Layer) -> Shape | None:
    """Return the shape of the map that a layer reads, or of each map that it adds; None for other layers."""
    return getattr(layer, "extent" if isinstance(layer, SumLayer) else "source", None)


def _reads_whole(layer: Layer, shapes: Mapping[str, Shape]) -> bool:
    """Return whether a layer reads each value in the shape in which it was made."""
    source = _source(layer)
    return source is None or all(shapes[name] == source for name in layer.inputs)


def _reshaped(layer: Layer) -> MappingError:
    return MappingError(
        f"layer {layer.where} reads {list(_source(layer) or ())} where the layer in front makes another shape, "
        f"which has another place in a shared engine's memory",
        f"use {STREAMING}",
    )


def _joins_channels(layer: ConcatLayer, shapes: Mapping[str, Shape]) -> bool:
    return all(shapes[name] == (part, *layer.shape[1:]) for name, part in zip(layer.inputs, layer.parts, strict=True))


def _not_channels(layer: ConcatLayer) -> MappingError:
    return MappingError(
        f"layer {layer.where} joins rows, columns or flattened maps; a shared engine joins channels alone",
        f"use {STREAMING}",
    )


@contextmanager
def _collected(problems: list[MappingError]) -> Iterator[None]:
    """Add a MappingError to a list, so that those of other layers are found, too."""
    try:
        yield
    except MappingError as error:
        problems.append(error)


def _with_lines(task: Task, output: str) -> Task:
    """Return a task with the lines of its requantizer."""
    if task.function is None:
        is_raw = task.node == output and not task.is_maximum
        return task if is_raw else replace(task, lines=(identity(task.channels, task.element),))
    lines = fit_lines(task.function, task.sums)
    if not lines:
        try:
            lines = (fit_ranked(task.function, task.sums),)
        except NoCommonStepsError as error:
            raise MappingError(
                f"layer {task.where}: the function behind its sums is no multiplication with addition and shift in "
                "each channel, nor a multiplication with addition in front of steps that all channels share, which is "
                f"what a shared engine has: {error}",
                f"use fewer bits, a quantizer with equal steps, or {STREAMING}",
            ) from error
    return replace(task, lines=lines)


def _fuse(tasks: Sequence[Task], concats: Sequence[ConcatLayer], output: str) -> list[Task]:
    """Return tasks, those joined that can run as one: sums with a function, codes with a pooling that tiles them."""
    readers = Counter(name for task in tasks for name in task.sources)
    readers.update(name for layer in concats for name in layer.inputs)
    found: dict[str, Task] = {}
    for task in tasks:
        before = found.get(task.sources[0]) if len(task.sources) == 1 else None
        joined = None
        if before is not None and readers[before.node] == 1 and before.node != output:
            joined = _joined(before, task)
        if joined is None or before is None:
            found[task.node] = task
        else:
            # Rebuilt rather than replaced at the end, as tasks have to stay in the order in which they run.
            found = {
                joined.node if one is before else node: joined if one is before else one for node, one in found.items()
            }
    return list(found.values())


def _joined(first: Task, second: Task) -> Task | None:
    """Return two consecutive tasks as one; None if they cannot be joined."""
    if second.is_sum and first.function is None and not first.is_maximum:
        if second.function is None:
            return None
        function = _behind(second.function, int(second.weights[0, 0, 0]))
        return None if function is None else replace(first, node=second.node, element=second.element, function=function)
    pools = second.is_maximum and second.window.tiles_source and second.piece is None
    # Maxima of sums would need a requantizer behind the maximum.
    codes = first.function is not None or first.is_maximum
    if not pools or not codes or first.window.pool != (1, 1):
        return None
    step = first.window.step
    window = replace(
        first.window,
        pool=second.window.pool,
        stride=step,
        blocks=second.window.blocks,
        step=(step[0] * second.window.step[0], step[1] * second.window.step[1]),
    )
    return replace(first, node=second.node, element=second.element, window=window)


def _behind(function: StepFunction, factor: int) -> StepFunction | None:
    """Return a function of `factor` times a sum as a function of the sum; None for factor 0."""
    if factor == 0:
        return None
    if factor == 1:
        return function
    # factor * sum reaches a threshold where the sum reaches threshold / factor, rounded up.
    if factor > 0:
        return StepFunction(-(-function.thresholds // factor), function.codes, function.code)
    # A negative factor turns the order of the steps around, and "reached" into "not reached".
    steps = (function.thresholds // factor)[:, ::-1] + 1
    return StepFunction(np.ascontiguousarray(steps), np.ascontiguousarray(function.codes[:, ::-1]), function.code)
