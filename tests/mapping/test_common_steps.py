"""Steps that all channels share: found from the steps of each, equal at every sum, and absent where there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.engines.requantize import CommonSteps, Requantizer, ThresholdSearch
from nnhw.errors import MappingError
from nnhw.ir.types import IntType
from nnhw.mapping.alignment import align
from nnhw.mapping.common_lines import fit_lines
from nnhw.mapping.common_steps import find_common_steps, integer_lines
from nnhw.mapping.cost.requantizer import requantizer_cost
from nnhw.mapping.requantize import NormalSteps, choose, describe, implementations, prove
from tests.mapping.test_requantize import all_raw, steps_of

RAW, INT8, UINT8 = IntType(-3000, 3500), IntType(-128, 127), IntType(0, 255)

Function = Callable[[np.ndarray], np.ndarray]
ACTIVATIONS: dict[str, tuple[IntType, Function]] = {
    "tanh": (INT8, lambda z: 127 * np.tanh(z)),
    "sigmoid": (UINT8, lambda z: 255 / (1 + np.exp(-z))),
    "gelu": (INT8, lambda z: 40 * z / (1 + np.exp(-1.702 * z))),
    "silu": (INT8, lambda z: 30 * z / (1 + np.exp(-z))),
    "hardswish": (INT8, lambda z: 30 * z * np.clip(z + 3, 0, 6) / 6),
    "elu": (INT8, lambda z: 40 * np.where(z > 0, z, np.expm1(np.minimum(z, 0)))),
    "softplus": (UINT8, lambda z: 60 * np.log1p(np.exp(z))),
    "leaky_relu": (INT8, lambda z: 40 * np.where(z > 0, z, 0.01 * z)),
    "bump": (UINT8, lambda z: 255 / (1 + z * z)),
}


def normal(table: np.ndarray, code: IntType, raw: IntType = RAW) -> NormalSteps:
    """Return the step function of codes [outputs, raw sums]."""
    return NormalSteps.of(*steps_of(table, raw), code, raw)


def codes_of(name: str, gains: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the codes [outputs, raw sums] of an activation of gain * sum + offset."""
    code, function = ACTIVATIONS[name]
    z = gains[:, None] * np.arange(RAW.low, RAW.high + 1) + offsets[:, None]
    return np.clip(np.rint(function(z)), code.low, code.high).astype(np.int64)


def drawn(name: str, outputs: int = 12, seed: int = 1, spread: float = 0.6) -> np.ndarray:
    """Return the codes of an activation with random gains, most of them different, and biases."""
    rng = np.random.default_rng(seed)
    return codes_of(name, rng.uniform(1 - spread, 1, outputs) / 800, rng.normal(size=outputs) / 2)


def found_in(table: np.ndarray, code: IntType) -> CommonSteps:
    """Return the common steps of a function, compared with it at every raw sum and by the proof."""
    function = normal(table, code)
    common = find_common_steps(function.steps, function.codes, code, RAW)
    assert common is not None
    assert (common.golden(all_raw(RAW, len(table))).T == table).all()
    assert "common" in prove(common, function)
    return common


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_common_steps_of_channels_with_gains_and_biases_equal_them_at_every_sum(name: str) -> None:
    common = found_in(drawn(name), ACTIVATIONS[name][0])
    assert len(set(common.multiplier.ravel().tolist())) > 1
    assert (np.diff(common.steps >> common.cell_bits) > 0).all()


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_common_steps_of_gains_of_either_sign_have_multipliers_of_either_sign(name: str) -> None:
    gains = np.array([1, -0.7, 0.5, -0.9, 0.8]) / 900
    common = found_in(codes_of(name, gains, np.array([0.1, -0.3, 0.2, 0.4, -0.1])), INT8)
    assert (np.sign(common.multiplier[:, 0]) == np.sign(gains)).all()


def test_common_steps_of_channels_that_differ_by_their_bias_need_no_multiplier() -> None:
    table = codes_of("tanh", np.full(16, 1 / 900), np.random.default_rng(3).normal(size=16) / 2)
    common = found_in(table, INT8)
    (multiplier,) = set(common.multiplier.ravel().tolist())
    assert multiplier & (multiplier - 1) == 0
    assert common.product.operands == 1


def test_common_steps_have_a_multiplier_of_zero_where_a_channel_is_constant() -> None:
    table = drawn("sigmoid", 6)
    table[2], table[4], table[5] = 77, 60, 201
    common = found_in(table, UINT8)
    assert (common.multiplier[:, 0] == 0).tolist() == [False, False, True, False, True, True]


def test_common_steps_satisfy_the_condition_of_each_channel_and_step() -> None:
    function = normal(drawn("tanh"), INT8)
    aligned = align(function.steps, function.codes, RAW)
    assert aligned is not None
    lines = fit_lines(aligned)
    assert lines is not None
    assert lines.slack > 0
    found = list(integer_lines(aligned, lines))
    widths = [int(each.multiplier.max()).bit_length() for each in found]
    assert widths == sorted(set(widths), reverse=True)
    for each in found:
        heights = each.steps << each.drop
        at = each.multiplier[:, None] * aligned.steps + each.addend[:, None]
        assert (at >= heights)[aligned.above].all()
        assert (at - each.multiplier[:, None] < heights)[aligned.below].all()


def test_common_steps_do_not_exist_where_one_step_of_one_channel_is_moved() -> None:
    table = codes_of("tanh", np.full(8, 1 / 900), np.linspace(-0.3, 0.3, 8))
    places = np.flatnonzero(np.diff(table[3]))
    step = int(places[100])
    table[3, step - 2 : step + 1] += 1  # three sums earlier than the line has it
    assert (np.diff(table[3]) >= 0).all()
    function = normal(table, INT8)
    assert find_common_steps(function.steps, function.codes, INT8, RAW) is None
    found = implementations(*steps_of(table, RAW), INT8, RAW)
    assert not any(isinstance(each, CommonSteps) for each in found)
    assert any(isinstance(each, ThresholdSearch) for each in found)


def test_common_steps_do_not_exist_for_unrelated_channels() -> None:
    rng = np.random.default_rng(2)
    rows = np.sort(rng.integers(RAW.low, RAW.high, (4, 200)), axis=1)
    codes = np.arange(-100, 101)[None].repeat(4, axis=0)
    function = NormalSteps.of(rows, codes, INT8, RAW)
    assert find_common_steps(function.steps, function.codes, INT8, RAW) is None


def test_common_steps_do_not_exist_where_channels_turn_differently() -> None:
    table = np.concatenate([drawn("gelu", 2), drawn("bump", 2) // 2])
    function = normal(table, INT8)
    assert find_common_steps(function.steps, function.codes, INT8, RAW) is None


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(ACTIVATIONS)), st.integers(1, 20), st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 0.9])
)
def test_common_steps_of_random_channels_equal_them_or_are_not_taken(
    name: str, outputs: int, seed: int, spread: float
) -> None:
    table, code = drawn(name, outputs, seed, spread), ACTIVATIONS[name][0]
    for each in implementations(*steps_of(table, RAW), code, RAW):
        assert (each.golden(all_raw(RAW, outputs)).T == table).all(), describe(each)


@pytest.mark.parametrize("name", ["tanh", "gelu", "softplus"])
def test_choose_takes_common_steps_for_many_channels_in_three_block_rams(name: str) -> None:
    code = ACTIVATIONS[name][0]
    found = implementations(*steps_of(drawn(name, 32), RAW), code, RAW)
    chosen: Requantizer = choose(found, 1)
    assert isinstance(chosen, CommonSteps)
    assert requantizer_cost(replace(chosen, logic=True), RAW, 1).ebr <= 3
    search = next(each for each in found if isinstance(each, ThresholdSearch))
    assert requantizer_cost(search, RAW, 1).ebr > 20


CROWDED = (
    "common steps need at most one step in each cell and none in the first 8 cells, given steps in cells {}; "
    "use smaller cells, or move the steps up"
)


def made(**changes: object) -> CommonSteps:
    """Return three steps of two channels, with some fields changed."""
    fields: dict[str, object] = {
        "multiplier": np.array([[3], [2]]),
        "addend": np.array([[0], [5]]),
        "drop": 0,
        "steps": np.array([40, 51, 63]),
        "codes": np.arange(4),
        "cell_bits": 2,
        "cells_log2": 3,
        "code": IntType(0, 3),
        "raw": IntType(0, 30),
    }
    return CommonSteps(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codes": np.arange(3)}, "common steps need a code more than steps, given 3 codes for 3 steps"),
        (
            {"cells_log2": 5},
            "common steps need cells of at least a bit and 2, 4, 8 or 16 of them in a word, given 2 bits and 32",
        ),
        (
            {"steps": np.array([40, 52, 53])},
            CROWDED.format("[10, 13, 13]"),
        ),
        (
            {"steps": np.array([31, 40, 53])},
            CROWDED.format("[7, 10, 13]"),
        ),
    ],
    ids=["codes", "cells", "crowded", "low"],
)
def test_common_steps_reject_what_their_memories_cannot_hold(changes: dict[str, object], message: str) -> None:
    with pytest.raises(MappingError) as caught:
        made(**changes)
    assert str(caught.value) == message
