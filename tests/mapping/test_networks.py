"""Networks with branches, padding, depthwise and grouped convolutions: mapped, equal at every boundary."""

from __future__ import annotations

import pytest

from nnhw.engines.fifo import FifoConfig
from nnhw.mapping.mapper import map_body
from tests.mapping.networks import NETWORKS, residual, wide_input
from tests.mapping.test_mapper import LARGE, check_equal


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("interval", [None, 100_000])
def test_network_equals_interpreter_at_every_boundary(name: str, interval: int | None) -> None:
    body = NETWORKS[name]()
    check_equal(body, map_body(body, "test", LARGE, target_interval=interval))


def test_fifo_of_a_branch_is_as_deep_as_the_other_branch_is_long() -> None:
    accelerator = map_body(residual(), "test", LARGE)
    depths = [stage.config.depth for stage in accelerator.stages if isinstance(stage.config, FifoConfig)]
    assert depths
    assert max(depths) > 8


def test_input_is_as_wide_as_the_fastest_engines_need() -> None:
    body = wide_input()
    fast, slow = (map_body(body, "test", LARGE, target_interval=interval) for interval in (10, 1000))
    assert fast.input_format.frame_bytes == slow.input_format.frame_bytes == 30
    assert (fast.input_format.beat_bytes, slow.input_format.beat_bytes) == (3, 1)
    assert fast.schedule.interval_cycles == 10
