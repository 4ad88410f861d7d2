"""Fixed-point requantization against the C code that it stands for, element by element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import IrError
from nnhw.ir import FLOAT, Builder, IntType, Operand, TensorType, dumps, loads, verify
from nnhw.ir.ops import Rescale

SUMS = IntType(-(1 << 20), 1 << 20)


def value(shape: tuple[int, ...], dtype: object = SUMS) -> Operand:
    return Operand(TensorType(shape, dtype))  # type: ignore[arg-type]


def constant(array: object) -> Operand:
    values = np.asarray(array)
    return Operand(TensorType(values.shape, IntType(-(1 << 31), 1 << 31)), values)


def truncated(a: int, b: int) -> int:
    """Return the quotient as C has it."""
    return abs(a) // b if a >= 0 else -(abs(a) // b)


def high_multiply(a: int, b: int) -> int:
    """Return gemmlowp's SaturatingRoundingDoublingHighMul."""
    nudge = 1 << 30 if a * b >= 0 else 1 - (1 << 30)
    return truncated(a * b + nudge, 1 << 31)


def divide_by_power(x: int, exponent: int) -> int:
    """Return gemmlowp's RoundingDivideByPOT."""
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (x < 0)
    return (x >> exponent) + ((x & mask) > threshold)


def double(x: int, multiplier: int, exponent: int) -> int:
    left, right = max(exponent, 0), max(-exponent, 0)
    return divide_by_power(high_multiply(x << left, multiplier), right)


def single(x: int, multiplier: int, exponent: int) -> int:
    return (((x * multiplier) >> (30 - exponent)) + 1) >> 1


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_rescale_equals_the_c_code(data: st.DataObject) -> None:
    rounding = data.draw(st.sampled_from(["double", "single"]))
    exponents = data.draw(st.lists(st.integers(-31, 9), min_size=1, max_size=3))
    multipliers = [data.draw(st.integers(0, (1 << 31) - 1) | st.sampled_from([1 << 30, 1, 3 << 29])) for _ in exponents]
    biases = [data.draw(st.integers(-(1 << 16), 1 << 16)) for _ in exponents]
    near = [data.draw(st.integers(SUMS.low, SUMS.high) | st.integers(-40, 40)) for _ in range(8)]
    x = np.array(near).reshape(1, 1, 8).repeat(len(exponents), axis=1)
    op = Rescale(-7, -100, 90, rounding)
    constants = [constant(multipliers), constant(exponents), constant(biases)]
    assert op.infer([value((len(exponents), 8)), *constants]) == TensorType((len(exponents), 8), IntType(-100, 90))
    result = op.evaluate(x, *(each.constant for each in constants))
    scale = double if rounding == "double" else single
    for channel, (multiplier, exponent, bias) in enumerate(zip(multipliers, exponents, biases, strict=True)):
        for place, number in enumerate(near):
            expected = min(max(scale(number + bias, multiplier, exponent) - 7, -100), 90)
            assert result[0, channel, place] == expected, (number, multiplier, exponent, bias)


def test_rescale_rounds_once_and_twice_to_other_codes() -> None:
    constants = [np.array([1 << 30]), np.array([-1]), np.array([0])]  # a quarter
    x = np.arange(-6, 7)[None, None]
    twice, once = (Rescale(0, -128, 127, rounding).evaluate(x, *constants)[0, 0] for rounding in ("double", "single"))
    assert once.tolist() == [-1, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert twice.tolist() == [-2, -1, -1, -1, -1, 0, 0, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ([value((2,), FLOAT), *[constant([1, 1])] * 3], "x must be an integer tensor, got float64 [2]"),
        ([value((2,)), constant([1]), *[constant([1, 1])] * 2],
         ("rescale needs x [channels, ..] and multiplier [channels], got int -1048576..1048576 [2] and "
         "int -2147483648..2147483648 [1]")),
        ([value((1,)), constant([1 << 31]), constant([0]), constant([0])],
         "rescale needs multipliers of 0..2**31 - 1 and exponents of -31..30, got 2147483648 and 0"),
        ([value((1,)), constant([5]), constant([-32]), constant([0])],
         "rescale needs multipliers of 0..2**31 - 1 and exponents of -31..30, got 5 and -32"),
        ([value((1,)), constant([1 << 30]), constant([13]), constant([1])],
         ("rescale must stay within 64 bits, got sums of int -1048576..1048576, bias 1, multiplier 1073741824 and "
         "exponent 13")),
    ],
)  # fmt: skip
def test_rescale_rejects_operands_that_do_not_fit(operands: list[Operand], message: str) -> None:
    with pytest.raises(IrError) as caught:
        Rescale(0, -128, 127, "double").infer(operands)
    assert str(caught.value) == message


def test_rescale_rejects_another_rounding() -> None:
    with pytest.raises(IrError) as caught:
        Rescale(0, -128, 127, "even")
    assert str(caught.value) == (
        "rescale needs rounding 'single' or 'double', low <= high and a shift of 0..30, got 'even', -128, 127 and 0"
    )


def test_rescale_text_form_keeps_every_attribute() -> None:
    builder = Builder("g")
    x = builder.input("x", (2, 3), SUMS.low, SUMS.high)
    graph = builder.build(x.rescale([5, 6], [-3, 2], [-9, 7], offset=-4, low=-100, high=90, rounding="double"))
    again = loads(dumps(graph), graph.constants)
    assert again == graph
    assert verify(again) is again
