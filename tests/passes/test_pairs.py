"""Products, maxima and minima of two values that both come from the input, in the passes."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.errors import LoweringError
from nnhw.ir import BIPOLAR, FLOAT, Graph, GraphBuilder, IntType, TensorType, run
from nnhw.ir.ops import (
    Add,
    BatchNorm,
    Conv2d,
    Dequantize,
    Linear,
    Maximum,
    Minimum,
    Multiply,
    Negate,
    Op,
    Permute,
    Product,
    Quantize,
    Relu,
    Reshape,
)
from nnhw.passes import lower, sink_extremes, sink_shapes
from nnhw.passes.demand import demanded
from nnhw.passes.ranges import element_ranges

INT4, UINT4, INT8 = IntType(-8, 7), IntType(0, 15), IntType(-128, 127)


class Two:
    """A graph of two codes with a scale each."""

    def __init__(self, *scales: float, shape: tuple[int, ...] = (2, 3, 3), kind: IntType = INT4) -> None:
        self.graph, self.count = GraphBuilder("two"), 0
        self.codes = [self.graph.input(name, TensorType(shape, kind)) for name in "ab"]
        self.values = [self.then(Dequantize(), codes, scale) for codes, scale in zip(self.codes, scales, strict=True)]

    def then(self, op: Op, *operands: object) -> str:
        """Add an op; numbers are constants."""
        self.count += 1
        names = [name if isinstance(name, str) else self.constant(name) for name in operands]
        return self.graph.add(f"{op.name}{self.count}", op, names)

    def constant(self, number: object) -> str:
        """Add a constant."""
        array = np.array(number, dtype=np.float64)
        return self.graph.constant(f"constant{self.count}", array, TensorType(array.shape, FLOAT))

    def quantized(self, value: str, kind: IntType = INT4, scale: float = 0.5) -> Graph:
        """Return the graph with a quantizer behind a value."""
        return self.graph.build([self.then(Quantize(kind.low, kind.high, kind.bipolar), value, scale)])


def ops_of(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.inputs]


def assert_alike(before: Graph, after: Graph) -> None:
    """Compare two graphs on random codes and on both ends of the range."""
    rng = np.random.default_rng(1)
    given = []
    for node in before.inputs:
        kind = node.type.int_dtype
        ends = [np.full((1, *node.type.shape), end) for end in (kind.low, kind.high)]
        given.append(np.concatenate([*ends, rng.integers(kind.low, kind.high + 1, (200, *node.type.shape))]))
    np.testing.assert_array_equal(run(before, given)[0], run(after, given)[0])


@pytest.mark.parametrize("op", [Maximum(), Minimum()], ids=str)
def test_extreme_of_unlike_scales_goes_behind_the_quantizer(op: Op) -> None:
    net = Two(0.31, 0.17)
    graph = net.quantized(net.then(Relu(), net.then(op, *net.values)))
    lowered = lower(graph)
    assert ops_of(lowered) == ["threshold", "threshold", op.name]
    assert_alike(graph, lowered)


def test_extreme_turns_where_an_op_behind_it_falls() -> None:
    net = Two(0.31, 0.17)
    graph = net.quantized(net.then(Multiply(), net.then(Negate(), net.then(Maximum(), *net.values)), 0.7))
    lowered = lower(graph)
    assert ops_of(lowered)[-1] == "minimum"
    assert_alike(graph, lowered)


def test_extreme_of_bipolar_codes_is_bipolar() -> None:
    net = Two(0.31, 0.17)
    graph = net.quantized(net.then(Maximum(), *net.values), BIPOLAR)
    lowered = lower(graph)
    assert lowered.output_nodes[0].type.int_dtype == BIPOLAR
    assert_alike(graph, lowered)


def test_extreme_of_one_value_stays_a_function_of_it() -> None:
    net = Two(0.31, 0.17)
    value = net.values[0]
    graph = net.quantized(net.then(Maximum(), value, net.then(Multiply(), value, -0.5)))
    assert sink_extremes(graph) == graph
    assert ops_of(lower(graph)) == ["step_table"]


def test_extreme_in_front_of_channels_that_fall_is_refused() -> None:
    norm = [[1.0, -1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    few = Two(0.31, 0.17)
    graph = few.quantized(few.then(BatchNorm(1e-5), few.then(Maximum(), *few.values), *norm))
    assert ops_of(lower(graph)) == ["weighted_sum", "step_table"]
    assert_alike(graph, lower(graph))
    net = Two(0.31, 0.17, kind=INT8)
    graph = net.quantized(net.then(BatchNorm(1e-5), net.then(Maximum(), *net.values), *norm), INT8)
    with pytest.raises(LoweringError, match=r"compares functions of .* put a quantizer directly behind the maximum"):
        lower(graph)


def test_product_of_unquantized_values_is_refused() -> None:
    net = Two(0.31, 0.17, kind=INT8)
    product = net.then(Multiply(), net.then(Relu(), net.values[0]), net.values[1])
    graph = net.quantized(net.then(Add(), product, 1.0), INT8)
    with pytest.raises(LoweringError, match=r"mul4' .*multiplies functions of input 'a' and input 'b'.*front of the"):
        lower(graph)


def test_reorderings_of_both_factors_go_behind_the_product() -> None:
    net = Two(0.5, 0.5, shape=(2, 3, 4))
    turned = [net.then(Permute((2, 0, 1)), codes) for codes in net.codes]
    graph = net.graph.build([net.then(Product(), *(net.then(Reshape((4, 6)), value) for value in turned))])
    sunk = sink_shapes(graph)
    assert ops_of(sunk) == ["product", "permute", "reshape"]
    assert_alike(graph, sunk)


def test_unlike_reorderings_stay_in_front_of_the_product() -> None:
    net = Two(0.5, 0.5, shape=(2, 3, 3))
    graph = net.graph.build([net.then(Product(), net.codes[0], net.then(Permute((0, 2, 1)), net.codes[1]))])
    assert sink_shapes(graph) == graph


def test_range_of_a_product_is_that_of_its_corners() -> None:
    builder = GraphBuilder("net")
    left = builder.input("a", TensorType((2, 3, 3), IntType(-8, 7)))
    right = builder.input("b", TensorType((2, 1, 1), IntType(-3, 5)))
    graph = builder.build([builder.add("p", Product(), [left, right])])
    low, high = element_ranges(graph)["p"]
    assert low.shape == (1, 2, 3, 3)
    assert {(int(low.min()), int(high.max()))} == {(-40, 35)}
    assert graph.node("p").type.int_dtype == IntType(-40, 35)


def test_channels_of_a_gate_go_with_those_of_its_map() -> None:
    builder = GraphBuilder("net")
    x = builder.input("x", TensorType((3, 4, 4), UINT4))
    weights = np.ones((6, 3, 1, 1), np.int64)
    names = [
        builder.constant(name, array, TensorType(array.shape, IntType(0, 1)))
        for name, array in (("w", weights), ("v", np.ones((6, 3, 4, 4), np.int64)))
    ]
    a, gate = (builder.add(f"conv{name}", Conv2d(), [x, name]) for name in names)
    product = builder.add("product", Product(), [gate, a])
    last = np.zeros((2, 96), np.int64)
    last[:, :32] = 1
    flat = builder.add("flat", Reshape((96,)), [product])
    end = builder.constant("end", last, TensorType(last.shape, IntType(0, 1)))
    graph = builder.build([builder.add("linear", Linear(), [flat, end])])
    masks = demanded(graph)
    assert masks["convw"][0].tolist() == masks["convv"][0].tolist()
    assert masks["convv"][1].all()
