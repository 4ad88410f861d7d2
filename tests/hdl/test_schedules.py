"""FIFOs of joins and buffers in large RAM, in whole accelerators: the hardware agrees with the models."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.window import WindowConfig
from nnhw.hdl.engine import Engine
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.mapping.schedule import FRAMES
from tests.hdl.streams import Result, check, run_stream
from tests.mapping.networks import NETWORKS
from tests.mapping.test_schedule import deepest, network_of, with_depth
from tests.sim.networks import random_codes

FEW_BLOCK_RAMS = Budget(lc=20_000, ebr=4, spram=8)


@cache
def mapped(name: str, budget: Budget, interval: int | None = None) -> Accelerator:
    return map_body(NETWORKS[name](), "test", budget, target_interval=interval)


def run(accelerator: Accelerator, name: str, pattern: tuple[str, str], limit: int = 50_000) -> tuple[Result, list[int]]:
    """Run random frames through an accelerator; return what was seen, and the output bytes that should have been."""
    codes = random_codes(NETWORKS[name](), FRAMES)
    (values,) = ir.run(NETWORKS[name](), codes)
    expected = accelerator.output_format.pack_beats(values).reshape(-1).tolist()
    rows = accelerator.input_format.pack_beats(codes)
    i_beats = [int.from_bytes(row.tobytes(), "little") for row in rows]
    return run_stream(Engine(accelerator), i_beats, len(expected), pattern, limit_cycles=limit), expected


def check_cycles(accelerator: Accelerator, result: Result) -> None:
    """Compare the cycles of a run without stalls with the schedule."""
    beats = accelerator.output_format.frame_beats
    last = result.cycles[beats - 1 :: beats]
    assert last[0] - result.first + 1 == accelerator.schedule.latency_cycles
    assert [cycle - result.first for cycle in last] == accelerator.schedule.ends(FRAMES)


@pytest.mark.parametrize("pattern", [("none", "none"), ("random", "bursts")], ids="-".join)
def test_accelerator_with_large_ram_equals_ir_and_prediction(pattern: tuple[str, str]) -> None:
    accelerator = mapped("residual", FEW_BLOCK_RAMS)
    large = {type(stage.config) for stage in accelerator.stages if getattr(stage.config, "large", False)}
    assert large == {FifoConfig, WindowConfig}
    result, expected = run(accelerator, "residual", pattern)
    check(result, expected)
    if pattern == ("none", "none"):
        check_cycles(accelerator, result)


def test_fifo_that_is_too_shallow_slows_the_hardware_as_predicted() -> None:
    accelerator = mapped("residual_of_sums", Budget(lc=100_000, ebr=1000))
    network = network_of(accelerator)
    index, depth = deepest(network)
    shallow = with_depth(network, index, depth - 4)
    slower = replace(accelerator, stages=shallow.stages, schedule=shallow.schedule())
    assert slower.schedule.interval_cycles > accelerator.schedule.interval_cycles
    for each in (accelerator, slower):
        result, expected = run(each, "residual_of_sums", ("none", "none"))
        check(result, expected)
        check_cycles(each, result)


def test_fifo_that_is_much_too_shallow_hangs_the_hardware_as_predicted() -> None:
    accelerator = mapped("residual_of_sums", Budget(lc=100_000, ebr=1000), 2000)
    network = network_of(accelerator)
    index, depth = deepest(network)
    shallow = with_depth(network, index, depth // 2)
    assert shallow.can_hang()
    result, expected = run(replace(accelerator, stages=shallow.stages), "residual_of_sums", ("none", "none"), 5000)
    assert accelerator.schedule.latency_cycles + FRAMES * accelerator.schedule.interval_cycles < 5000
    assert len(result.outputs) < len(expected)
