from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from nnhw.errors import IrError
from nnhw.ir import FLOAT, NOWHERE, Graph, GraphBuilder, Location, Node, TensorType, run, verify
from nnhw.ir.ops import Add, Input, Linear, Multiply, Negate, Quantize, Relu
from tests.ir.graphs import floats, integers


def small() -> Graph:
    """x --> relu --> (relu + 1), and -relu that nobody needs."""
    builder = GraphBuilder("small")
    x = builder.input("x", TensorType((2,), FLOAT), Location("m", "f.py", 3))
    relu = builder.add("relu", Relu(), [x])
    builder.add("unused", Negate(), [relu])
    return builder.build([builder.add("sum", Add(), [relu, floats(builder, "one", 1.0)])])


def test_location_reads_like_an_error_message() -> None:
    assert str(Location("features.3", "vgg.py", 41)) == "'features.3' (vgg.py:41)"
    assert str(Location("features.3")) == "'features.3'"
    assert str(Location("", "vgg.py", 41)) == "of the model (vgg.py:41)"
    assert str(NOWHERE) == "of the model"


def test_builder_infers_types_prunes_and_makes_names_unique() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((2,), FLOAT))
    names = [builder.add("x", Negate(), [x]) for _ in range(2)]
    assert names == ["x_2", "x_3"]
    assert [node.name for node in builder.build(["x_3"]).nodes] == ["x", "x_3"]
    assert [node.name for node in small().nodes] == ["x", "relu", "one", "sum"]
    assert small().node("sum").type == TensorType((2,), FLOAT)


def test_builder_names_the_node_whose_operands_do_not_fit() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((2,), FLOAT))
    weight = integers(builder, "w", [[1, 2]])
    with pytest.raises(IrError) as caught:
        builder.add("fc", Linear(), [x, weight], Location("fc", "m.py", 7))
    assert str(caught.value) == "linear 'fc' (m.py:7): x must be an integer tensor, got float64 [2]"


@pytest.mark.parametrize("call", [lambda b: b.build(["y"]), lambda b: b.add("y", Relu(), ["y"])])
def test_builder_rejects_names_that_it_does_not_know(call: object) -> None:
    with pytest.raises(IrError, match="graph 'g' has no node 'y'"):
        call(GraphBuilder("g"))  # type: ignore[operator]


def test_builder_copy_refuses_a_name_twice() -> None:
    builder = GraphBuilder("copy")
    builder.copy(small().nodes, small())
    assert builder.build(["sum"]).nodes == small().nodes
    with pytest.raises(IrError, match="graph 'copy' already has a node 'x'"):
        builder.copy(small().nodes, small())


def test_graph_answers_who_reads_what() -> None:
    graph = small()
    assert [node.name for node in graph.inputs] == ["x"]
    assert [node.name for node in graph.output_nodes] == ["sum"]
    assert {name: [user.name for user in users] for name, users in graph.users().items()} == {
        "x": ["relu"], "relu": ["sum"], "one": ["sum"], "sum": [],
    }  # fmt: skip
    assert [node.name for node in graph.data_inputs(graph.node("sum"))] == ["relu"]
    assert graph.operands(graph.node("sum"))[1].constant == 1.0
    assert "sum" in graph
    assert "unused" not in graph
    with pytest.raises(IrError, match="graph 'small' has no node 'unused'"):
        graph.node("unused")


def test_graph_replace_redirects_readers_and_outputs() -> None:
    graph = small()
    node = graph.node("relu")
    negative = Node("negative", Negate(), ("x",), node.type)
    twice = Node("twice", Multiply(), ("negative", "two"), node.type)
    two = dataclasses.replace(graph.node("one"), name="two")
    changed = verify(graph.replace("relu", [negative, two, twice], {"two": np.array(2.0)}))
    assert [node.name for node in changed.nodes] == ["x", "negative", "two", "twice", "one", "sum"]
    assert run(changed, np.array([[1.0, -3.0]]))[0].tolist() == [[-1.0, 7.0]]
    last = verify(graph.replace("sum", [Node("out", Negate(), ("relu",), node.type)]))
    assert last.outputs == ("out",)
    assert "one" not in last.constants


def test_graph_replace_may_keep_the_name() -> None:
    graph = small()
    changed = graph.replace("relu", [dataclasses.replace(graph.node("relu"), op=Negate())])
    assert run(changed, np.array([[1.0, -3.0]]))[0].tolist() == [[0.0, 4.0]]


def test_graph_keeps_unused_inputs() -> None:
    builder = GraphBuilder("g")
    builder.input("unused", TensorType((2,), FLOAT))
    x = builder.input("x", TensorType((2,), FLOAT))
    assert [node.name for node in builder.build([x]).inputs] == ["unused", "x"]


def test_graph_constants_cannot_be_changed() -> None:
    array = np.ones(2)
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((2,), FLOAT))
    graph = builder.build([builder.add("y", Add(), [x, floats(builder, "c", array)])])
    array[0] = 5.0
    assert graph.constants["c"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        graph.constants["c"][0] = 2.0
    with pytest.raises(TypeError):
        graph.constants["c"] = array  # type: ignore[index]


def test_graph_equality_sees_every_bit() -> None:
    graph = small()
    assert graph == small()
    assert hash(graph) == hash(small())
    zero = dataclasses.replace(graph, constants={"one": np.array(0.0)})
    minus_zero = dataclasses.replace(graph, constants={"one": np.array(-0.0)})
    assert zero != minus_zero
    assert graph != dataclasses.replace(graph, name="other")
    assert graph != dataclasses.replace(graph, outputs=("relu",))
    assert graph != "small"
    moved = dataclasses.replace(graph.nodes[0], location=NOWHERE)
    assert graph != dataclasses.replace(graph, nodes=(moved, *graph.nodes[1:]))


def test_quantize_and_input_are_told_apart_by_their_ops() -> None:
    assert isinstance(small().nodes[0].op, Input)
    assert Quantize(0, 1) != Quantize(0, 1, True)
