"""What a search counts once for many arrays is what each of them takes: tiles of a kind, works, memory plans, costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from nnhw.engines.shared import ArrayConfig
from nnhw.engines.shared.cycles import fixed_cycles
from nnhw.errors import MappingError
from nnhw.families import ECP5, ICE40, Family
from nnhw.mapping.budget import Budget
from nnhw.mapping.shared import network_of
from nnhw.mapping.shared.compile import program_words, tilers_of
from nnhw.mapping.shared.program.memory_plan import plan_memory
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.program.tasks import Task
from nnhw.mapping.shared.program.tensors import Tensor, lay_out
from nnhw.mapping.shared.program.tiles import Tiler
from nnhw.mapping.shared.search import works as module
from nnhw.mapping.shared.search.array_cost import array_cost
from nnhw.mapping.shared.search.segments import Arrays
from nnhw.mapping.shared.search.works import Work, Works, together, work_of
from tests.mapping.shared.networks import NETWORKS
from tests.mapping.shared.programs import array_of
from tests.mapping.shared.test_chain import deep

ARRAYS = (array_of(4, 2, 8), array_of(8, 4, 8), array_of(2, 1, 8), array_of(16, 1, 8, word_bits=32))


def tilers(network: TaskNetwork, array: ArrayConfig) -> Sequence[Tiler]:
    """Return what makes the records of each task; nothing where the array does not run the network."""
    try:
        return tilers_of(network, lay_out(network, array), array)
    except MappingError:
        return ()


@pytest.mark.parametrize("name", NETWORKS)
def test_tiles_of_a_kind_are_counted_like_each_of_them(name: str) -> None:
    network = network_of(NETWORKS[name](0))
    every = [tiler for array in ARRAYS for tiler in tilers(network, array)]
    assert every
    for tiler in every:
        assert sum(count for _, count in tiler.kinds) == len(tiler.tiles)
        assert tiler.total(tiler.cycles) == sum(map(tiler.cycles, tiler.tiles))
        assert tiler.total(tiler.record_words) == sum(map(tiler.record_words, tiler.tiles))
        ends = [tile.target_word + tile.granules * tiler.array.parts for tile in tiler.tiles]
        if tiler.overflow:
            assert tiler.target is not None
            assert tiler.overflow == max(ends) - tiler.target.step


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_work_is_that_of_a_program_in_front_of_input_and_output(name: str, stream: bool) -> None:
    network, works = network_of(NETWORKS[name](0)), Works()
    for plain in ARRAYS:
        array = replace(plain, weight_stream=stream)
        every = tilers(network, array)
        if not every or not tilers(network, plain):
            continue
        for _ in range(2):  # the second time it is known
            work = together(works.of(network, plain, stream))
            tiles = sum(len(tiler.tiles) for tiler in every)
            cycles = sum(map(tiler_cycles, every)) + tiles * fixed_cycles(array)
            assert (work.tiles, work.cycles_on(array)) == (tiles, cycles)
            assert work.rows == max(tiler.rows for tiler in every)
            assert work.words + work.heads(array) <= program_words(network, every)


def test_work_of_tasks_that_differ_in_their_weights_alone_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(deep())
    assert len({task.weights.tobytes() for task in network.tasks}) == 5
    counted: list[str] = []

    def counting(task: Task, tensors: Mapping[str, Tensor], array: ArrayConfig) -> Work:
        counted.append(task.name)
        return work_of(task, tensors, array)

    monkeypatch.setattr(module, "work_of", counting)
    array, works = array_of(4, 2, 8), Works()
    found = works.of(network, array)
    assert found == [work_of(task, lay_out(network, array), array) for task in network.tasks]
    # Four convolutions of one size, of which the first reads the input and the last is read without a border.
    assert 2 <= len(counted) <= 4


def tiler_cycles(tiler: Tiler) -> int:
    """Return the cycles of all tiles of a task."""
    return sum(map(tiler.cycles, tiler.tiles))


def test_work_of_a_task_that_exceeds_an_array_is_refused_each_time() -> None:
    network, works = network_of(NETWORKS["plain"](0)), Works()
    for _ in range(2):
        with pytest.raises(MappingError, match="rows of weights at once"):
            works.of(network, array_of(4, 1, 8, rows=2))


@pytest.mark.parametrize("name", NETWORKS)
def test_memory_plan_is_the_same_for_arrays_that_differ_in_what_it_does_not_depend_on(name: str) -> None:
    for array in ARRAYS:
        kept = network_of(NETWORKS[name](0))
        first = tilers(kept, array)
        if not first:
            continue
        plan = plan_memory(kept, lay_out(kept, array), first)
        for other in (
            replace(array, simd=1, rows=4096),
            replace(array, drains=2, words=1 << 13, sum_bits=28, row_steps=True),
            replace(array, weight_stream=True, i_lanes=2),
        ):
            fresh = network_of(NETWORKS[name](0))
            assert plan_memory(fresh, lay_out(fresh, other), tilers_of(fresh, lay_out(fresh, other), other)) == plan
            assert plan_memory(kept, lay_out(kept, other), tilers_of(kept, lay_out(kept, other), other)) is plan


@pytest.mark.parametrize("words", [512, 1000, 1024, 5000])
@pytest.mark.parametrize(("budget", "family"), [(Budget(4400, 30, 8), ICE40), (Budget(40_000, 100, 70), ECP5)])
def test_cost_of_an_array_is_that_of_its_memory_and_of_what_is_beside_it(
    budget: Budget, family: Family, words: int
) -> None:
    arrays = Arrays(network_of(NETWORKS["plain"](0)), budget, family)
    for array in ARRAYS:
        wanted, found = array_cost(replace(array, words=words), family, False), arrays.cost_with(array, words)
        assert (found.ebr, found.dsp, found.spram) == (wanted.ebr, wanted.dsp, wanted.spram)
        assert (found.lc, found.ff) == pytest.approx((wanted.lc, wanted.ff))
