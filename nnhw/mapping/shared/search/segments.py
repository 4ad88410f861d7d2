"""Segments: consecutive layers that may have a shared engine of their own, with estimates for all arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from nnhw.engines.shared import ArrayConfig
from nnhw.engines.shared.cycles import fixed_cycles
from nnhw.engines.shared.program import load_words
from nnhw.engines.shared.records import descriptor_words, head_words
from nnhw.errors import MappingError
from nnhw.families import Cost, Family
from nnhw.mapping.budget import Budget
from nnhw.mapping.layers import Layer
from nnhw.mapping.shared.compile import compile_network
from nnhw.mapping.shared.program.memory_plan import Life, find_lives
from nnhw.mapping.shared.program.needs import Known, activation_bits, task_needs, weight_bits, with_rows
from nnhw.mapping.shared.program.network import TaskNetwork
from nnhw.mapping.shared.program.tasks import Task
from nnhw.mapping.shared.program.tensors import Tensor, lay_out
from nnhw.mapping.shared.program.tiles import Tiler
from nnhw.mapping.shared.search.array_cost import array_cost
from nnhw.mapping.shared.search.arrays import all_widths, arrays_of, cost_fits, with_blocks, with_own
from nnhw.mapping.shared.settings import ARRAYS, CHAINS

NARROW = {"rows": 1, "factor_bits": 2, "addend_bits": 2, "shifts": (0,)}
"""Limits that are narrower than those of any array that runs a network, for a lower bound of its cost."""


@dataclass(frozen=True)
class Option:
    """An array for a segment.

    Parameters
    ----------
    array: the array, without lanes in DSP blocks.
    cycles: cycles per frame, with those of its input and output.
    cost: cost of the array.
    exact: whether cycles and cost are those of a compiled program; else they are estimates.
    """

    array: ArrayConfig
    cycles: int
    cost: Cost
    exact: bool = False


@dataclass(frozen=True)
class _Work:
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


class _WorkTable:
    """The work of all tasks of a network on an array, for the work of consecutive ones.

    Parameters
    ----------
    works: of each task; None: it exceeds a limit of the array.
    """

    def __init__(self, works: Sequence[_Work | None]) -> None:
        # The last column counts tasks that exceed a limit: sums of it tell whether any does.
        rows = [(0, 0, 0, 0, 1) if one is None else (*astuple(one)[:-1], 0) for one in works]
        # Work of consecutive tasks is then a difference of two rows.
        self._sums = np.cumsum([(0, 0, 0, 0, 0), *rows], axis=0, dtype=np.int64)
        self._rows = np.array([0 if one is None else one.rows for one in works])

    def between(self, first: int, end: int) -> _Work:
        """Return the work of tasks first..end - 1 together. Raises: MappingError if one exceeds a limit."""
        cycles, words, tiles, lined_tiles, refused = (self._sums[end] - self._sums[first]).tolist()
        if refused:
            raise MappingError("a task exceeds a limit of the array")
        return _Work(cycles, words, tiles, lined_tiles, int(self._rows[first:end].max()))


class Arrays:
    """The arrays that fit a budget, and the work of the tasks of a network on them, which all segments share.

    Parameters
    ----------
    network: the whole network.
    budget: resources of all engines together.
    family: device family.
    """

    def __init__(self, network: TaskNetwork, budget: Budget, family: Family) -> None:
        self._network, self.budget, self.family = network, budget, family
        self._places = {task.node: place for place, task in enumerate(network.tasks)}
        self._shapes: dict[tuple[int, int], list[ArrayConfig]] = {}
        self._dressed: dict[tuple[ArrayConfig, ArrayConfig, int], ArrayConfig] = {}
        self._sized: dict[tuple[ArrayConfig, int], ArrayConfig] = {}
        self._tables: dict[ArrayConfig, _WorkTable | None] = {}
        self._known: dict[ArrayConfig, dict[str, _Work | None]] = {}
        self._needs: dict[ArrayConfig, Known] = {}

    def shapes(self, network: TaskNetwork) -> list[ArrayConfig]:
        """Return arrays of all sizes that may fit, with all other limits wide enough."""
        bits = activation_bits(network), weight_bits(network)
        if bits not in self._shapes:
            # The width of a memory word, and so the number of its large RAMs, is a power of two; another engine needs
            # at least one of them.
            counts = [count for count in (1, 2, 4) if count < self.budget.spram] or [0]
            # Without DSP blocks: which lanes get them is decided for a whole chain, see `chain._Search._with_blocks`.
            budgets = [replace(self.budget, dsp=0, spram=count) for count in counts]
            found = [shape for budget in budgets for shape in arrays_of(network, budget, self.family)]
            self._shapes[bits] = [shape for shape in found if cost_fits(self.least_cost(shape), self.budget)]
        return self._shapes[bits]

    def widths(self, network: TaskNetwork, shapes: Iterable[ArrayConfig]) -> list[ArrayConfig]:
        """Return arrays with the widths that a network needs, for each way to requantize; none if no shape runs it."""
        for shape in shapes:
            try:
                needs = task_needs(network, shape, self._needs.setdefault(shape, {}))
                return all_widths(needs, shape, self.budget, self.family)
            except MappingError:
                continue
        return []

    def cost(self, array: ArrayConfig) -> Cost:
        """Return the cost of an array."""
        return array_cost(array, self.family, self.budget.spram > 0)

    def least_cost(self, shape: ArrayConfig) -> Cost:
        """Return a lower bound of an array's cost, with as many lanes in DSP blocks as possible."""
        narrow = replace(shape, sum_bits=shape.activation_bits + shape.weight_bits, **NARROW)  # type: ignore[arg-type]
        return self.cost(with_blocks(self.sized(narrow, 1), self.budget.dsp, self.family))

    def sized(self, array: ArrayConfig, words: int) -> ArrayConfig:
        """Return an array with a memory in block RAM of at least `words` words; large RAMs have a fixed size."""
        if self.budget.spram:
            return array
        unit = self.family.block_ram.modes[0][0]
        key = array, -(-words // unit) * unit
        if key not in self._sized:
            self._sized[key] = replace(array, words=key[1])
        return self._sized[key]

    def dressed(self, shape: ArrayConfig, widths: ArrayConfig, rows: int) -> ArrayConfig:
        """Return an array of one's shape, another's widths, and a weight cache of at least so many rows."""
        key = shape, widths, rows
        if key not in self._dressed:
            self._dressed[key] = with_rows(with_own(shape, widths), rows, self.family)
        return self._dressed[key]

    def work(self, network: TaskNetwork, shape: ArrayConfig, streaming: ArrayConfig) -> _Work:
        """Return the work of the tasks of a segment.

        Parameters
        ----------
        network: the tasks of the segment, which follow one another in the whole network.
        shape: the array.
        streaming: the array for tasks of a single position, which may stream weights.

        Raises: MappingError if a task exceeds a limit.
        """
        if streaming not in self._tables:
            self._tables[streaming] = self._table(shape, streaming)
        table, first = self._tables[streaming], self._places[network.tasks[0].node]
        if table is None:
            return _WorkTable(self._works(network, shape, streaming)).between(0, len(network.tasks))
        return table.between(first, first + len(network.tasks))

    def _table(self, shape: ArrayConfig, streaming: ArrayConfig) -> _WorkTable | None:
        """Return the work of all tasks of the whole network on an array; None if some of its values do not go there.

        Values that pass through other arrays alone may be wider, such as an input of 8 bits in front of 2.
        """
        try:
            return _WorkTable(self._works(self._network, shape, streaming))
        except MappingError:
            return None

    def _works(self, network: TaskNetwork, shape: ArrayConfig, streaming: ArrayConfig) -> list[_Work | None]:
        """Return the work of each task; None where it exceeds a limit. Raises: MappingError: values are too wide."""
        known = self._known.setdefault(streaming, {})
        tensors = {} if all(task.node in known for task in network.tasks) else lay_out(network, shape)
        for task in network.tasks:
            if task.node not in known:
                try:
                    known[task.node] = _work(task, tensors, streaming if task.window.is_global else shape)
                except MappingError:
                    known[task.node] = None
        return [known[task.node] for task in network.tasks]


@dataclass(frozen=True)
class _Timed:
    """An array with estimates of its program.

    Parameters
    ----------
    arrays: variants that differ only in their requantizers.
    cycles: per frame.
    words: of the program.
    """

    arrays: tuple[ArrayConfig, ...]
    cycles: int
    words: int


class Segment:
    """Consecutive layers that may have a shared engine of their own.

    Parameters
    ----------
    first, end: index of the first layer, and of the one behind the last.
    network: tasks of these layers alone.
    arrays: the arrays to choose from.
    """

    def __init__(self, first: int, end: int, network: TaskNetwork, arrays: Arrays) -> None:
        self.first, self.end, self.network, self._arrays = first, end, network, arrays
        self._timed: list[_Timed] = []
        self._costed: dict[ArrayConfig, Option | None] = {}
        self._live: dict[int, int] = {}
        self._reset()

    def _reset(self) -> None:
        """Forget which arrays are fast enough: as if no interval had been asked for yet."""
        self._interval, self._frontier = 0, list[Option]()
        self._slow = [(array, timed) for timed in self._timed for array in timed.arrays]

    @cached_property
    def transfers(self) -> int:
        """An estimate of the cycles of input and output."""
        inside, outside = (self.network.values.get(name) for name in (self.network.source, self.network.output))
        beats = prod(inside.shape) if inside is not None else 0
        return beats + (prod(outside.shape) if outside is not None else 0)

    def within(self, interval: int) -> list[Option]:
        """Return the arrays of at most so many cycles per frame that no other one beats in all resources."""
        if interval < self._interval:
            self._reset()
        if interval > self._interval:
            self._time(interval)
            # Most intervals are a little longer than the one before: only the arrays that were too slow are looked at.
            arrays, self._slow, found = self._slow, [], list(self._frontier)
            for array, timed in arrays:
                option = self._option(array, timed) if timed.cycles <= interval else None
                # Exact cycles may be more than estimated.
                if option is not None and option.cycles <= interval:
                    found.append(option)
                elif option is not None or timed.cycles > interval:
                    self._slow.append((array, timed))
            self._frontier = [found[index] for index in frontier([option.cost for option in found])]
            self._interval = interval
        return self._frontier

    def settle(self, option: Option) -> None:
        """Compile the program of an option, and replace estimates by exact numbers.

        Its memory plan also corrects the estimates of other arrays with words of the same width.
        """
        plain = self._arrays.sized(option.array, CHAINS.most_words)
        bits = plain.word_bits
        # The options so far hold the estimate that is replaced here.
        self._reset()
        # Stays so unless the program can be made: the array is then known not to run these layers.
        self._costed[plain] = None
        try:
            compiled = compile_network(self.network, replace(plain, words=CHAINS.most_words))
        except MappingError:
            return
        if self._live.get(bits) != compiled.plan.words:
            self._live[bits] = compiled.plan.words
            for array, other in list(self._costed.items()):
                # Estimates with words of this width used the live words that were just corrected.
                if other is not None and not other.exact and array.word_bits == bits:
                    del self._costed[array]
        need = compiled.program_words + compiled.plan.words
        sized = self._arrays.sized(plain, need)
        if need <= sized.words:
            self._costed[plain] = Option(sized, compiled.cycles, self._arrays.cost(sized), exact=True)

    @cached_property
    def _waiting(self) -> list[ArrayConfig]:
        """Arrays without estimates so far, those with the most products last."""
        try:
            return sorted(self._arrays.shapes(self.network), key=lambda shape: shape.products)
        except MappingError:
            return []

    @cached_property
    def _widths(self) -> list[ArrayConfig]:
        """The widths that the segment needs, as arrays, for each kind of requantizer."""
        return self._arrays.widths(self.network, self._arrays.shapes(self.network))

    def _time(self, interval: int) -> None:
        """Make estimates for all arrays that may be fast enough for an interval and have none yet."""
        while self._waiting and self._waiting[-1].products * interval >= self.network.products:
            shape, most = self._waiting.pop(), None
            can_stream = any(task.window.is_global for task in self.network.tasks)
            for array in (shape, replace(shape, weight_stream=True)) if can_stream else (shape,):
                try:
                    timed = self._estimate(shape, array)
                except MappingError:
                    continue
                if most is None or timed.cycles * ARRAYS.slower < most:
                    most = timed.cycles
                    self._timed.append(timed)
                    self._slow += [(own, timed) for own in timed.arrays]

    def _estimate(self, shape: ArrayConfig, array: ArrayConfig) -> _Timed:
        """Return the estimates for an array, which may stream weights; `shape` is the same array without that."""
        work = self._arrays.work(self.network, shape, array)
        own = [self._arrays.dressed(array, one, work.rows) for one in self._widths]
        if not own:
            raise MappingError("no array runs these layers")
        lined, plain = work.lined_tiles, work.tiles - work.lined_tiles
        heads = lined * head_words(own[0], True) + plain * head_words(own[0], False)
        cycles = work.cycles + fixed_cycles(own[0]) * work.tiles
        functions = [task.lines[0].ranked for task in self.network.tasks if task.lines]
        loads = load_words([one for one in functions if one is not None], own[0])
        words = 2 * descriptor_words(array) + work.words + loads
        return _Timed(tuple(own), self.transfers + heads + cycles, heads + words)

    def _option(self, array: ArrayConfig, timed: _Timed) -> Option | None:
        """Return the option for an array; None if it is known not to run the segment."""
        if array not in self._costed:
            try:
                need = timed.words + self._live_words(array)
            except MappingError:
                need = CHAINS.most_words + 1
            sized = self._arrays.sized(array, need)
            fits = need <= min(sized.words, CHAINS.most_words)
            self._costed[array] = Option(sized, timed.cycles, self._arrays.cost(sized)) if fits else None
        return self._costed[array]

    def _live_words(self, array: ArrayConfig) -> int:
        """Return an estimate of the words of values in memory, if results lie over what is read for the last time."""
        if array.word_bits not in self._live:
            network, tensors = self.network, lay_out(self.network, array)
            tilers = [Tiler(task, tensors, array) for task in network.tasks]
            lives = find_lives(network, tensors, tilers)
            self._live[array.word_bits] = _most_live(lives, len(tilers))
        return self._live[array.word_bits]


def _most_live(lives: Iterable[Life], tasks: int) -> int:
    """Return the most words that are needed at once, if results lie over what is read for the last time."""
    # Of each point of time from the input (-1) to the output: words that are made, and that are read for the last time.
    made, done = np.zeros(tasks + 2, np.int64), np.zeros(tasks + 2, np.int64)
    for life in lives:
        made[life.born + 1] += life.words
        done[life.dies + 1] += life.words
    live = np.cumsum(made) - np.cumsum(done) + done
    return max(0, int((live - np.minimum(made, done)).max()))


def frontier(costs: Sequence[Cost]) -> list[int]:
    """Return the indices of the costs that no other one beats in all resources, by ascending logic."""
    kept: list[int] = []
    for index in sorted(range(len(costs)), key=lambda index: (costs[index].lc, costs[index].ebr)):
        cost = costs[index]
        if not any(_is_below(costs[other], cost) for other in kept):
            kept.append(index)
    return kept


def segment_of(network: TaskNetwork, layers: Sequence[Layer], first: int, end: int) -> TaskNetwork:
    """Return layers first..end - 1 of a network as a network of their own.

    It equals the network of the extracted graph, without fitting the lines of all functions again.
    """
    nodes = {layer.node for layer in layers[first:end]}
    source, output = layers[first - 1].node if first else network.source, layers[end - 1].node
    tasks = tuple(task for task in network.tasks if task.value in nodes)
    # A map that several tasks store, each a piece of it, is a value beside those of its pieces.
    stored = {source, *nodes, *(task.node for task in tasks)}
    values = {name: value for name, value in network.values.items() if name in stored}
    if end < len(layers):
        # Borders around the last value concern those who read it, which are other engines.
        values[output] = replace(values[output], borders=())
    return TaskNetwork(
        source,
        output,
        tasks,
        tuple(layer for layer in network.concats if layer.node in nodes),
        values,
        loaded=not first,
        sent=end == len(layers),
    )


def _is_below(one: Cost, other: Cost) -> bool:
    """Return whether a cost is at most another one in all resources but logic, which the caller has compared."""
    return one.ebr <= other.ebr and one.dsp <= other.dsp and one.spram <= other.spram


def _work(task: Task, tensors: dict[str, Tensor], array: ArrayConfig) -> _Work:
    tiler = Tiler(task, tensors, array)
    tiles, lined = len(tiler.tiles), bool(task.lines)
    cycles, words = (sum(map(count, tiler.tiles)) for count in (tiler.cycles, tiler.record_words))
    heads = tiles * head_words(array, lined)
    return _Work(cycles - heads, words - heads, tiles, tiles * lined, tiler.rows)
