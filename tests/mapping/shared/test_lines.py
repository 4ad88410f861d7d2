"""Lines are equal to their step functions on every sum, with any addend that they allow, and at any larger shift."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.ir import BIPOLAR, IntType
from nnhw.ir.ops import Rescale
from nnhw.mapping.common_steps import NoCommonStepsError
from nnhw.mapping.layers import StepFunction
from nnhw.mapping.reader import rescaled_steps
from nnhw.mapping.requantize import NormalSteps
from nnhw.mapping.shared.program.lines import Line, at_shift, fit_lines, fit_ranked, identity
from tests.mapping.shared.networks import Function, leaky, turning

RAW = IntType(-700, 900)
SUMS = np.arange(RAW.low, RAW.high + 1)


def rounded(code: IntType, even: bool, seed: int = 0) -> StepFunction:
    """Return a quantizer with equal steps, some of them falling, some of them far outside of the range."""
    rng = np.random.default_rng(seed)
    # Ties of other scales than powers of two do not lie on a line of the requantizer.
    scale = rng.choice([0.125, 0.0625, -0.03125, 0.5] if even else [0.125, -0.03125, 0.1, -0.007], 12)
    value = SUMS[:, None] * scale + rng.integers(-20, 20, 12) * 0.25
    codes = np.rint(value) if even else np.floor(value + 0.5)
    return of_codes(np.clip(codes, code.low, code.high).astype(np.int64), code)


def of_codes(codes: np.ndarray, code: IntType) -> StepFunction:
    """Return the function with the codes [sums, channels]."""
    changes = [np.flatnonzero(np.diff(column)) for column in codes.T]
    most = max(1, max(len(places) for places in changes))
    steps = np.full((codes.shape[1], most), RAW.high + 1)
    values = np.zeros((codes.shape[1], most + 1), dtype=np.int64)
    for channel, places in enumerate(changes):
        steps[channel, : len(places)] = SUMS[places] + 1
        values[channel] = codes[-1, channel]
        values[channel, : len(places)] = codes[places, channel]
    return StepFunction(steps, values, code)


def golden(function: StepFunction) -> np.ndarray:
    normal = NormalSteps.of(function.thresholds, function.codes, function.code, RAW)
    return normal(SUMS[:, None].repeat(normal.outputs, axis=1))


def check(line: Line, function: StepFunction) -> None:
    expected = golden(function)
    for addend in (line.addend, line.addend + line.slack, line.rounded().addend):
        same = replace(line, addend=addend).golden(SUMS[:, None].repeat(len(addend), axis=1)) == expected
        assert same.all()


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("code", [IntType(0, 255), IntType(-8, 7), IntType(0, 3), IntType(3, 90)])
def test_line_equals_its_function_on_every_sum(code: IntType, even: bool) -> None:
    for seed in range(3):
        function = rounded(code, even, seed)
        lines = fit_lines(function, RAW)
        assert [line.shift - lines[0].shift for line in lines] == [0, 1, 2]
        for line in lines:
            check(line, function)
            check(line.shifted(line.shift + 5), function)
        assert at_shift(lines, lines[0].shift + 9).shift == lines[0].shift + 9


def test_bipolar_line_passes_zero_between_two_sums() -> None:
    steps = np.array([[5], [-700], [901], [-3]])
    codes = np.array([[-1, 1], [-1, 1], [-1, 1], [1, -1]])
    function = StepFunction(steps, codes, BIPOLAR)
    (line,) = fit_lines(function, RAW)
    check(line, function)
    check(line.shifted(7), function)


def test_line_of_stored_codes_is_the_same_function() -> None:
    function = rounded(IntType(0, 255), True)
    line = fit_lines(function, RAW)[0]
    offset = np.arange(12) * 3 - 10
    stored = line.stored(offset, 128, -1)
    sums = -(SUMS[:, None] - offset)
    assert (stored.golden(sums) + 128 == golden(function)).all()
    assert (stored.low, stored.high) == (line.low - 128, line.high - 128)


def test_rounded_addends_end_in_zeros() -> None:
    line = fit_lines(rounded(IntType(0, 255), False), RAW)[2]
    assert line.rounded().zeros > line.zeros
    assert line.rounded().zeros > line.shift // 3


def test_function_that_turns_or_has_unequal_steps_has_no_line() -> None:
    turns = StepFunction(np.array([[0, 10]]), np.array([[0, 3, 0]]), IntType(0, 3))
    unequal = StepFunction(np.array([[0, 10, 100, 105, 400, 401]]), np.array([[0, 1, 2, 3, 4, 5, 6]]), IntType(0, 6))
    assert fit_lines(turns, RAW) == fit_lines(unequal, RAW) == ()


def test_identity_keeps_codes() -> None:
    codes = np.arange(-8, 8)[:, None].repeat(3, axis=1)
    assert (identity(3, IntType(-8, 7)).shifted(20).golden(codes) == codes).all()


@st.composite
def rescalings(draw: st.DrawFn) -> tuple[Rescale, IntType, list[np.ndarray]]:
    """Return a double rounding with its sums and constants, of multipliers with and without ties of the first."""
    bits, channels = draw(st.integers(4, 13)), draw(st.integers(1, 4))
    each = {"min_size": channels, "max_size": channels}
    short = draw(st.sampled_from([0, 20, 26]))
    multipliers = draw(st.lists(st.integers(1 << 30, (1 << 31) - 1), **each))
    exponents = draw(st.lists(st.integers(-bits, 2), **each))
    biases = draw(st.lists(st.integers(-(1 << bits) // 2, (1 << bits) // 2), **each))
    low, high = sorted(draw(st.lists(st.integers(-128, 127), min_size=2, max_size=2)))
    op = Rescale(draw(st.integers(-128, 127)), low, high, "double")
    sums = IntType(-draw(st.integers(1, 1 << bits)), draw(st.integers(1, 1 << bits)))
    return op, sums, [np.array(multipliers) >> short << short, np.array(exponents), np.array(biases)]


@settings(max_examples=60, deadline=None)
@given(rescalings())
def test_line_equals_double_rounding_on_every_sum(case: tuple[Rescale, IntType, list[np.ndarray]]) -> None:
    op, sums, constants = case
    every = np.arange(sums.low, sums.high + 1)[:, None].repeat(len(constants[0]), axis=1)
    expected = op.evaluate(every, *constants)
    lines = fit_lines(rescaled_steps(op, sums, *constants), sums)
    assert lines
    for line in (*lines, lines[0].shifted(lines[0].shift + 3)):
        for addend in (line.addend, line.addend + line.slack, line.rounded().addend):
            assert (replace(line, addend=addend).golden(every) == expected).all()
        assert (line.stored(np.zeros(len(constants[0]), np.int64), 5).golden(every) + 5 == expected).all()


def test_signed_double_rounding_needs_its_ties_and_unsigned_has_none() -> None:
    constants, sums = [np.array([1518500250]), np.array([-5]), np.array([7])], IntType(-9000, 9000)
    signed, rectified = (
        fit_lines(rescaled_steps(Rescale(-3, low, 127, "double"), sums, *constants), sums)[0] for low in (-128, -3)
    )
    assert (signed.ties.tolist(), signed.pivot) == ([5], -3)
    assert rectified.tie_bits is None


@pytest.mark.parametrize("count", [4, 6, 16, 20, 49])
@pytest.mark.parametrize("zero", [0, -128, 37])
def test_mean_rounds_half_away_from_zero_on_every_sum(count: int, zero: int) -> None:
    """The mean of codes with a zero point, as TFLite divides: half away from zero of the code itself."""
    sums = IntType(-count * (128 + zero), count * (127 - zero))
    every = np.arange(sums.low, sums.high + 1)
    total = every + count * zero
    codes = np.sign(total) * ((2 * np.abs(total) + count) // (2 * count))
    places = np.flatnonzero(np.diff(codes)) + 1
    function = StepFunction(every[places][None], np.arange(-128, 128)[None], IntType(-128, 127))
    for line in fit_lines(function, sums):
        assert (line.golden(every[:, None])[:, 0] == codes).all()
    assert fit_lines(function, sums)


@pytest.mark.parametrize("code", [IntType(-128, 127), IntType(-8, 7)])
@pytest.mark.parametrize("curve", [np.tanh, leaky, turning])
def test_line_in_front_of_common_steps_equals_its_function_on_every_sum(curve: Function, code: IntType) -> None:
    rng = np.random.default_rng(3)
    value = curve(SUMS[:, None] * rng.uniform(0.002, 0.005, 9) * rng.choice([-1, 1], 9) + rng.normal(size=9) / 4)
    function = of_codes(np.rint(value * code.high).clip(code.low, code.high).astype(np.int64), code)
    assert fit_lines(function, RAW) == ()
    line = fit_ranked(function, RAW)
    assert line.ranked is not None
    assert line.high - line.low + 1 == line.ranked.used_words <= 1 << code.bits
    for shift in (line.shift, line.shift + 3):
        check(at_shift((line,), shift), function)
    offset = rng.integers(-50, 50, 9)
    stored = line.stored(offset, 5, -1).golden(offset - SUMS[:, None])
    assert (stored + 5 == golden(function)).all()


def test_channels_without_common_steps_are_refused_with_the_reason() -> None:
    rising = np.tanh(SUMS / 300)
    apart = np.where(SUMS > 200, 0.8, 0.1) * np.tanh(SUMS / 100)
    for other, message in (
        (turning(SUMS / 200), "its channels turn in different ways"),
        (apart, "no multiplication and addition in each channel brings its channels' steps together"),
    ):
        code = IntType(-128, 127)
        codes = np.rint(np.stack([rising, other], axis=1) * 127).clip(-128, 127).astype(np.int64)
        with pytest.raises(NoCommonStepsError, match=message):
            fit_ranked(of_codes(codes, code), RAW)
