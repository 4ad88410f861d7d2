"""Conventions of the quantizer: roundings, the reciprocal and the offset, against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.errors import IrError
from nnhw.ir import FLOAT, Graph, GraphBuilder, TensorType, dumps, loads
from nnhw.ir.noise import decided
from nnhw.ir.ops import Quantize
from nnhw.ir.ops.rounding import ROUNDINGS
from tests.ir.graphs import floats

HALF = Fraction(1, 2)


def slow_round(rounding: str, number: Fraction) -> int:
    """Round a fraction to an integer."""
    down = math.floor(number)
    if rounding in ("floor", "ceil"):
        return down if rounding == "floor" else math.ceil(number)
    if number - down != HALF:
        return down + (number - down > HALF)
    up = {"half_even": down % 2 == 1, "half_away": number > 0, "half_up": True}[rounding]
    return down + up


@pytest.mark.parametrize("rounding", ROUNDINGS)
@given(
    st.floats(-(2.0**53), 2.0**53)
    | st.integers(-20, 20).map(lambda n: n / 2)
    | st.integers(-20, 20).map(lambda n: math.nextafter(n / 2, math.inf))
    | st.integers(-20, 20).map(lambda n: math.nextafter(n / 2, -math.inf))
)
def test_rounding_is_exact(rounding: str, number: float) -> None:
    assert ROUNDINGS[rounding](np.array([number])).tolist() == [slow_round(rounding, Fraction(number))]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("offset", [-3, 0, 1, 2])
def test_quantize_rounds_half_way_points_by_its_convention(rounding: str, offset: int) -> None:
    op = Quantize(-5, 6, rounding=rounding, offset=offset)
    halves = np.arange(-30, 31) / 2
    codes = op.evaluate(halves[:, np.newaxis] * 0.25, np.array(0.25))[:, 0]
    wanted = [min(max(slow_round(rounding, Fraction(half) + offset) - offset, -5), 6) for half in halves.tolist()]
    assert codes.tolist() == wanted


def test_quantize_offset_moves_ties() -> None:
    x = np.array([[-0.5, 0.5, 1.5]])
    assert Quantize(-4, 4).evaluate(x, np.array(1.0)).tolist() == [[0, 0, 2]]
    assert Quantize(-4, 4, offset=1).evaluate(x, np.array(1.0)).tolist() == [[-1, 1, 1]]


def test_quantize_by_the_reciprocal_is_another_function() -> None:
    scale = np.array(float(np.float32(0.0306)))
    halves = (np.arange(-254, 255) + 0.5) * scale
    x = halves.astype(np.float32).astype(np.float64)[:, np.newaxis]
    divided, multiplied = (Quantize(-300, 300, reciprocal=flag).evaluate(x, scale) for flag in (False, True))
    product = x.astype(np.float32) * (np.float32(1) / scale.astype(np.float32))
    assert multiplied.tolist() == np.rint(product).tolist()
    assert (divided != multiplied).sum() == 145


@pytest.mark.parametrize("op", [Quantize(-8, 7, reciprocal=True), Quantize(-8, 7, rounding="half_away", offset=3)])
def test_quantize_clamps_whatever_is_too_large(op: Quantize) -> None:
    x = np.array([[np.inf, 1e300, -1e300, -np.inf]])
    assert op.evaluate(x, np.array(0.5)).tolist() == [[7, 7, -8, -8]]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("reciprocal", [False, True])
@given(st.lists(st.floats(-100, 100), min_size=2), st.integers(-3, 3))
def test_quantize_never_falls(rounding: str, reciprocal: bool, numbers: list[float], offset: int) -> None:
    op = Quantize(-100, 100, rounding=rounding, reciprocal=reciprocal, offset=offset)
    codes = op.evaluate(np.array(sorted(numbers))[:, np.newaxis], np.array(float(np.float32(0.7))))
    assert (np.diff(codes[:, 0]) >= 0).all()


def quantized(op: Quantize, scale: float = 0.5) -> Graph:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1,), FLOAT))
    return builder.build([builder.add("q", op, [x, floats(builder, "s", scale)])])


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (Quantize(0, 3), "(quantize :low 0 :high 3 :bipolar false)"),
        (
            Quantize(0, 3, rounding="half_away"),
            "(quantize :low 0 :high 3 :bipolar false :rounding half_away)",
        ),
        (
            Quantize(0, 3, reciprocal=True, offset=-2),
            "(quantize :low 0 :high 3 :bipolar false :reciprocal true :offset -2)",
        ),
    ],
)
def test_text_says_a_convention_that_is_not_the_usual_one(op: Quantize, text: str) -> None:
    graph = quantized(op)
    assert f"(q {text} (x s)" in dumps(graph)
    assert loads(dumps(graph), graph.constants) == graph


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            ":rounding odd",
            "quantize needs the rounding half_even, half_away, half_up, floor, ceil, got 'odd'",
        ),
        (":offset 0.5", "attribute :offset of operator quantize takes a whole number of 64 bits, got 0.5"),
        (
            ":reciproc true",
            (
                "operator quantize has no attribute :reciproc; write (quantize :low VALUE :high VALUE [:bipolar VALUE] "
                "[:rounding VALUE] [:reciprocal VALUE] [:offset VALUE])"
            ),
        ),
    ],
)
def test_text_rejects_conventions_that_there_are_not(attributes: str, message: str) -> None:
    text = f"(graph g (q (quantize :low 0 :high 3 :bipolar false {attributes}) (x s) (int 0 3) (1)) (outputs q))"
    with pytest.raises(IrError) as caught:
        loads(text)
    assert str(caught.value).splitlines()[0].partition(": ")[2] == message


def test_quantize_rejects_a_convention_for_signs() -> None:
    with pytest.raises(IrError) as caught:
        Quantize(-1, 1, bipolar=True, rounding="floor")
    assert str(caught.value) == (
        "quantize takes the sign of x if it is bipolar: it has neither rounding, reciprocal nor offset"
    )


@pytest.mark.parametrize("scale", [0.1, 2.0**-140, 1e300])
def test_verify_rejects_scales_without_reciprocal(scale: float) -> None:
    with pytest.raises(IrError) as caught:
        quantized(Quantize(0, 3, reciprocal=True), scale)
    assert "scales must be numbers of float32, and so must their reciprocals" in str(caught.value)


def test_rounding_of_the_sum_with_an_offset_may_decide() -> None:
    graph = quantized(Quantize(-100, 100, offset=99), 1.0)
    x = np.array([[math.nextafter(0.5, 0.0)]])
    low, high = decided(graph.node("q"), [x, np.array(1.0)], np.zeros_like(x), 2.0**-53)
    assert (low.tolist(), high.tolist()) == ([[0]], [[1]])
