"""Multilayer perceptrons of 8 bits with every activation: on a UP5K, equal at every boundary."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from benchmarks.activations import lowered
from benchmarks.people.mlps import ACTIVATIONS
from benchmarks.random_networks import extreme_codes, rtl_difference
from nnhw.accelerator import Accelerator
from nnhw.boards import load_board
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.requantize import CommonSteps
from nnhw.families import ICE40
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.ir import Graph
from nnhw.mapping.cost import accelerator_cost
from nnhw.mapping.shared.search.array_cost import array_cost
from tests.mapping.test_mapper import check_equal
from tests.marks import covering
from tests.sim.test_benches import pytestmark as needs_simulator

CURVED = [name for name in ACTIVATIONS if name != "relu"]
# Bounded and odd, with a minimum, two lines of one slope for all and one a channel, in pieces.
TYPICAL = ("tanh", "gelu", "leaky_relu", "prelu", "hardswish")


@cache
def body_of(name: str) -> Graph:
    """Return the body of the network with an activation."""
    return lowered(name)


@cache
def mapped(name: str) -> Accelerator:
    """Return the network on an iCEBreaker, with an engine for each layer."""
    return map_on_board(body_of(name), load_board("icebreaker"), Options(style="streaming"))[0].accelerator


@cache
def mapped_shared(name: str) -> Accelerator:
    """Return the network on an iCEBreaker, with one array that runs all layers, or all but the last one."""
    return map_on_board(body_of(name), load_board("icebreaker"), Options(style="shared"))[0].accelerator


def common_steps(accelerator: Accelerator) -> list[CommonSteps]:
    """Return the requantizers whose channels share their steps."""
    configs = [stage.config for stage in accelerator.stages]
    requantizers = [config.thresholds for config in configs if isinstance(config, MatmulConfig)]
    return [each for each in requantizers if isinstance(each, CommonSteps)]


@pytest.mark.parametrize("name", covering(CURVED, TYPICAL))
def test_mlp_of_8_bits_with_any_activation_fits_a_up5k(name: str) -> None:
    accelerator = mapped(name)
    assert accelerator_cost(accelerator, ICE40).ebr <= 28
    if name not in ("leaky_relu", "prelu"):  # two segments of a line may be cheaper
        assert len(common_steps(accelerator)) == 2
    check_equal(body_of(name), accelerator)


@needs_simulator
@pytest.mark.parametrize("name", ["tanh", "hardswish"])
def test_mlp_of_8_bits_with_common_steps_equals_reference_in_rtl(name: str) -> None:
    accelerator, body = mapped(name), body_of(name)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""


@pytest.mark.parametrize("name", covering(CURVED, TYPICAL))
def test_mlp_of_8_bits_with_any_activation_runs_on_a_shared_engine_of_a_up5k(name: str) -> None:
    accelerator = mapped_shared(name)
    (program,) = accelerator.programs
    assert len(program.functions) == 2
    assert array_cost(program.array, ICE40, True).ebr <= 28
    check_equal(body_of(name), accelerator)


@needs_simulator
@pytest.mark.parametrize("name", ["tanh", "hardswish"])
def test_mlp_of_8_bits_on_a_shared_engine_equals_reference_in_rtl(name: str) -> None:
    accelerator, body = mapped_shared(name), body_of(name)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""
