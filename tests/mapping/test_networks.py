"""Networks with branches, padding, depthwise and grouped convolutions: mapped, equal at every boundary."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nnhw.boards import load_board
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.window import WindowConfig
from nnhw.errors import MappingError
from nnhw.families import Cost
from nnhw.ir import IntType
from nnhw.ir.ops import Linear, MaxPool2d, Pad
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import cost
from nnhw.mapping.mapper import map_body
from tests.mapping.networks import I4, NETWORKS, Network, residual, wide_input
from tests.mapping.products import PRODUCTS
from tests.mapping.test_mapper import LARGE, check_equal


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", NETWORKS | PRODUCTS)
@pytest.mark.parametrize("interval", [None, 100_000])
def test_network_equals_interpreter_at_every_boundary(name: str, interval: int | None) -> None:
    body = (NETWORKS | PRODUCTS)[name]()
    check_equal(body, map_body(body, "test", LARGE, target_interval=interval))


def test_fifo_of_a_branch_is_as_deep_as_the_other_branch_is_long() -> None:
    accelerator = map_body(residual(), "test", LARGE)
    depths = [stage.config.depth for stage in accelerator.stages if isinstance(stage.config, FifoConfig)]
    assert depths
    assert max(depths) > 8


def test_large_ram_holds_what_block_ram_has_no_room_for() -> None:
    net = Network((64, 7, 32), IntType(0, 255))
    pooled = [net.input]
    for _ in range(3):
        pooled.append(net.add(MaxPool2d((3, 1), (1, 1)), pooled[-1]))
    body, has = net.body(net.conv(pooled[-1], 1, (1, 1))), load_board("icebreaker").resources
    budget = Budget(has.lc, has.ebr, has.dsp, has.spram)
    accelerator = map_body(body, "icebreaker", budget)
    check_equal(body, accelerator)
    assert any(isinstance(stage.config, WindowConfig) and stage.config.large for stage in accelerator.stages)
    taken = sum((cost(stage.config) for stage in accelerator.stages), Cost())
    assert 0 < taken.spram <= has.spram
    assert taken.ebr <= has.ebr
    with pytest.raises(MappingError, match="the network does not fit"):
        map_body(body, "icebreaker", replace(budget, spram=0))


def test_input_is_as_wide_as_the_fastest_engines_need() -> None:
    body = wide_input()
    fast, slow = (map_body(body, "test", LARGE, target_interval=interval) for interval in (10, 1000))
    assert fast.input_format.frame_bytes == slow.input_format.frame_bytes == 23
    assert (fast.input_format.lanes, slow.input_format.lanes) == (6, 1)
    assert (fast.input_format.beat_bytes, slow.input_format.beat_bytes) == (3, 1)
    assert fast.schedule.interval_cycles == 10


def test_input_of_more_codes_than_a_byte_has_is_refused() -> None:
    net = Network((4,), IntType(-127, 129))
    message = "the model's input has 9 bits; the link carries at most 8 bits an element; quantize the input to 8 bits"
    with pytest.raises(MappingError, match=message):
        map_body(net.body(net.linear(net.input, 2)), "test", LARGE)


def test_burst_of_results_does_not_hold_up_its_engine() -> None:
    net = Network((16,), I4)
    body = net.body(net.add(Linear(), net.input, net.constant(net.rng.integers(-8, 8, (20, 16)), I4)))
    accelerator = map_body(body, "test", LARGE, overrides={"linear1": {"pe": 5, "channel_lanes": 1, "drain": 1}})
    check_equal(body, accelerator)
    # Five sums of two bytes take ten cycles, in which they leave one by one, and come within five.
    assert accelerator.output_format.element_bytes == 2
    assert [stage.config.depth for stage in accelerator.stages if isinstance(stage.config, FifoConfig)] == [5]
    assert accelerator.schedule.interval_cycles == 4 * 16


def test_border_does_not_hold_up_the_engine_in_front() -> None:
    net = Network((16, 6, 4), I4)
    x = net.code(net.conv(net.input, 8, (1, 1)))
    body = net.body(net.conv(net.add(Pad((1, 1), (1, 1)), x), 8, (3, 3), groups=8))
    one = {"channel_lanes": 1, "row_lanes": 1}
    accelerator = map_body(body, "test", LARGE, overrides={"conv2d1": {**one, "pe": 1}, "conv2d4": one})
    check_equal(body, accelerator)
    assert [stage.name for stage in accelerator.stages if isinstance(stage.config, FifoConfig)] == ["conv2d4.fifo"]
    assert accelerator.schedule.interval_cycles < 1.03 * 6 * 4 * 8 * 16


def test_line_buffer_of_a_busy_layer_takes_the_next_frame() -> None:
    net = Network((4, 17, 17), IntType(0, 255))
    x = net.code(net.conv(net.input, 8, (3, 3)), IntType(0, 255))
    body = net.body(net.conv(x, 4, (3, 3)))
    # A block RAM holds four rows of 15 pixels of 8 channels, enough for one row of windows and a row to come in.
    one = {"channel_lanes": 1, "row_lanes": 1, "pe": 1}
    stages = map_body(body, "test", LARGE, overrides={"conv2d1": one, "conv2d3": one}).stages
    windows = [stage.config for stage in stages if isinstance(stage.config, WindowConfig)]
    assert len(windows) == 2
    assert all(window.rows >= window.block_rows + window.rows_left for window in windows)


def test_line_buffers_grow_where_engines_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network((1, 13, 13), IntType(0, 255))
    x = net.code(net.conv(net.input, 16, (3, 3), stride=(2, 2)), IntType(0, 255))
    # The linear layer reads a map again and again; its block RAMs hold less than the next map beside it.
    body, one = net.body(net.linear(x, 10)), {"channel_lanes": 1, "row_lanes": 1}
    overrides = {"conv2d1": {**one, "pe": 2}, "linear4": {**one, "channel_lanes": 2, "pe": 1}}
    monkeypatch.setattr("nnhw.mapping.mapper.BUSY", (2.0,))  # no layer is as busy as that
    budget = Budget(lc=100_000, ebr=22)
    grown = map_body(body, "test", budget, overrides=overrides)
    check_equal(body, grown)
    monkeypatch.setattr("nnhw.mapping.waits.MOST_TRIALS", 0)
    waiting = map_body(body, "test", budget, overrides=overrides)
    slowest = max(stage.config.cycles for stage in grown.stages)
    assert grown.schedule.interval_cycles == slowest == 10 * 288
    assert waiting.schedule.interval_cycles > 1.1 * slowest
