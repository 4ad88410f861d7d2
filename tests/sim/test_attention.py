"""Products of two computed matrices in RTL: every boundary equals the IR, cycles equal the prediction."""

from __future__ import annotations

import pytest

from nnhw.engines.timing import as_number
from nnhw.flow.verification.equality import check_equality
from nnhw.mapping.mapper import map_body
from tests.flow.test_virtual import needs_compiler
from tests.mapping.attention import PRODUCTS
from tests.marks import covering
from tests.sim.networks import random_codes
from tests.sim.test_networks import BUDGET, FRAMES, PATTERNS

# With a softmax, rows held and rows that pass, both orders of rows, a constant; the others have other sizes.
IN_RTL = (
    *("attention", "softmax_of_heads", "class_token", "constant_of_two_readers", "maps_transposed"),
    "against_the_order",
)


@needs_compiler
@pytest.mark.parametrize("name", covering(PRODUCTS, IN_RTL))
def test_product_in_rtl_equals_ir_and_prediction(name: str) -> None:
    body = PRODUCTS[name]()
    accelerator = map_body(body, "icebreaker", BUDGET, target_interval=300)
    plain, _ = equalities = check_equality(accelerator, body, random_codes(body, FRAMES), PATTERNS)
    assert all(equality.equal for equality in equalities)
    schedule = accelerator.schedule
    assert plain.run.latency_cycles == schedule.latency_cycles
    assert plain.interval_cycles == as_number(schedule.interval)
    assert plain.run.ends == schedule.ends(FRAMES)
