"""Pooling in front of functions that fall: ranks are pooled, and codes that are mirrored change the sign of weights."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.ir import BIPOLAR, BIT, Graph, IntType, TensorType, run
from nnhw.ir.ops import (
    Concat,
    Conv2d,
    Flatten,
    Linear,
    MaxPool2d,
    Pad,
    Permute,
    StepTable,
    Threshold,
    Upsample,
    WeightedSum,
)
from nnhw.passes import fold_mirrors, sink_integer_pooling
from tests.mapping.networks import I4, U2, Network
from tests.passes.test_optimizations import assert_same, counts

POOL = MaxPool2d((2, 2), (2, 2))
SHIFTED = IntType(-2, 1)
W3 = IntType(-3, 3)
"""Weights whose negatives are weights."""


def steps(net: Network, x: str, code: IntType, falls: list[bool]) -> str:
    """Add thresholds in the middle of the range, of which some channels fall."""
    sums = net.builder.type_of(x).int_dtype
    count = 1 if code.bipolar else code.high - code.low
    rows = np.sort(net.rng.integers(sums.low // 3, sums.high // 3, (len(falls), count)), axis=1)
    op = Threshold(-1 if code.bipolar else code.low, code.bipolar)
    falling = net.builder.constant("falls", np.array(falls), TensorType((len(falls),), BIT))
    return net.add(op, x, net.constant(rows, IntType(sums.low, sums.high + 1)), falling)


def pooled(code: IntType, falls: list[bool], source: IntType = I4) -> tuple[Network, str]:
    """Return a network as far as the codes of pooled sums."""
    net = Network((3, 7, 6), source)
    return net, steps(net, net.add(POOL, net.conv(net.input, len(falls), (2, 3))), code, falls)


def folded(graph: Graph) -> Graph:
    """Return the graph behind both passes, which gives the same integers."""
    sunk = sink_integer_pooling(graph)
    assert_same(graph, sunk)
    after = fold_mirrors(sunk)
    assert_same(graph, after)
    return after


@pytest.mark.parametrize("code", [BIPOLAR, U2, SHIFTED])
@pytest.mark.parametrize("falls", [[True, False, True, False], [True] * 4])
def test_mirrored_codes_go_into_the_weights(code: IntType, falls: list[bool]) -> None:
    net, x = pooled(code, falls)
    graph = net.body(net.code(net.conv(x, 5, (2, 2), W3), I4))
    after = folded(graph)
    assert counts(after) == {"conv2d": 2, "max_pool2d": 1, "threshold": 2}
    first = next(node for node in after.nodes if node.op.name == "threshold")
    assert not after.constants[first.inputs[2]].any()


@pytest.mark.parametrize("groups", [2, 4])
def test_mirrored_codes_go_into_the_weights_of_each_group(groups: int) -> None:
    net, x = pooled(U2, [True, False, False, True])
    graph = net.body(net.code(net.conv(x, 8, (2, 2), W3, groups=groups)))
    assert counts(folded(graph))["threshold"] == 2


def test_mirrored_codes_go_through_what_moves_elements() -> None:
    net, x = pooled(BIPOLAR, [True, False, True, False])
    bordered = net.add(Pad((1, 0), (0, 1)), net.add(Upsample((2, 1)), x))
    y = net.code(net.conv(bordered, 4, (2, 2), W3))
    flat = net.add(Flatten(), net.add(Permute((1, 2, 0)), net.add(Concat(0), x, x)))
    weights = net.constant(net.rng.integers(-3, 4, (3, net.builder.type_of(flat).shape[0])), W3)
    graph = net.builder.build([net.linear(y, 3), net.add(Linear(), flat, weights)])
    sunk = sink_integer_pooling(graph)
    after = fold_mirrors(sunk)
    images = np.random.default_rng(0).integers(-8, 8, (40, 3, 7, 6))
    for left, right in zip(run(graph, images), run(after, images), strict=True):
        np.testing.assert_array_equal(left, right)
    assert (counts(sunk)["threshold"], counts(after)["threshold"]) == (3, 2)


def test_mirrored_codes_stay_where_weights_cannot_take_them() -> None:
    falls = [True, False, True, False]

    def added(net: Network, x: str) -> str:
        return net.code(net.add(WeightedSum((1, 1)), x, net.conv(x, 4, (1, 1), W3)))

    cases = {
        # A border of code 0 is not its own mirror image among the codes 0..3.
        "border": lambda net, x: net.code(net.conv(net.add(Pad((1, 1), (1, 1)), x), 5, (3, 3), W3)),
        "sum": added,
        # The host reads these sums: there are no steps that could take the constant.
        "sums": lambda net, x: net.conv(x, 5, (1, 1), W3),
        "result": lambda net, x: x,
    }
    for build in cases.values():
        net, x = pooled(U2, falls)
        graph = net.body(build(net, x))
        sunk = sink_integer_pooling(graph)
        assert fold_mirrors(sunk) == sunk
        assert_same(graph, sunk)
    net, x = pooled(BIPOLAR, falls)
    weights = np.full((2, 4, 1, 1), 3)
    weights[0, 0] = -8
    # The negative of -8 is no weight of 4 bits.
    graph = net.body(net.add(Conv2d(), x, net.constant(weights, I4)))
    sunk = sink_integer_pooling(graph)
    assert fold_mirrors(sunk) == sunk


@pytest.mark.parametrize("twice", [False, True])
def test_pooling_moves_behind_a_table_that_rises_and_falls(twice: bool) -> None:
    net = Network((3, 9, 9), I4)
    sums = net.conv(net.input, 4, (2, 2))
    x = net.add(POOL, net.add(MaxPool2d((2, 2), (1, 1)), sums) if twice else sums)
    kind = net.builder.type_of(x).int_dtype
    rows = np.sort(net.rng.integers(kind.low // 3, kind.high // 3, (4, 5)), axis=1)
    codes = net.constant(np.array([[3, 0, 2, 1, 1, 0]] * 4), U2)
    x = net.add(StepTable(0, 3), x, net.constant(rows, IntType(kind.low, kind.high + 1)), codes)
    graph = net.body(net.conv(x, 2, (1, 1)))
    after = folded(graph)
    names = [node.op.name for node in after.nodes if node.inputs]
    assert names == ["conv2d", "threshold", *["max_pool2d"] * (1 + twice), "step_table", "conv2d"]


def test_pooling_of_codes_stays_in_front_of_a_function_that_falls() -> None:
    net, x = pooled(U2, [False] * 4)
    graph = net.body(net.conv(steps(net, net.add(POOL, x), BIPOLAR, [True, False, True, True]), 2, (1, 1)))
    names = [node.op.name for node in sink_integer_pooling(graph).nodes if node.inputs]
    assert names == ["conv2d", "threshold", "max_pool2d", "max_pool2d", "threshold", "conv2d"]
