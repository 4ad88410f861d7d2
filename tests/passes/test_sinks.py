"""Pooling and reshaping change places, never values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import InputError, LoweringError
from nnhw.ir import Graph, IntType, run, verify
from nnhw.ir.ops import Add, BatchNorm, Flatten, MaxPool2d, Negate, Quantize, Relu, Reshape
from nnhw.passes import PIPELINE, hoist_shapes, lower, sink_integer_pooling, sink_shapes
from tests.ir.graphs import floats, random_graphs
from tests.passes.models import SIGN, ChainBuilder

SUMS = IntType(-9, 9)
POOL = MaxPool2d((2, 2), (2, 2))


def ops_of(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.op.name not in ("constant", "input")]


def assert_same(before: Graph, after: Graph) -> None:
    verify(after)
    sums = np.random.default_rng(0).integers(SUMS.low, SUMS.high + 1, (50, *before.inputs[0].type.shape))
    np.testing.assert_array_equal(run(after, sums)[0], run(before, sums)[0])


def moved_shapes(graph: Graph) -> Graph:
    return hoist_shapes(sink_shapes(graph))


def image_chain() -> ChainBuilder:
    return ChainBuilder(SUMS, (2, 4, 4))


def test_sink_pooling_moves_pooling_behind_the_quantizer() -> None:
    chain = image_chain().batch_norm([1, -1], [0, 1], [1, 0], [2, 3]).then(POOL)
    graph = chain.add([0.5, 1.5]).then(Relu()).quantize(Quantize(0, 3), 2.0).build()
    moved = moved_shapes(graph)
    assert ops_of(moved) == ["dequantize", "batch_norm", "add", "relu", "quantize", "max_pool2d"]
    assert_same(graph, moved)


def test_sink_pooling_moves_pooling_to_the_sums_where_the_rest_falls() -> None:
    chain = image_chain().add([0.5, -1.5]).then(POOL).batch_norm([1, -1], [0, 1], [1, 0], [2, 3])
    graph = chain.quantize(SIGN).build()
    moved = moved_shapes(graph)
    assert ops_of(moved) == ["max_pool2d", "dequantize", "add", "batch_norm", "quantize"]
    assert_same(graph, moved)


def test_sink_pooling_moves_two_poolings() -> None:
    graph = image_chain().then(POOL).add(1.0).then(POOL).then(Relu()).quantize(SIGN).build()
    moved = moved_shapes(graph)
    assert ops_of(moved) == ["dequantize", "add", "relu", "quantize", "max_pool2d", "max_pool2d"]
    assert_same(graph, moved)


def test_sink_pooling_keeps_what_others_read() -> None:
    chain = image_chain().then(POOL)
    pooled = chain.value
    chain.quantize(SIGN)
    graph = chain.graph.build([chain.value, pooled])
    moved = verify(moved_shapes(graph))
    sums = np.random.default_rng(1).integers(-9, 10, (5, 2, 4, 4))
    assert [a.tolist() for a in run(moved, sums)] == [a.tolist() for a in run(graph, sums)]


def test_sink_pooling_lists_falling_channels() -> None:
    chain = image_chain().multiply([1.0, -2.0]).then(POOL).then(Negate()).quantize(SIGN)
    with pytest.raises(LoweringError) as caught:
        moved_shapes(chain.build())
    assert str(caught.value) == (
        "max_pool2d 'max_pool2d' (net.py:3) stands before quantizer 'quantize' and cannot move: mul 'mul' (net.py:2) "
        "falls in 1 of 2 channels (1); neg 'neg' (net.py:4) falls in 2 of 2 channels (0, 1); put the pooling behind "
        "the quantizer, or directly behind the linear layer"
    )


def test_sink_integer_pooling_passes_rising_thresholds_only() -> None:
    for weights, expected in (
        ([1.0, 2.0], ["threshold", "max_pool2d"]),
        ([1.0, -2.0], ["max_pool2d", "threshold"]),
    ):
        chain = image_chain()
        graph = chain.multiply(weights).quantize(SIGN).build()
        pooled = _pooled_sums(graph)
        lowered = lower(pooled)
        assert ops_of(lowered) == expected
        assert ops_of(sink_integer_pooling(lowered)) == expected
        assert_same(pooled, lowered)


def _pooled_sums(graph: Graph) -> Graph:
    """Put a pooling in front of the first op: the chain then reads pooled sums."""
    from nnhw.ir import GraphBuilder

    builder = GraphBuilder("pooled")
    value = builder.input("sums", graph.inputs[0].type)
    names = {"sums": builder.add("pool", POOL, [value])}
    for node in graph.nodes[1:]:
        if node.name in graph.constants:
            names[node.name] = builder.constant(node.name, graph.constants[node.name], node.type)
        else:
            names[node.name] = builder.add(node.name, node.op, [names[name] for name in node.inputs], node.location)
    return builder.build([names[graph.outputs[0]]])


def test_sink_reshapes_moves_behind_everything_that_treats_elements_alike() -> None:
    chain = image_chain().batch_norm([1, -1], [0, 1], [1, 0], [2, 3]).then(Flatten())
    one = floats(chain.graph, "one", 1.0)
    chain.then(Add(), chain.value, one).then(Relu())
    graph = chain.then(Quantize(0, 3), chain.value, one).build()
    moved = sink_shapes(graph)
    assert ops_of(moved) == ["dequantize", "batch_norm", "add", "relu", "quantize", "flatten"]
    assert_same(graph, moved)


def test_sink_reshapes_takes_batch_norm_along_when_channels_stay() -> None:
    chain = ChainBuilder(SUMS, (3, 1, 1)).then(Reshape((3,)))
    statistics = [floats(chain.graph, "s", [1.0, 2.0, 3.0]) for _ in range(4)]
    chain.then(BatchNorm(1e-5), chain.value, *statistics)
    graph = chain.then(SIGN, chain.value, floats(chain.graph, "one", 1.0)).build()
    moved = sink_shapes(graph)
    assert ops_of(moved) == ["dequantize", "batch_norm", "quantize", "reshape"]
    assert_same(graph, moved)


def test_lower_takes_constants_per_element_behind_a_flatten() -> None:
    chain = ChainBuilder(SUMS, (2, 2, 1)).batch_norm([1, -1], [0, 1], [1, 0], [2, 3]).then(Flatten())
    values = floats(chain.graph, "values", [1.0, 2.0, 3.0, 4.0])
    chain.then(Add(), chain.value, values)
    graph = chain.then(SIGN, chain.value, floats(chain.graph, "one", 1.0)).build()
    lowered = lower(graph)
    assert ops_of(lowered) == ["flatten", "threshold"]
    assert_same(graph, lowered)


@given(random_graphs(), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_every_pass_keeps_every_value(graph: Graph, seed: int) -> None:
    images = np.random.default_rng(seed).normal(size=(20, *graph.inputs[0].type.shape))
    expected = run(graph, images)[0]
    seen = []

    def compare(name: str, after: Graph) -> None:
        seen.append(name)
        np.testing.assert_array_equal(run(after, images)[0], expected)

    lowered = lower(graph, observe=compare)
    assert seen == list(PIPELINE)
    assert lowered == lower(graph)


def test_lower_stops_where_it_is_told() -> None:
    graph = image_chain().multiply(-1.0).then(POOL).then(Negate()).quantize(SIGN).build()
    with pytest.raises(LoweringError):
        lower(graph, stop_after="hoist_shapes")
    graph = image_chain().then(POOL).then(Negate()).quantize(SIGN).build()
    assert ops_of(lower(graph, stop_after="sink_shapes")) == ["dequantize", "max_pool2d", "neg", "quantize"]
    assert ops_of(lower(graph, stop_after="hoist_shapes")) == ["max_pool2d", "dequantize", "neg", "quantize"]
    assert ops_of(lower(graph, stop_after="fold_constants")) == ["max_pool2d", "threshold"]
    with pytest.raises(InputError) as caught:
        lower(graph, stop_after="sink")
    assert str(caught.value) == (
        "there is no pass 'sink'; the passes are separate_padding, permute_input, sink_shapes, hoist_shapes, "
        "cancel_permutes, sink_extremes, align_sums, join_rescaled, flatten_positions, collapse_chains, "
        "fold_constants, sink_integer_pooling, narrow_codes, fold_mirrors, turn_products, fold_permutes, share_twins, "
        "fold_fixed_channels, drop_unread, merge_parallel, merge_gates, rows_first"
    )
