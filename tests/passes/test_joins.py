"""Branches that are added or joined before a quantizer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import NnhwError
from nnhw.ir import Graph, GraphBuilder, IntType, Location, Op, TensorType, run, verify
from nnhw.ir.ops import (
    Add,
    Concat,
    Dequantize,
    Divide,
    Greater,
    Multiply,
    Quantize,
    Relu,
    Sigmoid,
    Silu,
    Subtract,
    Threshold,
    WeightedSum,
    Where,
)
from nnhw.passes import align_sums, collapse_chains, lower
from tests.ir.graphs import floats

INT8, UINT8, INT4 = IntType(-128, 127), IntType(0, 255), IntType(-8, 7)
SIGNED = Quantize(-8, 7)
PLACE = Location("add", "net.py", 9)


class Branches:
    """Inputs a, b, .. with scales; `build` quantizes the value that the ops lead to."""

    def __init__(self, *codes: tuple[IntType, float | list[float]], shape: tuple[int, ...] = (2,)) -> None:
        self.graph = GraphBuilder("net")
        self.shape = shape
        names = [self.graph.input("abc"[k], TensorType(shape, dtype)) for k, (dtype, _) in enumerate(codes)]
        scales = [self.constant(scale) for _, scale in codes]
        self.values = [self.graph.add("value", Dequantize(), list(pair)) for pair in zip(names, scales, strict=True)]

    def constant(self, values: float | list[float]) -> str:
        array = np.asarray(values, dtype=np.float64)
        return floats(self.graph, "c", array.reshape((-1,) + (1,) * (len(self.shape) - 1)) if array.ndim else array)

    def then(self, op: Op, *inputs: str) -> str:
        return self.graph.add(op.name, op, inputs, PLACE)

    def build(self, value: str, op: Quantize, scale: float) -> Graph:
        return self.graph.build([self.then(op, value, self.constant(scale))])


def all_combinations(graph: Graph) -> list[np.ndarray]:
    ranges = [node.type.int_dtype for node in graph.inputs]
    grid = np.meshgrid(*(np.arange(codes.low, codes.high + 1) for codes in ranges), indexing="ij")
    shape = graph.inputs[0].type.shape
    return [np.broadcast_to(a.reshape(-1, *[1] * len(shape)), (a.size, *shape)) for a in grid]


def assert_lowers_exactly(graph: Graph, *ops: str) -> Graph:
    lowered = lower(graph)
    assert [node.op.name for node in lowered.nodes if node.op.name not in ("constant", "input")] == list(ops)
    assert lowered.output_nodes[0].type == graph.output_nodes[0].type
    values = all_combinations(graph)
    np.testing.assert_array_equal(run(lowered, values)[0], run(graph, values)[0])
    return lowered


def factors_of(graph: Graph) -> tuple[int, ...]:
    (op,) = [node.op for node in graph.nodes if isinstance(node.op, WeightedSum)]
    assert isinstance(op, WeightedSum)
    return op.factors


def message_of(graph: Graph) -> str:
    with pytest.raises(NnhwError) as caught:
        lower(graph)
    return str(caught.value)


def short(scale: float) -> float:
    """Return a scale of 12 significant bits, as the layers of nnhw.nn have them."""
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(round(mantissa * 2**12), exponent - 12)


@pytest.mark.parametrize("left", [UINT8, INT8])
@pytest.mark.parametrize(
    ("a", "b", "out"), [(0.0173, 0.031, 0.029), (0.031, 0.0173, 0.05), (short(0.002), short(0.05), short(0.04))]
)
def test_sums_of_codes_with_odd_scales_are_exact_for_every_pair(left: IntType, a: float, b: float, out: float) -> None:
    net = Branches((left, a), (INT8, b))
    graph = net.build(net.then(Relu(), net.then(Add(), *net.values)), Quantize(0, 255), out)
    lowered = assert_lowers_exactly(graph, "weighted_sum", "threshold")
    assert max(map(abs, factors_of(lowered))) <= 2**14


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_random_sums_of_small_codes_are_exact(data: st.DataObject) -> None:
    scales = st.builds(lambda mantissa, shift: mantissa / 2**shift, st.integers(2048, 4095), st.integers(12, 18))
    net = Branches((INT4, data.draw(scales)), (data.draw(st.sampled_from([INT4, UINT8])), data.draw(scales)))
    left, right = net.values
    if data.draw(st.booleans()):
        left = net.then(Multiply(), left, net.constant(data.draw(st.floats(-2, -0.5, width=16))))
    value = net.then(data.draw(st.sampled_from([Add(), Subtract()])), left, right)
    bias = data.draw(st.lists(st.floats(-1, 1, width=16), min_size=2, max_size=2))
    value = net.then(Add(), value, net.constant(bias))
    if data.draw(st.booleans()):
        value = net.then(Silu(), value)
    graph = net.build(value, Quantize(-8, 7), data.draw(scales))
    lowered = verify(collapse_chains(graph))
    values = all_combinations(graph)
    np.testing.assert_array_equal(run(lowered, values)[0], run(graph, values)[0])


def test_factors_are_as_small_as_the_codes_allow() -> None:
    net = Branches((IntType(0, 3), 0.1), (IntType(0, 3), 0.101))
    graph = net.build(net.then(Add(), *net.values), Quantize(0, 1), 0.9)
    assert factors_of(assert_lowers_exactly(graph, "weighted_sum", "threshold")) == (1, 1)


def test_sums_of_three_branches_of_few_codes() -> None:
    net = Branches((INT4, short(0.07)), (INT4, short(0.11)), (INT4, short(0.05)))
    a, b, c = net.values
    graph = net.build(net.then(Subtract(), net.then(Add(), a, b), c), Quantize(-8, 7), 0.2)
    factors = factors_of(assert_lowers_exactly(graph, "weighted_sum", "threshold"))
    assert [factor > 0 for factor in factors] == [True, True, False]


def test_a_turn_behind_the_sum_becomes_a_table() -> None:
    net = Branches((INT4, 0.5), (INT4, 0.25))
    graph = net.build(net.then(Silu(), net.then(Add(), *net.values)), Quantize(-8, 7), 0.1)
    assert factors_of(assert_lowers_exactly(graph, "weighted_sum", "step_table")) == (2, 1)


def test_align_sums_adds_integers_of_equal_scales_and_any_range() -> None:
    wide = IntType(-(2**20), 2**20)
    net = Branches((wide, 0.25), (wide, 0.75))
    graph = net.build(net.then(Subtract(), *net.values), Quantize(-8, 7), 1e4)
    aligned = verify(align_sums(graph))
    assert factors_of(aligned) == (1, -3)
    sums = np.random.default_rng(0).integers(wide.low, wide.high, (2, 500, 2))
    np.testing.assert_array_equal(run(aligned, list(sums))[0], run(graph, list(sums))[0])
    np.testing.assert_array_equal(run(lower(graph), list(sums))[0], run(graph, list(sums))[0])


@pytest.mark.parametrize(
    ("right", "scale", "factors"),
    [
        (IntType(-5460, 5803), 2.0**-11, (1031, 8192)),
        (IntType(-1000, 1000), 2.0**-5, (1031, 2**19)),
        (IntType(-1000, 1000), 2.0**-32, (1031 << 8, 1)),
    ],
)
def test_sums_of_scales_of_any_ratio_are_integer_sums(right: IntType, scale: float, factors: tuple[int, int]) -> None:
    # The products of a loop's input, whose scale has 12 bits, and of its state, whose scale is a power of two.
    wide = IntType(-137412, 137223)
    net = Branches((wide, 1031 * 2.0**-24), (right, scale))
    graph = net.build(net.then(Sigmoid(), net.then(Add(), *net.values)), Quantize(0, 7), 2.0**-3)
    assert factors_of(verify(align_sums(graph))) == factors
    rng = np.random.default_rng(0)
    codes = [rng.integers(kind.low, kind.high, (500, 2), endpoint=True) for kind in (wide, right)]
    np.testing.assert_array_equal(run(lower(graph), codes)[0], run(graph, codes)[0])


def test_sums_with_too_many_combinations_in_all_channels_together_are_integer_sums() -> None:
    half = IntType(-1000, 1000)  # 4,004,001 pairs, which could be evaluated for four channels
    net = Branches((half, 1031 * 2.0**-20), (half, 2.0**-11), shape=(24,))
    bias = net.then(Add(), net.then(Add(), *net.values), net.constant(np.linspace(-1, 1, 24).tolist()))
    graph = net.build(net.then(Sigmoid(), bias), Quantize(0, 7), 2.0**-3)
    assert factors_of(lower(graph)) == (1031, 512)
    codes = [np.random.default_rng(seed).integers(-1000, 1001, (500, 24)) for seed in (0, 1)]
    np.testing.assert_array_equal(run(lower(graph), codes)[0], run(graph, codes)[0])


def test_align_sums_leaves_sums_of_more_than_40_bits() -> None:
    wide = IntType(-137412, 137223)
    net = Branches((wide, 1031 * 2.0**-35), (IntType(-5460, 5803), 2.0**-5))
    graph = net.build(net.then(Add(), *net.values), Quantize(-8, 7), 1.0)
    assert align_sums(graph) == graph


def test_align_sums_leaves_sums_that_would_round() -> None:
    net = Branches((IntType(0, 2**20), 0.1), (IntType(0, 2**20), 0.1))  # 0.1 has 52 significant bits
    graph = net.build(net.then(Add(), *net.values), Quantize(0, 15), 1e3)
    assert align_sums(graph) == graph


def test_joins_reject_two_accumulators_of_unlike_scales() -> None:
    wide = IntType(-(2**20), 2**20)
    net = Branches((wide, 0.1), (IntType(-(2**11), 2**11), 0.3))
    assert message_of(net.build(net.then(Add(), *net.values), Quantize(0, 15), 1.0)) == (
        "add 'add' (net.py:9) joins 2 branches before quantizer 'quantize', whose integers have 8592035841 "
        "combinations, too many to evaluate: input 'a' in int -1048576..1048576, input 'b' in int -2048..2048; put a "
        "quantizer on the branch of input 'a', or give all branches values of similar size, such as by a normalized "
        "input, and scales that are powers of two, so that their sum needs at most 40 bits"
    )


def test_joins_reject_products_of_branches() -> None:
    net = Branches((INT8, 0.1), (INT8, 0.3))
    assert message_of(net.build(net.then(Multiply(), *net.values), Quantize(0, 255), 0.5)) == (
        "mul 'add' (net.py:9) before quantizer 'quantize' multiplies functions of input 'a' and input 'b', which "
        "depend on the model's input; an engine multiplies codes: put a quantizer on each of the two factors, directly "
        "in front of the product, such as nnhw.nn.UInt(8, scale=2**-8) behind a sigmoid"
    )


def test_joins_reject_quotients_of_branches() -> None:
    net = Branches((INT8, 0.1), (INT8, 0.3))
    divisor = net.then(Add(), net.values[1], net.constant(45.0))
    assert message_of(net.build(net.then(Divide(), net.values[0], divisor), Quantize(0, 255), 2**-8)) == (
        "div 'add' (net.py:9) before quantizer 'quantize' divides functions of input 'a' and input 'b', which depend "
        "on the model's input; there is no engine for that: divide by constants, or multiply by codes of the reciprocal"
    )


def test_joins_of_few_combinations_may_be_products_and_quotients() -> None:
    for op in (Multiply(), Divide()):
        net = Branches((INT4, 0.1), (INT4, 0.3))
        graph = net.build(net.then(op, net.values[0], net.then(Add(), net.values[1], net.constant(5.0))), SIGNED, 0.1)
        assert_lowers_exactly(graph, "weighted_sum", "step_table")


def test_joins_of_few_combinations_need_no_common_ratio() -> None:
    net = Branches((INT4, [0.1, 0.2]), (INT4, 0.3))
    assert_lowers_exactly(net.build(net.then(Add(), *net.values), Quantize(0, 15), 1.0), "weighted_sum", "step_table")


def test_joins_reject_ratios_that_differ_from_channel_to_channel() -> None:
    net = Branches((INT8, [0.1, 0.2]), (INT8, 0.3))
    assert message_of(net.build(net.then(Add(), *net.values), Quantize(0, 255), 0.2)) == (
        "add 'add' (net.py:9) adds input 'a' and input 'b' before quantizer 'quantize' with scales whose ratio differs "
        "from channel to channel, and a table of all combinations has 27,822 steps, more than 4,096; put a quantizer "
        "of few bits, or of one scale for all channels, on each branch, directly in front of the join"
    )


def test_joins_of_scales_whose_rounding_decides_are_numbered() -> None:
    net = Branches((INT8, 0.002), (INT8, 0.05))  # 10 * 0.002 and 0.05 - 15 * 0.002 are a tie and are not, by rounding
    graph = net.build(net.then(Add(), *net.values), Quantize(0, 255), 0.04)
    assert_lowers_exactly(graph, "weighted_sum", "step_table")


def test_joins_of_few_combinations_need_no_weighted_sum() -> None:
    net = Branches((INT4, 0.1), (INT4, 0.3))
    left = net.then(Relu(), net.values[0])
    graph = net.build(net.then(Add(), left, net.values[1]), Quantize(0, 7), 1.0)
    assert_lowers_exactly(graph, "weighted_sum", "step_table")


def test_joins_number_combinations_in_the_order_with_fewest_steps() -> None:
    net = Branches((INT4, 0.25), (INT8, 0.125))
    chosen = net.then(Where(), net.then(Greater(), net.values[0], net.constant(0.0)), *net.values[:2])
    lowered = assert_lowers_exactly(net.build(chosen, Quantize(-8, 7), 0.5), "weighted_sum", "step_table")
    (total,) = (node.op for node in lowered.nodes if isinstance(node.op, WeightedSum))
    # Of the codes of 8 bits only those that are chosen make steps.
    assert total.factors == (256, 1)


def test_joins_reject_an_addend_that_is_not_linear_in_its_codes() -> None:
    net = Branches((INT8, 0.1), (INT8, 0.3))
    left = net.then(Relu(), net.values[0])
    assert message_of(net.build(net.then(Add(), left, net.values[1]), Quantize(0, 255), 0.2)) == (
        "add 'add' (net.py:9) before quantizer 'quantize' is not a weighted sum of input 'a' and input 'b', and a "
        "table of all combinations has 9,631 steps, more than 4,096; use codes of fewer bits: put a narrower "
        "quantizer on each branch, directly in front of the join"
    )


def test_concat_is_quantized_branch_by_branch() -> None:
    net = Branches((INT8, 0.0173), (INT8, 0.031), shape=(2, 1, 1))
    value = net.then(Relu(), net.then(Concat(0), *net.values))
    bias = floats(net.graph, "bias", np.array([0.1, 0.2, 0.3, -0.4]).reshape(4, 1, 1))
    graph = net.build(net.then(Add(), value, bias), Quantize(0, 15), 0.2)
    lowered = assert_lowers_exactly(graph, "threshold", "threshold", "concat")
    kept = [node for node in lowered.nodes if isinstance(node.op, Threshold)]
    assert kept[0].type == kept[1].type


def test_concat_beside_a_sum_goes_to_the_integers() -> None:
    net = Branches((INT4, 0.5), (INT4, 0.25))
    joined = net.then(Concat(0), *net.values)
    other = net.graph.add("other", Dequantize(), [net.graph.input("d", TensorType((4,), INT4)), net.constant(0.5)])
    graph = net.build(net.then(Add(), joined, other), Quantize(-8, 7), 0.5)
    codes = [np.random.default_rng(0).integers(-8, 8, (50, *node.type.shape)) for node in graph.inputs]
    lowered = lower(graph)
    assert [node.op.name for node in lowered.nodes if node.inputs] == ["concat", "weighted_sum", "step_table"]
    np.testing.assert_array_equal(run(lowered, codes)[0], run(graph, codes)[0])
