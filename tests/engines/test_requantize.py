"""Requantizers' golden functions against definitions spelled out in plain integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.engines.requantize import (
    ADDER_BITS,
    DoubleScaler,
    Scaler,
    Table,
    Thresholds,
    ThresholdSearch,
    lower_bits,
    radix4_digits,
)
from nnhw.errors import MappingError
from nnhw.ir.types import BIPOLAR, IntType

RAW = IntType(-60, 50)
CODES = st.sampled_from([IntType(0, 15), IntType(-8, 7), IntType(-3, 1), BIPOLAR])


def all_raw(outputs: int) -> np.ndarray:
    """Return each raw sum for each output."""
    return np.arange(RAW.low, RAW.high + 1)[:, None].repeat(outputs, axis=1)


def code_of(index: int, code: IntType) -> int:
    """Return the code of a clamped index."""
    span = 1 if code.bipolar else code.high - code.low
    index = max(0, min(span, index))
    return 2 * index - 1 if code.bipolar else code.low + index


@given(st.lists(st.integers(-(1 << 40), 1 << 40), min_size=1, max_size=9))
def test_radix4_digits_sum_to_the_number(numbers: list[int]) -> None:
    digits = radix4_digits(np.array(numbers))
    assert np.isin(digits, [-1, 0, 1, 2]).all()
    assert [sum(digit * 4**k for k, digit in enumerate(row)) for row in digits.tolist()] == numbers


@given(CODES, st.data())
def test_thresholds_and_search_count_steps(code: IntType, data: st.DataObject) -> None:
    levels = 1 if code.bipolar else code.high - code.low
    rows = st.lists(st.integers(RAW.low, RAW.high + 1), min_size=levels, max_size=levels).map(sorted)
    steps = np.array(data.draw(st.lists(rows, min_size=2, max_size=2)))
    descending = np.array([False, True])
    expected = [
        [
            code_of(sum(x >= t for t in steps[0].tolist()), code),
            code_of(levels - sum(x >= t for t in steps[1].tolist()), code),
        ]
        for x in range(RAW.low, RAW.high + 1)
    ]
    assert Thresholds(steps, descending, code).golden(all_raw(2)).tolist() == expected
    assert ThresholdSearch(steps, descending, code, RAW).golden(all_raw(2)).tolist() == expected


@given(CODES, st.integers(0, 12), st.data())
def test_scaler_multiplies_adds_and_shifts(code: IntType, shift: int, data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.tuples(st.integers(-900, 900), st.integers(-9000, 9000)), min_size=4, max_size=4))
    borders = data.draw(st.lists(st.integers(RAW.low, RAW.high + 1), min_size=2, max_size=2))
    multiplier, addend = (np.array([line[k] for line in lines]).reshape(2, 2) for k in (0, 1))
    scaler = Scaler(multiplier, addend, shift, code, RAW, np.array(borders)[:, None])
    for x, codes in zip(range(RAW.low, RAW.high + 1), scaler.golden(all_raw(2)).tolist(), strict=True):
        for channel, border in enumerate(borders):
            m, b = lines[2 * channel + (x >= border)]
            assert codes[channel] == code_of((m * x + b) // 2**shift, code)


@given(st.integers(1, 10), st.integers(-500, 500), st.sampled_from([-128, -3]))
def test_scaler_rounds_half_to_even(shift: int, multiplier: int, low: int) -> None:
    code = IntType(low, low + 255)
    addend = (1 << (shift - 1)) - (low << shift)
    scaler = Scaler(
        np.array([[multiplier]]), np.array([[addend]]), shift, code, RAW, np.empty((1, 0), dtype=np.int64),
        even=True, parity=low & 1,
    )  # fmt: skip
    expected = np.clip(np.rint(np.arange(RAW.low, RAW.high + 1) * multiplier / 2**shift), low, low + 255)
    assert (scaler.golden(all_raw(1))[:, 0] == expected).all()


def round_twice(x: int, multiplier: int, exponent: int) -> int:
    """Return x * multiplier / 2**31 * 2**exponent as the reference kernels of TFLite round it, in C's operations."""
    product = (x << max(exponent, 0)) * multiplier
    nudge = (1 << 30) if product >= 0 else 1 - (1 << 30)
    nudged = product + nudge
    high = abs(nudged) // (1 << 31) * (1 if nudged >= 0 else -1)  # C divides toward zero
    right = max(-exponent, 0)
    remainder, threshold = high & ((1 << right) - 1), ((1 << right) - 1 >> 1) + (high < 0)
    return (high >> right) + (remainder > threshold)


@given(st.integers(1 << 30, (1 << 31) - 1), st.integers(-12, 3), st.integers(-99999, 99999), st.integers(-9, 9))
def test_double_scaler_rounds_twice(multiplier: int, exponent: int, bias: int, offset: int) -> None:
    code = IntType(-128, 127)
    scaler = DoubleScaler.of(np.array([multiplier]), np.array([exponent]), np.array([bias]), offset, code, RAW)
    expected = [code_of(round_twice(x + bias, multiplier, exponent) + offset + 128, code) for x in range(-60, 51)]
    assert scaler.golden(all_raw(1))[:, 0].tolist() == expected


@pytest.mark.parametrize("exponent", [-1, -3])
def test_double_scaler_rounds_ties_away_from_zero(exponent: int) -> None:
    half = 1 << 30  # times 2**exponent: a quarter, a sixteenth
    scaler = DoubleScaler.of(np.array([half]), np.array([exponent]), np.array([0]), 0, IntType(-128, 127), RAW)
    codes = scaler.golden(all_raw(1))[:, 0]
    assert codes.tolist() == [round_twice(x, half, exponent) for x in range(RAW.low, RAW.high + 1)]
    assert codes[60 + 2 * 2**-exponent // 2] == -codes[60 - 2 * 2**-exponent // 2] == 1


def test_lower_bits_leave_no_part_wider_than_an_adder() -> None:
    parts = [(lower_bits(bits), bits - lower_bits(bits)) for bits in range(1, 2 * ADDER_BITS + 1)]
    assert max(max(pair) for pair in parts) == ADDER_BITS
    assert parts[22:26] == [(23, 0), (24, 0), (24, 1), (24, 2)]
    assert parts[-1] == (ADDER_BITS, ADDER_BITS)


def test_table_looks_up() -> None:
    codes = np.random.default_rng(1).integers(-8, 8, (2, 111))
    for rows in (codes, codes[:1]):
        table = Table(rows, IntType(-8, 7), RAW, 2)
        assert (table.golden(all_raw(2)).T == rows).all()


def test_table_rejects_codes_of_another_size() -> None:
    with pytest.raises(MappingError) as caught:
        Table(np.zeros((2, 110), dtype=np.int64), IntType(-8, 7), RAW, 3)
    assert str(caught.value) == "table of raw sums int -60..50 needs codes [1 or 3, 111], given (2, 110)"


def test_scaler_rejects_sums_beyond_64_bits() -> None:
    wide, one = IntType(-(1 << 40), 1 << 40), np.array([[1 << 30]])
    with pytest.raises(MappingError) as caught:
        Scaler(one, one, 30, BIPOLAR, wide, np.empty((1, 0), dtype=np.int64))
    assert str(caught.value) == "scaler needs sums of at most 64 bits, given 72; use fewer bits"


def test_scaler_rejects_borders_of_another_size() -> None:
    two = np.ones((3, 2), dtype=np.int64)
    with pytest.raises(MappingError) as caught:
        Scaler(two, two, 1, BIPOLAR, RAW, two)
    assert str(caught.value) == (
        "scaler needs multipliers and addends [outputs, segments] and one border less, given (3, 2), (3, 2) and (3, 2)"
    )


def test_double_scaler_rejects_left_shifts() -> None:
    with pytest.raises(MappingError) as caught:
        DoubleScaler(np.array([1]), np.array([0]), np.array([-1]), 0, BIPOLAR, RAW)
    assert str(caught.value) == (
        "double rounding needs right shifts of 0..31, given -1..-1; put a left shift into the multiplier"
    )


def test_search_rejects_a_table_of_another_size() -> None:
    steps, falls = np.zeros((2, 3), dtype=np.int64), np.array([False, True])
    with pytest.raises(MappingError) as caught:
        ThresholdSearch(steps, falls, BIPOLAR, RAW, np.ones((2, 3), dtype=np.int64))
    assert str(caught.value) == (
        "threshold search with a table needs 4 codes a channel and no channel that descends, "
        "given 3 codes and 1 channels that do"
    )
