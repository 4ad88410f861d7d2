"""Branches whose codes never change."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.errors import LoweringError
from nnhw.ir import FLOAT, Graph, IntType, TensorType, run, verify
from nnhw.ir.graph import GraphBuilder
from nnhw.ir.ops import BatchNorm, Dequantize, Linear, Pad, Quantize, StepTable, Threshold, WeightedSum
from nnhw.passes import fold_constants, lower, split
from nnhw.passes.ranges import constant_values
from tests.ir.graphs import floats, integers
from tests.mapping.networks import I4, U2, Network

ROWS = np.array([[-20, -3, 4], [-9, 0, 11], [-30, 1, 30], [2, 2, 25]])


def ops_of(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.op.name not in ("constant", "input")]


def function(net: Network, x: str, table: bool) -> str:
    """Add steps that lie around the range of sums, in two channels falling or up and down."""
    range_ = net.builder.type_of(x).int_dtype
    place = IntType(min(range_.low, -99), range_.high + 99)
    if table:
        codes = np.array([[0, 3, 1, 2], [3, 2, 1, 0], [1, 1, 2, 2], [0, 1, 2, 3]])
        return net.add(StepTable(0, 3), x, net.constant(ROWS, place), net.constant(codes, U2))
    falls = net.builder.constant("falls", np.array([0, 1, 1, 0], bool), TensorType((4,), IntType(0, 1)))
    return net.add(Threshold(0), x, net.constant(ROWS, place), falls)


def frozen(net: Network, x: str, codes: list[int]) -> str:
    """Add thresholds of which each channel has passed as many as its code says, and passes no other."""
    range_ = net.builder.type_of(x).int_dtype
    rows = np.where(np.arange(3) < np.array(codes)[:, None], range_.low, range_.high + 1)
    falls = net.builder.constant("falls", np.zeros(4, bool), TensorType((4,), IntType(0, 1)))
    return net.add(Threshold(0), x, net.constant(rows, IntType(range_.low, range_.high + 1)), falls)


def assert_same(before: Graph, after: Graph) -> None:
    verify(after)
    node = before.inputs[0]
    kind = node.type.int_dtype
    images = np.random.default_rng(0).integers(kind.low, kind.high + 1, (300, *node.type.shape))
    np.testing.assert_array_equal(run(after, images)[0], run(before, images)[0])
    assert len(np.unique(run(before, images)[0])) > 2


@pytest.mark.parametrize("factors", [(1, 3), (2, -5), (-3, 1), (-1, -1)])
@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("behind", [True, False])
def test_a_constant_branch_goes_into_the_steps_of_the_join(factors: tuple[int, int], table: bool, behind: bool) -> None:
    net = Network((4, 3, 3), I4)
    value = frozen(net, net.conv(net.input, 4, (1, 1)), [0, 1, 3, 2])
    if behind:
        value = net.conv(value, 4, (1, 1))
    graph = net.body(function(net, net.add(WeightedSum(factors), net.input, value), table))
    folded = fold_constants(graph)
    assert ops_of(folded) == ["step_table" if table else "threshold"]
    assert_same(graph, folded)


def test_what_remains_of_a_sum_stays_a_sum() -> None:
    net = Network((4, 3, 3), I4)
    constant = frozen(net, net.conv(net.input, 4, (1, 1)), [0, 1, 3, 2])
    total = net.add(WeightedSum((2, -3, 1)), net.input, constant, net.conv(net.input, 4, (1, 1)))
    graph = net.body(net.add(WeightedSum((1, 2)), function(net, total, True), function(net, total, False)))
    folded = fold_constants(graph)
    assert sorted(ops_of(folded)) == [
        "conv2d",
        "step_table",
        "threshold",
        "weighted_sum",
        "weighted_sum",
        "weighted_sum",
    ]
    assert_same(graph, folded)


def test_constants_that_differ_from_position_to_position_stay() -> None:
    net = Network((4, 3, 3), I4)
    constant = frozen(net, net.conv(net.input, 4, (1, 1)), [0, 1, 3, 2])
    value = net.conv(net.add(Pad((1, 1), (1, 1)), constant), 4, (3, 3))
    graph = net.body(function(net, net.add(WeightedSum((1, 1)), net.input, value), False))
    assert value in constant_values(graph)
    assert fold_constants(graph) == graph


def test_a_table_that_comes_back_is_no_constant() -> None:
    net = Network((1,), U2)
    codes = net.constant(np.array([[1, 2, 1]]), U2)
    graph = net.body(net.add(StepTable(0, 3), net.input, net.constant(np.array([[1, 2]]), U2), codes))
    assert constant_values(graph) == {}
    codes = net.constant(np.array([[1, 1, 2]]), U2)
    beyond = net.add(StepTable(0, 3), net.input, net.constant(np.array([[1, 4]]), IntType(0, 4)), codes)
    assert list(constant_values(net.body(beyond))) == [beyond]


def dead(weights: list[float]) -> Graph:
    """Return a network with a batch normalization of these weights between its two layers."""
    builder = GraphBuilder("net")
    scale = floats(builder, "scale", 1.0)
    x = builder.add("q", Quantize(-8, 7), [builder.input("x", TensorType((3,), FLOAT)), scale])
    sums = builder.add("fc", Linear(), [x, integers(builder, "w", np.arange(6).reshape(2, 3))])
    rows = [floats(builder, "p", row) for row in (weights, [1.0, 2.0], [0.0, 0.0], [1.0, 1.0])]
    norm = builder.add("bn", BatchNorm(1e-5), [builder.add("v", Dequantize(), [sums, scale]), *rows])
    codes = builder.add("codes", Quantize(0, 3), [norm, scale])
    return builder.build([builder.add("last", Linear(), [codes, integers(builder, "u", [[1, 2]])])])


def test_a_network_with_a_constant_result_is_rejected() -> None:
    with pytest.raises(LoweringError) as caught:
        split(lower(dead([0.0, 0.0])))
    assert str(caught.value) == (
        "model 'net' gives the same result for every input, because the codes of threshold 'codes' never change; check "
        "the scales of these quantizers, and the parameters in front of them"
    )
    assert split(lower(dead([0.0, 1.0]))).body.outputs == ("last",)
