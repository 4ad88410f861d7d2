"""What links take in the cost model is what the benchmark of ports measured, and what synthesis makes of a link."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.ports import SAMPLES, device_cost
from nnhw.families import FAMILIES, ICE40
from nnhw.links import LINKS

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "ports.json"
ROW = json.loads(RESULT.read_text(encoding="utf-8"))


def test_cost_model_has_what_was_measured_of_every_kind_of_link() -> None:
    assert list(SAMPLES) == list(LINKS)
    for name, family in FAMILIES.items():
        costs = {"protocol": family.room.link, **dict(family.room.ports)}
        found = {part: {key: asdict(cost)[key] for key in ("lc", "ebr", "ff")} for part, cost in costs.items()}
        assert found == ROW["families"][name]


def test_link_of_the_cost_model_is_what_synthesis_makes_of_it() -> None:
    assert device_cost(SAMPLES["spi"], "ice40") == ICE40.room.link_of("spi")
