"""Networks that compiled C steps do what Python's do: each frame ends in the same cycle, and the same is counted."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import nnhw.flow.virtual.stepping as stepping
from benchmarks.random_recurrent import random_recurrent
from nnhw.engines.fifo import FifoModel
from nnhw.engines.network import Network, make_network, stepped_by
from nnhw.engines.slice import SliceConfig
from nnhw.engines.timing import NetworkRun, PipelineModel, RegisterModel, run_until_periodic
from nnhw.engines.unpack import UnpackConfig
from nnhw.errors import StuckError, ToolError
from nnhw.flow.virtual.compiled import find_cc
from nnhw.flow.virtual.stepping import KINDS, compiled_network
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.mapping.schedule import StreamNetwork
from nnhw.mapping.shared.search.fitting import compile_body
from nnhw.passes import lower, split
from sim.cases import CASES
from tests.mapping.networks import NETWORKS
from tests.mapping.shared.networks import NETWORKS as SHARED_NETWORKS
from tests.mapping.shared.programs import array_of
from tests.mapping.test_schedule import mapped, network_of

pytestmark = pytest.mark.skipif(find_cc() is None, reason="needs a C compiler")

LARGE = Budget(lc=100_000, ebr=1000)
LIMIT = 3000
"""Cycles that two networks are compared for."""


def counted(models: Sequence[Any]) -> list[Any]:
    """Return what FIFOs have counted."""
    return [(model.high_water, model.was_full) for model in models if isinstance(model, FifoModel)]


def throttled(config: Any, rng: random.Random) -> tuple[list[Any], list[list[Any]], list[int]]:
    """Return models, sources and beats of a chain: an engine between others that pause in turns of their own."""

    def pause() -> list[Any]:
        take, give = rng.choice([(1, 1), (1, 3), (2, 1), (3, 2), (2, 5)])
        line = PipelineModel(rng.randrange(1, 6), *rng.choice([(1, 0, 1), (4, 3, 3), (5, 2, 1), (3, 2, 7)]))
        return [RegisterModel(take, give), line, FifoModel(rng.choice([None, 4, 9]), large=rng.random() < 0.3)]

    models = [*pause(), config.model(), *pause()]
    return models, [[index - 1] for index in range(len(models))], [rng.randrange(1, 9) for _ in models]


def both(build: Callable[[], tuple[list[Any], Any, Any]], use: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return what the same use of a network of Python and of one of C gives, and what its FIFOs have counted."""
    found = []
    for make in (Network, compiled_network):
        models, sources, beats = build()
        network = make(models, sources, beats)
        assert network is not None
        given = use(network)
        network.settle()
        found.append((given, network.cycle, network.first, network.ends, network.model_ends, counted(models)))
    return found[0], found[1]


def test_kinds_are_those_of_the_source() -> None:
    source = Path(stepping.__file__).with_name("stepping.c").read_text(encoding="utf-8")
    (kinds,) = re.findall(r"enum kind \{(.*?)\}", source)
    names = [kind.__name__.removesuffix("Model").removesuffix("Pipeline") or "Pipeline" for kind in KINDS]
    assert [name.strip() for name in kinds.split(",")] == [name.upper() for name in names]


@pytest.mark.parametrize("patient", [False, True])
def test_engines_between_others_that_pause_take_the_same_cycles(patient: bool) -> None:
    seen, moved = set(), 0
    unpack = {f"unpack_{bits}": UnpackConfig(bits, 5) for bits in (1, 3, 12, 20)}
    for name, config in [*((name, case()) for name, case in CASES.items()), *unpack.items()]:
        if type(config.model()) not in KINDS or hasattr(config.model(), "o_valids"):
            continue
        seen.add(type(config.model()))

        def use(network: Any) -> Any:
            return network.run(400, 5, 1000, LIMIT, patient)

        python, compiled = both(lambda: throttled(config, random.Random(name)), use)  # noqa: B023 - called at once
        assert compiled == python, name
        moved += len(python[0])
    assert {kind.__name__ for kind in seen} == {
        *("PipelineModel", "RegisterModel", "FifoModel", "WindowModel", "PoolModel", "PadModel"),
        *("SliceModel", "RowModel", "UnpackModel"),
    }
    assert moved > 1000


@pytest.mark.parametrize("patient", [False, True])
def test_models_that_count_for_long_take_the_same_cycles(patient: bool) -> None:
    def build() -> tuple[list[Any], Any, Any]:
        models = [
            *(RegisterModel(1, 700), SliceConfig(1, 8, 1, 6000, 1500, 4100).model(), FifoModel(1700)),
            *(PipelineModel(1300, 2100, 2099, 1), RegisterModel(1, 2500), FifoModel(4), PipelineModel(3, 2, 1, 1)),
        ]
        return models, [[index - 1] for index in range(len(models))], [1] * len(models)

    def use(network: Any) -> Any:
        return network.run(200, 1, 1000, 40_000, patient)

    python, compiled = both(build, use)
    assert compiled == python
    assert len(python[0]) > 5


@pytest.mark.parametrize("patient", [False, True])
def test_programs_between_others_that_pause_take_the_same_cycles(patient: bool) -> None:
    frames, given = 2, 0
    for name in ("plain", "residual", "zero_point_out"):
        config = compile_body(SHARED_NETWORKS[name](0), array_of(8, 2, 8)).config
        beats, cycles = frames * config.i_beats, 8 * frames * sum(one.cycles for one in config.model().actions)

        def use(network: Any) -> Any:
            return network.run(beats, 1, 10_000, cycles, patient)  # noqa: B023 - called at once

        python, compiled = both(lambda: throttled(config, random.Random(name)), use)  # noqa: B023 - called at once
        assert compiled == python, name
        given += len(python[0])
    assert given > 10


def runs(network: StreamNetwork, compiled: bool) -> list[Any]:
    """Return what the ways to step a mapped network give, by Python or by C."""
    sources, frame = network._sources, network._frame_cycles

    def models() -> list[Any]:
        return [stage.config.model() for stage in network.stages]

    made: list[Any] = []

    def make(*given: Any) -> Any:
        made.append(compiled_network(*given) if compiled else None)
        return made[-1]

    found: list[Any] = []
    with stepped_by(make):
        for patient in (False, True):
            used = models()
            (network.run_patiently if patient else network.run)(used)
            found.append(counted(used))
        run = run_until_periodic(models(), sources, network._beats, frame, (6, 1000))
        found += [run, run_until_periodic(models(), sources, network._beats, frame, (64, 20_000), held=run.slowest)]
        try:
            found.append(run_until_periodic(models(), sources, network._beats, 3, (6, 1000)))
        except StuckError as error:
            found.append(str(error))
    assert all((one is not None) is compiled for one in made)
    return found


@pytest.mark.parametrize("interval", [None, 2000])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_mapped_networks_are_stepped_to_the_same_cycles(name: str, interval: int | None) -> None:
    network = network_of(mapped(name, interval))
    python, compiled = runs(network, compiled=False), runs(network, compiled=True)
    assert compiled == python
    assert isinstance(python[2], NetworkRun)


@pytest.mark.parametrize(("seed", "behind", "sequences"), [(4, False, 1), (12, False, 3), (10, True, 1), (16, True, 1)])
def test_loops_are_stepped_to_the_same_cycles(seed: int, behind: bool, sequences: int) -> None:
    body = split(lower(random_recurrent(seed, behind=behind))).body
    network = network_of(map_body(body, "board", LARGE, target_interval=200, sequences=sequences))
    assert network.has_loop
    python, compiled = runs(network, compiled=False), runs(network, compiled=True)
    assert compiled == python
    assert isinstance(python[2], NetworkRun)


def test_python_steps_what_the_source_does_not_know() -> None:
    class Own(RegisterModel):
        """A model of one's own."""

    with stepped_by(lambda *given: None):
        with stepped_by(compiled_network):
            assert isinstance(make_network([Own()], [[-1]]), Network)
            assert not isinstance(make_network([RegisterModel()], [[-1]]), Network)
        assert isinstance(make_network([RegisterModel()], [[-1]]), Network)


def test_python_steps_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[str, ...]:
        raise ToolError("no compiler")

    monkeypatch.setattr(stepping, "c_compiler", missing)
    stepping.load.cache_clear()
    assert compiled_network([RegisterModel()], [[-1]]) is None
    stepping.load.cache_clear()
