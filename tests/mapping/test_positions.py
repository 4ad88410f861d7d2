"""Loops behind layers of whole images: all steps in a frame, equal to the graph stage by stage and in hardware."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.random_recurrent import random_recurrent
from nnhw.accelerator import Accelerator
from nnhw.driver import Device
from nnhw.driver.connecting import make_model_link
from nnhw.engines.state import HEAD, StateConfig
from nnhw.errors import InputError, MappingError
from nnhw.flow.verification.comparison import Passing, boundary_values, compare_stages
from nnhw.flow.verification.equality import check_equality
from nnhw.ir import Builder, Graph, Value, run
from nnhw.mapping.budget import Budget
from nnhw.mapping.loops import step_of
from nnhw.mapping.mapper import map_body
from nnhw.passes import lower, split
from tests.sim.test_benches import pytestmark as needs_simulator

LARGE = Budget(lc=100_000, ebr=1000)
SEEDS = (1, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 18, 20)
"""Of random networks: 1 to 6 steps, one or two loops, a result of the last step or of each."""
SIMULATED = (10, 18)
"""Of these: two loops in a row of five steps, and results of each of two steps."""


def drawn(seed: int) -> Graph:
    """Return the integer graph of random loops behind a convolution."""
    return split(lower(random_recurrent(seed, behind=True))).body


def images(body: Graph, count: int) -> np.ndarray:
    """Return random codes of images, int64 [count, *shape]."""
    kind = body.inputs[0].type
    return np.random.default_rng(count).integers(kind.int_dtype.low, kind.int_dtype.high + 1, (count, *kind.shape))


def differing(accelerator: Accelerator, body: Graph) -> list[str]:
    """Return the boundaries at which the golden functions of the engines and the graph differ."""
    compared = compare_stages(accelerator, body, images(body, 5))
    assert compared
    return [one.name for one in compared if not one.equal]


def behind(make: Callable[[Builder, Value], Value], columns: int) -> Graph:
    """Return the integer graph of what is made of a convolved image [2, 1, columns] with codes -8..7."""
    builder = Builder("net", locations=False)
    image = builder.input("x", (2, 1, columns)).quantize(0.25, -8, 7, name="codes")
    convolved = image.conv2d([[[[1]], [[2]]], [[[1]], [[-1]]]]).dequantize(0.5).quantize(1.0, -8, 7, name="map")
    return split(lower(builder.build(make(builder, convolved).linear([[1, 2]]).dequantize(0.5)))).body


def steps_of(image: Value) -> Value:
    """Return the columns of a map [2, 1, columns] as steps."""
    return image.reshape(image.shape[::2]).permute((1, 0)).as_steps("steps")


def averaged(builder: Builder, steps: Value) -> Value:
    """Return a loop that halves its state and adds half of a step."""
    inside = Builder("body", locations=False)
    step, state = inside.input("step", steps.shape, -8, 7), inside.input("state", steps.shape, -8, 7)
    following = step.dequantize(0.5).add(state.dequantize(0.25)).quantize(0.5, -8, 7)
    return steps.scan(inside.build(following, following), builder.constant(np.array([3, -2])), name="loop")


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("seed", SEEDS)
def test_loop_behind_a_convolution_equals_its_graph_in_each_stage(seed: int) -> None:
    body = drawn(seed)
    accelerator = map_body(body, "board", LARGE, target_interval=300 if seed % 2 else None)
    memories = [stage.config for stage in accelerator.stages if isinstance(stage.config, StateConfig)]
    assert {memory.steps for memory in memories} == {step_of(body).positions}
    assert differing(accelerator, body) == []
    given = images(body, 4)
    device = Device(make_model_link(accelerator, body), accelerator)
    np.testing.assert_array_equal(device.infer_codes(given), run(body, given)[0])


@needs_simulator
@pytest.mark.parametrize("seed", SIMULATED)
def test_loop_behind_a_convolution_equals_its_graph_in_hardware(seed: int) -> None:
    body = drawn(seed)
    found = check_equality(map_body(body, "board", LARGE), body, images(body, 6))
    assert [one.pattern for one in found if not one.equal] == []


def test_execution_finds_the_states_by_itself() -> None:
    body = drawn(16)
    accelerator, given = map_body(body, "board", LARGE), images(body, 2)
    alone = Passing.of_stages(accelerator, given)
    wrong = {name: np.zeros_like(array) for name, array in boundary_values(body, given).items()}
    misled = Passing.of_stages(accelerator, given, wrong)
    for one in (alone, misled):
        compared = one.compared(accelerator, Passing.of_graph(accelerator, body, given))
        assert all(stream.equal for stream in compared)


def test_stage_that_computes_something_else_is_found() -> None:
    """A start that is not the graph's changes the states of all steps behind it."""
    body = drawn(16)
    accelerator = map_body(body, "board", LARGE)
    stages = list(accelerator.stages)
    index = next(place for place, stage in enumerate(stages) if isinstance(stage.config, StateConfig))
    config = stages[index].config
    assert isinstance(config, StateConfig)
    other = np.where(config.start == config.element.high, config.element.low, config.element.high)
    stages[index] = replace(stages[index], config=replace(config, start=other))
    assert differing(replace(accelerator, stages=tuple(stages)), body) != []


def test_frame_begins_all_memories_and_has_no_head_of_its_own() -> None:
    body = drawn(16)
    accelerator = map_body(body, "board", LARGE)
    assert not accelerator.input_format.headed
    assert accelerator.input_format.shape == body.inputs[0].type.shape
    for stage in accelerator.stages:
        if isinstance(stage.config, StateConfig):
            assert stage.config.i_beats[HEAD] == 1
            assert stage.config.o_beats == stage.config.steps * stage.config.chunks
    device = Device(make_model_link(accelerator, body), accelerator)
    with pytest.raises(InputError, match="keeps no state from one image to the next"):
        device.stream()


def test_loop_without_weights_in_it_follows_its_steps() -> None:
    body = behind(lambda builder, image: averaged(builder, steps_of(image)).last_step(), 7)
    accelerator = map_body(body, "board", LARGE)
    assert differing(accelerator, body) == []
    assert step_of(body).positions == 7


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda builder, image: averaged(builder, steps_of(image).reverse_steps()).last_step(),
            r"steps that layers compute from the last one to the first.*build these layers and the loop as two models",
        ),
        (
            lambda builder, image: averaged(builder, image.as_steps("rows").flatten()).last_step(),
            r"as_steps 'rows' gives \[1, 2\] in each step; .* the steps of a loop are vectors",
        ),
    ],
    ids=["reversed", "maps"],
)
def test_mapper_rejects_steps_that_are_no_stream_of_vectors(
    made: Callable[[Builder, Value], Value], message: str
) -> None:
    with pytest.raises(MappingError, match=message):
        map_body(behind(made, 2), "board", LARGE)


def test_state_that_a_layer_computes_is_refused() -> None:
    def started(builder: Builder, image: Value) -> Value:
        steps, inside = steps_of(image), Builder("body", locations=False)
        step, state = inside.input("step", (2,), -8, 7), inside.input("state", (2,), -8, 7)
        following = step.dequantize(0.5).add(state.dequantize(0.25)).quantize(0.5, -8, 7)
        start = image.reshape((6,)).linear(np.ones((2, 6), int)).dequantize(0.5).quantize(1.0, -8, 7)
        return steps.scan(inside.build(following, following), start).last_step()

    with pytest.raises(MappingError, match=r"begins as the value '.*' that is computed"):
        map_body(behind(started, 3), "board", LARGE)
