"""FIFOs of joins and buffers in large RAM, in whole accelerators: the hardware agrees with the models."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.window import WindowConfig
from nnhw.hdl.engine import Engine
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.mapping.schedule import BUFFER_DEPTH, FRAMES
from tests.hdl.streams import Result, check, run_stream
from tests.mapping.networks import NETWORKS
from tests.mapping.test_schedule import deepest, network_of, with_depth
from tests.sim.networks import random_codes

FEW_BLOCK_RAMS = Budget(lc=20_000, ebr=4, spram=8)
ROOMY = Budget(lc=100_000, ebr=1000)


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


@pytest.mark.parametrize("pattern", [("none", "none"), ("random", "bursts")], ids="-".join)
def test_readers_of_a_fork_have_buffers_on_a_large_device(pattern: tuple[str, str]) -> None:
    accelerator = mapped("residual", replace(ROOMY, large_device=True))
    stages = accelerator.stages
    forks = {index for index, stage in enumerate(stages) if isinstance(stage.config, ForkConfig)}
    readers = [stage for stage in stages if any(source in forks for source, _ in stage.sources)]
    # Three convolutions, and a sum, in front of which there is a deeper FIFO in any case.
    depths = sorted(stage.config.fifo.depth for stage in readers if stage.config.fifo is not None)
    assert depths[:3] == [BUFFER_DEPTH] * 3 < depths[3:]
    assert len(readers) == len(depths) == 4
    result, expected = run(accelerator, "residual", pattern)
    check(result, expected)
    if pattern == ("none", "none"):
        check_cycles(accelerator, result)


def test_readers_of_a_fork_have_no_buffers_on_other_devices() -> None:
    on_large, on_other = (mapped("residual", replace(ROOMY, large_device=large)) for large in (True, False))
    assert len(on_large.stages) == len(on_other.stages) + 3


def test_fifo_that_is_too_shallow_slows_the_hardware_as_predicted() -> None:
    accelerator = mapped("residual_of_sums", ROOMY)
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
    accelerator = mapped("residual_of_sums", ROOMY, 2000)
    network = network_of(accelerator)
    index, depth = deepest(network)
    shallow = with_depth(network, index, depth // 2)
    assert shallow.can_hang()
    result, expected = run(replace(accelerator, stages=shallow.stages), "residual_of_sums", ("none", "none"), 5000)
    assert accelerator.schedule.latency_cycles + FRAMES * accelerator.schedule.interval_cycles < 5000
    assert len(result.outputs) < len(expected)
