"""Shared engines with engines in front of them: how many layers those take, and what passes between them."""

from __future__ import annotations

import pytest

from nnhw.accelerator import Accelerator
from nnhw.engines.shared import ArrayConfig
from nnhw.families import ECP5, ICE40
from nnhw.mapping.budget import Budget
from nnhw.mapping.shared import network_of
from nnhw.mapping.shared.search.arrays import by_speed, least_estimate
from nnhw.mapping.shared.search.fronts import Fronts
from nnhw.mapping.shared.search.pairs import Pair, Pairing
from nnhw.mapping.shared.search.partition import partitions
from nnhw.mapping.shared.settings import NEIGHBOURS
from nnhw.mapping.shared.shared_accelerator import map_shared
from tests.mapping.shared.networks import NETWORKS
from tests.mapping.shared.programs import check_program

ROOMY = Budget(lc=70_000, ebr=200, dsp=156)
"""About what the link leaves of an ECP5-85."""


def test_layers_stand_in_front_of_a_large_array_where_that_is_faster() -> None:
    body = NETWORKS["residual"](0)
    mapping = next(mapping for mapping in map_shared(body, "ulx3s_85f", ROOMY, ECP5) if len(mapping.programs) == 1)
    accelerator, (compiled,) = mapping.accelerator, mapping.programs
    array, whole = compiled.config.array, network_of(body)
    assert array.products >= 100
    assert len(accelerator.stages) > 1
    assert compiled.network.products >= NEIGHBOURS.least_shared * whole.products
    assert accelerator.stages[-2].output.lanes == array.i_lanes
    assert accelerator.schedule.interval_cycles < least_estimate(whole, ROOMY, ECP5, 1)


def test_a_network_whose_first_layers_are_most_of_it_has_none_in_front() -> None:
    body = NETWORKS["depthwise"](0)
    mapping = next(mapping for mapping in map_shared(body, "ulx3s_85f", ROOMY, ECP5) if len(mapping.programs) == 1)
    accelerator, (compiled,) = mapping.accelerator, mapping.programs
    assert len(accelerator.stages) == 1
    check_program(body, compiled)


def test_engines_in_front_that_do_not_fit_beside_an_array_give_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget(lc=4000, ebr=28, dsp=8, spram=4)
    _, way = partitions(NETWORKS["residual"](0), 1)
    assert way.front is not None
    pairing = Pairing(Fronts(way.front, "icebreaker", budget, ICE40), network_of(way.shared), 1)
    fits = [(cycles, array) for cycles, array in by_speed(pairing.network, budget, ICE40) if array.products <= 8]
    tried, joined = list[Accelerator](), Pairing._joined

    def refuse_first(self: Pairing, front: Accelerator, array: ArrayConfig) -> Pair | None:
        tried.append(front)
        return joined(self, front, array) if len(tried) > 1 else None

    monkeypatch.setattr(Pairing, "_joined", refuse_first)
    cycles, array = fits[0]
    pair = pairing._beside(array, cycles, None)
    assert pair is not None
    assert len(tried) == 2
    assert pair.front is tried[1]


def test_engines_stand_in_a_row_only_where_that_is_faster() -> None:
    found = {name: map_shared(NETWORKS[name](0), "ulx3s_85f", ROOMY, ECP5) for name in ("depthwise", "wide")}
    assert {name: [len(mapping.programs) for mapping in mappings] for name, mappings in found.items()} == {
        "depthwise": [3, 1],
        "wide": [1, 1],
    }
    first, second = found["depthwise"]
    assert first.cycles <= second.cycles
    assert first.title == "3 shared engines in a row, with 1, 4 and 1 layers"
    slowest = max(compiled.cycles for compiled in first.programs)
    assert slowest <= first.cycles == first.accelerator.schedule.interval_cycles
