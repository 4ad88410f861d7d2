"""The functions of `special` against decimal arithmetic of 100 digits, with the errors that its docstring states."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.ir.ops import special

REACH = st.floats(-30, 30) | st.floats(-1e-3, 1e-3)
REACH = REACH.filter(lambda x: abs(x) > 1e-40) | st.sampled_from([0.0, -0.0, 0.5, -0.5, 2.0, -2.0])


def _decimal_exp(x: Decimal) -> Decimal:
    return x.exp()


def _decimal_tanh(x: Decimal) -> Decimal:
    power = (2 * x).exp()
    return (power - 1) / (power + 1)


EXACT: dict[str, Callable[[Decimal], Decimal]] = {
    "exp": _decimal_exp,
    "expm1": lambda x: x.exp() - 1,
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "tanh": _decimal_tanh,
    "softplus": lambda x: (1 + x.exp()).ln(),
}


@pytest.mark.parametrize("name", EXACT)
@given(x=REACH)
@settings(max_examples=100, deadline=None)
def test_special_functions_are_within_three_units_in_the_last_place(name: str, x: float) -> None:
    result = float(getattr(special, name)(np.array([x]))[0])
    with localcontext(prec=100):
        error = abs(Decimal(result) - EXACT[name](Decimal(x)))
    assert error <= 3 * Decimal(math.ulp(result))


@given(st.floats(-7, 7))
@settings(max_examples=200, deadline=None)
def test_erf_is_within_a_few_units_in_the_last_place(x: float) -> None:
    result = float(special.erf(np.array([x]))[0])
    most = 1 if abs(x) >= 2 else 6
    assert abs(result - math.erf(x)) <= most * math.ulp(math.erf(x))


def test_special_functions_keep_their_limits_and_nan() -> None:
    ends = np.array([np.inf, -np.inf, 0.0, np.nan, 709.7, -746.0])
    assert special.exp(ends)[:3].tolist() == [np.inf, 0.0, 1.0]
    assert special.exp(ends)[5] == 0.0
    assert special.tanh(ends)[:3].tolist() == [1.0, -1.0, 0.0]
    assert special.sigmoid(ends)[:3].tolist() == [1.0, 0.0, 0.5]
    assert special.erf(ends)[:3].tolist() == [1.0, -1.0, 0.0]
    assert special.expm1(ends)[:3].tolist() == [np.inf, -1.0, 0.0]
    for function in (special.exp, special.expm1, special.tanh, special.sigmoid, special.erf, special.softplus):
        assert np.isnan(function(ends)[3])


@pytest.mark.parametrize("name", [*EXACT, "erf"])
def test_special_functions_do_not_depend_on_the_layout(name: str) -> None:
    function = getattr(special, name)
    x = np.random.default_rng(0).normal(size=(7, 5, 3)) * 4
    whole = function(x)
    assert np.array_equal(function(x[::2, :, ::-1]), whole[::2, :, ::-1])
    assert np.array_equal(function(np.asfortranarray(x)), whole)
    assert [float(function(np.array([v]))[0]) for v in x.ravel()] == whole.ravel().tolist()
