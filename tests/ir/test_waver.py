"""What ops say of their last bits: how far functions are from themselves, and that all others never fall."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.ir import Op
from nnhw.ir.ops import (
    OPS,
    Absolute,
    Add,
    BatchNorm,
    Ceil,
    Clamp,
    Dequantize,
    Divide,
    Elu,
    Exp,
    Floor,
    Gelu,
    Greater,
    GreaterEqual,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Maximum,
    Minimum,
    Mish,
    Multiply,
    Negate,
    PRelu,
    Quantize,
    Relu,
    Round,
    Sigmoid,
    Sign,
    Silu,
    Softplus,
    Sqrt,
    Square,
    Subtract,
    Tanh,
    Truncate,
)

WINDOW = 2000  # consecutive float64


def _erf_share(x: Decimal) -> Decimal:
    return Decimal(math.erfc(-float(x) * math.sqrt(0.5))) / 2


def _cubic(x: Decimal) -> Decimal:
    high, low = (Decimal(factor) for factor in map(float, ("0.7978845608028654", "0.044715")))
    return high * (x + low * x**3)


def _softplus(x: Decimal) -> Decimal:
    return (1 + x.exp()).ln() if x > -200 else x.exp()


def _expm1(x: Decimal) -> Decimal:
    return x.exp() - 1 if abs(x) > Decimal("1e-30") else x


def _tanh(x: Decimal) -> Decimal:
    return 1 - 2 / ((2 * x).exp() + 1) if abs(x) > Decimal("1e-30") else x


FUNCTIONS: list[tuple[Op, Callable[[Decimal], Decimal]]] = [
    (Exp(), lambda x: x.exp()),
    (Sigmoid(), lambda x: 1 / (1 + (-x).exp())),
    (Tanh(), _tanh),
    (Elu(), lambda x: x if x > 0 else _expm1(x)),
    (Elu(0.5, 2.0, 3.0), lambda x: x * 2 if x > 0 else _expm1(Decimal(float(x) * 3.0))),
    (Silu(), lambda x: x / (1 + (-x).exp())),
    (Mish(), lambda x: x * _tanh(_softplus(x))),
    (Softplus(), lambda x: x if x > 20 else _softplus(x)),
    (Softplus(1.0, math.inf), _softplus),
    (Gelu(), lambda x: x * _erf_share(x)),
    (Gelu(tanh_form=True), lambda x: x / (1 + min(-2 * _cubic(x), Decimal(9999)).exp())),
]
SEAMS = (
    0.0,
    -0.25,
    0.25,
    -0.5,
    0.5,
    1.0,
    -2.83,
    2.83,
    -3.0,
    -8.4,
    8.4,
    -18.5,
    18.5,
    -36.5,
    36.5,
    20.0,
    -24.0,
    -40.0,
    3.0,
)
REACH = st.floats(-60, 60) | st.floats(-9, 0) | st.floats(-700, 0) | st.floats(-1e-6, 1e-6) | st.sampled_from(SEAMS)


@pytest.mark.parametrize(("op", "function"), FUNCTIONS, ids=lambda item: str(item) if isinstance(item, Op) else "")
@given(x=REACH)
@settings(max_examples=150, deadline=None)
def test_function_is_as_near_as_its_waver_says(op: Op, function: Callable[[Decimal], Decimal], x: float) -> None:
    result = op.evaluate(np.array([x]))
    waver = op.waver(np.array([x]), result)
    assert waver is not None
    least, most = op.limits()
    assert least <= result[0] <= most
    assert least == 0 or result[0] * x >= 0  # it has the sign of x, or none
    with localcontext(prec=120, Emin=-(10**6), Emax=10**6):
        error = abs(Decimal(float(result[0])) - function(Decimal(x)))
        limit = 2.0**-53 * max(abs(x), 1.0)  # where nothing wavers, it is at its limit
        assert error <= Decimal(limit if waver[0] == 0 else float(waver[0]) * 0.75)


def neighbours(place: float) -> np.ndarray:
    """Return consecutive float64 around a place."""
    bits = np.array(place).view(np.int64)
    found = (bits + np.arange(-WINDOW // 2, WINDOW // 2)).view(np.float64)
    found = np.concatenate([-found[np.isfinite(found)], found[np.isfinite(found)]]) if place == 0 else np.sort(found)
    return np.unique(found[np.isfinite(found)])


@pytest.mark.parametrize("op", [*(op for op, _ in FUNCTIONS), HardSwish()], ids=str)
@given(place=REACH)
@settings(max_examples=60, deadline=None)
def test_function_falls_by_no_more_than_its_waver(op: Op, place: float) -> None:
    ends = (-math.inf, *op.turns(), math.inf)
    direction = op.first_direction()
    for low, high in pairwise(ends):
        x = neighbours(place)
        x = x[(x >= low) & (x <= high)] if low != high else x[:0]
        if len(ends) == 4:  # behind a jump, which the place itself does not belong to, it rises again
            x, direction = x[x > low], 1
        values = op.evaluate(x[np.newaxis])[0]
        waver = op.waver(x, values)
        assert waver is not None
        moves = direction * np.diff(values)
        assert (moves >= -(waver[1:] + waver[:-1])).all()
        direction = -direction


def test_waver_is_needed() -> None:
    x = neighbours(0.25)
    assert (np.diff(Tanh().evaluate(x)) < 0).any()
    x = np.concatenate([neighbours(place) for place in (-2.1, -2.4, -2.7)])
    assert (np.diff(HardSwish().evaluate(x)) > 0).any()


CHANNEL = np.array([0.3])
EXACT: list[tuple[Op, tuple[np.ndarray, ...]]] = [
    (HardSigmoid(), ()), (LeakyRelu(0.1), ()), (LeakyRelu(-0.5), ()), (Absolute(), ()), (Square(), ()), (Sqrt(), ()),
    (Floor(), ()), (Ceil(), ()), (Round(), ()), (Truncate(), ()), (Relu(), ()), (Clamp(-0.7, 0.3), ()), (Negate(), ()),
    (PRelu(), (CHANNEL,)), (Add(), (CHANNEL,)), (Subtract(), (CHANNEL,)), (Multiply(), (CHANNEL,)),
    (Divide(), (CHANNEL,)), (Minimum(), (CHANNEL,)), (Maximum(), (CHANNEL,)), (Greater(), (CHANNEL,)),
    (GreaterEqual(), (CHANNEL,)), (Sign(), ()),
    (BatchNorm(1e-5), (CHANNEL, -CHANNEL, CHANNEL, CHANNEL)), (Quantize(-128, 127), (CHANNEL,)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "constants"), EXACT, ids=lambda item: str(item) if isinstance(item, Op) else "")
@given(place=st.floats(-40, 40) | st.floats(-1e-6, 1e-6) | st.sampled_from(SEAMS))
@settings(max_examples=60, deadline=None)
def test_op_without_waver_never_falls(op: Op, constants: tuple[np.ndarray, ...], place: float) -> None:
    assert op.waver(np.array([place]), np.array([place])) is None
    for low, high in pairwise((-math.inf if op.name != "sqrt" else 0.0, *op.turns(), math.inf)):
        x = neighbours(place)
        x = x[(x >= low) & (x <= high)]
        moves = np.diff(op.evaluate(x[:, np.newaxis], *constants)[:, 0])
        assert (moves >= 0).all() or (moves <= 0).all()


def test_every_op_that_says_how_it_moves_is_looked_at() -> None:
    moving = {name for name, op in OPS.items() if op.trend is not Op.trend or op.turns is not Op.turns}
    assert moving - {Dequantize.name} == {op.name for op, _ in (*FUNCTIONS, *EXACT)} | {HardSwish.name}


@given(beta=st.floats(0.01, 20), threshold=st.floats(0.1, 50))
@settings(max_examples=200, deadline=None)
def test_softplus_turns_at_the_last_place_of_its_curve(beta: float, threshold: float) -> None:
    place = Softplus(beta, threshold).turns()[0]
    assert place * beta <= threshold < math.nextafter(place, math.inf) * beta
