from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from nnhw.errors import InputError
from nnhw.ir import BIPOLAR, FLOAT, Graph, GraphBuilder, IntType, Location, TensorType, run, run_in_chunks
from nnhw.ir.ops import Add, Linear, Quantize
from tests.ir.graphs import floats, images_of, integers, random_graphs


def two_inputs() -> Graph:
    builder = GraphBuilder("two")
    a, b = (builder.input(name, TensorType((2,), FLOAT)) for name in "ab")
    return builder.build([builder.add("sum", Add(), [a, b]), b])


def codes() -> Graph:
    builder = GraphBuilder("codes")
    x = builder.input("x", TensorType((2,), BIPOLAR))
    return builder.build([builder.add("y", Linear(), [x, integers(builder, "w", [[1, 2]])])])


def test_run_takes_inputs_by_name_and_in_order() -> None:
    a, b = np.array([[1.0, 2.0]]), np.array([[10.0, 20.0]])
    for inputs in ((a, b), [a, b], {"b": b, "a": a}):
        total, last = run(two_inputs(), inputs)
        assert total.tolist() == [[11.0, 22.0]]
        assert last.tolist() == b.tolist()


def test_run_widens_what_it_is_given() -> None:
    result = run(codes(), np.array([[1, -1]], dtype=np.int8))[0]
    assert (result.dtype, result.tolist()) == (np.int64, [[-1]])
    result = run(two_inputs(), [np.ones((1, 2), dtype=np.float32), np.ones((1, 2), dtype=np.uint8)])[0]
    assert (result.dtype, result.tolist()) == (np.float64, [[2.0, 2.0]])


def test_run_shows_every_value_in_order() -> None:
    seen: list[tuple[str, list[list[int]]]] = []
    run(codes(), np.array([[1, 1]]), lambda name, array: seen.append((name, array.tolist())))
    assert seen == [("x", [[1, 1]]), ("y", [[3]])]


@given(random_graphs())
@settings(max_examples=30, deadline=None)
def test_run_keeps_to_the_types_and_does_not_depend_on_the_batch(graph: Graph) -> None:
    images = images_of(graph, 5)

    def check(name: str, array: np.ndarray) -> None:
        node_type = graph.node(name).type
        assert array.shape == (5, *node_type.shape)
        if isinstance(node_type.dtype, IntType):
            assert array.dtype == np.int64
            assert node_type.dtype.holds(array)
        else:
            assert array.dtype == np.float64

    whole = run(graph, images, check)[0]
    single = np.concatenate([run(graph, image[np.newaxis])[0] for image in images])
    np.testing.assert_array_equal(whole, single)


@pytest.mark.parametrize("count", [0, 1, 6, 7])
def test_run_in_chunks_equals_run(count: int) -> None:
    images = np.random.default_rng(0).choice([-1, 1], (count, 2))
    chunks, whole = run_in_chunks(codes(), images, size=3)[0], run(codes(), images)[0]
    np.testing.assert_array_equal(chunks, whole)
    assert chunks.shape == (count, 1)


@pytest.mark.parametrize(
    ("graph", "inputs", "message"),
    [
        (two_inputs(), np.ones((1, 2)), "graph 'two' needs 2 inputs (a, b), got 1"),
        (two_inputs(), {"a": np.ones((1, 2))}, "graph 'two' needs the inputs a, b, got a"),
        (two_inputs(), [np.ones((1, 2)), np.ones((3, 2))],
         "the inputs of graph 'two' need equal batch sizes, got a: 1, b: 3"),
        (codes(), np.ones((2,), int), "input 'x' of graph 'codes' needs an array of shape [N, 2], got [2]"),
        (codes(), np.ones((2, 3), int), "input 'x' of graph 'codes' needs an array of shape [N, 2], got [2, 3]"),
        (codes(), np.ones((2, 2)), "input 'x' of graph 'codes' needs integers in bipolar, got float64"),
        (codes(), np.array([[0, 1]]), "input 'x' of graph 'codes' needs values in bipolar, got 0..1"),
        (codes(), np.array([["a", "b"]]), "input 'x' of graph 'codes' needs numbers, got <U1"),
    ],
)  # fmt: skip
def test_run_rejects_inputs_that_do_not_fit(graph: Graph, inputs: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        run(graph, inputs)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_run_names_the_input_that_holds_nan() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1,), FLOAT))
    scale = floats(builder, "s", 1.0)
    graph = builder.build([builder.add("q", Quantize(0, 3), [x, scale], Location("quant", "m.py", 4))])
    with pytest.raises(InputError) as caught:
        run(graph, np.array([[np.nan]]))
    assert str(caught.value) == ("input 'x' of graph 'g' holds NaN in image 0, which has no code; give finite numbers")
