"""The meaning of an accelerator, stage by stage, is the IR's: for streams and for programs, and all of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from nnhw.accelerator import Accelerator
from nnhw.accelerator.boundaries import StoreBoundary
from nnhw.accelerator.execution import execute
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.requantize import MultiplyShift
from nnhw.engines.shared import Compute, SharedConfig
from nnhw.engines.window import WindowConfig
from nnhw.families import ICE40
from nnhw.flow.verification.comparison import Comparison, Passing, compare_stages
from nnhw.ir import BIPOLAR, Graph, run
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.mapping.shared.compile import compile_network, network_of
from nnhw.mapping.shared.search.behind import Behinds
from nnhw.mapping.shared.search.partition import partitions
from nnhw.mapping.shared.shared_accelerator import assemble, map_program
from tests.mapping.bodies import codes_of
from tests.mapping.networks import NETWORKS as STREAMS
from tests.mapping.shared.networks import I4, NETWORKS, U4, decoder
from tests.mapping.shared.programs import array_of

Mapped = tuple[Graph, Accelerator]
BITS = {"plain": 4, "depthwise": 4, "residual": 4, "bipolar": 2, "wide": 8, "zero_point": 8, "zero_point_out": 4}


def codes_for(body: Graph, frames: int = 2) -> np.ndarray:
    """Return random codes of the input."""
    kind = body.inputs[0].type
    return codes_of(kind.int_dtype, (frames, *kind.shape), np.random.default_rng(3))


def compared(body: Graph, accelerator: Accelerator) -> tuple[Comparison, ...]:
    """Compare an accelerator with its graph."""
    return compare_stages(accelerator, body, codes_for(body))


def program(name: str) -> Mapped:
    """Return a network on one shared engine."""
    body = NETWORKS[name](0)
    return body, map_program(body, "icebreaker", array_of(8, 2, BITS[name]))[0]


def row(name: str) -> Mapped:
    """Return a network on two shared engines in a row."""
    body = NETWORKS[name](0)
    way = next(way for way in partitions(body, 99) if way.front is not None)
    parts = (way.front, way.shared)
    networks = [replace(network_of(part), loaded=part is way.front, sent=part is way.shared) for part in parts if part]
    return body, assemble(
        body, "icebreaker", (), tuple(compile_network(one, array_of(8, 2, BITS[name])) for one in networks)
    )


def with_engines_behind(code: object) -> Mapped:
    """Return a network whose last two layers have engines of their own behind a shared one."""
    body = decoder(code)  # type: ignore[arg-type]
    way = next(partitions(body, 0, 2))
    assert way.behind is not None
    behind = Behinds(way.behind, "icebreaker", Budget(lc=4000, ebr=28), ICE40).find(2000)
    compiled = compile_network(replace(network_of(way.shared), sent=False), array_of(8, 2, 4))
    return body, assemble(body, "icebreaker", (), (compiled,), None, behind)


@pytest.mark.parametrize("name", ["depthwise", "grouped"])
def test_engines_of_a_layer_each_equal_the_graph(name: str) -> None:
    body = STREAMS[name]()
    found = compared(body, map_body(body, "any", Budget(inf, 10_000)))
    assert len(found) > 1
    assert [one for one in found if not one.equal] == []


@pytest.mark.parametrize("name", BITS)
def test_program_equals_the_graph_at_everything_that_it_stores(name: str) -> None:
    body, accelerator = program(name)
    found = compared(body, accelerator)
    stored = sum(isinstance(one, Compute) and not one.raw for one in accelerator.programs[0].records)
    assert len(found) == stored + 1 > 1
    assert [one for one in found if not one.equal] == []


@pytest.mark.parametrize(
    "make",
    [
        *(lambda name=name: row(name) for name in ("depthwise", "bipolar", "zero_point")),
        *(lambda code=code: with_engines_behind(code) for code in (U4, I4, BIPOLAR)),
    ],
)
def test_programs_beside_other_engines_equal_the_graph(make: Callable[[], Mapped]) -> None:
    body, accelerator = make()
    assert len(accelerator.stages) > 1
    assert [one for one in compared(body, accelerator) if not one.equal] == []


def test_output_bytes_are_those_of_the_format() -> None:
    for body, accelerator in (program("plain"), row("bipolar")):
        codes = codes_for(body, 1)
        left = execute(accelerator, codes[0]).output
        assert (accelerator.output_format.unpack_beats(left[None]) == run(body, codes)[0]).all()


def test_a_wrong_constant_of_a_program_differs_where_it_is_stored() -> None:
    body, accelerator = program("plain")
    config = accelerator.programs[0]
    at, first = next((at, one) for at, one in enumerate(config.records) if isinstance(one, Compute))
    assert first.addend is not None
    wrong = replace(first, addend=first.addend + (3 << config.array.shifts[first.shift]))
    config = SharedConfig(config.array, (*config.records[:at], wrong, *config.records[at + 1 :]))
    found = compared(body, replace(accelerator, stages=(replace(accelerator.stages[0], config=config),)))
    assert not found[0].equal
    assert isinstance(accelerator.boundaries[0], StoreBoundary)
    assert accelerator.boundaries[0].name == found[0].name


def test_beats_that_never_came_and_too_many_are_told_apart() -> None:
    body, accelerator = program("plain")
    codes = codes_for(body)
    expected = Passing.of_graph(accelerator, body, codes)
    came = [len(beats) for beats in (*expected.beats, expected.outputs.reshape(-1))]
    assert all(one.equal for one in expected.compared(accelerator, expected, came))
    late, more = [came[0] - 1, *came[1:]], [came[0] + 2, *came[1:]]
    assert expected.compared(accelerator, expected, late)[0].mismatches == 1
    assert expected.compared(accelerator, expected, more)[0].extra == 2


def test_engines_say_themselves_what_mapping_asks() -> None:
    _, accelerator = program("plain")
    shared = accelerator.stages[0].config
    assert shared.program is shared
    assert (shared.kind, shared.fifo, shared.product_array, shared.cycles) == ("shared", None, None, shared.cycle_bound)
    body = STREAMS["depthwise"]()
    configs = {type(stage.config): stage.config for stage in map_body(body, "any", Budget(inf, 10_000)).stages}
    assert {WindowConfig, PadConfig, ChannelwiseConfig} <= configs.keys()
    for kind, config in configs.items():
        assert config.kind == kind.__name__.removesuffix("Config").lower()
        assert (config.program, config.o_ports) == (None, 1)
        assert config.cycle_bound >= config.cycles >= config.o_beats


def test_ties_away_from_zero_round_half_to_the_greater_magnitude() -> None:
    sums = np.arange(-64, 64)[:, None]
    one = np.ones(1, np.int64)
    away = MultiplyShift(one, 8 * one, 4, -4, 4, tie_bits=4 * one)
    nearest = np.sign(sums) * ((np.abs(sums) + 8) // 16)
    assert (away.golden(sums) == np.clip(nearest, -4, 4)).all()
