"""Where values lie in the memory of a shared engine: as long as they are needed, results over what is done with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.engines.shared import ArrayConfig
from nnhw.errors import MappingError
from nnhw.mapping.shared.program.fusion import Fusion, band_reads, band_writes
from nnhw.mapping.shared.program.network import TaskNetwork
from nnhw.mapping.shared.program.tasks import STREAMING
from nnhw.mapping.shared.program.tensors import Tensor
from nnhw.mapping.shared.program.tiles import Tiler
from nnhw.mapping.shared.program.walks import allows, distances, first_writes, last_reads
from nnhw.mapping.shared.settings import MEMORY


@dataclass(frozen=True)
class Life:
    """How long a storage holds what is needed.

    Parameters
    ----------
    name: of the value whose words they are.
    words: that it takes, those that are overwritten behind its last pixel included.
    born, dies: index of the first task that writes it (-1: the input), and of the last that reads it.
    """

    name: str
    words: int
    born: int
    dies: int


@dataclass(frozen=True)
class MemoryPlan:
    """Where each storage lies.

    Parameters
    ----------
    lives: in the order of their birth.
    places: address of each storage, from the first word of all on.
    words: that they take together.
    """

    lives: tuple[Life, ...]
    places: dict[str, int]
    words: int

    def live_words(self, task: int) -> int:
        """Return the words of all storages that a task finds or writes."""
        return sum(life.words for life in self.lives if life.born <= task <= life.dies)


def plan_memory(
    network: TaskNetwork,
    tensors: Mapping[str, Tensor],
    tilers: Sequence[Tiler],
    turns: int = 0,
    fusions: Sequence[Fusion] = (),
) -> MemoryPlan:
    """Return places for all values, with a peak as small as a beam search finds.

    Parameters
    ----------
    turns: of the first tasks, that take turns with each other and with the input.
    fusions: tasks that take turns with each other.
    """
    lives = find_lives(network, tensors, tilers, turns, fusions)
    search = _Search(lives, tilers, fusions)
    places = search.run()
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
    """Return how long each storage is needed, in the order in which they begin; see `plan_memory`."""
    born, dies, spill = {network.source: -1}, {network.source: 0}, dict.fromkeys(tensors, 0)
    for index, tiler in enumerate(tilers):
        if tiler.target is not None:
            born.setdefault(tiler.target.storage, index)
            dies[tiler.target.storage] = index
            spill[tiler.target.storage] = max(spill[tiler.target.storage], tiler.overflow)
        for source in tiler.sources:
            dies[source.storage] = index
    if network.output in dies:
        dies[network.output] = len(tilers)
    for name, begin in born.items():
        if begin < turns:
            born[name], dies[name] = -1, max(dies[name], turns - 1)
    for fusion in fusions:
        chosen = tilers[fusion.first : fusion.end]
        for tiler in chosen:
            assert tiler.target is not None
            (source,), target = tiler.sources, tiler.target
            dies[source.storage] = max(dies[source.storage], fusion.end - 1)
            born[target.storage] = min(born[target.storage], fusion.first)
    found = [Life(name, tensors[name].words(tilers[0].array) + spill[name], born[name], dies[name]) for name in born]
    return tuple(sorted(found, key=lambda life: life.born))


class _Search:
    """Beam search over the places of storages, in the order of their birth; places are relative to the input's."""

    def __init__(self, lives: Sequence[Life], tilers: Sequence[Tiler], fusions: Sequence[Fusion]) -> None:
        self.lives = {life.name: life for life in lives}
        self.order = list(lives)
        self.tilers = tilers
        self.fusions = {tilers[fusion.end - 1].task.node: fusion for fusion in fusions}
        self.writers = Counter(one.target.storage for one in tilers if one.target is not None)
        self.walks: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
        self.overlaps: dict[tuple[str, str], list[int]] = {}

    def run(self) -> dict[str, int]:
        """Return the place of each storage."""
        beam: list[dict[str, int]] = [{self.order[0].name: 0}]
        for life in self.order[1:]:
            found: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
            for places in beam:
                live = [self.lives[name] for name in places if self.lives[name].dies >= life.born]
                for place in self._candidates(life, live, places):
                    if all(self._apart(life, place, other, places[other.name]) for other in live):
                        more = {**places, life.name: place}
                        key = self._key(more, life)
                        if key not in found or self._extent(more) < self._extent(found[key]):
                            found[key] = more
            beam = sorted(found.values(), key=self._extent)[: MEMORY.beam]
        return beam[0]

    def _extent(self, places: Mapping[str, int]) -> int:
        return max(place + self.lives[name].words for name, place in places.items()) - min(places.values())

    def _key(self, places: Mapping[str, int], life: Life) -> tuple[tuple[str, int], ...]:
        """Return what later storages see of a partial plan."""
        low = min(places.values())
        high = max(place + self.lives[name].words for name, place in places.items())
        live = [(name, place - low) for name, place in places.items() if self.lives[name].dies > life.born]
        return (*live, ("", high - low))

    def _candidates(self, life: Life, live: Sequence[Life], places: Mapping[str, int]) -> set[int]:
        """Return places worth trying: at the ends of all, beside or over what is live."""
        low = min(places.values())
        high = max(place + self.lives[name].words for name, place in places.items())
        found = {low, high - life.words}
        for other in live:
            place = places[other.name]
            found |= {place - life.words, place + other.words}
            if self._may_overlap(life, other):
                found |= {place + distance for distance in self._distances(life, other)}
        return found

    def _may_overlap(self, life: Life, other: Life) -> bool:
        """Return whether another storage is read for the last time while this one is written."""
        fusion, begin = self.fusions.get(life.name), life.born
        if fusion is not None:
            (source,), begin = self.tilers[fusion.first].sources, fusion.end - 1
            if source.storage != other.name:
                return False
        return other.dies == begin and self.writers[life.name] == 1

    def _apart(self, life: Life, place: int, other: Life, other_place: int) -> bool:
        """Return whether writing a storage leaves alone what is still to be read of another."""
        if place >= other_place + other.words or place + life.words <= other_place:
            return True
        return self._may_overlap(life, other) and allows(*self._walk(life, other), place - other_place)

    def _distances(self, life: Life, other: Life) -> list[int]:
        key = life.name, other.name
        if key not in self.overlaps:
            self.overlaps[key] = distances(*self._walk(life, other))
        return self.overlaps[key]

    def _walk(self, life: Life, other: Life) -> tuple[np.ndarray, np.ndarray]:
        """Return when the words of a storage are read for the last time, and when those of another are written."""
        key = life.name, other.name
        if key not in self.walks:
            if (fusion := self.fusions.get(life.name)) is not None:
                own = band_reads(fusion, self.tilers, other.words), band_writes(fusion, self.tilers, life.words)
                self.walks[key] = own
                return own
            tiler = self.tilers[life.born]
            sources = [source for source in tiler.sources if source.storage == other.name]
            reads = np.max([last_reads(tiler, source, other.words) for source in sources], axis=0)
            self.walks[key] = reads, first_writes(tiler, life.words)
        return self.walks[key]


class ProgramTooLarge(MappingError):
    """A program that does not fit into the memory of an array.

    Parameters
    ----------
    bits: of the memory that it needs.
    """

    def __init__(self, message: str, bits: int) -> None:
        super().__init__(message)
        self.bits = bits


def too_large(plan: MemoryPlan, program: int, array: ArrayConfig) -> ProgramTooLarge:
    """Return why a plan does not fit into the memory of an array, and what would help."""
    need, bits = program + plan.words, array.word_bits
    peak = max(range(-1, max(life.dies for life in plan.lives) + 1), key=plan.live_words)
    names = ", ".join(f"'{life.name}' {life.words}" for life in plan.lives if life.born <= peak <= life.dies)
    message = (
        f"the program needs {need} words of {bits} bits, the memory has {array.words}: weights and descriptors "
        f"{program}, values {plan.words} (most at once: {names}); use fewer bits for weights or activations, smaller "
        f"feature maps, a larger board, or {STREAMING}"
    )
    return ProgramTooLarge(message, need * bits)


def _kept(tensor: Tensor) -> str:
    """Return for people how many rows of a value memory holds at once, if not all."""
    return f", {tensor.rows} rows at once" if tensor.rows < tensor.value.shape[1] else ""


def memory_map(
    network: TaskNetwork, tensors: Mapping[str, Tensor], plan: MemoryPlan, program: int, array: ArrayConfig
) -> str:
    """Return for people what lies where, and from which layer to which."""
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
