"""Ops that move, pick or join elements, between integers and a quantizer: in front, behind, and folded away."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import LoweringError
from nnhw.ir import BIPOLAR, FLOAT, Graph, GraphBuilder, IntType, Location, Op, TensorType, run, verify
from nnhw.ir.ops import (
    Add,
    BatchNorm,
    Concat,
    Conv2d,
    Dequantize,
    Flatten,
    Linear,
    MaxPool2d,
    Multiply,
    Negate,
    Pad,
    Permute,
    PRelu,
    Quantize,
    Relu,
    Reshape,
    Sigmoid,
    Silu,
    Slice,
    Threshold,
    Upsample,
)
from nnhw.passes import (
    cancel_permutes,
    collapse_chains,
    fold_permutes,
    hoist_shapes,
    lower,
    permute_input,
    separate_padding,
    sink_shapes,
    split,
)
from tests.ir.graphs import floats, integers
from tests.passes.models import SIGN, ChainBuilder

SUMS = IntType(-9, 9)
SHAPE = (2, 4, 4)
POOL = MaxPool2d((2, 2), (2, 2), (1, 0), (0, 1))
SHAPES: tuple[Op, ...] = (
    Flatten(),
    Reshape((2, 16)),
    Reshape((4, 2, 4)),
    Permute((0, 2, 1)),
    Permute((1, 2, 0)),
    Slice(0, 1, 2),
    Slice(1, 1, 3),
    Upsample((2, 1)),
    Pad((1, 0), (0, 2)),
    POOL,
)


def ops_of(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.op.name not in ("constant", "input")]


def assert_same(before: Graph, after: Graph) -> None:
    verify(after)
    rng = np.random.default_rng(0)
    values = [
        rng.integers(node.type.int_dtype.low, node.type.int_dtype.high + 1, (60, *node.type.shape))
        for node in before.inputs
    ]
    np.testing.assert_array_equal(run(after, values)[0], run(before, values)[0])


def chain() -> ChainBuilder:
    return ChainBuilder(SUMS, SHAPE, 0.3)


@pytest.mark.parametrize("op", SHAPES, ids=str)
def test_sink_shapes_moves_every_op_behind_what_treats_channels_alike(op: Op) -> None:
    start = chain().batch_norm([1, 2], [0, 1], [1, 0], [2, 3]).then(op).then(Relu())
    graph = start.then(Quantize(0, 3), start.value, floats(start.graph, "scale", 0.5)).build()
    moved = sink_shapes(graph)
    assert ops_of(moved) == ["dequantize", "batch_norm", "relu", "quantize", op.name]
    assert_same(graph, moved)
    assert_same(graph, lower(graph))


@pytest.mark.parametrize("op", SHAPES, ids=str)
def test_hoist_shapes_moves_every_op_to_the_integers(op: Op) -> None:
    start = chain().multiply([1.0, 2.0]).then(op)
    graph = start.quantize(Quantize(-4, 3), 0.5).build()
    moved = hoist_shapes(graph)
    assert ops_of(moved) == [op.name, "dequantize", "mul", "quantize"]
    assert_same(graph, moved)


@pytest.mark.parametrize("op", SHAPES[:-1], ids=str)
def test_sink_shapes_moves_ops_on_both_branches_and_values_used_twice(op: Op) -> None:
    start = chain().then(op)
    before = start.value
    start.then(Silu()).then(Multiply(), start.value, before)
    graph = start.then(Quantize(-4, 3), start.value, floats(start.graph, "scale", 0.5)).build()
    moved = sink_shapes(graph)
    assert ops_of(moved)[-2:] == ["quantize", op.name]
    assert ops_of(lower(graph)) == ["step_table", op.name]
    assert_same(graph, lower(graph))


def test_pooling_stays_at_the_sums_where_the_value_is_used_twice() -> None:
    start = chain().multiply([1.0, 2.0]).then(POOL)
    before = start.value
    graph = start.then(Silu()).then(Multiply(), start.value, before).quantize(Quantize(-4, 3), 0.5).build()
    assert ops_of(lower(graph)) == ["max_pool2d", "step_table"]
    assert_same(graph, lower(graph))


def test_two_poolings_of_the_same_sums_become_one() -> None:
    start = chain()
    before = start.value
    left = start.then(Sigmoid()).then(POOL).value
    right = start.then(Relu(), before).then(POOL).value
    graph = start.then(Multiply(), left, right).quantize(Quantize(-4, 3), 0.5).build()
    assert ops_of(hoist_shapes(graph)).count("max_pool2d") == 1
    assert_same(graph, lower(graph))


def test_a_quantizer_of_codes_that_stay_what_they_are_goes_away() -> None:
    builder = ChainBuilder(IntType(-4, 3), SHAPE, 0.3).then(POOL)
    graph = builder.then(Quantize(-4, 3), builder.value, floats(builder.graph, "scale", 0.3)).build()
    assert ops_of(lower(graph)) == ["max_pool2d"]
    assert_same(graph, lower(graph))
    clipped = ChainBuilder(IntType(0, 3), SHAPE, 0.3).multiply(0.0).quantize(Quantize(0, 3), 0.3).build()
    assert ops_of(lower(clipped)) == ["threshold"]
    assert_same(clipped, lower(clipped))


def test_regions_reject_float_input_beside_integers() -> None:
    builder = GraphBuilder("net")
    scale = floats(builder, "scale", 0.25)
    x = builder.input("x", TensorType((2,), FLOAT))
    codes = builder.add("codes", Quantize(-8, 7), [x, scale])
    total = builder.add("add", Add(), [x, builder.add("value", Dequantize(), [codes, scale])])
    with pytest.raises(LoweringError) as caught:
        lower(builder.build([builder.add("q", Quantize(-8, 7), [total, scale], Location("q", "net.py", 5))]))
    assert str(caught.value) == (
        "quantize 'q' (net.py:5) reads the float input 'x' of the model and quantize 'codes'; quantize the input once, "
        "and use its codes everywhere"
    )


def test_pooling_between_unknown_directions_is_rejected() -> None:
    start = chain().then(Silu()).then(POOL).then(Negate())
    with pytest.raises(LoweringError) as caught:
        lower(start.quantize(SIGN).build())
    assert str(caught.value) == (
        "max_pool2d 'max_pool2d' (net.py:3) stands before quantizer 'quantize' and cannot move: silu 'silu' (net.py:2) "
        "is not monotone; neg 'neg' (net.py:4) falls in 2 of 2 channels (0, 1); put the pooling behind the quantizer, "
        "or directly behind the linear layer"
    )


def test_pad_takes_the_code_of_its_value() -> None:
    start = chain().then(Pad((1, 1), (1, 1), 0.5)).multiply(2.0)
    graph = start.quantize(Quantize(-4, 3), 0.5).build()
    lowered = lower(graph)
    assert [node.op for node in lowered.nodes][-1] == Pad((1, 1), (1, 1), 2.0)
    assert_same(graph, lowered)


def test_pad_whose_border_differs_from_channel_to_channel_goes_to_the_integers() -> None:
    graph = chain().then(Pad((1, 1), (1, 1))).add([0.5, -1.5]).quantize(Quantize(-4, 3), 0.5).build()
    assert ops_of(lower(graph)) == ["pad", "threshold"]
    assert_same(graph, lower(graph))


def test_pad_of_a_value_that_a_function_gives_takes_what_it_gives_it_for() -> None:
    start = chain().then(Sigmoid()).then(Pad((1, 1), (1, 1), 0.5)).add([0.5, -1.5])
    graph = start.quantize(Quantize(-16, 15), 0.0625).build()
    lowered = lower(graph)
    assert ops_of(lowered) == ["pad", "threshold"]
    assert next(node.op for node in lowered.nodes if isinstance(node.op, Pad)).value == 0.0
    assert_same(graph, lowered)


def test_pad_without_an_integer_form_is_rejected() -> None:
    graph = chain().add(1.0).then(Pad((1, 1), (1, 1))).add([0.5, -1.5]).quantize(SIGN).build()
    with pytest.raises(LoweringError) as caught:
        lower(graph)
    assert str(caught.value) == (
        "pad 'pad' (net.py:3) stands before quantizer 'quantize' and cannot move behind it, nor in front of add 'add' "
        "(net.py:2); put a quantizer directly in front of it, or the pad directly behind the quantizer"
    )


def test_prelu_keeps_its_slopes_per_channel() -> None:
    start = chain().then(Flatten())
    slopes = floats(start.graph, "slopes", np.linspace(-1, 1, 32))
    graph = (
        start.then(PRelu(), start.value, slopes)
        .then(Quantize(-4, 3), "prelu", floats(start.graph, "scale", 0.5))
        .build()
    )
    assert_same(graph, lower(graph))


@pytest.mark.parametrize("op", [Flatten(), Reshape((4, 2, 2)), Permute((2, 1, 0)), Upsample((1, 2)), POOL], ids=str)
def test_batch_norm_of_one_channel_stays_a_list_of_channels(op: Op) -> None:
    start = ChainBuilder(SUMS, (1, 4, 4), 0.3).batch_norm([2], [1], [1], [3]).then(op)
    graph = start.quantize(Quantize(-4, 3), 0.5).build()
    assert_same(graph, hoist_shapes(graph))
    assert_same(graph, lower(graph))
    start = ChainBuilder(SUMS, (4, 4, 1), 0.3).then(Reshape((1, 4, 4))).batch_norm([2], [1], [1], [3])
    graph = start.then(Quantize(-4, 3), start.value, floats(start.graph, "scale", 0.5)).build()
    assert ops_of(sink_shapes(graph)) == ["dequantize", "batch_norm", "quantize", "reshape"]
    assert_same(graph, sink_shapes(graph))


@pytest.mark.parametrize("axis", [0, 1])
def test_concat_passes_batch_norm_of_one_channel(axis: int) -> None:
    builder = GraphBuilder("net")
    scale, ones = floats(builder, "scale", 0.25), floats(builder, "ones", [1.0])
    parts = [builder.input(name, TensorType((1, 2, 2), SUMS)) for name in "ab"]
    values = [builder.add("v", Dequantize(), [part, scale]) for part in parts]
    norms = [builder.add("bn", BatchNorm(1e-5), [value, *[ones] * 4]) for value in values]
    joined = builder.add("cat", Concat(axis), norms)
    graph = builder.build([builder.add("q", Quantize(-8, 7), [joined, scale])])
    assert_same(graph, hoist_shapes(graph))
    joined = builder.add("cat", Concat(axis), values)
    width = builder.type_of(joined).shape[0]
    statistics = floats(builder, "statistics", np.ones(width))
    normed = builder.add("bn", BatchNorm(1e-5), [joined, *[statistics] * 4])
    graph = builder.build([builder.add("q", Quantize(-8, 7), [normed, scale])])
    assert_same(graph, sink_shapes(graph))


def test_branches_of_other_shapes_meet_at_the_integers() -> None:
    builder = GraphBuilder("net")
    scale = floats(builder, "scale", 0.25)
    small = builder.input("small", TensorType((2, 2, 2), SUMS))
    large = builder.input("large", TensorType((2, 4, 4), SUMS))
    left = builder.add("relu", Relu(), [builder.add("left", Dequantize(), [small, scale])])
    left = builder.add("up", Upsample((2, 2)), [left])
    total = builder.add("add", Add(), [left, builder.add("right", Dequantize(), [large, scale])])
    graph = builder.build([builder.add("q", Quantize(-8, 7), [total, scale])])
    assert ops_of(hoist_shapes(graph))[0] == "upsample"
    # relu on a branch that has negative codes: no weighted sum, but few combinations
    assert ops_of(lower(graph)) == ["upsample", "weighted_sum", "step_table"]
    assert_same(graph, lower(graph))
    pooled = builder.add("pool", MaxPool2d((2, 2), (2, 2)), [builder.add("value", Dequantize(), [large, scale])])
    total = builder.add("sum", Add(), [pooled, builder.add("other", Dequantize(), [small, scale])])
    graph = builder.build([builder.add("q", Quantize(-8, 7), [total, scale])])
    assert ops_of(lower(graph)) == ["max_pool2d", "weighted_sum", "threshold"]
    assert_same(graph, lower(graph))


def test_concat_of_equal_scales_goes_to_the_integers() -> None:
    builder = GraphBuilder("net")
    scale = floats(builder, "scale", 0.25)
    parts = [builder.input(name, TensorType((2, 2, 2), SUMS)) for name in "ab"]
    joined = builder.add("cat", Concat(0), [builder.add("v", Dequantize(), [part, scale]) for part in parts])
    other = builder.add("w", Dequantize(), [builder.input("c", TensorType((4, 2, 2), SUMS)), scale])
    graph = builder.build([builder.add("q", Quantize(-8, 7), [builder.add("add", Add(), [joined, other]), scale])])
    assert ops_of(lower(graph)) == ["concat", "weighted_sum", "threshold"]
    assert_same(graph, lower(graph))


AGAIN = (Slice(0, 0, 1), Slice(1, 0, 1), *(op for op in SHAPES[3:] if op.name not in ("permute", "slice")), SHAPES[3])
"""Ops that any of them may follow."""


@given(st.lists(st.sampled_from(AGAIN), min_size=1, max_size=3), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_chains_of_shapes_lower_exactly(shapes: list[Op], flat: bool, turning: bool) -> None:
    start = chain().multiply([0.5, 0.75])
    for op in [*shapes, Flatten()] if flat else shapes:
        start.then(op).then(Relu())
    if turning:
        start.then(Silu())
    graph = start.then(Quantize(0, 7), start.value, floats(start.graph, "scale", 0.3)).build()
    assert_same(graph, sink_shapes(graph))
    assert_same(graph, collapse_chains(hoist_shapes(sink_shapes(graph))))
    if not any(isinstance(op, Pad) for op in shapes):
        assert_same(graph, hoist_shapes(graph))


@pytest.mark.parametrize("codes", [IntType(0, 3), IntType(-4, 3), BIPOLAR, IntType(1, 5)], ids=str)
def test_separate_padding_gives_the_same_sums(codes: IntType) -> None:
    builder = GraphBuilder("net")
    x = builder.input("x", TensorType((2, 5, 4), codes))
    weight = integers(builder, "w", np.random.default_rng(0).integers(-3, 4, (4, 1, 3, 2)))
    conv = builder.add("conv", Conv2d((2, 1), (1, 1), (1, 2), 2), [x, weight], Location("conv", "net.py", 3))
    value = builder.add("value", Dequantize(), [conv, floats(builder, "scale", 0.5)])
    graph = builder.build([builder.add("q", Quantize(-8, 7), [value, floats(builder, "one", 1.0)])])
    separated = verify(separate_padding(graph))
    assert ops_of(separated) == ["pad", "conv2d", "dequantize", "quantize"]
    assert separated.node("conv").op == Conv2d((2, 1), (0, 0), (1, 2), 2)
    if codes == BIPOLAR:
        assert separated.node("conv.pad").type.dtype == IntType(-1, 1)
    rng = np.random.default_rng(1)
    images = rng.choice([-1, 1], (20, 2, 5, 4)) if codes.bipolar else rng.integers(codes.low, codes.high, (20, 2, 5, 4))
    np.testing.assert_array_equal(run(separated, images)[0], run(graph, images)[0])
    np.testing.assert_array_equal(run(lower(graph), images)[0], run(graph, images)[0])


@pytest.mark.parametrize("shape", [Flatten(), Reshape((24,))], ids=str)
def test_fold_permutes_reorders_the_weights_of_a_linear_layer(shape: Op) -> None:
    builder = GraphBuilder("net")
    x = builder.input("x", TensorType((2, 3, 4), SUMS))
    value = builder.add("flat", shape, [builder.add("permute", Permute((1, 2, 0)), [x])])
    weight = integers(builder, "w", np.random.default_rng(0).integers(-9, 9, (5, 24)))
    graph = builder.build([builder.add("linear", Linear(), [value, weight])])
    folded = fold_permutes(graph)
    assert ops_of(folded) == ["flatten", "linear"]
    assert_same(graph, folded)


def test_fold_permutes_leaves_what_others_read() -> None:
    builder = GraphBuilder("net")
    x = builder.input("x", TensorType((2, 3, 4), SUMS))
    value = builder.add("permute", Permute((1, 0, 2)), [x], Location("perm", "net.py", 7))
    weight = integers(builder, "w", np.ones((1, 3, 1, 1), dtype=np.int64))
    graph = builder.build([builder.add("conv", Conv2d(), [value, weight])])
    assert ops_of(fold_permutes(graph)) == ["permute", "conv2d"]


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ((Permute((1, 0, 2)), Permute((1, 0, 2))), []),
        ((Permute((2, 0, 1)), Permute((1, 2, 0))), []),
        ((Reshape((2, 12)), Permute((1, 0)), Permute((1, 0)), Reshape((2, 3, 4))), []),
        ((Permute((1, 2, 0)), Reshape((12, 2)), Permute((1, 0))), ["reshape"]),
        ((Reshape((1, 24)), Permute((1, 0))), ["reshape"]),
        ((Permute((1, 2, 0)), Reshape((12, 2)), Permute((1, 0)), Flatten()), ["flatten"]),
        ((Permute((1, 0, 2)), Flatten()), ["permute", "flatten"]),
    ],
    ids=str,
)
def test_cancel_permutes_leaves_a_reshape_of_what_is_back_in_order(path: tuple[Op, ...], left: list[str]) -> None:
    builder = GraphBuilder("net")
    value = builder.add("max_pool2d", MaxPool2d((1, 1), (1, 1)), [builder.input("x", TensorType((2, 3, 4), SUMS))])
    for op in path:
        value = builder.add(op.name, op, [value])
    graph = builder.build([value])
    assert ops_of(cancel_permutes(graph)) == ["max_pool2d", *left]
    assert_same(graph, cancel_permutes(graph))


def rows(path: tuple[Op, ...] = (Permute((1, 0)), Reshape((6, 1, 5)))) -> GraphBuilder:
    """Build input [5, 6] --> codes --> path --> 1x1 convolution `conv`."""
    builder = GraphBuilder("net")
    value = builder.input("x", TensorType((5, 6), FLOAT))
    value = builder.add("codes", Quantize(-8, 7), [value, floats(builder, "scale", 0.25)])
    for op in path:
        value = builder.add(op.name, op, [value])
    builder.add("conv", Conv2d(), [value, integers(builder, "w", np.arange(24).reshape(4, 6, 1, 1) % 7 - 3)])
    return builder


def assert_same_floats(before: Graph, after: Graph) -> None:
    verify(after)
    images = np.random.default_rng(0).normal(size=(20, *before.inputs[0].type.shape))
    np.testing.assert_array_equal(run(after, images)[0], run(before, images)[0])


def test_permute_input_lets_the_host_permute() -> None:
    graph = rows().build(["conv"])
    moved = permute_input(graph)
    assert ops_of(moved)[:3] == ["permute", "reshape", "quantize"]
    assert_same_floats(graph, moved)
    lowered = lower(graph)
    assert ops_of(lowered) == ["permute", "reshape", "quantize", "conv2d"]
    assert_same_floats(graph, lowered)


def test_permute_input_leaves_orders_that_differ() -> None:
    builder = rows()
    other = builder.add("image", Reshape((1, 5, 6)), ["codes"])
    builder.add("other", Conv2d(), [other, integers(builder, "v", np.ones((4, 1, 1, 1), dtype=np.int64))])
    graph = builder.build(["conv", "other"])
    assert permute_input(graph) is graph


def test_permute_input_goes_through_elementwise_ops() -> None:
    builder, one = GraphBuilder("net"), 1.0
    value = builder.input("x", TensorType((5, 6), FLOAT))
    codes = builder.add("codes", Quantize(-8, 7), [value, floats(builder, "scale", 0.25)])
    value = builder.add("silu", Silu(), [builder.add("v", Dequantize(), [codes, floats(builder, "scale", 0.25)])])
    value = builder.add("q", Quantize(-8, 7), [value, floats(builder, "one", one)])
    value = builder.add("r", Reshape((6, 1, 5)), [builder.add("p", Permute((1, 0)), [value])])
    conv = builder.add("conv", Conv2d(), [value, integers(builder, "w", np.ones((4, 6, 1, 1), dtype=np.int64))])
    graph = builder.build([conv])
    assert ops_of(lower(graph)) == ["permute", "reshape", "quantize", "threshold", "conv2d"]
    assert_same_floats(graph, lower(graph))


def test_scales_of_features_become_those_of_channels() -> None:
    builder = rows()
    value = builder.add("rows", Permute((1, 0)), [builder.add("flat", Reshape((4, 5)), ["conv"])])
    scales = floats(builder, "scales", np.array([[0.5, 1.0, 0.25, 2.0]]))
    value = builder.add("add", Add(), [builder.add("v", Dequantize(), [value, scales]), scales])
    graph = builder.build([builder.add("q", Quantize(-8, 7), [value, floats(builder, "one", 1.0)])])
    lowered = lower(graph)
    assert ops_of(lowered)[3:] == ["conv2d", "threshold", "reshape", "permute"]
    assert_same_floats(graph, lowered)


def test_constants_that_differ_from_row_to_row_make_each_element_a_channel() -> None:
    builder = rows()
    value = builder.add("rows", Permute((1, 0)), [builder.add("flat", Reshape((4, 5)), ["conv"])])
    value = builder.add("v", Dequantize(), [value, floats(builder, "scales", np.array([[0.5, 1.0, 0.25, 2.0]]))])
    places = floats(builder, "places", np.arange(20).reshape(5, 4))
    value = builder.add("add", Add(), [value, places], Location("embed", "net.py", 9))
    graph = builder.build([builder.add("q", Quantize(-8, 7), [value, floats(builder, "one", 1.0)])])
    lowered = lower(graph)
    assert [node.type.shape for node in lowered.nodes if isinstance(node.op, Threshold)] == [(20,)]
    assert_same_floats(graph, lowered)


def test_concat_of_permuted_values_is_permuted_behind() -> None:
    builder = GraphBuilder("net")
    parts = [builder.input(name, TensorType((2, 5), SUMS)) for name in "ab"]
    joined = builder.add("cat", Concat(1), [builder.add("p", Permute((1, 0)), [part]) for part in parts])
    graph = builder.build([builder.add("back", Permute((1, 0)), [joined])])
    assert ops_of(sink_shapes(graph)) == ["concat"]
    assert_same(graph, sink_shapes(graph))


def test_split_takes_a_residual_network() -> None:
    rng = np.random.default_rng(0)
    builder = GraphBuilder("net")

    def codes(value: str, scale: float, low: int = 0, high: int = 15) -> str:
        return builder.add("q", Quantize(low, high), [value, floats(builder, "s", scale)])

    def conv(value: str, outputs: int, stride: int = 1) -> str:
        channels = builder.type_of(value).shape[0]
        weight = integers(builder, "w", rng.integers(-3, 4, (outputs, channels, 3, 3)))
        sums = builder.add("conv", Conv2d((stride, stride), (1, 1)), [value, weight])
        value = builder.add("v", Dequantize(), [sums, floats(builder, "s", rng.uniform(0.01, 0.1, (outputs, 1, 1)))])
        return builder.add("b", Add(), [value, floats(builder, "c", rng.normal(size=(outputs, 1, 1)))])

    first = codes(builder.input("x", TensorType((2, 8, 8), FLOAT)), 0.1)
    left = codes(conv(codes(conv(first, 4, 2), 0.173), 4), 0.0917, -8, 7)
    right = codes(conv(first, 4, 2), 0.113, -8, 7)
    values = [
        builder.add("v", Dequantize(), [part, floats(builder, "s", scale)])
        for part, scale in ((left, 0.0917), (right, 0.113))
    ]
    value = builder.add("relu", Relu(), [builder.add("add", Add(), values)])
    value = builder.add("flat", Flatten(), [codes(value, 0.1)])
    weight = integers(builder, "w", rng.integers(-3, 4, (3, 64)))
    sums = builder.add("fc", Linear(), [value, weight])
    graph = builder.build([builder.add("y", Dequantize(), [sums, floats(builder, "s", 0.1)])])
    parts = split(lower(graph))
    assert all(node.type.is_int for node in parts.body.nodes)
    assert "weighted_sum" in ops_of(parts.body)
    images = rng.normal(size=(20, 2, 8, 8))
    np.testing.assert_array_equal(parts.run(images)[0], run(graph, images)[0])
