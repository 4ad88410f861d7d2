"""Engines behind a shared one: no slower than it where they fit so, else as fast as they may be."""

from __future__ import annotations

import pytest

from nnhw.accelerator import Accelerator
from nnhw.engines.fifo import FifoConfig
from nnhw.errors import MappingError
from nnhw.families import ICE40
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import cost
from nnhw.mapping.mapper import Mapper
from nnhw.mapping.shared.search.behind import Behind, Behinds
from nnhw.mapping.shared.search.partition import Partition, partitions
from tests.mapping.shared.networks import NETWORKS, U4, decoder


def behind(lc: float, interval: int) -> Behind:
    """Map what stands behind the array in a network whose last two layers it does not run."""
    way = next(partitions(decoder(U4), 0, 2))
    assert way.behind is not None
    return Behinds(way.behind, "icebreaker", Budget(lc=lc, ebr=28), ICE40).find(interval)


def test_engines_behind_keep_up_with_the_shared_one() -> None:
    for interval in (500, 2000):
        assert behind(4000, interval).accelerator.schedule.interval_cycles <= interval
    assert behind(4000, 500).cost(ICE40).lc >= behind(4000, 2000).cost(ICE40).lc


def test_engines_behind_count_what_packs_their_results() -> None:
    found = behind(4000, 1200)
    packing = found.accelerator.output_format.packing
    assert packing is not None
    engines = sum(cost(stage.config, ICE40).lc for stage in found.stages(0))
    assert found.cost(ICE40).lc == engines + cost(packing, ICE40).lc


def test_engines_behind_are_slower_where_they_do_not_fit() -> None:
    slow = behind(4000, 1200)
    tight = behind(slow.cost(ICE40).lc, 600)
    assert 600 < tight.accelerator.schedule.interval_cycles <= 2400
    with pytest.raises(MappingError, match="does not fit"):
        behind(100, 600)


def test_engines_behind_are_mapped_once_for_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    way = next(partitions(decoder(U4), 0, 2))
    assert way.behind is not None
    asked, best = list[int](), Mapper.best

    def noted(self: Mapper, budget: Budget, target_interval: int | None) -> Accelerator:
        asked.append(target_interval or 0)
        return best(self, budget, target_interval)

    monkeypatch.setattr(Mapper, "best", noted)
    tight = Behinds(way.behind, "icebreaker", Budget(lc=behind(4000, 1200).cost(ICE40).lc, ebr=28), ICE40)
    asked.clear()
    found = [tight.find(600) for _ in range(3)]
    # Each multiple of the interval was tried once, the shortest first.
    assert asked == sorted(set(asked))
    assert asked[0] == 600
    assert found[0].accelerator is found[2].accelerator


def test_stages_behind_begin_with_a_queue_and_lead_on_from_the_shared_engine() -> None:
    stages = behind(4000, 2000).stages(3)
    assert isinstance(stages[0].config, FifoConfig)
    assert stages[0].sources == ((3, 0),)
    for index, stage in enumerate(stages[1:], start=5):
        assert all(3 < source < index for source, _ in stage.sources)


@pytest.mark.parametrize(
    ("counts", "title"),
    [
        ((0, 0), "all layers on it"),
        ((1, 0), "1 layer in front of it"),
        ((2, 1), "2 layers in front of it, 1 layer behind it"),
    ],
)
def test_partition_has_a_title_for_people(counts: tuple[int, int], title: str) -> None:
    assert Partition(None, NETWORKS["plain"](0), None, counts).title == title
