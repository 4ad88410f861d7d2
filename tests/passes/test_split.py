from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from nnhw.errors import LoweringError
from nnhw.ir import BIPOLAR, FLOAT, Graph, GraphBuilder, TensorType, run
from nnhw.ir.ops import Add, ArgMax, Dequantize, Linear, Quantize, Relu
from nnhw.passes import lower, split
from tests.ir.graphs import floats, images_of, integers, random_graphs
from tests.passes.models import SIGN


@given(random_graphs())
@settings(max_examples=40, deadline=None)
def test_split_parts_compose_to_the_whole(graph: Graph) -> None:
    lowered, images = lower(graph), images_of(graph, 7)
    try:
        parts = split(lowered)
    except LoweringError:  # refused: no result depends on the input
        rows = run(graph, images_of(graph, 100))[0]
        assert (rows == rows[:1]).all()
        return
    np.testing.assert_array_equal(parts.run(images)[0], run(lowered, images)[0])
    assert all(node.type.is_int for node in parts.body.nodes)
    assert not any(node.type.is_int for node in parts.head.nodes[:-1])
    assert [len(part.inputs) for part in (parts.head, parts.body, parts.tail)] == [1, 1, 1]
    assert parts.head.output_nodes[0].type == parts.body.inputs[0].type
    assert parts.body.output_nodes[0].type == parts.tail.inputs[0].type
    assert parts.body.name == f"{graph.name}_body"


class Net:
    """x --> relu --> sign --> linear, as a start for graphs of two values."""

    def __init__(self) -> None:
        self.builder = GraphBuilder("net")
        self.one = floats(self.builder, "one", 1.0)
        self.x = self.builder.input("x", TensorType((2,), FLOAT))
        self.head = self.builder.add("relu", Relu(), [self.x])
        self.codes = self.builder.add("sign", SIGN, [self.head, self.one])

    def linear(self, codes: str) -> str:
        weight = integers(self.builder, "w", [[1, -1], [1, 1]], BIPOLAR)
        return self.builder.add("linear", Linear(), [codes, weight])

    def message_of(self, *outputs: str) -> str:
        with pytest.raises(LoweringError) as caught:
            split(lower(self.builder.build(outputs)))
        return str(caught.value)


def test_split_leaves_an_argmax_to_the_host() -> None:
    net = Net()
    value = net.builder.add("value", Dequantize(), [net.linear(net.codes), net.one])
    parts = split(lower(net.builder.build([net.builder.add("best", ArgMax(0), [value])])))
    assert [node.op.name for node in parts.tail.nodes] == ["constant", "input", "dequantize", "argmax"] or [
        node.op.name for node in parts.tail.nodes
    ] == ["input", "constant", "dequantize", "argmax"]
    assert parts.run(np.array([[1.0, -1.0]]))[0].tolist() == [1]


def test_split_takes_a_body_whose_codes_are_the_answer() -> None:
    net = Net()
    parts = split(lower(net.builder.build([net.linear(net.codes)])))
    assert [node.op.name for node in parts.tail.nodes] == ["input"]
    assert parts.run(np.array([[1.0, 3.0]]))[0].tolist() == [[0, 2]]


def test_split_rejects_a_model_without_quantizer() -> None:
    net = Net()
    assert net.message_of(net.head) == (
        "model 'net' has no quantizer of its input; put one in front, such as nnhw.nn.UInt(8, scale=2**-8)"
    )


def test_split_rejects_two_quantizers_of_the_input() -> None:
    net = Net()
    other = net.builder.add("other", Quantize(0, 3), [net.x, net.one])
    assert net.message_of(net.linear(net.codes), net.linear(other)) == (
        "model 'net' needs one quantizer of its input, got 2: quantize 'sign', quantize 'other'; quantize the input "
        "once, and use its codes everywhere"
    )


def test_split_joins_two_integer_results_for_the_host_to_take_apart() -> None:
    net = Net()
    graph = net.builder.build([net.linear(net.codes), net.linear(net.codes)], ("left", "right"))
    parts = split(graph)
    assert [node.op.name for node in parts.body.output_nodes] == ["concat"]
    assert parts.tail.keys == ("left", "right")
    x = np.array([[1.0, 3.0], [-2.0, 0.0]])
    assert all(np.array_equal(one, other) for one, other in zip(parts.run(x), run(graph, x), strict=True))


def test_split_rejects_codes_of_the_input_as_a_result() -> None:
    net = Net()
    assert net.message_of(net.linear(net.codes), net.codes) == (
        "model 'net' returns the codes of its input, quantize 'sign', beside the result of linear 'linear'; return "
        "what its layers compute"
    )


def test_split_rejects_a_result_that_no_layer_computes() -> None:
    net = Net()
    assert net.message_of(net.linear(net.codes), net.head) == (
        "model 'net' returns relu 'relu', which no layer computes; return what its layers compute"
    )


def test_split_rejects_a_model_without_layers() -> None:
    net = Net()
    assert net.message_of(net.codes) == (
        "model 'net' has no layer behind its quantizer quantize 'sign'; add a quantized layer"
    )


def test_split_rejects_a_tail_that_reads_the_head() -> None:
    net = Net()
    value = net.builder.add("value", Dequantize(), [net.linear(net.codes), net.one])
    total = net.builder.add("total", Add(), [value, net.head])
    assert net.message_of(total) == (
        "add 'total' joins the result of linear 'linear' with 'relu' of the input side, which is not supported yet; "
        "compute the model's end from its last layer alone"
    )
