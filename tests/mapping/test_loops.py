"""Loops: one step around the memories of states, mapped, and equal to the graph stage by stage and in hardware."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.random_recurrent import random_recurrent
from nnhw.accelerator import Accelerator
from nnhw.driver import Device
from nnhw.driver.connecting import make_model_link
from nnhw.engines.state import NEXT, StateConfig
from nnhw.errors import InputError, MappingError, NnhwError
from nnhw.families import ICE40
from nnhw.flow.verification.comparison import compare_stages
from nnhw.flow.verification.equality import check_equality
from nnhw.ir import Builder, Graph, Value, one_direction, run
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import accelerator_cost
from nnhw.mapping.loops import refuse_loops
from nnhw.mapping.mapper import map_body
from nnhw.passes import lower, split
from tests.sim.test_benches import pytestmark as needs_simulator

LARGE = Budget(lc=100_000, ebr=1000)
LENGTHS = (3, 1, 7, 1, 2)
SEEDS = range(1, 25)
SIMULATED = (4, 12, 19)
BOTH_DIRECTIONS = {10: 3, 15: 1, 18: 2}
"""Seeds of random networks --> rounds."""


def body_of(graph: Graph) -> Graph:
    """Return the integer graph of what was built with quantizers."""
    return split(lower(graph)).body


def sequences(body: Graph, *lengths: int) -> list[np.ndarray]:
    """Return random codes of sequences, [steps, *shape] each."""
    rng, kind = np.random.default_rng(len(lengths)), body.inputs[0].type
    element = kind.int_dtype
    found = [rng.integers(element.low, element.high + 1, (length, *kind.shape)) for length in lengths]
    return [np.where(codes < 0, -1, 1) for codes in found] if element.bipolar else found


def check_golden(accelerator: Accelerator, body: Graph) -> None:
    """Compare what each stage gives in each step with the graph."""
    compared = compare_stages(accelerator, body, sequences(body, *LENGTHS))
    assert compared
    assert [one.name for one in compared if not one.equal] == []


def check_hardware(accelerator: Accelerator, body: Graph) -> None:
    """Compare every stream of the hardware with the graph, and its cycles with the schedule."""
    codes = sequences(body, *LENGTHS)
    for found in check_equality(accelerator, body, codes, [("none", "none"), ("random", "bursts")]):
        assert found.equal
        assert found.as_predicted


def looped(
    step: Callable[[Builder, Value, list[Value]], list[Value]], starts: list[object], shape: tuple[int, ...]
) -> Graph:
    """Return a network of one loop of codes -8..7 that adds up its first state behind each step.

    Parameters
    ----------
    step: the next states of the builder of the body, the step and the states.
    starts: what each state begins as.
    shape: of a step.
    """
    builder = Builder("net", locations=False)
    steps = builder.input("x", shape, is_sequence=True).quantize(0.25, -8, 7, name="codes")
    inside = Builder("body", locations=False)
    states = [np.broadcast_to(start, shape) for start in starts]  # type: ignore[call-overload]
    given = inside.input("step", shape, -8, 7)
    following = step(inside, given, [inside.input(f"state_{n}", state.shape, -8, 7) for n, state in enumerate(states)])
    made = steps.scan(inside.build(following[0], *following), *map(builder.constant, states))
    return builder.build(made.flatten().linear(np.ones((1, np.prod(shape)), int)).dequantize(0.5))


def averaged(inside: Builder, step: Value, states: list[Value]) -> list[Value]:
    """Return half of a state and half of a step: neither weights nor gates."""
    return [step.dequantize(0.5).add(states[0].dequantize(0.25)).quantize(0.5, -8, 7)]


def delayed(inside: Builder, step: Value, states: list[Value]) -> list[Value]:
    """Return what a step and a delay line of three steps give."""
    sums = step.dequantize(0.5).add(states[-1].dequantize(0.25)).quantize(0.5, -8, 7)
    return [sums, step, *states[1:-1]]


def dense(inside: Builder, step: Value, states: list[Value]) -> list[Value]:
    """Return a recurrent cell of tanh, each unit of which reads all units."""
    weights = np.random.default_rng(0).integers(-3, 4, (2, 6, 6))
    sums = [value.linear(weight) for value, weight in zip((step, states[0]), weights, strict=True)]
    return [sums[0].dequantize(0.125).add(sums[1].dequantize(0.125)).tanh().quantize(0.125, -8, 7)]


def convolved(inside: Builder, step: Value, states: list[Value]) -> list[Value]:
    """Return the maps of a convolutional recurrent network."""
    rng = np.random.default_rng(0)
    kernels = rng.integers(-2, 3, (2, 2, 2, 3, 3))
    convolved = [value.conv2d(kernel, padding=(1, 1)) for value, kernel in zip((step, states[0]), kernels, strict=True)]
    sums = convolved[0].dequantize(0.25).add(convolved[1].dequantize(0.125))
    return [sums.tanh().quantize(0.125, -8, 7)]


BODIES: dict[str, Graph] = {
    "average": looped(averaged, [np.arange(3)], (3,)),
    "cell": looped(dense, [0], (6,)),
    "delay line": looped(delayed, [0, 1, np.arange(3), 3], (3,)),
    "maps": looped(convolved, [0], (2, 4, 4)),
}


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("seed", SEEDS)
def test_random_recurrent_network_equals_its_graph_in_each_stage(seed: int) -> None:
    body = body_of(random_recurrent(seed))
    try:
        target = 200 if seed % 2 else None
        accelerator = map_body(body, "board", LARGE, target_interval=target, sequences=1 + seed % 3)
    except NnhwError as error:
        assert "has no layer to map" in str(error)  # noqa: PT017 - a drawn network may do nothing
        return
    check_golden(accelerator, body)


@needs_simulator
@pytest.mark.parametrize("seed", SIMULATED)
def test_random_recurrent_network_equals_its_graph_in_hardware(seed: int) -> None:
    body = body_of(random_recurrent(seed))
    check_hardware(map_body(body, "board", LARGE, sequences=1 + seed % 3), body)


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", BODIES)
def test_loop_of_ones_own_equals_its_graph_in_each_stage(name: str) -> None:
    body = body_of(BODIES[name])
    check_golden(map_body(body, "board", LARGE), body)


@needs_simulator
@pytest.mark.parametrize("name", BODIES)
def test_loop_of_ones_own_equals_its_graph_in_hardware(name: str) -> None:
    body = body_of(BODIES[name])
    check_hardware(map_body(body, "board", LARGE), body)


def test_each_state_has_one_memory_which_its_next_value_comes_back_to() -> None:
    accelerator = map_body(body_of(BODIES["delay line"]), "board", LARGE)
    memories = [stage for stage in accelerator.stages if isinstance(stage.config, StateConfig)]
    assert len(memories) == 3  # the first one is never read
    assert len({stage.sources[NEXT] for stage in memories}) == len(memories)


@needs_simulator
@pytest.mark.parametrize("sequences", [2, 4])
def test_sequences_that_take_turns_share_engines_that_would_wait(sequences: int) -> None:
    body = body_of(BODIES["cell"])
    alone, shared = (map_body(body, "board", LARGE, sequences=count) for count in (1, sequences))
    assert shared.schedule.interval_cycles < alone.schedule.interval_cycles
    check_golden(shared, body)
    check_hardware(shared, body)


def test_interval_of_a_loop_is_that_of_its_schedule() -> None:
    """A step needs the state of the one before: as many cycles as there are from state to state, at least."""
    body = body_of(BODIES["maps"])
    accelerator = map_body(body, "board", LARGE)
    fastest = max(stage.config.cycles for stage in accelerator.stages)
    assert fastest <= accelerator.schedule.interval_cycles < accelerator.schedule.latency_cycles


def test_interval_that_is_asked_for_counts_what_engines_wait_for_each_other() -> None:
    body = body_of(BODIES["cell"])
    fastest = map_body(body, "board", LARGE)
    target = fastest.schedule.interval_cycles + 4
    found = map_body(body, "board", LARGE, target_interval=target)
    assert found.schedule.interval_cycles <= target
    assert accelerator_cost(found, ICE40).lc < accelerator_cost(fastest, ICE40).lc


@pytest.mark.parametrize(("seed", "rounds"), BOTH_DIRECTIONS.items())
def test_loops_in_both_directions_are_sent_in_rounds_that_give_what_the_graph_gives(seed: int, rounds: int) -> None:
    body = body_of(random_recurrent(seed, reverses=True))
    accelerator = map_body(body, "board", LARGE, target_interval=400, sequences=1 + seed % 3)
    assert accelerator.rounds is not None
    assert accelerator.rounds.count == rounds
    given = sequences(body, *LENGTHS)
    device = Device(make_model_link(accelerator, body), accelerator)
    for got, codes in zip(device.infer_codes(given), given, strict=True):
        assert np.array_equal(got, run(body, codes[None])[0][0])
    alike = np.stack([given[0]] * 2)
    assert np.array_equal(device.infer_codes(alike), run(body, alike)[0])
    assert device.infer_codes(alike[:0]).shape == run(body, alike)[0][:0].shape
    compared = compare_stages(accelerator, body, one_direction(body).sent(given))
    assert [one.name for one in compared if not one.equal] == []
    with pytest.raises(InputError, match="reads sequences in both directions, and the last step of a stream"):
        device.stream()


def test_accelerator_of_both_directions_is_read_as_it_was_written(tmp_path: Path) -> None:
    accelerator = map_body(body_of(random_recurrent(8, reverses=True)), "board", LARGE, target_interval=400)
    accelerator.save(tmp_path)
    assert Accelerator.load(tmp_path).rounds == accelerator.rounds


def test_directions_whose_values_are_no_parts_of_one_frame_are_refused() -> None:
    with pytest.raises(MappingError, match=r"maps of one size, all of signs or none.*no hardware is made of it"):
        map_body(body_of(random_recurrent(26, reverses=True)), "board", LARGE)


def test_state_that_no_quantizer_makes_is_refused() -> None:
    """Sums of signs stream as counts, and the state would come back as other numbers."""
    builder = Builder("net", locations=False)
    steps = builder.input("x", (2,), is_sequence=True).quantize(1.0, bipolar=True)
    inside = Builder("body", locations=False)
    given, state = inside.input("step", (2,), bipolar=True), inside.input("state", (2,), -2, 2)
    following = given.linear([[1, 1], [1, -1]])
    made = steps.scan(inside.build(state, following), builder.constant([0, 1]))
    body = body_of(builder.build(made.linear([[1, 1]]).dequantize(0.5)))
    with pytest.raises(MappingError, match="state 'scan/state': its next value 'scan/linear' is a sum"):
        map_body(body, "board", LARGE)


def test_loops_are_refused_by_name_where_an_engine_keeps_no_state() -> None:
    with pytest.raises(MappingError, match=r"scan 'scan'.*: keeps no state"):
        refuse_loops(body_of(BODIES["average"]), "keeps no state")


def test_loop_that_does_not_fit_says_what_is_missing() -> None:
    with pytest.raises(MappingError, match=r"logic cells|block RAM"):
        map_body(body_of(BODIES["maps"]), "board", Budget(lc=50, ebr=0))
