"""Segments: consecutive layers that may have a shared engine of their own, with estimates for all arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from operator import sub

import numpy as np

from nnhw.engines.requantize import RankedSteps
from nnhw.engines.shared import ArrayConfig
from nnhw.engines.shared.array import Requantizing
from nnhw.engines.shared.program import load_words
from nnhw.engines.shared.records import descriptor_words
from nnhw.errors import MappingError
from nnhw.families import Cost, Family
from nnhw.mapping.budget import Budget
from nnhw.mapping.layers import Layer
from nnhw.mapping.shared.compile import compile_network
from nnhw.mapping.shared.program.memory_plan import Life, find_lives
from nnhw.mapping.shared.program.needs import Known, activation_bits, task_needs, weight_bits, with_rows
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.program.tasks import Task
from nnhw.mapping.shared.program.tensors import Tensor, lay_out
from nnhw.mapping.shared.program.tiles import Tiler
from nnhw.mapping.shared.search.array_cost import array_cost, main_memory, parts_beside_memory
from nnhw.mapping.shared.search.arrays import ROOMY, all_widths, arrays_of, cost_fits, with_blocks, with_own
from nnhw.mapping.shared.search.works import Work, Works
from nnhw.mapping.shared.settings import ARRAYS, CHAINS

NARROW = {"rows": 1, "factor_bits": 2, "addend_bits": 2, "shifts": (0,)}
"""Limits that are narrower than those of any array that runs a network, for a lower bound of its cost."""


@dataclass(frozen=True)
class Option:
    """An array for a segment.

    Parameters
    ----------
    plain: the array, without lanes in DSP blocks, with a memory of any size.
    words: words of its memory.
    cycles: cycles per frame, with those of its input and output.
    cost: cost of the array.
    exact: whether cycles and cost are those of a compiled program; else they are estimates.
    """

    plain: ArrayConfig
    words: int
    cycles: int
    cost: Cost
    exact: bool = False

    @cached_property
    def array(self) -> ArrayConfig:
        """The array with its memory."""
        return replace(self.plain, words=self.words)


class _WorkTable:
    """The work of all tasks of a network on an array, for the work of consecutive ones.

    Parameters
    ----------
    works: of each task; None: it exceeds a limit of the array.
    """

    def __init__(self, works: Sequence[Work | None]) -> None:
        # The last column counts tasks that exceed a limit: sums of it tell whether any does.
        rows = [
            (0, 0, 0, 0, 1) if one is None else (one.cycles, one.words, one.tiles, one.lined_tiles, 0) for one in works
        ]
        # Work of consecutive tasks is then a difference of two rows. Lists, as NumPy takes longer for few numbers.
        self._sums = np.cumsum([(0, 0, 0, 0, 0), *rows], axis=0, dtype=np.int64).tolist()
        self._rows = [0 if one is None else one.rows for one in works]

    def between(self, first: int, end: int) -> Work:
        """Return the work of tasks first..end - 1 together. Raises: MappingError if one exceeds a limit."""
        cycles, words, tiles, lined_tiles, refused = map(sub, self._sums[end], self._sums[first])
        if refused:
            raise MappingError("a task exceeds a limit of the array")
        return Work(cycles, words, tiles, lined_tiles, max(self._rows[first:end]))


class Arrays:
    """The arrays that fit a budget, and the work of the tasks of a network on them, which all segments share.

    Parameters
    ----------
    network: the whole network.
    budget: resources of all engines together.
    family: device family.
    works: the work of tasks that is known; more is added.
    """

    def __init__(self, network: TaskNetwork, budget: Budget, family: Family, works: Works | None = None) -> None:
        self._network, self.budget, self.family = network, budget, family
        self._counted = works or Works()
        self._places = {task.node: place for place, task in enumerate(network.tasks)}
        self._shapes: dict[tuple[int, int], list[ArrayConfig]] = {}
        self._dressed: dict[tuple[ArrayConfig, ArrayConfig, int], ArrayConfig] = {}
        self._beside: dict[tuple[ArrayConfig, int], Cost] = {}
        self._memories: dict[tuple[int, int, int], Cost] = {}
        self._tables: dict[ArrayConfig, _WorkTable | None] = {}
        self._streaming: dict[ArrayConfig, ArrayConfig] = {}
        self._needs: dict[ArrayConfig, Known] = {}
        self._tilers: dict[tuple[int, int, int], tuple[dict[str, Tensor], list[Tiler | None]]] = {}

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

    def cost_with(self, array: ArrayConfig, words: int) -> Cost:
        """Return the cost of an array with a memory of so many words; what is beside that memory is priced once."""
        key = array, (words - 1).bit_length()
        if key not in self._beside:
            self._beside[key] = self.family.price(parts_beside_memory(replace(array, words=words)))
        return self._beside[key] + self.memory_cost(array, words)

    def memory_cost(self, array: ArrayConfig, words: int) -> Cost:
        """Return the cost of the main memory alone."""
        key = array.word_bits, array.slices, words
        if key not in self._memories:
            self._memories[key] = self.family.price(main_memory(array, words, self.budget.spram > 0))
        return self._memories[key]

    def least_cost(self, shape: ArrayConfig) -> Cost:
        """Return a lower bound of an array's cost, with as many lanes in DSP blocks as possible."""
        narrow = replace(shape, sum_bits=shape.activation_bits + shape.weight_bits, **NARROW)  # type: ignore[arg-type]
        least = replace(narrow, words=self.words(shape, 1))
        return self.cost(with_blocks(least, self.budget.dsp, self.family))

    def words(self, array: ArrayConfig, need: int) -> int:
        """Return the words of a memory in block RAM of at least `need` words; large RAMs have a fixed size."""
        unit = self.family.block_ram.modes[0][0]
        return array.words if self.budget.spram else -(-need // unit) * unit

    def dressed(self, shape: ArrayConfig, widths: ArrayConfig, rows: int) -> ArrayConfig:
        """Return an array of one's shape, another's widths, and a weight cache of at least so many rows."""
        key = shape, widths, rows
        if key not in self._dressed:
            self._dressed[key] = with_rows(with_own(shape, widths), rows, self.family)
        return self._dressed[key]

    def streaming(self, shape: ArrayConfig) -> ArrayConfig:
        """Return an array that streams weights, and is the same besides."""
        if shape not in self._streaming:
            self._streaming[shape] = replace(shape, weight_stream=True)
        return self._streaming[shape]

    def laid_out(self, network: TaskNetwork, array: ArrayConfig) -> tuple[dict[str, Tensor], Sequence[Tiler]]:
        """Return the layout of a segment's values in words as wide as an array's, and its tilers. Raises: MappingError.

        Both are those of the whole network, where that goes into such words: at the ends of the segment they may differ
        in the order of words, but not in their number.
        """
        key = array.lanes, array.activation_bits, array.word_bits
        first = self._places[network.tasks[0].node]
        if key not in self._tilers:
            with suppress(MappingError):
                # Other segments may need wider sums, and more rows of weights.
                roomy = replace(array, requantizing=Requantizing.LOGIC, tie_bits=None, step_memory=None, **ROOMY)  # type: ignore[arg-type]
                tensors = lay_out(self._network, roomy)
                self._tilers[key] = tensors, [_tiler(task, tensors, roomy) for task in self._network.tasks]
        if key in self._tilers:
            tensors, every = self._tilers[key]
            found = [tiler for tiler in every[first : first + len(network.tasks)] if tiler is not None]
            if len(found) == len(network.tasks):
                return tensors, found
        tensors = lay_out(network, array)
        return tensors, [Tiler(task, tensors, array) for task in network.tasks]

    def work(self, network: TaskNetwork, shape: ArrayConfig, streaming: ArrayConfig) -> Work:
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

    def _works(self, network: TaskNetwork, shape: ArrayConfig, streaming: ArrayConfig) -> list[Work | None]:
        """Return the work of each task; None where it exceeds a limit. Raises: MappingError: values are too wide."""
        every = self._counted.each(network, shape, streaming.weight_stream)
        return [None if isinstance(work, MappingError) else work for work in every]


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
        self._timed: dict[ArrayConfig, list[_Timed]] = {}
        self._costed: dict[ArrayConfig, Option | None] = {}
        self._live: dict[int, int] = {}
        self._frontiers: dict[int, list[Option]] = {}

    @cached_property
    def transfers(self) -> int:
        """An estimate of the cycles of input and output."""
        inside, outside = (self.network.values.get(name) for name in (self.network.source, self.network.output))
        beats = prod(inside.shape) if inside is not None else 0
        return beats + (prod(outside.shape) if outside is not None else 0)

    def within(self, interval: int) -> list[Option]:
        """Return the arrays of at most so many cycles per frame that no other one beats in all resources."""
        if interval not in self._frontiers:
            found = list(self._fast(interval))
            self._frontiers[interval] = [found[index] for index in frontier([option.cost for option in found])]
        return self._frontiers[interval]

    def _fast(self, interval: int) -> Iterator[Option]:
        """Yield arrays of at most so many cycles per frame, the smallest first, without those that are far larger."""
        least = None
        for shape in self._shapes:
            if least is not None and shape.products > CHAINS.larger * least:
                return
            if shape.products * interval < self.network.products:
                continue
            for timed in self._times(shape):
                for array in timed.arrays if timed.cycles <= interval else ():
                    option = self._option(array, timed)
                    # Exact cycles may be more than estimated.
                    if option is not None and option.cycles <= interval:
                        least = least or shape.products
                        yield option

    def settle(self, option: Option) -> None:
        """Compile the program of an option, and replace estimates by exact numbers.

        Its memory plan also corrects the estimates of other arrays with words of the same width.
        """
        plain = option.plain
        bits = plain.word_bits
        # They hold the estimate that is replaced here.
        self._frontiers.clear()
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
        words = self._arrays.words(plain, need)
        if need <= words:
            cost = self._arrays.cost_with(plain, words)
            self._costed[plain] = Option(plain, words, compiled.cycles, cost, exact=True)

    @cached_property
    def _shapes(self) -> list[ArrayConfig]:
        """Arrays that may run the segment, those with the fewest products first."""
        try:
            return sorted(self._arrays.shapes(self.network), key=lambda shape: shape.products)
        except MappingError:
            return []

    @cached_property
    def _widths(self) -> list[ArrayConfig]:
        """The widths that the segment needs, as arrays, for each kind of requantizer."""
        return self._arrays.widths(self.network, self._arrays.shapes(self.network))

    @cached_property
    def _functions(self) -> list[RankedSteps]:
        """The steps of functions that are no lines."""
        found = (task.lines[0].ranked for task in self.network.tasks if task.lines)
        return [one for one in found if one is not None]

    @cached_property
    def _can_stream(self) -> bool:
        """Whether an array that streams weights may be faster: there are tasks of a single position."""
        return any(task.window.is_global for task in self.network.tasks)

    def _times(self, shape: ArrayConfig) -> list[_Timed]:
        """Return the estimates for an array, and for one that streams weights if that is clearly faster."""
        if shape not in self._timed:
            found, most = list[_Timed](), None
            for array in (shape, self._arrays.streaming(shape)) if self._can_stream else (shape,):
                with suppress(MappingError):
                    timed = self._estimate(shape, array)
                    if most is None or timed.cycles * ARRAYS.slower < most:
                        most = timed.cycles
                        found.append(timed)
            self._timed[shape] = found
        return self._timed[shape]

    def _estimate(self, shape: ArrayConfig, array: ArrayConfig) -> _Timed:
        """Return the estimates for an array, which may stream weights; `shape` is the same array without that."""
        work = self._arrays.work(self.network, shape, array)
        own = [self._arrays.dressed(array, one, work.rows) for one in self._widths]
        if not own:
            raise MappingError("no array runs these layers")
        words = 2 * descriptor_words(array) + work.words + load_words(self._functions, own[0])
        return _Timed(tuple(own), self.transfers + work.cycles_on(own[0]), work.heads(own[0]) + words)

    def _option(self, array: ArrayConfig, timed: _Timed) -> Option | None:
        """Return the option for an array; None if it is known not to run the segment."""
        if array not in self._costed:
            try:
                need = timed.words + self._live_words(array)
            except MappingError:
                need = CHAINS.most_words + 1
            self._costed[array] = self._with_memory(array, need, timed.cycles)
        return self._costed[array]

    def _with_memory(self, array: ArrayConfig, need: int, cycles: int) -> Option | None:
        """Return the option of an array with a memory of at least `need` words; None if that is too much."""
        words = self._arrays.words(array, need)
        if need > min(words, CHAINS.most_words) or self._arrays.memory_cost(array, words).ebr > self._arrays.budget.ebr:
            return None
        return Option(array, words, cycles, self._arrays.cost_with(array, words))

    def _live_words(self, array: ArrayConfig) -> int:
        """Return an estimate of the words of values in memory, if results lie over what is read for the last time."""
        if array.word_bits not in self._live:
            tensors, tilers = self._arrays.laid_out(self.network, array)
            lives = find_lives(self.network, tensors, tilers)
            self._live[array.word_bits] = _most_live(lives, len(tilers))
        return self._live[array.word_bits]


def _tiler(task: Task, tensors: dict[str, Tensor], array: ArrayConfig) -> Tiler | None:
    """Return what makes the records of a task; None if it exceeds a limit of the array."""
    try:
        return Tiler(task, tensors, array)
    except MappingError:
        return None


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
