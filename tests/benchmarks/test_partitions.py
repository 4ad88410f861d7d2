"""The benchmark of two shared engines: cuts that share a device, and a table that people can read."""

from __future__ import annotations

import pytest

from benchmarks import partitions
from nnhw.mapping.budget import Budget
from nnhw.mapping.family import ECP5
from nnhw.mapping.shared import network_of
from tests.mapping.shared.networks import NETWORKS

BUDGET = Budget(lc=40_000, ebr=100, dsp=70)


def test_two_engines_run_all_layers_and_fit_the_device_together() -> None:
    body = NETWORKS["wide"](0)
    found = list(partitions.cuts(body, BUDGET, ECP5))
    assert found
    whole = network_of(body)
    for cut in found:
        first, second = (engine.compiled for engine in cut.engines)
        assert first.network.products + second.network.products == whole.products
        assert sum(engine.cost.lc for engine in cut.engines) <= BUDGET.lc
        assert sum(engine.cost.ebr for engine in cut.engines) <= BUDGET.ebr
        assert sum(engine.cost.dsp for engine in cut.engines) <= BUDGET.dsp
        assert cut.cycles == [first.cycles, second.cycles]


def test_table_has_networks_that_fit_and_others(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"cycles": 1000, "products": 16}
    two = {"layers": 2, "share": 0.5, "products": (8, 8), "cycles": (900, 1300)}
    rows = [
        {"network": "n", "board": "b", "one": one, "two": two, "ratio": 1.3},
        {"network": "m", "board": "b", "one": one, "two": None, "ratio": None},
    ]
    partitions.show({"networks": rows})
    shown = capsys.readouterr().out
    assert "1.30" in shown
    assert "do not fit" in shown
