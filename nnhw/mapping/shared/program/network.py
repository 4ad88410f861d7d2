"""A network as tasks: fused where one pass over the data does for two layers, each with its line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhw.errors import MappingError, raise_all
from nnhw.ir import IntType
from nnhw.mapping.common_steps import NoCommonStepsError
from nnhw.mapping.layers import ConcatLayer, Layer, Shape, StepFunction, SumLayer
from nnhw.mapping.shared.program.lines import fit_lines, fit_ranked, identity
from nnhw.mapping.shared.program.tasks import STREAMING, Task, read_task


@dataclass(frozen=True)
class StoredValue:
    """An IR value that lies in memory.

    Parameters
    ----------
    shape: of the feature map.
    element: type of its codes.
    borders: values that surround it where windows read it.
    """

    shape: Shape
    element: IntType
    borders: tuple[int, ...] = ()

    @property
    def range(self) -> tuple[int, int]:
        """(lowest, highest) number that is to be told apart."""
        return min(self.element.low, *self.borders, 1 << 62), max(self.element.high, *self.borders, -(1 << 62))


@dataclass(frozen=True)
class TaskNetwork:
    """Tasks in the order in which they run.

    Parameters
    ----------
    source: the value that comes in.
    output: the value that leaves: codes, or the sums of the last task.
    tasks: each behind those that it reads.
    concats: values that are others side by side, channel after channel.
    values: all that lie in memory.
    loaded: whether the value that comes in does so over the link, on which its codes may be shifted.
    sent: the same of the value that leaves.
    """

    source: str
    output: str
    tasks: tuple[Task, ...]
    concats: tuple[ConcatLayer, ...]
    values: dict[str, StoredValue]
    loaded: bool = True
    sent: bool = True

    @property
    def products(self) -> int:
        """Products of a frame."""
        return sum(task.products for task in self.tasks)


def read_network(layers: Sequence[Layer], source: tuple[str, Shape, IntType], output: str) -> TaskNetwork:
    """Return the tasks of layers, with their lines.

    Parameters
    ----------
    source: name, shape and type of the value that comes into the first.
    output: name of the value that leaves; where no function makes it, its sums do.

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
    for layer in layers:
        if not isinstance(layer, ConcatLayer):
            _try(problems, tasks, lambda layer=layer: read_task(layer, elements))
    raise_all(problems)
    lined: list[Task] = []
    for task in _fuse(tasks, concats, output):
        _try(problems, lined, lambda task=task: _with_lines(task, output))
    raise_all(problems)
    values = {name: StoredValue(shape, element)}
    values |= {task.node: StoredValue(task.shape, task.element) for task in lined if task.lines}
    values |= {layer.node: StoredValue(layer.extent, layer.element) for layer in concats}
    for task in lined:
        if task.window.has_border:
            value = values[task.sources[0]]
            values[task.sources[0]] = replace(value, borders=(*value.borders, task.window.border))
    return TaskNetwork(name, output, tuple(lined), concats, values)


def _source(layer: Layer) -> Shape | None:
    """Return the map that a layer reads, or each of the maps that it adds; None of others."""
    return getattr(layer, "extent" if isinstance(layer, SumLayer) else "source", None)


def _reads_whole(layer: Layer, shapes: Mapping[str, Shape]) -> bool:
    """Return whether each value that a layer reads was made in the shape in which it is read."""
    source = _source(layer)
    return source is None or all(shapes[name] == source for name in layer.inputs)


def _reshaped(layer: Layer) -> MappingError:
    return MappingError(
        f"layer {layer.where} reads {list(_source(layer) or ())} where the layer in front makes another shape, "
        f"which has another place in a shared engine's memory; use {STREAMING}"
    )


def _joins_channels(layer: ConcatLayer, shapes: Mapping[str, Shape]) -> bool:
    return all(shapes[name] == (part, *layer.shape[1:]) for name, part in zip(layer.inputs, layer.parts, strict=True))


def _not_channels(layer: ConcatLayer) -> MappingError:
    return MappingError(
        f"layer {layer.where} joins rows, columns or flattened maps; a shared engine joins channels alone, so use "
        f"{STREAMING}"
    )


def _try(problems: list[MappingError], found: list[Task], make: object) -> None:
    try:
        found.append(make())  # type: ignore[operator]
    except MappingError as error:
        problems.append(error)


def _with_lines(task: Task, output: str) -> Task:
    """Return a task with what its requantizer does."""
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
                f"what a shared engine has: {error}; use fewer bits, a quantizer with equal steps, or {STREAMING}"
            ) from error
    return replace(task, lines=lines)


def _fuse(tasks: Sequence[Task], concats: Sequence[ConcatLayer], output: str) -> list[Task]:
    """Return the tasks with those joined that run as one: sums and a function, codes and a pooling that tiles them."""
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
            found = {
                joined.node if one is before else node: joined if one is before else one for node, one in found.items()
            }
    return list(found.values())


def _joined(first: Task, second: Task) -> Task | None:
    """Return two tasks as one, or None."""
    if second.is_sum and first.function is None and not first.is_maximum:
        if second.function is None:
            return None
        function = _behind(second.function, int(second.weights[0, 0, 0]))
        return None if function is None else replace(first, node=second.node, element=second.element, function=function)
    pools = second.is_maximum and second.window.tiles_source
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
    """Return a function of `factor` times a sum as one of the sum, or None for factor 0."""
    if factor == 0:
        return None
    if factor == 1:
        return function
    if factor > 0:
        return StepFunction(-(-function.thresholds // factor), function.codes, function.code)
    steps = (function.thresholds // factor)[:, ::-1] + 1
    return StepFunction(np.ascontiguousarray(steps), np.ascontiguousarray(function.codes[:, ::-1]), function.code)
