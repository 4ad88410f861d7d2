"""The work of tasks on arrays: cycles, words of weights and tiles, which a search asks for hundreds of arrays."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhw.engines.shared import ArrayConfig
from nnhw.engines.shared.cycles import fixed_cycles
from nnhw.engines.shared.records import head_words
from nnhw.errors import MappingError
from nnhw.mapping.shared.program.lines import signed_bits
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.program.tasks import Task
from nnhw.mapping.shared.program.tensors import Tensor, lay_out
from nnhw.mapping.shared.program.tiles import Tiler, task_sums


@dataclass(frozen=True)
class Work:
    """The work of one or more tasks on an array, without what depends on the requantizers.

    Parameters
    ----------
    cycles: cycles of its tiles, without those in front of their weights and behind their last step.
    words: words of weights in the program.
    tiles: number of tiles.
    lined_tiles: number of tiles whose records have constants of a line.
    rows: rows of weights in the cache.
    """

    cycles: int
    words: int
    tiles: int
    lined_tiles: int
    rows: int

    def heads(self, array: ArrayConfig) -> int:
        """Return the words in front of all weights: descriptors and constants, each read in a cycle."""
        plain = self.tiles - self.lined_tiles
        return self.lined_tiles * head_words(array, True) + plain * head_words(array, False)

    def cycles_on(self, array: ArrayConfig) -> int:
        """Return the cycles of the tasks on an array with requantizers, without those of input and output."""
        return self.cycles + self.heads(array) + fixed_cycles(array) * self.tiles


def together(works: Iterable[Work]) -> Work:
    """Return the work of several tasks."""
    found = list(works)
    cycles, words, tiles, lined_tiles = (
        sum(getattr(work, name) for work in found) for name in ("cycles", "words", "tiles", "lined_tiles")
    )
    return Work(cycles, words, tiles, lined_tiles, max((work.rows for work in found), default=0))


@dataclass(frozen=True)
class _LaidOut:
    """The layout of a network's values, and what the work of its tasks depends on.

    Parameters
    ----------
    tensors: by name of the value.
    own: of each task, a key of itself and the layouts of what it reads and stores.
    alike: a key that tasks of the same work share; `own` where the weights decide, too.
    """

    tensors: Mapping[str, Tensor]
    own: Sequence[Hashable]
    alike: Sequence[Hashable]


class Works:
    """The work of tasks on arrays; each is counted once, for all parts of a network that have the task.

    Dense tasks that differ in nothing but the values of their weights have the same work, as in repeated blocks.
    """

    def __init__(self) -> None:
        self._known: dict[ArrayConfig, dict[Hashable, Work | MappingError]] = {}  # by array and key
        self._signatures: dict[Hashable, Hashable] = {}
        self._numbers: dict[Hashable, int] = {}  # of signatures
        # Equal layouts are one object each, so that its `id` stands for it: to hash them takes longer than all else.
        self._layouts: dict[Tensor, Tensor] = {}
        self._current: tuple[TaskNetwork, dict[tuple[int, int, int], _LaidOut]] | None = None

    def of(self, network: TaskNetwork, shape: ArrayConfig, weight_stream: bool = False) -> list[Work]:
        """Return the work of each task of a network; see `each`. Raises: MappingError: a task exceeds a limit."""
        found = []
        for work in self.each(network, shape, weight_stream):
            if isinstance(work, MappingError):
                raise work.with_traceback(None)
            found.append(work)
        return found

    def each(
        self, network: TaskNetwork, shape: ArrayConfig, weight_stream: bool = False
    ) -> Iterator[Work | MappingError]:
        """Yield the work of each task of a network, or which limit of the array it exceeds.

        Parameters
        ----------
        shape: an array, with all limits wide enough, that streams no weights.
        weight_stream: whether it streams those of tasks of a single position.

        Raises
        ------
        MappingError: a value is too wide.
        """
        laid_out = self._laid_out(network, shape)
        streaming = replace(shape, weight_stream=True) if weight_stream else shape
        plain, streamed = (self._known.setdefault(array, {}) for array in (shape, streaming))
        for task, own, alike in zip(network.tasks, laid_out.own, laid_out.alike, strict=True):
            array, known = (streaming, streamed) if task.window.is_global else (shape, plain)
            work = known.get(alike) or known.get(own)
            if work is None:
                try:
                    work = known[alike] = work_of(task, laid_out.tensors, array)
                except MappingError as error:
                    # It names the layer, so each one has its own.
                    work = known[own] = error
            yield work

    def _signature(self, task: Task, tensors: Mapping[str, Tensor]) -> Hashable:
        """Return a number for all that the work of a dense task depends on, and for the limits that it may exceed."""
        source, target = tensors[task.sources[0]], tensors.get(task.node)
        key = task, id(source), id(target)
        if key not in self._signatures:
            names = "window", "channels", "element", "groups", "is_maximum", "piece"
            bits = signed_bits(np.array(task.weight_range)), signed_bits(np.array(task_sums(task, source)))
            # The same wherever they are stored.
            layouts = replace(source, storage=""), target and replace(target, storage="")
            own = *(getattr(task, name) for name in names), task.weights.shape, bool(task.lines), *bits, *layouts
            self._signatures[key] = self._numbers.setdefault(own, len(self._numbers))
        return self._signatures[key]

    def _laid_out(self, network: TaskNetwork, array: ArrayConfig) -> _LaidOut:
        """Return the layout of a network's values, which depends on few fields of an array. Raises: MappingError."""
        if self._current is None or self._current[0] is not network:
            self._current = network, {}
        key = array.lanes, array.word_bits, array.activation_bits
        known = self._current[1]
        if key not in known:
            tensors = {name: self._layouts.setdefault(made, made) for name, made in lay_out(network, array).items()}
            own = [
                (task, *(id(tensors[name]) for name in task.sources), id(tensors.get(task.node)))
                for task in network.tasks
            ]
            alike = [
                one if task.channelwise else self._signature(task, tensors)
                for task, one in zip(network.tasks, own, strict=True)
            ]
            known[key] = _LaidOut(tensors, own, alike)
        return known[key]


def work_of(task: Task, tensors: Mapping[str, Tensor], array: ArrayConfig) -> Work:
    """Return the work of a task. Raises: MappingError: it exceeds a limit of the array."""
    tiler = Tiler(task, tensors, array)
    tiles, lined = sum(count for _, count in tiler.kinds), bool(task.lines)
    heads = tiles * head_words(array, lined)
    cycles, words = tiler.total(tiler.cycles) - heads, tiler.total(tiler.record_words) - heads
    return Work(cycles, words, tiles, tiles * lined, tiler.rows)
