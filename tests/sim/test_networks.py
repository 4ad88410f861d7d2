"""Networks with branches and borders in RTL: every boundary equals the IR, cycles equal the prediction."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnhw.flow.progress import SilentProgress
from nnhw.flow.simulate import boundary_values, simulate_accelerator
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from tests.mapping.networks import NETWORKS
from tests.sim.networks import random_codes
from tests.sim.test_benches import pytestmark as needs_simulator

PATTERNS = [("none", "none"), ("random", "rare")]
FRAMES = 5
BUDGET = Budget(lc=100_000, ebr=1000)
INTERVALS = {"residual": None, "wide_input": 10}
"""Cycles a frame that are asked for; None: the fastest, which has most parallel hardware to compile."""


@needs_simulator
@pytest.mark.parametrize("name", NETWORKS)
def test_network_in_rtl_equals_ir_and_prediction(name: str, tmp_path: Path) -> None:
    body = NETWORKS[name]()
    accelerator = map_body(body, "icebreaker", BUDGET, target_interval=INTERVALS.get(name, 2000))
    codes = random_codes(body, FRAMES)
    result = simulate_accelerator(
        accelerator, codes, boundary_values(body, codes), PATTERNS, tmp_path, SilentProgress()
    )
    facts = result.facts()
    assert facts["mismatches"] == 0
    assert set(facts["layers"].values()) == {0}
    assert result.equal
    schedule = accelerator.schedule
    # Where the period comes only after many frames, no short run shows it: then the ends of frames are all there is.
    assert (result.latency_cycles, result.interval) == (
        schedule.latency_cycles,
        schedule.interval if schedule.joined else None,
    )
    assert list(result.ends) == schedule.ends(result.samples)
