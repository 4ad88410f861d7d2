"""Loops as programs of a shared engine: equal to their graphs in golden functions and in hardware."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.random_recurrent import random_recurrent
from nnhw.accelerator import Accelerator
from nnhw.errors import DoesNotFitError, MappingError
from nnhw.families import ICE40
from nnhw.flow.verification.comparison import compare_stages
from nnhw.flow.verification.equality import check_equality
from nnhw.ir import Graph, one_direction
from nnhw.mapping.budget import Budget
from nnhw.mapping.shared.loops.loop_accelerator import map_loop
from nnhw.passes import lower, split
from tests.sim.test_benches import pytestmark as needs_simulator

UP5K = Budget(lc=100_000, ebr=1000, dsp=8, spram=4)
WITHOUT_SPRAM = Budget(lc=100_000, ebr=1000)
LENGTHS = (3, 1, 7, 1, 2)


def body_of(seed: int, reverses: bool = False) -> Graph:
    """Return the integer graph of a random network."""
    return split(lower(random_recurrent(seed, reverses))).body


def sent(body: Graph) -> list[np.ndarray]:
    """Return what is sent for random sequences."""
    rng, kind = np.random.default_rng(0), body.inputs[0].type
    low, high = kind.int_dtype.low, kind.int_dtype.high
    return one_direction(body).sent([rng.integers(low, high + 1, (length, *kind.shape)) for length in LENGTHS])


def mapped(seed: int, budget: Budget = UP5K, reverses: bool = False) -> tuple[Accelerator, Graph]:
    """Return the accelerator of a random network, and its graph."""
    body = body_of(seed, reverses)
    return map_loop(body, "board", budget, ICE40), body


@pytest.mark.parametrize(
    ("seed", "budget", "reverses"), [(11, UP5K, False), (16, WITHOUT_SPRAM, False), (53, UP5K, False), (57, UP5K, True)]
)
def test_program_of_a_loop_equals_its_graph_in_each_step(seed: int, budget: Budget, reverses: bool) -> None:
    """Sequences of unlike lengths follow one another, so each begins where another one has left its states."""
    accelerator, body = mapped(seed, budget, reverses)
    compared = compare_stages(accelerator, body, sent(body))
    assert len(compared) > 5
    assert [one.name for one in compared if not one.equal] == []


@needs_simulator
def test_program_of_a_loop_equals_its_graph_in_hardware() -> None:
    accelerator, body = mapped(11)
    for found in check_equality(accelerator, body, sent(body), [("none", "none"), ("random", "bursts")]):
        assert found.equal
        assert found.as_predicted


def test_program_of_a_loop_is_refused_by_what_it_does_not_run() -> None:
    with pytest.raises(MappingError, match=r"'scan/add_3.sum' makes codes of int -512..511, and only those of 8 bits"):
        mapped(9)
    with pytest.raises(MappingError, match=r"state 'scan/state_1' becomes 'scan/state_2', which no quantizer"):
        mapped(37, reverses=True)
    with pytest.raises(DoesNotFitError, match=r"as a program of a shared engine: with 8 lanes there are \d+ logic"):
        mapped(11, Budget(lc=1000, ebr=30, dsp=8, spram=4))
