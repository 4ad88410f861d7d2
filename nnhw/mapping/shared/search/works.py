"""The work of tasks on arrays: cycles, words of weights and tiles, which a search asks for hundreds of arrays."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from nnhw.engines.shared import ArrayConfig
from nnhw.engines.shared.cycles import fixed_cycles
from nnhw.engines.shared.records import head_words
from nnhw.errors import MappingError
from nnhw.mapping.shared.program.lines import signed_bits
from nnhw.mapping.shared.program.network import TaskNetwork
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


class Works:
    """The work of tasks on arrays; each is counted once, for all parts of a network that have the task.

    Dense tasks that differ in nothing but the values of their weights have the same work, as in repeated blocks.
    """

    def __init__(self) -> None:
        # By array; then by task and the layouts of what it reads and stores, which depend on the part of the network.
        self._known: dict[ArrayConfig, dict[Hashable, Work | MappingError]] = {}
        self._alike: dict[ArrayConfig, dict[Hashable, Work]] = {}
        self._signatures: dict[Hashable, Hashable] = {}
        self._numbers: dict[Hashable, int] = {}  # of signatures
        # Equal layouts are one object each, so that its `id` stands for it: to hash them takes longer than all else.
        self._layouts: dict[Tensor, Tensor] = {}
        self._tensors: tuple[TaskNetwork, dict[tuple[int, int, int], dict[str, Tensor]]] | None = None

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
        tensors = self._laid_out(network, shape)
        streaming = replace(shape, weight_stream=True) if weight_stream else shape
        for task in network.tasks:
            array = streaming if task.window.is_global else shape
            known = self._known.setdefault(array, {})
            key = (task, *(id(tensors[name]) for name in task.sources), id(tensors.get(task.node)))
            if key not in known:
                known[key] = self._counted(task, tensors, array)
            yield known[key]

    def _counted(self, task: Task, tensors: Mapping[str, Tensor], array: ArrayConfig) -> Work | MappingError:
        """Return the work of a task, which may be that of another one that is alike."""
        alike = self._alike.setdefault(array, {})
        key = None if task.channelwise else self._signature(task, tensors)
        if key is not None and key in alike:
            return alike[key]
        try:
            work = work_of(task, tensors, array)
        except MappingError as error:
            # It names the layer, so each one has its own.
            return error
        if key is not None:
            alike[key] = work
        return work

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

    def _laid_out(self, network: TaskNetwork, array: ArrayConfig) -> dict[str, Tensor]:
        """Return the layout of a network's values, which depends on few fields of an array."""
        if self._tensors is None or self._tensors[0] is not network:
            self._tensors = network, {}
        key = array.lanes, array.word_bits, array.activation_bits
        known = self._tensors[1]
        if key not in known:
            found = lay_out(network, array)
            known[key] = {name: self._layouts.setdefault(tensor, tensor) for name, tensor in found.items()}
        return known[key]


def work_of(task: Task, tensors: Mapping[str, Tensor], array: ArrayConfig) -> Work:
    """Return the work of a task. Raises: MappingError: it exceeds a limit of the array."""
    tiler = Tiler(task, tensors, array)
    tiles, lined = sum(count for _, count in tiler.kinds), bool(task.lines)
    heads = tiles * head_words(array, lined)
    cycles, words = tiler.total(tiler.cycles) - heads, tiler.total(tiler.record_words) - heads
    return Work(cycles, words, tiles, tiles * lined, tiler.rows)
