"""Exact datapaths of step functions: found where they exist, proved, refused when wrong, and chosen by cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.engines.requantize import CommonSteps, DoubleScaler, Requantizer, Scaler, Table, Thresholds, ThresholdSearch
from nnhw.errors import MappingError
from nnhw.families import ECP5, ICE40
from nnhw.ir.types import BIPOLAR, IntType
from nnhw.mapping.cost.requantizer import requantizer_cost
from nnhw.mapping.fit import fit_scaler
from nnhw.mapping.requantize import NormalSteps, choose, describe, implementations, prove

INT8, UINT8, UINT4 = IntType(-128, 127), IntType(0, 255), IntType(0, 15)
RAW = IntType(-900, 1100)


def all_raw(raw: IntType, outputs: int) -> np.ndarray:
    """Return each raw sum for each output."""
    return np.arange(raw.low, raw.high + 1)[:, None].repeat(outputs, axis=1)


def steps_of(table: np.ndarray, raw: IntType) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and codes of codes [outputs, raw sums], padded with steps that are never reached."""
    places = [np.flatnonzero(np.diff(row)) + 1 for row in table]
    most = max(1, max(len(row) for row in places))
    steps = [np.append(row + raw.low, [raw.high + 1] * (most - len(row))) for row in places]
    codes = [
        np.append(values[np.append(0, row)], [values[-1]] * (most - len(row)))
        for row, values in zip(places, table, strict=True)
    ]
    return np.array(steps), np.array(codes)


def tabulate(function: Callable[[np.ndarray], np.ndarray], code: IntType, raw: IntType = RAW) -> np.ndarray:
    """Return the codes [outputs, raw sums] of a real function of raw sums [outputs, n], rounded half to even."""
    scales = np.array([0.037137, -0.071329, 0.213131, 0.0])[:, None]
    x = np.arange(raw.low, raw.high + 1)[None] * scales + np.array([3.31717, 1.01313, -20.53939, 4.0])[:, None]
    return np.clip(np.rint(function(x)), code.low, code.high).astype(np.int64)


def check_all(table: np.ndarray, code: IntType, raw: IntType = RAW) -> list[Requantizer]:
    """Return the implementations of a table, each compared with it at every raw sum."""
    found = implementations(*steps_of(table, raw), code, raw)
    for requantizer in found:
        assert (requantizer.golden(all_raw(raw, len(table))).T == table).all(), describe(requantizer)
    return found


def scalers(found: list[Requantizer]) -> list[Scaler]:
    """Return those that multiply, in logic."""
    return [each for each in found if isinstance(each, Scaler) and not each.dsp]


@pytest.mark.parametrize("code", [INT8, UINT8, UINT4, IntType(-3, 1)], ids=str)
def test_implementations_of_a_line_include_a_scaler_of_one_segment(code: IntType) -> None:
    found = check_all(tabulate(lambda x: x, code), code)
    assert code.high - code.low < 4 or [scaler.segments for scaler in scalers(found)] == [1]


@pytest.mark.parametrize("shift", [1, 4, 7])
@pytest.mark.parametrize("zero", [0, 3])
def test_implementations_of_a_power_of_two_round_half_to_even(shift: int, zero: int) -> None:
    x = np.arange(RAW.low, RAW.high + 1)[None] / 2.0**shift * np.array([[1], [-1]])
    found = check_all(np.clip(np.rint(x) + zero, -128, 127).astype(np.int64), INT8)
    (scaler,) = scalers(found)
    assert (scaler.segments, scaler.even, scaler.shift) == (1, True, shift)
    assert set(np.abs(scaler.multiplier.ravel()).tolist()) == {1}


def test_implementations_of_relu_need_one_segment() -> None:
    found = check_all(tabulate(lambda x: np.maximum(x, 0), INT8), INT8)
    (scaler,) = scalers(found)
    assert (scaler.segments, scaler.floor, scaler.ceiling) == (1, 128, 255)


def test_implementations_of_leaky_relu_need_two_segments() -> None:
    found = check_all(tabulate(lambda x: np.where(x < 0, x * 0.1, x), INT8), INT8)
    assert [scaler.segments for scaler in scalers(found)] == [2]


def test_implementations_of_sigmoid_have_no_line() -> None:
    found = check_all(tabulate(lambda x: 255 / (1 + np.exp(-x / 20)), UINT8), UINT8)
    assert not scalers(found)
    assert {type(each) for each in found} == {ThresholdSearch, Table, CommonSteps}


def test_implementations_of_a_turning_function_are_search_table_and_common_steps() -> None:
    found = check_all(tabulate(lambda x: x / (1 + np.exp(-x / 4)), INT8), INT8)
    assert [type(each) for each in found] == [ThresholdSearch, Table, CommonSteps, CommonSteps]


def test_implementations_of_equal_channels_share_a_table() -> None:
    table = tabulate(np.abs, UINT8)[[2, 2, 2]]
    assert [each.shared for each in check_all(table, UINT8) if isinstance(each, Table)] == [True]


def test_implementations_of_few_codes_are_comparators() -> None:
    table = 2 * (tabulate(lambda x: x, UINT8) > 7) - 1
    assert [type(each) for each in check_all(table, BIPOLAR)] == [Thresholds]


def test_implementations_ignore_codes_that_no_sum_has() -> None:
    steps, codes = np.array([[-2000, 5, 5, 3000]]), np.array([[9, 1, 15, 2, 14]])
    found = implementations(steps, codes, UINT4, RAW)
    assert found
    for each in found:
        assert (each.golden(all_raw(RAW, 1))[:, 0] == np.where(np.arange(-900, 1101) < 5, 1, 2)).all()


@settings(max_examples=25)
@given(st.integers(-4000, 4000), st.integers(-(1 << 19), 1 << 19), st.integers(6, 14), st.sampled_from([UINT4, INT8]))
def test_fit_finds_any_line_with_a_shift_no_larger(multiplier: int, addend: int, shift: int, code: IntType) -> None:
    index = np.clip((np.arange(RAW.low, RAW.high + 1) * multiplier + addend) >> shift, 0, code.high - code.low)
    thresholds = NormalSteps.of(*steps_of(index[None] + code.low, RAW), code, RAW).thresholds()
    assert thresholds is not None
    found = fit_scaler(thresholds.steps, thresholds.descending, code, RAW)
    assert found is not None
    assert found.shift <= shift
    assert (found.golden(all_raw(RAW, 1))[:, 0] == index + code.low).all()


@settings(max_examples=25)
@given(st.lists(st.integers(-60, 61), min_size=4, max_size=4).map(sorted), st.booleans())
def test_fit_is_none_only_where_no_line_serves(steps: list[int], falls: bool) -> None:
    raw, code = IntType(-60, 60), IntType(0, 4)
    rows, descending = np.array([steps]), np.array([falls])
    golden = Thresholds(rows, descending, code).golden(all_raw(raw, 1))
    for most in (1, 2, 3):
        found = fit_scaler(rows, descending, code, raw, most)
        if found is not None:
            assert found.segments <= most
            assert (found.golden(all_raw(raw, 1)) == golden).all()
    if len(set(np.diff(steps))) == 1 and steps[0] < steps[1]:
        assert fit_scaler(rows, descending, code, raw) is not None
    assert fit_scaler(rows, descending, code, raw, 4) is not None


def test_fit_refuses_what_no_line_reaches() -> None:
    steps = np.array([[0, 1, 2, 3, 50, 51, 52, 53]])
    fits = [fit_scaler(steps, np.array([False]), IntType(0, 8), RAW, most) is not None for most in (1, 2, 3)]
    assert fits == [False, False, True]


def test_prove_gives_a_certificate() -> None:
    table = tabulate(lambda x: x, INT8)
    function = NormalSteps.of(*steps_of(table, RAW), INT8, RAW)
    texts = [prove(each, function) for each in check_all(table, INT8)]
    steps = int((np.diff(table, axis=1) != 0).sum())
    assert texts[0] == f"binary search, proved at {steps} steps of 4 channels"
    assert texts[1].startswith("multiply-add-shift (shift ")
    assert texts[1].endswith(f"floor), proved at {steps} steps of 4 channels")
    assert texts[-1] == "lookup table, compared at all 2001 raw sums of 4 channels"


def test_prove_rejects_an_addend_that_is_off_by_one() -> None:
    steps = np.array([[0, 1, 2, 3, 4]])
    code = IntType(0, 5)
    scaler = fit_scaler(steps, np.array([False]), code, RAW)
    assert scaler is not None
    function = NormalSteps.of(steps, np.arange(6)[None], code, RAW)
    with pytest.raises(MappingError) as caught:
        prove(replace(scaler, addend=scaler.addend + (1 << scaler.shift)), function)
    assert str(caught.value) == (
        f"requantizer: multiply-add-shift (shift {scaler.shift}, floor) differs from its function in channel 0 "
        "at raw sum -1; this is a bug of nnhw, please report it"
    )


def test_choose_takes_dsp_blocks_only_where_allowed() -> None:
    found = check_all(tabulate(lambda x: x, INT8), INT8)
    without = choose(found, 1, family=ECP5)
    assert not getattr(without, "dsp", False)
    cheapest = choose(found, 1, dsp=True)
    assert cost_of(cheapest) <= cost_of(choose(found, 1))


def cost_of(requantizer: Requantizer) -> float:
    """Return the weight of one lane on an iCE40."""
    cost = requantizer_cost(requantizer, RAW, 1)
    return ICE40.weight(cost.lc, cost.ebr, cost.dsp)


def test_cost_grows_with_the_lanes() -> None:
    raw = IntType(-90, 90)
    double = DoubleScaler.of(np.full(4, 1 << 30), np.array([-1, -2, 0, 1]), np.zeros(4, int), 0, INT8, raw)
    found = [*check_all(tabulate(lambda x: x, UINT4), UINT4), double]
    for each in found:
        # At four lanes each has a single channel, whose constants cost nothing.
        one, two = (requantizer_cost(each, raw, lanes) for lanes in (1, 2))
        assert two.lc > one.lc
        assert two.dsp == 2 * one.dsp
    assert requantizer_cost(None, raw, 4) == requantizer_cost(None, raw, 1)


def test_search_waits_behind_block_rams_that_are_slow() -> None:
    found = [
        each
        for each in check_all(tabulate(lambda x: 255 / (1 + np.exp(-x / 20)), UINT8), UINT8)
        if isinstance(each, ThresholdSearch)
    ]
    late, early = choose(found, 1, family=ECP5), choose(found, 1, family=ICE40)
    assert isinstance(late, ThresholdSearch)
    assert isinstance(early, ThresholdSearch)
    assert (late.registered, early.registered) == (True, False)
    assert late.latency == early.latency + early.levels
