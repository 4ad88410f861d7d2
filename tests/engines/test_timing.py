"""Networks of cycle models: chains, branches, FIFOs that are deep enough, and networks that are stuck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.fifo import FifoConfig, FifoModel
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.network import CycleModel
from nnhw.engines.pad import PadConfig
from nnhw.engines.timing import PipelineModel, run_network, run_pipeline
from nnhw.engines.window import WindowConfig
from nnhw.errors import StuckError
from nnhw.ir.types import IntType

UINT4 = IntType(0, 15)
BEATS = 6 * 6 * 2


def plain_pipeline(models: Sequence[CycleModel], i_beats: int, o_beats: int, frames: int) -> tuple[int, list[int]]:
    """Step a chain the slow, obvious way: all readies, then all steps."""
    left, done, finish, first = frames * i_beats, 0, [], -1
    for cycle in range(100_000):
        readies = [True]
        for model in reversed(models):
            readies.insert(0, model.ready(readies[0]))
        valids = [left > 0] + [model.o_valid for model in models]
        if valids[0] and readies[0]:
            left -= 1
            first = cycle if first < 0 else first
        done += valids[-1]
        if valids[-1] and done % o_beats == 0:
            finish.append(cycle)
        if len(finish) == frames:
            return first, finish
        for index, model in enumerate(models):
            model.step(valids[index], readies[index + 1])
    raise AssertionError("stuck")


def chain() -> list[Any]:
    """Return the engines of a padded convolution and a pooling."""
    weights = np.ones((4, 18), dtype=np.int64)
    return [
        ConvertConfig(1, 2, 4, 72),
        PadConfig(6, 6, 1, 2, 4, (1, 1), (1, 1), 0),
        WindowConfig(8, 8, 2, (3, 3), (1, 1), (2, 2), 2, 1, 2, 4, 6),
        MatmulConfig(2, 2, 1, 1, weights, UINT4, IntType(0, 1), None, 36),
        ChannelwiseConfig(4, 4, 1, "sum", IntType(0, 270), 9),
    ]


def test_chain_takes_the_cycles_of_the_plain_way() -> None:
    models, again = [[config.model() for config in chain()] for _ in range(2)]
    assert run_pipeline(models, 72, 36, 4, 50_000) == plain_pipeline(again, 72, 36, 4)


def residual(depth: int | None) -> tuple[list[Any], list[list[Any]]]:
    """Return models and sources of a 3 x 3 window sum beside a shortcut with a FIFO."""
    fork, pad = ForkConfig(2, 2, 4, BEATS), PadConfig(6, 6, 2, 2, 4, (1, 1), (1, 1), 0)
    window = WindowConfig(8, 8, 4, (3, 3), (1, 1), (1, 1), 2, 3, 1, 4, 6)
    pool = ChannelwiseConfig(9, 2, 2, "sum", UINT4, 36, row_lanes=3)
    join = SumConfig((UINT4, pool.raw), (1, 1), 2, 2, 36)
    fifo = FifoModel(None) if depth is None else FifoConfig(depth, 2, 4, BEATS).model()
    models = [fork.model(), pad.model(), window.model(), pool.model(), fifo, join.model()]
    return models, [[-1], [(0, 0)], [1], [(2, 0)], [(0, 1)], [4, 3]]


def test_network_tells_the_depth_that_delays_nothing() -> None:
    models, sources = residual(None)
    free = run_network(models, sources, BEATS, BEATS, 4, 10_000)
    depth = models[4].high_water
    assert 24 < depth < BEATS
    assert run_network(*residual(depth), BEATS, BEATS, 4, 10_000) == free
    later = run_network(*residual(24), BEATS, BEATS, 4, 10_000)
    assert later[1][-1] > free[1][-1]


class Restless:
    """A model that says in every cycle that something changed."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def step(self, *inputs: Any) -> bool:
        """Pass one clock edge."""
        self._model.step(*inputs)
        return True


@pytest.mark.parametrize("depth", [24, 27, 40])
def test_network_leaves_out_only_cycles_in_which_nothing_changes(depth: int) -> None:
    models, sources = residual(depth)
    again, _ = residual(depth)
    restless = [Restless(model) for model in again]
    assert run_network(models, sources, BEATS, BEATS, 4, 10_000) == run_network(
        restless, sources, BEATS, BEATS, 4, 10_000
    )


def test_network_rejects_a_fifo_that_is_too_shallow() -> None:
    with pytest.raises(StuckError) as caught:
        run_network(*residual(4), BEATS, BEATS, 2, 5_000)
    assert str(caught.value) == (
        "the pipeline did not finish 2 frames in 5000 cycles: its configuration is stuck; "
        "this is a mistake of nnhw, please report the model"
    )


@pytest.mark.parametrize(("depth", "hangs"), [(18, True), (20, True), (21, False)])
def test_patient_network_hangs_where_stalls_may_hang_it(depth: int, hangs: bool) -> None:
    # A pipeline in front of the FIFO holds beats as long as they come one close behind the other.
    def shortcut() -> tuple[list[Any], list[list[Any]]]:
        models, _ = residual(depth)
        models.insert(4, PipelineModel(latency=10))
        return models, [[-1], [(0, 0)], [1], [(2, 0)], [(0, 1)], [4], [5, 3]]

    free = run_network(*shortcut(), BEATS, BEATS, 3, 50_000)
    if hangs:
        with pytest.raises(StuckError, match="its configuration is stuck"):
            run_network(*shortcut(), BEATS, BEATS, 3, 50_000, patient=True)
    else:
        assert run_network(*shortcut(), BEATS, BEATS, 3, 50_000, patient=True)[1][-1] > free[1][-1]


def test_network_alternates_between_the_inputs_of_a_concatenation() -> None:
    fork, concat = ForkConfig(2, 1, 4, 8), ConcatConfig(1, (2, 2), 4, 4)
    models: list[Any] = [fork.model(), FifoModel(8), FifoModel(8), concat.model()]
    sources: list[list[Any]] = [[-1], [(0, 0)], [(0, 1)], [(1, 0), (2, 0)]]
    start, ends = run_network(models, sources, 8, 16, 3, 1_000)
    assert start == 0
    assert ends[2] - ends[1] == 16


@pytest.mark.parametrize("sources", [[[-1], [-1]], [[-1], [(0, 1)]], [[-1], [1]]], ids=["twice", "port", "backward"])
def test_network_rejects_streams_that_do_not_fit(sources: list[list[Any]]) -> None:
    models = [FifoModel(4), FifoModel(4)]
    with pytest.raises(ValueError, match="each stream of a network feeds one input of a later model; given "):
        run_network(models, sources, 1, 1, 1, 10)
