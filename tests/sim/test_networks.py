"""Networks with branches and borders in RTL: every boundary equals the IR, cycles equal the prediction."""

from __future__ import annotations

import pytest

from nnhw.engines.timing import as_number
from nnhw.flow.verification.equality import check_equality
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from tests.flow.test_virtual import needs_compiler
from tests.mapping.networks import NETWORKS
from tests.mapping.products import PRODUCTS
from tests.marks import covering
from tests.sim.networks import random_codes

PATTERNS = [("none", "none"), ("random", "rare")]
FRAMES = 5
BUDGET = Budget(lc=100_000, ebr=1000)
INTERVALS = {"residual": None, "wide_input": 10}
"""Cycles a frame that are asked for; None: the fastest, which has most parallel hardware to compile."""
LONG = {"concatenated", "gate_of_a_vector", "grouped"}
"""Networks whose engines are those of `zero_point_moved`, `squeeze_and_excitation`, and `rescaled` with `depthwise`."""


@needs_compiler
@pytest.mark.parametrize("name", covering(NETWORKS | PRODUCTS, (NETWORKS | PRODUCTS).keys() - LONG))
def test_network_in_rtl_equals_ir_and_prediction(name: str) -> None:
    body = (NETWORKS | PRODUCTS)[name]()
    accelerator = map_body(body, "icebreaker", BUDGET, target_interval=INTERVALS.get(name, 2000))
    plain, _ = equalities = check_equality(accelerator, body, random_codes(body, FRAMES), PATTERNS)
    assert all(equality.equal for equality in equalities)
    schedule = accelerator.schedule
    # Where the period comes only after many frames, as in `padded`, few frames show its interval all the same.
    assert plain.run.latency_cycles == schedule.latency_cycles
    assert plain.interval_cycles == as_number(schedule.interval)
    assert plain.run.ends == schedule.ends(FRAMES)
