from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import IrError
from nnhw.ir import FLOAT, Graph, GraphBuilder, IntType, Location, TensorType, dumps, loads, verify
from nnhw.ir.expressions import Symbol, parse, show
from nnhw.ir.ops import Clamp, Conv2d, Flatten, Linear
from tests.ir.graphs import integers, random_graphs


def test_dumps_is_readable() -> None:
    builder = GraphBuilder("net")
    x = builder.input("x", TensorType((1, 3, 3), IntType(0, 3)))
    weight = integers(builder, "conv1.weight", [[[[1, -1], [2, 0]]]])
    sums = builder.add("conv1", Conv2d(padding=(1, 0)), [x, weight], Location("features.0", "my net.py", 12))
    flat = builder.add("3", Flatten(), [sums])
    graph = builder.build([builder.add("fc", Linear(), [flat, integers(builder, "w", [[1] * 8])])])
    assert (
        dumps(graph)
        == """\
(graph net
  (x (input) () (int 0 3) (1 3 3))
  (conv1.weight (constant) () (int -1 2) (1 1 2 2))
  (conv1 (conv2d :stride (1 1) :padding (1 0) :dilation (1 1) :groups 1) (x conv1.weight) (int -3 9) (1 4 2) \
(at features.0 "my net.py" 12))
  ("3" (flatten) (conv1) (int -3 9) (8))
  (w (constant) () (int 1 1) (1 8))
  (fc (linear) ("3" w) (int -24 72) (1))
  (outputs fc))
"""
    )
    assert loads(dumps(graph), graph.constants) == graph


@given(random_graphs())
@settings(max_examples=60, deadline=None)
def test_loads_gives_back_exactly_what_was_dumped(graph: Graph) -> None:
    text = dumps(graph)
    again = loads(text, graph.constants)
    assert again == graph
    assert dumps(again) == text
    assert verify(again) is again


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_float_attributes_survive_to_the_last_bit(one: float, other: float) -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1,), FLOAT))
    graph = builder.build([builder.add("y", Clamp(min(one, other), max(one, other)), [x])])
    assert loads(dumps(graph)) == graph


LEAVES = st.integers() | st.floats(allow_nan=False) | st.booleans() | st.text() | st.sampled_from(["nan", "true", "1"])


@given(st.recursive(LEAVES, lambda inner: st.lists(inner).map(tuple)))
def test_expressions_round_trip(expression: object) -> None:
    again = parse(show(expression))  # type: ignore[arg-type]
    assert repr(again) == repr(expression)


def test_expressions_tell_numbers_words_and_strings_apart() -> None:
    parsed = parse('(a 1 -2.5 1e-05 inf true "1" "a b" :key x.weight)')
    assert parsed == ("a", 1, -2.5, 1e-05, math.inf, True, "1", "a b", ":key", "x.weight")
    assert isinstance(parsed, tuple)
    assert [type(item) for item in parsed] == [Symbol, int, float, float, float, bool, str, str, Symbol, Symbol]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(a", "line 1: 1 ')' missing at the end"),
        ("(a)\n)", "line 2: a ')' without its '('"),
        ('(a\n "b', "line 1: an unfinished string"),
        ("", "one expression is needed, got 0"),
        ("(a) (b)", "one expression is needed, got 2"),
    ],
)
def test_parse_rejects_unbalanced_text(text: str, message: str) -> None:
    with pytest.raises(IrError) as caught:
        parse(text)
    assert str(caught.value) == message


NODE = "(graph g {} (outputs y))"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(grap g (outputs y))", "a graph looks like (graph NAME NODE.. (outputs NAME..)); is this an .ir file?"),
        (NODE.format("(y)"), "a node looks like (NAME (OP ..) (INPUT ..) (TYPE ..) (SIZE ..)), got (y)"),
        (NODE.format("(y (clip) () (float64) (1))"), "unknown op 'clip'; known are input, constant, quantize,"),
        (NODE.format("(y (clamp :low 0.0) () (float64) (1))"),
         "op clamp has the attributes (:low VALUE :high VALUE), got (:low 0.0)"),
        (NODE.format("(y (clamp :low 0 :high 1.0) () (float64) (1))"),
         "attribute :low of op clamp must be float, got 0"),
        (NODE.format("(y (input) () (float32) (1))"),
         "a type is (float64), (bipolar) or (int LOW HIGH), got (float32)"),
        (NODE.format("(y (input) () (float64) (1.5))"), "expected int, got 1.5"),
        (NODE.format("(y (input) (1) (float64) (1))"), "expected str, got 1"),
        (NODE.format("(y (input) () (float64) (1) (from a b 1))"),
         "a place looks like (at MODULE FILE LINE), got (from a b 1)"),
        (NODE.format("(y (input) () (int 3 1) (1))"),
         "an integer type needs low <= high, both within 64 bits, got 3..1"),
    ],
)  # fmt: skip
def test_loads_rejects_what_is_no_graph(text: str, message: str) -> None:
    with pytest.raises(IrError) as caught:
        loads(text)
    assert str(caught.value).startswith(message)
