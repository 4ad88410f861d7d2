"""Places of values in the memory of a shared engine.

A value has its place while it is needed; a result may lie over words of its source that were read for the last time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.engines.shared import ArrayConfig
from nnhw.errors import MappingError
from nnhw.mapping.shared.program.fusion import Fusion, band_reads, band_writes
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.program.tasks import STREAMING
from nnhw.mapping.shared.program.tensors import Tensor
from nnhw.mapping.shared.program.tiles import Tiler
from nnhw.mapping.shared.program.walks import allows, distances, first_writes, last_reads
from nnhw.mapping.shared.settings import MEMORY


@dataclass(frozen=True)
class Life:
    """The life of a storage: which words of a value are needed during which tasks.

    Parameters
    ----------
    name: name of the value that is stored.
    words: number of its words, with those behind its last pixel that are overwritten.
    born, dies: index of the first task that writes it (-1: the input comes in), and of the last that reads it.
    """

    name: str
    words: int
    born: int
    dies: int


@dataclass(frozen=True)
class MemoryPlan:
    """The place of each storage.

    Parameters
    ----------
    lives: all storages, in the order of their birth.
    places: address of each storage, relative to the first word of all.
    words: number of words that they take together.
    """

    lives: tuple[Life, ...]
    places: dict[str, int]
    words: int

    def live_words(self, task: int) -> int:
        """Return the words of all storages that are needed during a task."""
        return sum(life.words for life in self.lives if life.born <= task <= life.dies)


def plan_memory(
    network: TaskNetwork,
    tensors: Mapping[str, Tensor],
    tilers: Sequence[Tiler],
    turns: int = 0,
    fusions: Sequence[Fusion] = (),
) -> MemoryPlan:
    """Return places for all values, with as few words in all as a beam search finds; the network keeps it.

    Parameters
    ----------
    tensors: the layout of the network's values with these fusions. tilers: of its tasks, on one array.
    turns: number of first tasks that run in bands, together with the input (see `Bands`).
    fusions: groups of tasks that run band by band.
    """
    # Layouts and the order of tiles depend on no other fields of the array, and a search tries many that have the same.
    array = tilers[0].array
    key = array.lanes, array.word_bits, array.activation_bits, array.weight_bits, turns, tuple(fusions)
    if key not in network.plans:
        network.plans[key] = _plan(find_lives(network, tensors, tilers, turns, fusions), tilers, fusions)
    found: MemoryPlan = network.plans[key]
    return found


def _plan(lives: tuple[Life, ...], tilers: Sequence[Tiler], fusions: Sequence[Fusion]) -> MemoryPlan:
    """Return the plan that a search finds; see `plan_memory`."""
    places = MemorySearcher(lives, tilers, fusions).run()
    # Places are relative to the input's, and may be negative.
    first = min(places.values())
    words = max(places[life.name] + life.words for life in lives) - first
    return MemoryPlan(lives, {name: place - first for name, place in places.items()}, words)


def find_lives(
    network: TaskNetwork,
    tensors: Mapping[str, Tensor],
    tilers: Sequence[Tiler],
    turns: int = 0,
    fusions: Sequence[Fusion] = (),
) -> tuple[Life, ...]:
    """Return the life of each storage, in the order of their birth; see `plan_memory`."""
    born, dies, spill = {network.source: -1}, {network.source: 0}, dict.fromkeys(tensors, 0)
    for index, tiler in enumerate(tilers):
        if tiler.target is not None:
            born.setdefault(tiler.target.storage, index)
            dies[tiler.target.storage] = index
            spill[tiler.target.storage] = max(spill[tiler.target.storage], tiler.overflow)
        for source in tiler.sources:
            dies[source.storage] = index
    if network.output in dies:
        # Codes are sent behind the last task.
        dies[network.output] = len(tilers)
    # In bands, all storages of the first tasks are in use from the first rows of the input on.
    for name, begin in born.items():
        if begin < turns:
            born[name], dies[name] = -1, max(dies[name], turns - 1)
    for fusion in fusions:
        chosen = tilers[fusion.first : fusion.end]
        for tiler in chosen:
            assert tiler.target is not None
            # All tasks of a group run alternately: what they read stays until its end, and what they write is there
            # from its first band on.
            (source,), target = tiler.sources, tiler.target
            dies[source.storage] = max(dies[source.storage], fusion.end - 1)
            born[target.storage] = min(born[target.storage], fusion.first)
    found = [Life(name, tensors[name].words(tilers[0].array) + spill[name], born[name], dies[name]) for name in born]
    return tuple(sorted(found, key=lambda life: life.born))


_Placed = tuple[str, int, "_Placed | None"]
"""A storage, its place, and the one that was placed before it: a linked list, which partial plans share."""


@dataclass(frozen=True)
class _Partial:
    """A partial plan: places of the storages that are born first.

    Parameters
    ----------
    live: the storages that are needed when the last one is born, and that one, with their places.
    low, high: the lowest place of all storages, and the one behind the highest.
    last: the list of all of them.
    """

    live: tuple[tuple[Life, int], ...]
    low: int
    high: int
    last: _Placed

    @property
    def words(self) -> int:
        """Words from the lowest place to the highest."""
        return self.high - self.low

    def words_with(self, life: Life, place: int) -> int:
        """Return the words with one more storage."""
        return max(self.high, place + life.words) - min(self.low, place)

    def with_one(self, life: Life, place: int, live: Sequence[tuple[Life, int]]) -> _Partial:
        """Return the plan with one more storage; `live` are those that are needed when it is born."""
        low, high = min(self.low, place), max(self.high, place + life.words)
        return _Partial((*live, (life, place)), low, high, (life.name, place, self.last))

    def seen(self, born: int) -> Hashable:
        """Return a key of all that matters to storages that are born later."""
        # Plans that differ only in storages that are dead by then are equally good: the search keeps one of them.
        return (*((life.name, place - self.low) for life, place in self.live if life.dies > born), self.words)

    def places(self) -> Iterator[tuple[str, int]]:
        """Yield each storage with its place, the last one first."""
        last: _Placed | None = self.last
        while last is not None:
            name, place, last = last
            yield name, place


class MemorySearcher:
    """Beam search over the places of storages, in the order of their birth; places are relative to the input's."""

    def __init__(self, lives: Sequence[Life], tilers: Sequence[Tiler], fusions: Sequence[Fusion]) -> None:
        self.order = list(lives)
        self.tilers = tilers
        self.fusions = {tilers[fusion.end - 1].task.node: fusion for fusion in fusions}
        self.writers = Counter(one.target.storage for one in tilers if one.target is not None)
        self.walks: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
        self.overlaps: dict[tuple[str, str], list[int]] = {}
        self.allowed: dict[tuple[str, str, int], bool] = {}

    def run(self) -> dict[str, int]:
        """Return the place of each storage.

        A plan never becomes smaller by another storage. So what a narrow beam finds bounds the partial plans of the
        wide one, which is the same with fewer of them: it puts smaller plans first, and they come from smaller ones.
        """
        narrow = self.beam(MEMORY.narrow_beam, None)
        assert narrow is not None
        best = self.beam(MEMORY.beam, narrow.words)
        # The wide beam may hold other plans until the end, all larger.
        best = best or self.beam(MEMORY.beam, None)
        assert best is not None
        return dict(best.places())

    def beam(self, width: int, most: int | None) -> _Partial | None:
        """Return the smallest plan that a beam finds; None if it finds none of at most `most` words."""
        first = self.order[0]
        beam = [_Partial(((first, 0),), 0, first.words, (first.name, 0, None))]
        for life in self.order[1:]:
            found: dict[Hashable, _Partial] = {}
            for partial in beam:
                live = [(other, place) for other, place in partial.live if other.dies >= life.born]
                for place in self._candidates(life, live, partial):
                    if most is not None and partial.words_with(life, place) > most:
                        continue
                    if all(self._apart(life, place, other, other_place) for other, other_place in live):
                        more = partial.with_one(life, place, live)
                        found.setdefault(more.seen(life.born), more)
            # A stable sort: of plans of one size, the first that was found stays in front.
            beam = sorted(found.values(), key=lambda partial: partial.words)[:width]
        return beam[0] if beam else None

    def _candidates(self, life: Life, live: Sequence[tuple[Life, int]], partial: _Partial) -> set[int]:
        """Return places to try: at both ends of the plan, next to live storages, and over them as far as allowed."""
        found = {partial.low, partial.high - life.words}
        for other, place in live:
            found |= {place - life.words, place + other.words}
            if self._may_overlap(life, other):
                found |= {place + distance for distance in self._distances(life, other)}
        return found

    def _may_overlap(self, life: Life, other: Life) -> bool:
        """Return whether another storage is read for the last time by the task that writes this one."""
        fusion, begin = self.fusions.get(life.name), life.born
        if fusion is not None:
            (source,), begin = self.tilers[fusion.first].sources, fusion.end - 1
            if source.storage != other.name:
                return False
        # A storage that several tasks write, such as that of a concatenation, has no single walk to compare with.
        return other.dies == begin and self.writers[life.name] == 1

    def _apart(self, life: Life, place: int, other: Life, other_place: int) -> bool:
        """Return whether a storage, at its place, overwrites nothing that is still to be read of another one."""
        if place >= other_place + other.words or place + life.words <= other_place:
            return True
        return self._may_overlap(life, other) and self._allows(life, other, place - other_place)

    def _allows(self, life: Life, other: Life, distance: int) -> bool:
        """Return whether a storage may lie so far behind another one; partial plans ask the same again and again."""
        key = life.name, other.name, distance
        if key not in self.allowed:
            self.allowed[key] = allows(*self._walk(life, other), distance)
        return self.allowed[key]

    def _distances(self, life: Life, other: Life) -> list[int]:
        key = life.name, other.name
        if key not in self.overlaps:
            self.overlaps[key] = distances(*self._walk(life, other))
        return self.overlaps[key]

    def _walk(self, life: Life, other: Life) -> tuple[np.ndarray, np.ndarray]:
        """Return the times of the last read of each word of `other`, and of the first write of each word of `life`."""
        key = life.name, other.name
        if key not in self.walks:
            if (fusion := self.fusions.get(life.name)) is not None:
                own = band_reads(fusion, self.tilers, other.words), band_writes(fusion, self.tilers, life.words)
                self.walks[key] = own
                return own
            tiler = self.tilers[life.born]
            # A task may read a storage twice, as both of its summands.
            sources = [source for source in tiler.sources if source.storage == other.name]
            reads = np.max([last_reads(tiler, source, other.words) for source in sources], axis=0)
            self.walks[key] = reads, first_writes(tiler, life.words)
        return self.walks[key]


class ProgramTooLarge(MappingError):
    """A program does not fit into the memory of an array.

    Parameters
    ----------
    message: for the user. array: the array.
    bits: size of the memory that it needs.
    plan: the places of its values; None: none was made, as program and input alone are too large.
    """

    def __init__(self, message: str, array: ArrayConfig, bits: int, plan: MemoryPlan | None) -> None:
        remedy = "use fewer bits for weights or activations, smaller feature maps, a larger board"
        super().__init__(message, f"{remedy}, or {STREAMING}")
        self.array, self.bits, self.plan = array, bits, plan


def too_large(plan: MemoryPlan, program: int, array: ArrayConfig) -> ProgramTooLarge:
    """Return the error that program and values do not fit into the memory of an array, with advice.

    Parameters
    ----------
    program: words of the program.
    """
    need = program + plan.words
    # The task during which most is needed: the values that are named are those to be made smaller.
    peak = max(range(-1, max(life.dies for life in plan.lives) + 1), key=plan.live_words)
    names = ", ".join(f"'{life.name}' {life.words}" for life in plan.lives if life.born <= peak <= life.dies)
    return _too_large(
        f"{need}", f"values {plan.words} (most at once: {names})", program, array, need * array.word_bits, plan
    )


def input_too_large(source: int, program: int, array: ArrayConfig) -> ProgramTooLarge:
    """Return the error that the program and the input alone do not fit into the memory of an array, with advice.

    Parameters
    ----------
    source: words of the input. program: words of the program.
    """
    need = program + source
    return _too_large(f"at least {need}", f"the input {source}", program, array, need * array.word_bits, None)


def _too_large(
    need: str, values: str, program: int, array: ArrayConfig, bits: int, plan: MemoryPlan | None
) -> ProgramTooLarge:
    message = (
        f"the program needs {need} words of {array.word_bits} bits, the memory has {array.words}: weights and "
        f"descriptors {program}, {values}"
    )
    return ProgramTooLarge(message, array, bits, plan)


def _kept(tensor: Tensor) -> str:
    """Return, for the memory map, how many rows of a value are in memory at once; empty if all are."""
    return f", {tensor.rows} rows at once" if tensor.rows < tensor.value.shape[1] else ""


def memory_map(
    network: TaskNetwork, tensors: Mapping[str, Tensor], plan: MemoryPlan, program: int, array: ArrayConfig
) -> str:
    """Return a table, for the report, of the place of each value and of the layers during which it is needed."""
    names = ["input", *(task.name for task in network.tasks), "output"]
    rows = [("words", "from", "to", "what", "layers")]
    rows.append((str(program), "0", str(program - 1), "program: descriptors, constants, weights", "all"))
    for life in plan.lives:
        first = program + plan.places[life.name]
        shape = " x ".join(str(size) for size in network.values[life.name].shape)
        what = f"{life.name} ({shape}{_kept(tensors[life.name])})"
        layers = f"{names[life.born + 1]} .. {names[life.dies + 1]}"
        rows.append((str(life.words), str(first), str(first + life.words - 1), what, layers))
    used = program + plan.words
    rows.append((str(array.words - used), str(used), str(array.words - 1), "free", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(
            [
                *(cell.rjust(width) for cell, width in zip(row[:3], widths, strict=False)),
                row[3].ljust(widths[3]),
                row[4],
            ]
        ).rstrip()
        for row in rows
    )
