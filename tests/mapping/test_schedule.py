"""Depths of FIFOs: enough for the schedule and for any stalls, and one less delays something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from nnhw.accelerator import INPUT, Accelerator, EngineConfig, Stage, Stream
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.fifo import FifoConfig, FifoModel
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import SumConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.timing import NetworkRun, Schedule, run_network
from nnhw.engines.window import WindowConfig
from nnhw.errors import StuckError
from nnhw.families import ECP5, ICE40, Family
from nnhw.ir import IntType
from nnhw.mapping import schedule
from nnhw.mapping.cost import cost
from nnhw.mapping.mapper import map_body
from nnhw.mapping.schedule import (
    BUFFER_DEPTH,
    StreamNetwork,
    _endless,
    cheaper_depths,
    into_large_ram,
    schedule_stages,
)
from tests.mapping.bodies import LayerSpec, make_body
from tests.mapping.networks import NETWORKS, residual_vectors
from tests.mapping.test_mapper import LARGE

JOINED = ("concatenated", "rescaled", "residual", "residual_of_sums")


@cache
def mapped(name: str, interval: int | None = None) -> Accelerator:
    return map_body(NETWORKS[name](), "test", LARGE, target_interval=interval)


def network_of(accelerator: Accelerator) -> StreamNetwork:
    formats = accelerator.input_format.frame_beats, accelerator.output_format.frame_beats
    return StreamNetwork(accelerator.stages, *formats)


def with_depth(network: StreamNetwork, index: int, depth: int) -> StreamNetwork:
    config = network.stages[index].config
    assert isinstance(config, FifoConfig)
    return network.with_fifo(index, replace(config, depth=depth))


def deepest(network: StreamNetwork) -> tuple[int, int]:
    """Return index and depth of the deepest FIFO of a join."""
    depths = {index: network.stages[index].config.depth for index in network.joining}  # type: ignore[union-attr]
    return max(depths.items(), key=lambda item: item[1])


class Stalling:
    """A model of one stream in and one out that takes nothing in random cycles."""

    def __init__(self, model: Any, rng: np.random.Generator, share: float) -> None:
        self._model, self._rng, self._share = model, rng, share
        self._stalls = False

    @property
    def o_valid(self) -> bool:
        """Whether a beat is there."""
        return bool(self._model.o_valid)

    def ready(self, o_ready: bool) -> bool:
        """Return whether a beat is taken, and decide whether this cycle stalls."""
        self._stalls = bool(self._rng.random() < self._share)
        return not self._stalls and bool(self._model.ready(o_ready))

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Pass one clock edge; it is never known that nothing changes."""
        self._model.step(i_valid and not self._stalls, o_ready)
        return True


def run_stalled(network: StreamNetwork, seed: int, limit: int = 60_000) -> int:
    """Run frames with random stalls in front of every engine but joins and forks; return the cycles that it took."""
    rng = np.random.default_rng(seed)
    models = []
    for stage in network.stages:
        model: Any = stage.config.model()
        models.append(model if hasattr(model, "o_valids") else Stalling(model, rng, rng.choice([0.0, 0.1, 0.5, 0.9])))
    sources: Sequence[Any] = [stage.sources for stage in network.stages]
    return run_network(models, sources, network.i_beats, network.o_beats, 3, limit)[1][-1]


@pytest.mark.parametrize("interval", [None, 2000])
@pytest.mark.parametrize("name", JOINED)
def test_depths_never_hang_under_random_stalls(name: str, interval: int | None) -> None:
    network = network_of(mapped(name, interval))
    assert network.joining
    assert not network.can_hang()
    assert len({run_stalled(network, seed) for seed in range(6)}) > 1


@pytest.mark.parametrize("interval", [None, 2000])
@pytest.mark.parametrize("name", JOINED)
def test_depths_keep_the_schedule_and_are_not_above_the_high_water(name: str, interval: int | None) -> None:
    accelerator = mapped(name, interval)
    network = network_of(accelerator)
    assert network.schedule() == accelerator.schedule
    endless = network
    for index in network.joining:
        endless = with_depth(endless, index, 10_000)
    found, schedule = endless.schedule(), accelerator.schedule
    # A buffer is passed in one cycle, a memory in two: shallow FIFOs may gain a cycle each, and never lose one.
    buffers = sum(network.stages[index].config.depth == BUFFER_DEPTH for index in network.joining)  # type: ignore[union-attr]
    assert found.latency_cycles - buffers <= schedule.latency_cycles <= found.latency_cycles
    assert schedule.interval == found.interval


@pytest.mark.parametrize(("name", "interval"), [("residual_of_sums", None), ("concatenated", None), ("residual", 2000)])
def test_few_less_stall(name: str, interval: int | None) -> None:
    """Buffers on the longer branch, chosen behind it, shorten that by a cycle each: so many may be too many."""
    accelerator = mapped(name, interval)
    network = network_of(accelerator)
    index, depth = deepest(network)
    assert depth > 10
    buffers = sum(network.stages[index].config.depth == BUFFER_DEPTH for index in network.joining)  # type: ignore[union-attr]
    shallow = with_depth(network, index, depth - 1 - buffers).schedule()
    assert shallow.interval_cycles > accelerator.schedule.interval_cycles or (
        shallow.latency_cycles > accelerator.schedule.latency_cycles
    )


def test_depths_suffice_for_more_frames_than_are_stepped_to_find_them() -> None:
    # The line buffer behind the fork delays each frame a little less, until the shortcut is full in every fifth one.
    network = network_of(map_body(residual_vectors(), "test", LARGE))
    index, depth = deepest(network)
    few = _endless(network)
    network.run(few)
    model = few[index]
    assert isinstance(model, FifoModel)
    shallow = with_depth(network, index, model.high_water)
    assert shallow.schedule().interval == 6
    assert shallow.schedule().period.count(4) == 4
    assert depth > model.high_water
    assert network.schedule().interval == max(stage.config.cycles for stage in network.stages) == 4


def test_schedule_says_when_every_frame_ends() -> None:
    network = network_of(map_body(residual_vectors(), "test", LARGE))
    for one in (network, with_depth(network, deepest(network)[0], 20)):
        models = [stage.config.model() for stage in one.stages]
        sources = [stage.sources for stage in one.stages]
        start, ends = run_network(models, sources, one.i_beats, one.o_beats, 400, 10_000)
        schedule = one.schedule()
        assert [end - start for end in ends] == schedule.ends(400)
        assert schedule.interval_in(schedule.ends(400)) == schedule.interval


def test_schedule_of_a_network_that_settles_late_is_that_of_full_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    network = with_depth(network_of(map_body(residual_vectors(), "test", LARGE)), 10, 20)
    exact = network.schedule()
    monkeypatch.setattr("nnhw.mapping.schedule.MOST_FRAMES", 6)
    monkeypatch.setattr("nnhw.mapping.schedule.MOST_STEPS", 0)
    estimate, settled = network.estimate(), network.schedule()
    assert not estimate.joined
    assert not settled.joined
    assert settled.interval == exact.interval == 6
    assert settled.ends(100) == exact.ends(6)


@pytest.mark.parametrize(("frames", "interval"), [(1, None), (2, 2187), (3, 2187), (9, 2187)])
def test_run_of_a_network_that_settles_late_shows_the_interval_of_its_frames(
    frames: int, interval: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnhw.mapping.schedule.MOST_STEPS", 0)
    specs = [LayerSpec(4, (3, 3)), LayerSpec(6, (3, 3))]
    accelerator = map_body(make_body((1, 13, 13), IntType(0, 3), specs), "test", LARGE, target_interval=2187)
    network, schedule = network_of(accelerator), accelerator.schedule
    assert not schedule.joined
    models, sources = [stage.config.model() for stage in network.stages], [stage.sources for stage in network.stages]
    start, ends = run_network(models, sources, network.i_beats, network.o_beats, frames, 100_000)
    assert [end - start for end in ends] == schedule.ends(6)[:frames] + [end - start for end in ends[6:]]
    assert schedule.interval_in([end - start for end in ends]) == interval


ENDS = (43, 55, 65, 73, 86, 94, 107, 115)
"""Ends of frames, of which the distances from the third on are 8 and 13 by turns."""


@pytest.mark.parametrize(
    ("frames", "joined", "interval"),
    [
        (1, True, None),
        (2, True, Fraction(12)),
        (3, True, Fraction(10)),
        (4, True, Fraction(9)),
        (5, True, Fraction(21, 2)),
        (8, True, Fraction(21, 2)),
        (1, False, None),
        (2, False, Fraction(12)),
        (5, False, Fraction(21, 2)),
        (8, False, Fraction(42, 4)),
        (7, False, Fraction(34, 3)),
    ],
)
def test_interval_of_a_run_is_measured_over_a_period_or_over_its_later_half(
    frames: int, joined: bool, interval: Fraction | None
) -> None:
    schedule = Schedule(44, 11, lead=(12, 10), period=(8, 13), joined=joined)
    assert schedule.interval_in(ENDS[:frames]) == interval


def test_much_less_hangs() -> None:
    network = network_of(mapped("residual_of_sums", 2000))
    index, depth = deepest(network)
    shallow = with_depth(network, index, depth // 2)
    assert shallow.can_hang()
    with pytest.raises(StuckError, match="its configuration is stuck"):
        shallow.schedule()
    with pytest.raises(StuckError, match="its configuration is stuck"):
        run_stalled(shallow, seed=1)


def beside_a_window(depth: int) -> StreamNetwork:
    """Return a window's sums beside a shortcut of a FIFO, in front of which an engine holds some beats, too."""
    window, code = WindowConfig(8, 8, 4, (3, 3), (1, 1), (1, 1), 2, 3, 1, 4, 6), IntType(0, 15)
    pool = ChannelwiseConfig(9, 2, 2, "sum", code, 36, row_lanes=3)
    through = ChannelwiseConfig(1, 2, 2, "sum", code, 36)
    engines: list[tuple[EngineConfig, tuple[tuple[int, int], ...]]] = [
        (ForkConfig(2, 2, 4, 72), (INPUT,)),
        (PadConfig(6, 6, 2, 2, 4, (1, 1), (1, 1), 0), ((0, 0),)),
        (window, ((1, 0),)),
        (pool, ((2, 0),)),
        (through, ((0, 1),)),
        (FifoConfig(depth, 2, 4, 72), ((4, 0),)),
        (SumConfig((through.raw, pool.raw), (1, 1), 2, 2, 36), ((5, 0), (3, 0))),
    ]
    stages = [Stage(f"{place}", "", "", *engine, Stream(2, 4, code)) for place, engine in enumerate(engines)]
    return StreamNetwork(tuple(stages), 72, 72)


@pytest.mark.parametrize(("depth", "hangs"), [(20, True), (24, False)])
def test_schedule_is_kept_only_where_no_stall_breaks_it(depth: int, hangs: bool) -> None:
    network = beside_a_window(depth)
    assert network.can_hang() == hangs
    assert network.keeps(network.estimate()) != hangs


def test_depths_are_less_than_what_fills_up() -> None:
    stages = mapped("concatenated").stages
    joins = network_of(mapped("concatenated")).joining
    assert sum(stages[index].config.depth for index in joins) < 50  # type: ignore[union-attr]


def test_no_trials_leave_the_depths_of_the_high_water(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = mapped("concatenated")
    network = network_of(accelerator)
    monkeypatch.setattr("nnhw.mapping.schedule.MOST_TRIAL_CYCLES", 0)
    stages, schedule = schedule_stages(network.stages, network.i_beats, network.o_beats)
    assert schedule.interval == accelerator.schedule.interval
    assert schedule.latency_cycles >= accelerator.schedule.latency_cycles
    depths = [stages[index].config.depth for index in network.joining]  # type: ignore[union-attr]
    assert sum(depths) > 400


def test_schedules_that_are_known_are_not_stepped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(mapped("concatenated"))
    known: dict[bytes, schedule.Fitted] = {}
    first = schedule_stages(network.stages, network.i_beats, network.o_beats, known=known)
    monkeypatch.setattr("nnhw.mapping.schedule._as_deep_as_full", lambda network: pytest.fail("stepped again"))
    named = tuple(replace(stage, products=stage.products + 1) for stage in network.stages)
    again = schedule_stages(named, network.i_beats, network.o_beats, known=known)
    assert again[1] == first[1]
    assert [stage.config for stage in again[0]] == [stage.config for stage in first[0]]
    assert [stage.products for stage in again[0]] == [stage.products for stage in named]
    with pytest.raises(pytest.fail.Exception, match="stepped again"):
        schedule_stages(network.stages, network.i_beats + 1, network.o_beats, known=known)


def test_cheaper_depths_take_fewer_block_rams_or_logic() -> None:
    deep = FifoConfig(600, lanes=2, bits=8, beats=1000)
    depths = cheaper_depths(deep, ICE40)
    assert depths[-2:] == [257, 513]
    assert [cost(replace(deep, depth=depth)).ebr for depth in depths[-2:]] == [1, 2]
    assert all(not replace(deep, depth=depth).in_block_ram for depth in depths[:-2])
    assert cheaper_depths(FifoConfig(4, lanes=1, bits=1, beats=10), ICE40) == [BUFFER_DEPTH]


@pytest.mark.parametrize("family", [ICE40, ECP5], ids=lambda family: family.name)
def test_cheaper_depths_are_those_that_looking_at_each_depth_finds(family: Family) -> None:
    rng = np.random.default_rng(7)
    for depth in (3, 40, 300, 700, 1500):
        for _ in range(4):
            lanes, bits = int(rng.choice([1, 2, 8])), int(rng.choice([1, 4, 9, 13]))
            deep = FifoConfig(depth + int(rng.integers(depth)), lanes, bits, beats=5000)
            costs = [cost(replace(deep, depth=one), family) for one in range(BUFFER_DEPTH, deep.depth + 1)]
            fewer = {BUFFER_DEPTH + place for place in range(len(costs) - 1) if costs[place].ebr < costs[place + 1].ebr}
            found = cheaper_depths(deep, family)
            assert fewer == {one for one in found if one in fewer or costs[one - BUFFER_DEPTH].ebr}
            assert found == sorted(found)


def test_deepest_fifos_go_into_large_ram() -> None:
    accelerator = mapped("residual", 2000)
    stages = accelerator.stages
    index, depth = deepest(network_of(accelerator))
    before = cost(stages[index].config)
    assert before.ebr
    moved = into_large_ram(accelerator, before.ebr, 4, ICE40)
    config = moved.stages[index].config
    assert isinstance(config, FifoConfig)
    assert (config.large, config.depth) == (True, depth)
    assert cost(config).ebr == 0 < cost(config).spram
    assert moved.schedule == network_of(moved).schedule()
    assert not network_of(moved).can_hang()
    assert into_large_ram(accelerator, before.ebr, 0, ICE40) == accelerator
    assert into_large_ram(accelerator, 0, 4, ICE40) == accelerator


def test_cycle_bound_counts_every_input() -> None:
    join = next(stage.config for stage in mapped("concatenated").stages if isinstance(stage.config.i_beats, tuple))
    assert join.cycle_bound == sum(join.i_beats) + join.o_beats  # type: ignore[arg-type]


@pytest.mark.parametrize(("frames", "slowest"), [(6, 0), (1000, 1)])
def test_slowest_model_is_told_by_half_a_cycle_where_many_frames_were_stepped(frames: int, slowest: int) -> None:
    even = tuple(64 * frame for frame in range(frames))
    turns = tuple(64 * frame + (frame + 1) // 2 for frame in range(frames))
    assert NetworkRun(0, turns, 0, (even, turns)).slowest == slowest


def test_rough_schedule_steps_no_long_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = map_body(make_body((2, 9, 9), IntType(0, 15), [LayerSpec(4, (3, 3)), LayerSpec(3, steps=0)]), "test", LARGE)
    network = network_of(chain)
    exact = network.estimate()
    assert network.estimate(rough=True) == exact
    monkeypatch.setattr(schedule, "MOST_STEPPED", 10)
    rough = network.estimate(rough=True)
    assert rough.interval_cycles == max(stage.config.cycles for stage in chain.stages) <= exact.interval_cycles
    assert rough.latency_cycles >= exact.latency_cycles
    assert not rough.joined  # so it is stepped before it is taken
    joining = network_of(mapped("residual"))
    assert joining.estimate(rough=True) == joining.estimate()
