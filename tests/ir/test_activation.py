"""Activations and arithmetic: values, directions, turns, and the text form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import IrError
from nnhw.ir import FLOAT, GraphBuilder, Op, Operand, TensorType, dumps, loads
from nnhw.ir.ops import (
    Absolute,
    Ceil,
    Elu,
    Exp,
    Floor,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Maximum,
    Minimum,
    Mish,
    PRelu,
    Round,
    Sigmoid,
    Silu,
    Softplus,
    Sqrt,
    Square,
    Tanh,
    Truncate,
    special,
)

FINITE = st.floats(-50, 50)

EXACT: dict[str, tuple[Op, Callable[[float], float]]] = {
    "leaky_relu": (LeakyRelu(0.1), lambda x: x if x >= 0 else x * 0.1),
    "hardsigmoid": (HardSigmoid(), lambda x: min(max(x + 3.0, 0.0), 6.0) / 6.0),
    "hardswish": (HardSwish(), lambda x: 0.0 if x < -3 else x * min(max(x + 3.0, 0.0), 6.0) / 6.0),
    "abs": (Absolute(), abs),
    "square": (Square(), lambda x: x * x),
    "floor": (Floor(), math.floor),
    "ceil": (Ceil(), math.ceil),
    "round": (Round(), round),
    "trunc": (Truncate(), math.trunc),
    "sigmoid": (Sigmoid(), lambda x: 1.0 / (1.0 + _exp(-x))),
    "silu": (Silu(), lambda x: x / (1.0 + _exp(-x))),
    "exp": (Exp(), lambda x: _exp(x)),
    "elu": (Elu(0.5, 2.0, 3.0), lambda x: x * 2.0 if x > 0 else _expm1(x * 3.0) * (0.5 * 2.0)),
    "mish": (Mish(), lambda x: x * _of(special.tanh, _of(special.softplus, x))),
    "gelu": (Gelu(), lambda x: (x * 0.5) * (1.0 + _of(special.erf, x * 0.7071067811865476))),
    "gelu_tanh": (Gelu(tanh_form=True), lambda x: (x * 0.5) * (1.0 + _of(special.tanh, _cubic(x)))),
    "softplus": (Softplus(2.0, 6.0), lambda x: x if x * 2.0 > 6.0 else _of(special.softplus, x * 2.0) / 2.0),
}


def _of(function: Callable[[np.ndarray], np.ndarray], x: float) -> float:
    return float(function(np.array([x]))[0])


def _exp(x: float) -> float:
    return _of(special.exp, x)


def _expm1(x: float) -> float:
    return _of(special.expm1, x)


def _cubic(x: float) -> float:
    return 0.7978845608028654 * (x + 0.044715 * (x * x * x))


@pytest.mark.parametrize("name", EXACT)
@given(x=FINITE)
@settings(max_examples=50, deadline=None)
def test_activation_equals_its_formula(name: str, x: float) -> None:
    op, formula = EXACT[name]
    result = op.evaluate(np.array([[x]]))
    assert result.dtype == np.float64
    assert result.tolist() == [[formula(x)]]


KNOWN = [
    (Gelu(), 1.0, 0.8413447460685429), (Gelu(tanh_form=True), 1.0, 0.8411919906082768),
    (Silu(), 1.0, 0.7310585786300049), (Mish(), 1.0, 0.8650983882673103), (Tanh(), 1.0, 0.7615941559557649),
    (Softplus(), 0.0, 0.6931471805599453), (Elu(), -1.0, -0.6321205588285577), (Sqrt(), 2.0, 1.4142135623730951),
    (HardSwish(), -1.5, -0.375), (Round(), 2.5, 2.0), (Round(), -1.5, -2.0), (Truncate(), -1.7, -1.0),
]  # fmt: skip


@pytest.mark.parametrize(("op", "x", "value"), KNOWN, ids=lambda item: str(item))
def test_activation_at_known_places(op: Op, x: float, value: float) -> None:
    result = float(op.evaluate(np.array([[x]]))[0, 0])
    assert abs(result - value) <= 2 * math.ulp(value)


CURVES: list[Op] = [
    Silu(), Mish(), Gelu(), Gelu(tanh_form=True), HardSwish(), Absolute(), Square(), LeakyRelu(-0.5),
    Softplus(2.0, 1.0), LeakyRelu(0.5), Sigmoid(), Tanh(), Elu(), HardSigmoid(), Exp(), Floor(), Ceil(), Round(),
    Truncate(), Softplus(1.0, float("inf")),
]  # fmt: skip


@pytest.mark.parametrize("op", CURVES, ids=str)
def test_activation_moves_as_its_turns_and_trend_say(op: Op) -> None:
    turns = op.turns()
    grid = np.unique(np.concatenate([np.linspace(-12, 12, 24001), np.array(turns)]))
    monotone = op.trend(0, [Operand(TensorType((1,), FLOAT))])
    assert (monotone is None) == bool(turns)
    direction = op.first_direction() if monotone is None else int(monotone)
    ends = (-math.inf, *turns, math.inf)
    if len(set(turns)) < len(turns):  # a jump: the place itself belongs to the first piece
        ends, pieces = (-math.inf, turns[0], math.inf), [grid[grid <= turns[0]], grid[grid > turns[0]]]
        assert (np.diff(op.evaluate(np.array([[p[-1], q[0]] for p, q in [pieces]]))) < 0).all()
    else:
        pieces = [grid[(grid >= a) & (grid <= b)] for a, b in itertools.pairwise(ends)]
    for piece in pieces:
        values = op.evaluate(piece[None])[0]
        steps, waver = np.diff(values), op.waver(piece, values)
        assert (direction * steps >= (0.0 if waver is None else -waver[1:] - waver[:-1])).all()
        assert (steps != 0).any()
        direction = direction if len(set(turns)) < len(turns) else -direction


def test_prelu_has_one_slope_per_channel() -> None:
    x = np.array([[[1.0, -2.0], [3.0, -4.0]]])
    assert PRelu().evaluate(x, np.array([0.5, -0.25])).tolist() == [[[1.0, -1.0], [3.0, 1.0]]]
    assert PRelu().evaluate(x, np.array(0.5)).tolist() == [[[1.0, -1.0], [3.0, -2.0]]]
    operand = Operand(TensorType((2, 2), FLOAT))
    for slopes, trend in (([0.5, 0.0], 1), ([0.5, -0.25], None)):
        values = np.array(slopes)
        found = PRelu().trend(0, [operand, Operand(TensorType((2,), FLOAT), values)])
        assert (None if found is None else int(found)) == trend


def test_minimum_and_maximum_take_constants_and_values() -> None:
    x = np.array([[1.0, -2.0, np.nan]])
    assert Maximum().evaluate(x, np.array(0.0))[0, :2].tolist() == [1.0, 0.0]
    assert Minimum().evaluate(np.array([0.0, -3.0, 0.0]), x)[0, :2].tolist() == [0.0, -3.0]
    assert np.isnan(Minimum().evaluate(x, x)[0, 2])
    assert int(Maximum().trend(1, [])) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EXACT)
def test_activation_does_not_hide_nan(name: str) -> None:
    assert np.isnan(EXACT[name][0].evaluate(np.array([[math.nan]]))).all()


def test_sqrt_of_a_negative_number_is_nan() -> None:
    assert np.isnan(Sqrt().evaluate(np.array([[-1.0]]))).all()


@pytest.mark.parametrize("op", [*CURVES, Elu(0.5, 2.0, 0.25), Sqrt(), Mish()], ids=str)
def test_activation_survives_the_text_form(op: Op) -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((2,), FLOAT))
    graph = builder.build([builder.add("y", op, [x])])
    assert loads(dumps(graph)) == graph


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Elu(-1.0), "elu needs alpha >= 0 and scales > 0, got -1.0, 1.0 and 1.0"),
        (lambda: Softplus(0.0), "softplus needs beta > 0, got 0.0"),
        (
            lambda: PRelu().infer(
                [Operand(TensorType((3, 2), FLOAT)), Operand(TensorType((2,), FLOAT), np.array([1.0, 2.0]))]
            ),
            "prelu needs one slope, or one per channel of float64 [3, 2], got float64 [2]",
        ),
    ],
)
def test_activation_rejects_what_is_not_defined(make: Callable[[], object], message: str) -> None:
    with pytest.raises(IrError) as caught:
        make()
    assert str(caught.value) == message
