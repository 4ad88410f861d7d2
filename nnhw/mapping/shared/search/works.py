"""The work of tasks on arrays: cycles, words of weights and tiles, which a search asks for hundreds of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from nnhw.engines.shared import ArrayConfig
from nnhw.engines.shared.cycles import fixed_cycles
from nnhw.engines.shared.records import head_words
from nnhw.errors import MappingError
from nnhw.mapping.shared.program.network import TaskNetwork
from nnhw.mapping.shared.program.tasks import Task
from nnhw.mapping.shared.program.tensors import Tensor, lay_out
from nnhw.mapping.shared.program.tiles import Tiler


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
    """The work of tasks on arrays; each is counted once, for all parts of a network that have the task."""

    def __init__(self) -> None:
        # By array; then by task and the layouts of what it reads and stores, which depend on the part of the network.
        self._known: dict[ArrayConfig, dict[tuple[Task | Tensor | None, ...], Work | MappingError]] = {}
        self._tensors: tuple[TaskNetwork, dict[tuple[int, int, int], dict[str, Tensor]]] | None = None

    def of(self, network: TaskNetwork, shape: ArrayConfig, weight_stream: bool = False) -> list[Work]:
        """Return the work of each task of a network.

        Parameters
        ----------
        shape: an array, with all limits wide enough, that streams no weights.
        weight_stream: whether it streams those of tasks of a single position.

        Raises
        ------
        MappingError: a task exceeds a limit of the array, or a value is too wide.
        """
        tensors, found = self._laid_out(network, shape), []
        streaming = replace(shape, weight_stream=True) if weight_stream else shape
        every = {array: self._known.setdefault(array, {}) for array in (shape, streaming)}
        plain, streamed = every[shape], every[streaming]
        for task in network.tasks:
            array, known = (streaming, streamed) if task.window.is_global else (shape, plain)
            key = (task, *(tensors[name] for name in task.sources), tensors.get(task.node))
            if key not in known:
                try:
                    known[key] = work_of(task, tensors, array)
                except MappingError as error:
                    known[key] = error
            work = known[key]
            if isinstance(work, MappingError):
                raise work.with_traceback(None)
            found.append(work)
        return found

    def _laid_out(self, network: TaskNetwork, array: ArrayConfig) -> dict[str, Tensor]:
        """Return the layout of a network's values, which depends on few fields of an array."""
        if self._tensors is None or self._tensors[0] is not network:
            self._tensors = network, {}
        key = array.lanes, array.word_bits, array.activation_bits
        known = self._tensors[1]
        if key not in known:
            known[key] = lay_out(network, array)
        return known[key]


def work_of(task: Task, tensors: Mapping[str, Tensor], array: ArrayConfig) -> Work:
    """Return the work of a task. Raises: MappingError: it exceeds a limit of the array."""
    tiler = Tiler(task, tensors, array)
    tiles, lined = sum(count for _, count in tiler.kinds), bool(task.lines)
    heads = tiles * head_words(array, lined)
    cycles, words = tiler.total(tiler.cycles) - heads, tiler.total(tiler.record_words) - heads
    return Work(cycles, words, tiles, tiles * lined, tiler.rows)
