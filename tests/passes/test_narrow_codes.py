"""Signs that are never 0 become one of a bit."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.ir import BIPOLAR, BIT, Graph, IntType, TensorType
from nnhw.ir.ops import Pad, Threshold
from nnhw.passes import narrow_codes
from tests.mapping.networks import I4, Network
from tests.passes.test_optimizations import assert_same


def signs(rows: list[list[int]], falls: list[bool]) -> tuple[Network, str]:
    """Return a network as far as the signs of its sums, whose channels have these steps."""
    net = Network((3, 7, 6), I4)
    x = net.conv(net.input, len(rows), (2, 3))
    sums = net.builder.type_of(x).int_dtype
    falling = net.builder.constant("falls", np.array(falls), TensorType((len(falls),), BIT))
    return net, net.add(Threshold(-1), x, net.constant(np.array(rows), IntType(sums.low, sums.high + 1)), falling)


def narrowed(net: Network, result: str) -> Graph:
    """Return the graph behind the pass, which gives the same integers."""
    graph = net.builder.build([result])
    after = narrow_codes(graph)
    assert_same(graph, after)
    return after


@pytest.mark.parametrize("falls", [[False, False], [True, False], [True, True]])
def test_a_sign_that_is_never_0_has_one_bit(falls: list[bool]) -> None:
    net, codes = signs([[3, 3], [-5, -5]], falls)
    assert narrowed(net, codes).node(codes).type.dtype == BIPOLAR


def test_one_sum_that_gives_0_keeps_three_codes() -> None:
    net, codes = signs([[3, 3], [-5, -4]], [False, False])
    assert narrowed(net, codes).node(codes).type.dtype == IntType(-1, 1)


def test_what_reads_the_codes_gets_new_types() -> None:
    net, codes = signs([[3, 3], [-5, -5]], [False, False])
    padded = net.add(Pad((1, 1), (1, 1)), codes)
    after = narrowed(net, net.conv(padded, 4, (2, 2)))
    # A border is 0, which is a third code again.
    assert after.node(padded).type.dtype == IntType(-1, 1)
    assert after.node(codes).type.dtype == BIPOLAR


def test_other_least_codes_stay() -> None:
    net = Network((3, 7, 6), I4)
    x = net.conv(net.input, 2, (2, 3))
    sums = net.builder.type_of(x).int_dtype
    falling = net.builder.constant("falls", np.zeros(2, bool), TensorType((2,), BIT))
    rows = net.constant(np.array([[3, 3], [3, 3]]), IntType(sums.low, sums.high + 1))
    codes = net.add(Threshold(0), x, rows, falling)
    assert narrowed(net, codes).node(codes).type.dtype == IntType(0, 2)
