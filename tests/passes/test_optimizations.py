"""Twins, fixed channels, unread channels and parallel layers: smaller graphs with the same results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.ir import BIT, Graph, IntType, TensorType, run, verify
from nnhw.ir.ops import (
    Concat,
    Conv2d,
    Flatten,
    MaxPool2d,
    Pad,
    Permute,
    Rescale,
    Slice,
    StepTable,
    SumPool2d,
    Threshold,
    Upsample,
    WeightedSum,
)
from nnhw.mapping.reader import read_layers
from nnhw.passes import (
    OPTIMIZATIONS,
    PIPELINE,
    Size,
    drop_unread,
    fold_fixed_channels,
    merge_parallel,
    savings,
    share_twins,
)
from nnhw.passes.edit import retyped
from nnhw.passes.ranges import element_ranges
from tests.mapping.networks import I4, U2, Network

STEPS = (share_twins, fold_fixed_channels, drop_unread, merge_parallel)


def optimized(graph: Graph) -> Graph:
    for step in STEPS:
        graph = verify(step(graph))
    return graph


def images_of(graph: Graph, count: int = 60) -> np.ndarray:
    """Return random images and both ends of the range."""
    node = graph.inputs[0]
    kind = node.type.int_dtype
    images = np.random.default_rng(0).integers(kind.low, kind.high + 1, (count, *node.type.shape))
    images[0], images[1] = kind.low, kind.high
    return images


def assert_same(before: Graph, after: Graph) -> None:
    images = images_of(before)
    np.testing.assert_array_equal(run(verify(after), images)[0], run(before, images)[0])


def channels(graph: Graph) -> list[int]:
    """Return the outputs of all layers with weights."""
    return [node.type.shape[0] for node in graph.nodes if node.op.name in ("conv2d", "linear")]


def counts(graph: Graph) -> dict[str, int]:
    names = [node.op.name for node in graph.nodes if node.inputs]
    return {name: names.count(name) for name in sorted(set(names))}


def with_weights(graph: Graph, change: Callable[[int, np.ndarray], np.ndarray]) -> Graph:
    """Return a graph with other weights: `change` is given the number of the layer and its weights."""
    constants = dict(graph.constants)
    layers = [node for node in graph.nodes if node.op.name in ("conv2d", "linear")]
    for number, node in enumerate(layers):
        constants[node.inputs[1]] = change(number, constants[node.inputs[1]].copy())
    return retyped(Graph(graph.name, graph.nodes, graph.outputs, constants))


def without_columns(columns: Sequence[int], layer: int = 1) -> Callable[[int, np.ndarray], np.ndarray]:
    def change(number: int, weights: np.ndarray) -> np.ndarray:
        if number == layer:
            weights[:, list(columns)] = 0
        return weights

    return change


def without_rows(rows: Sequence[int], layer: int = 0) -> Callable[[int, np.ndarray], np.ndarray]:
    def change(number: int, weights: np.ndarray) -> np.ndarray:
        if number == layer:
            weights[list(rows)] = 0
        return weights

    return change


def fixed(net: Network, x: str, codes: Sequence[int], kind: str = "threshold") -> str:
    """Add a function whose codes are these wherever the sum is 0, and others elsewhere."""
    range_ = net.builder.type_of(x).int_dtype
    place = IntType(min(range_.low, -9), max(range_.high + 1, 9))
    count = len(codes)
    if kind == "rescale":
        names = [net.constant(np.full(count, value), IntType(-(1 << 31), (1 << 31) - 1)) for value in (1 << 30, -2)]
        bias = net.constant(np.array(codes) * 8, IntType(-(1 << 31), (1 << 31) - 1))
        return net.add(Rescale(0, 0, 3, "double"), x, *names, bias)
    if kind == "table":
        rows = np.broadcast_to([-3, 0, 1], (count, 3))
        values = np.array([[3 - code, (code + 1) % 4, code, (code + 2) % 4] for code in codes])
        return net.add(StepTable(0, 3), x, net.constant(rows, place), net.constant(values, U2))
    rows = np.array([[-number if number < code else number + 1 for number in range(3)] for code in codes])
    falls = net.builder.constant("falls", np.zeros(count, bool), TensorType((count,), BIT))
    return net.add(Threshold(0), x, net.constant(np.sort(rows, axis=1), place), falls)


# What is between two layers: the value behind the first function --> what the second layer reads.
BETWEEN: dict[str, Callable[[Network, str], str]] = {
    "nothing": lambda net, x: x,
    "max_pool": lambda net, x: net.add(MaxPool2d((2, 2), (2, 2)), x),
    "sum_pool": lambda net, x: net.add(SumPool2d((2, 2), (1, 1)), x),
    "upsample": lambda net, x: net.add(Upsample((2, 2)), x),
    "pad": lambda net, x: net.add(Pad((1, 1), (1, 1)), x),
    "depthwise": lambda net, x: net.code(net.conv(x, 7, (2, 2), groups=7)),
    "concat": lambda net, x: net.add(Concat(0), x, x),
    "slice": lambda net, x: net.add(Slice(0, 1, 5), x),
    "permute": lambda net, x: net.add(Permute((0, 2, 1)), x),
    "flatten": lambda net, x: net.add(Flatten(), x),
    "permuted flatten": lambda net, x: net.add(Flatten(), net.add(Permute((1, 2, 0)), x)),
}


@pytest.mark.parametrize("between", BETWEEN)
def test_channels_without_readers_go_through_everything_between(between: str) -> None:
    net = Network((3, 5, 5), U2)
    x = BETWEEN[between](net, net.code(net.conv(net.input, 7, (2, 2))))
    flat = len(net.builder.type_of(x).shape) == 1
    last = net.linear(x, 4) if flat else net.conv(x, 4, (1, 1))
    graph = net.body(net.code(last))
    layer = 2 if between == "depthwise" else 1
    shape = graph.node(graph.node(last).inputs[0]).type.shape
    number = np.arange(np.prod(shape)).reshape(shape)
    if between == "permuted flatten":
        columns = np.flatnonzero(number % 7 == 3).tolist()
    elif flat:
        columns = np.flatnonzero(number // 16 == 3).tolist()
    else:
        columns = [3, 10] if between == "concat" else [2] if between == "slice" else [3]
    graph = with_weights(graph, without_columns(columns, layer))
    dropped = drop_unread(graph)
    # A slice leaves out three channels that no one else reads, from the start.
    assert channels(dropped)[0] == (3 if between == "slice" else 6)
    assert_same(graph, dropped)


def test_a_graph_without_anything_to_save_stays_the_same_object() -> None:
    net = Network((3, 5, 5), U2)
    x = net.code(net.conv(net.add(Pad((1, 1), (1, 1)), net.input), 6, (3, 3)))
    graph = net.body(net.linear(net.add(WeightedSum((1, 2)), x, net.code(net.conv(x, 6, (1, 1)))), 4))
    assert all(step(graph) is graph for step in STEPS)


def test_channels_of_a_sum_stay_as_long_as_one_reader_needs_them() -> None:
    net = Network((4, 4, 4), U2)
    x = net.code(net.conv(net.input, 6, (1, 1)))
    total = net.code(net.add(WeightedSum((1, 1)), x, net.code(net.conv(x, 6, (1, 1)))))
    graph = net.body(net.code(net.conv(total, 3, (1, 1))))
    assert channels(drop_unread(with_weights(graph, without_columns([0, 5], 2)))) == [6, 6, 3]
    both = with_weights(with_weights(graph, without_columns([0, 5], 2)), without_columns([0, 5], 1))
    dropped = drop_unread(both)
    assert channels(dropped) == [4, 4, 3]
    assert_same(both, dropped)


def test_a_branch_that_nobody_reads_goes_with_its_layers() -> None:
    net = Network((4, 4, 4), U2)
    left, right = (net.code(net.conv(net.input, 3, (1, 1))) for _ in range(2))
    joined = net.add(Concat(0), left, net.code(net.conv(right, 5, (1, 1))))
    graph = with_weights(net.body(net.linear(joined, 4)), without_columns(range(48, 128), 3))
    dropped = drop_unread(graph)
    assert counts(dropped) == {"conv2d": 1, "flatten": 1, "linear": 1, "threshold": 1}
    assert Size.of(graph).saved(Size.of(dropped))["layers"] == ["conv2d3", "conv2d5"]
    assert_same(graph, dropped)


def test_a_layer_without_weights_keeps_an_input() -> None:
    net = Network((4, 4, 4), U2)
    graph = net.body(net.code(net.conv(net.code(net.conv(net.input, 5, (1, 1))), 3, (1, 1))))
    graph = with_weights(graph, without_columns(range(5), 1))
    assert channels(drop_unread(graph)) == [1, 3]
    assert_same(graph, drop_unread(graph))


@pytest.mark.parametrize(
    ("outputs", "pruned", "left"),
    [(8, 3, 5), (8, 8, 1), (16, 3, 14), (16, 5, 12), (64, 3, 63), (26, 3, 24), (22, 11, 11)],
)
def test_numbers_of_channels_keep_small_factors(outputs: int, pruned: int, left: int) -> None:
    net = Network((4, 4, 4), U2)
    x = net.code(net.conv(net.input, outputs, (1, 1)))
    graph = with_weights(net.body(net.code(net.conv(x, 3, (1, 1)))), without_columns(range(pruned), 1))
    assert channels(drop_unread(graph)) == [left, 3]
    assert_same(graph, drop_unread(graph))


def test_parts_of_a_concatenation_stay_multiples_of_lanes() -> None:
    net = Network((4, 4, 4), U2)
    parts = [net.code(net.conv(net.input, outputs, (1, 1))) for outputs in (16, 8, 8)]
    graph = net.body(net.code(net.conv(net.add(Concat(0), *parts), 3, (1, 1))))
    columns = [*range(9), *range(16, 20), *range(24, 32)]
    graph = with_weights(graph, without_columns(columns, 3))
    assert channels(drop_unread(graph)) == [16, 8, 3]
    assert_same(graph, drop_unread(graph))


def test_groups_keep_their_channels() -> None:
    net = Network((4, 4, 4), U2)
    x = net.code(net.conv(net.code(net.conv(net.input, 6, (1, 1))), 6, (1, 1), groups=2))
    graph = with_weights(net.body(net.code(net.conv(x, 3, (1, 1)))), without_columns([1], 2))
    assert drop_unread(graph) is graph


@pytest.mark.parametrize("kind", ["threshold", "table", "rescale"])
@pytest.mark.parametrize("behind", ["threshold", "table", "rescale", "sum", "pool", "result"])
def test_fixed_channels_go_into_what_is_behind_the_sums(kind: str, behind: str) -> None:
    net = Network((3, 4, 4), I4)
    codes = fixed(net, net.conv(net.input, 5, (1, 1)), [0, 1, 3, 2, 1], kind)
    sums = net.conv(codes, 4, (2, 2))
    match behind:
        case "threshold":
            result = net.code(sums)
        case "table":
            result = net.table(sums)
        case "rescale":
            result = net.rescale(sums, "double")
        case "sum":
            result = net.code(net.add(WeightedSum((-3, 2)), sums, net.conv(net.input, 4, (2, 2))))
        case "pool":
            result = net.code(net.add(SumPool2d((2, 2), (1, 1)), net.add(MaxPool2d((2, 2), (1, 1)), sums)))
        case _:
            result = sums
    graph = with_weights(net.body(result), without_rows([0, 1, 3]))
    after = drop_unread(verify(fold_fixed_channels(graph)))
    # Where sums leave, only channels whose code is 0 can go.
    assert channels(after)[0] == (4 if behind == "result" else 2)
    assert_same(graph, after)


def test_fixed_channels_stay_where_a_border_has_another_value() -> None:
    for codes, left in (([0, 1, 3, 2, 1], 4), ([0, 0, 3, 0, 1], 2)):
        net = Network((3, 4, 4), I4)
        x = net.add(Pad((1, 1), (1, 1)), fixed(net, net.conv(net.input, 5, (1, 1)), codes))
        graph = with_weights(net.body(net.code(net.conv(x, 4, (3, 3)))), without_rows([0, 1, 3]))
        after = optimized(graph)
        assert channels(after)[0] == left
        assert_same(graph, after)
    net = Network((3, 4, 4), I4)
    padded = net.add(Pad((1, 1), (1, 1), 3.0), fixed(net, net.conv(net.input, 5, (1, 1)), [0, 1, 3, 3, 1]))
    graph = with_weights(net.body(net.code(net.conv(padded, 4, (3, 3)))), without_rows([0, 1, 3]))
    assert channels(optimized(graph))[0] == 4
    assert_same(graph, optimized(graph))


def test_fixed_channels_stay_where_someone_else_reads_them() -> None:
    net = Network((3, 4, 4), I4)
    codes = fixed(net, net.conv(net.input, 4, (1, 1)), [0, 1, 3, 2])
    total = net.add(WeightedSum((1, 1)), codes, net.code(net.conv(codes, 4, (1, 1))))
    graph = with_weights(net.body(net.code(total)), without_rows([0, 1, 3]))
    assert fold_fixed_channels(graph) is graph


def test_twins_are_computed_once_and_readers_share_them() -> None:
    net = Network((3, 4, 4), I4)
    weights = net.rng.integers(-3, 4, (4, 3, 2, 2))
    steps, falls = np.sort(net.rng.integers(-40, 40, (4, 3)), axis=1), np.zeros(4, bool)
    branches = []
    for _ in range(2):
        sums = net.add(Conv2d(), net.input, net.constant(weights, I4))
        branch = net.add(Threshold(0), sums, net.constant(steps, IntType(-99, 99)), net.constant(falls, BIT))
        branches.append(branch)
    joined = net.add(Concat(0), branches[0], net.code(net.conv(branches[1], 4, (1, 1))))
    graph = net.body(net.code(net.conv(joined, 2, (1, 1))))
    shared = share_twins(graph)
    assert counts(shared) == {"concat": 1, "conv2d": 3, "threshold": 3}
    assert_same(graph, shared)
    read_layers(shared)


def test_twins_of_one_kind_with_other_attributes_stay() -> None:
    net = Network((3, 4, 4), I4)
    left, right = (net.add(Slice(0, start, start + 2), net.input) for start in (0, 1))
    graph = net.body(net.linear(net.add(WeightedSum((1, -1)), left, right), 2))
    assert share_twins(graph) is graph


def test_twins_that_differ_in_a_constant_stay() -> None:
    net = Network((3, 4, 4), I4)
    weights = net.rng.integers(-3, 4, (4, 3, 1, 1))
    other = weights.copy()
    other[3, 2] += 1
    sums = [net.add(Conv2d(), net.input, net.constant(w, I4)) for w in (weights, other)]
    graph = net.body(net.code(net.add(WeightedSum((1, 1)), *sums)))
    assert share_twins(graph) is graph


def test_parallel_layers_behind_one_concat_become_one() -> None:
    net = Network((3, 5, 5), U2)
    padded = net.add(Pad((1, 1), (1, 1)), net.input)
    branches = [net.code(net.conv(padded, outputs, (3, 3))) for outputs in (4, 2, 3)]
    other = net.code(net.conv(net.input, 2, (1, 1)))
    graph = net.body(net.linear(net.add(Concat(0), other, *branches), 4))
    merged = merge_parallel(graph)
    assert counts(merged) == {"concat": 1, "conv2d": 2, "flatten": 1, "linear": 1, "pad": 1, "threshold": 2}
    assert sorted(channels(merged)) == [2, 4, 9]
    assert_same(graph, merged)
    assert len(read_layers(graph)) - len(read_layers(merged)) == 2
    graph = net.body(net.linear(net.add(Concat(0), *branches), 4))
    merged = merge_parallel(graph)
    assert counts(merged) == {"conv2d": 1, "flatten": 1, "linear": 1, "pad": 1, "threshold": 1}
    assert_same(graph, merged)


@pytest.mark.parametrize("what", ["kernel", "stride", "source", "codes", "weights", "read twice", "twice in it"])
def test_parallel_layers_of_two_kinds_stay(what: str) -> None:
    net = Network((3, 5, 5), U2)
    one = net.code(net.conv(net.input, 4, (1, 1)))
    source = net.code(net.conv(net.input, 3, (1, 1))) if what == "source" else net.input
    kernel, stride = ((1, 3) if what == "kernel" else (1, 1)), ((1, 2) if what == "stride" else (1, 1))
    weight = IntType(-2, 1) if what == "weights" else I4
    sums = net.conv(source, 4, kernel, weight, stride=stride)
    two = net.code(sums, IntType(0, 7) if what == "codes" else U2)
    if what in ("kernel", "stride"):
        two = net.add(Pad((0, 0), (0, 2)), two)
    if what == "twice in it":
        two = one
    joined = net.add(Concat(0), one, two)
    if what == "read twice":
        joined = net.add(Concat(0), net.code(net.conv(joined, 4, (1, 1))), one, two)
    graph = net.body(net.code(net.conv(joined, 3, (1, 1))))
    assert merge_parallel(graph) is graph


def test_savings_name_what_is_gone() -> None:
    one = Size(9, 100, 1000, 20, ("a", "b"))
    sizes = {"share_twins": (one, one), "drop_unread": (one, replace(one, nodes=7, channels=15, layers=("b",)))}
    assert savings(sizes) == {
        "drop_unread": {"nodes": 2, "weights": 0, "products": 0, "channels": 5, "layers": ["a"]},
    }
    assert set(OPTIMIZATIONS) <= set(PIPELINE)


@st.composite
def pruned_networks(draw: st.DrawFn) -> Graph:
    """Draw a network with branches, in which rows, columns and whole layers have no weights."""
    net = Network((draw(st.integers(1, 3)), 5, 5), draw(st.sampled_from([U2, I4])), draw(st.integers(0, 10**6)))
    x = net.input
    values: list[str] = []
    for _ in range(draw(st.integers(2, 5))):
        x = _layer(draw, net, x)
        same = [value for value in values if net.builder.type_of(value).shape == net.builder.type_of(x).shape]
        if same and draw(st.booleans()):
            x = net.add(draw(st.sampled_from([WeightedSum((1, -2)), Concat(0)])), draw(st.sampled_from(same)), x)
            x = net.code(x) if draw(st.booleans()) else x
        values.append(x)
    graph = net.body(net.linear(x, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    share = draw(st.sampled_from([0.0, 0.3, 0.7]))

    def change(_: int, weights: np.ndarray) -> np.ndarray:
        weights[rng.random(len(weights)) < share] = 0
        weights[:, rng.random(weights.shape[1]) < share] = 0
        return weights

    return with_weights(graph, change)


def _layer(draw: st.DrawFn, net: Network, x: str) -> str:
    outputs, size = draw(st.integers(1, 6)), draw(st.sampled_from([1, 2, 3]))
    depthwise = draw(st.integers(0, 4)) == 0 and x != net.input
    if size > 1:
        x = net.add(
            Pad(((size - 1) // 2, size // 2), (size // 2, (size - 1) // 2), draw(st.sampled_from([0.0, 1.0]))), x
        )
    width = net.builder.type_of(x).shape[0]
    sums = net.conv(x, width if depthwise else outputs, (size, size), groups=width if depthwise else 1)
    kind = draw(st.sampled_from(["code", "table", "rescale", "fixed", "bipolar"]))
    if kind == "fixed":
        codes = [draw(st.integers(0, 3)) for _ in range(net.builder.type_of(sums).shape[0])]
        return fixed(net, sums, codes, draw(st.sampled_from(["threshold", "table", "rescale"])))
    if kind == "bipolar":
        return net.code(sums, IntType(-1, 1, bipolar=True))
    return {"code": net.code, "table": net.table}.get(kind, lambda value: net.rescale(value, "double"))(sums)


@settings(max_examples=60, deadline=None)
@given(pruned_networks())
def test_optimized_networks_give_the_same_results(graph: Graph) -> None:
    images = images_of(graph, 12)
    wanted = run(graph, images)[0]
    for step in STEPS:
        before, graph = graph, verify(step(graph))
        np.testing.assert_array_equal(run(graph, images)[0], wanted)
        size, other = Size.of(before), Size.of(graph)
        assert other.weights <= size.weights
        assert other.products <= size.products
        assert other.nodes <= size.nodes
        assert verify(step(graph)) == graph, "a second time there is nothing left to do"


@settings(max_examples=40, deadline=None)
@given(pruned_networks())
def test_values_lie_in_their_ranges(graph: Graph) -> None:
    found: dict[str, np.ndarray] = {}
    run(graph, images_of(graph, 20), found.__setitem__)
    for name, (low, high) in element_ranges(graph).items():
        assert (low <= found[name]).all()
        assert (found[name] <= high).all()
        kind = graph.node(name).type.int_dtype
        assert kind.low <= low.min()
        assert high.max() <= kind.high
