from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import IrError, ProblemList
from nnhw.ir import FLOAT, Graph, GraphBuilder, IntType, Location, TensorType, dumps, loads, verify
from nnhw.ir.expressions import Symbol, TextError, parse, show
from nnhw.ir.ops import Add, Clamp, Conv2d, Flatten, Linear
from tests.ir.graphs import floats, integers, random_graphs


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
(graph net (version 1)
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
        ("(a", "line 1, column 1: this '(' is never closed; 1 ')' missing at the end of the text\n    (a\n    ^"),
        ("(a)\n )", "line 2, column 2: a ')' without its '('; delete it, or open one in front of it\n     )\n     ^"),
        ('(a\n "b', 'line 2, column 2: an unfinished string; close it with "\n     "b\n     ^'),
        ("", "line 1, column 1: one expression is needed, got none: the text is empty"),
        ("; nothing", "line 1, column 1: one expression is needed, got none: the text is empty"),
        ("(a) ; and\n (b)", "line 2, column 2: extra text behind the expression, which ends in front of it; delete it"),
        ("(a 1.2.3)", "line 1, column 4: '1.2.3' is no number; write a name like this in double quotes"),
        ("(a 1_0)", "line 1, column 4: '1_0' is no number; write a name like this in double quotes"),
        ("(a x,y)", "line 1, column 4: 'x,y' is no word; write a name like this in double quotes"),
        (f"({'1' * 5000})", "line 1, column 2: '111111111111111111111111.. (5000 characters)' is no number;"),
        (r'(a "\x")', r"line 1, column 4: a string takes the escapes of JSON, such as \" and \\, and no line breaks"),
        ('(a "b\nc")', "line 1, column 4: a string takes the escapes of JSON"),
        ("(" * 100 + "\n(", "line 2, column 1: brackets are nested too deeply: 100 levels are accepted"),
        ("(" * 100_000, "line 1, column 101: brackets are nested too deeply: 100 levels are accepted"),
    ],
)
def test_parse_rejects_text_with_line_and_column(text: str, message: str) -> None:
    with pytest.raises(TextError) as caught:
        parse(text)
    assert str(caught.value).startswith(message)
    assert f"line {caught.value.line}, column {caught.value.column}:" in message


def test_parse_reads_comments_and_a_mark_stands_below_what_is_wrong() -> None:
    assert parse("; one\n(a ; two )\n b);three") == ("a", "b")
    with pytest.raises(TextError) as caught:
        parse(f"(a {'b' * 200} \x1b[31m 1x {'c' * 200})")
    _, source, mark = str(caught.value).splitlines()
    assert len(source) <= 104
    assert source.isprintable()
    assert source[mark.index("^") :].startswith(" [31m")


def test_parse_takes_time_that_grows_with_the_text() -> None:
    assert len(parse(f"({'(a 1 2.5) ' * 50_000})")) == 50_000  # type: ignore[arg-type]


NODE = "(graph g {} (outputs y))"
Y = "(y (relu) (x))"
X = "(x (input) () (float64) (1 2 2)) "
CODES = "(x (input) () (int 0 3) (2)) "
W = "(w (constant) () (int -1 2) (1 2) (data 1 -1)) "


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("(grap g (outputs y))", 2, "a graph looks like (graph NAME (version 1) NODE.. (outputs NAME..)); is this a"),
        ("7", 1, "a graph looks like"),
        ("(graph 1 (outputs y))", 8, "a name is a word or a string in double quotes, got 1"),
        (f"(graph g {X})", 10, "a graph looks like (graph NAME (version 1) NODE.. (outputs NAME..)); its end must be"),
        (f"(graph g {X} (outputs))", 44, "graph 'g' has no output; name one, as in (outputs y)"),
        (f"(graph g {X} (outputs z))", 53, "output 'z' is not a node"),
        (f"(graph g {X} (outputs (a x) x))", 59, "outputs with keys are all (KEY NAME), got x"),
        (f"(graph g {X} (outputs (a x) (a x)))", 45, "outputs need keys of their own, but one is there twice"),
        (f"(graph g (version 2) {X} (outputs x))", 19, "the text is of version 2, and this nnhw reads 1; use the nn"),
        (f"(graph g (version a) {X} (outputs x))", 11, "a version is a whole number, as in (version 1), got (versio"),
        (NODE.format("x"), 10, "a node looks like (NAME (OPERATOR :ATTRIBUTE VALUE ..) (INPUT ..) TYPE SHAPE), got x"),
        (NODE.format("(y)"), 10, "a node looks like (NAME (OPERATOR :ATTRIBUTE VALUE ..) (INPUT ..) TYPE SHAPE), got"),
        (NODE.format("(y input ())"), 13, "a node looks like (NAME (OPERATOR :ATTRIBUTE VALUE ..) (INPUT ..) TYPE SH"),
        (NODE.format("(1 (input) () (float64) (1))"), 11, "a name is a word or a string in double quotes, got 1"),
        (NODE.format('("" (input) () (float64) (1))'), 11, "a node needs a name of printable characters"),
        (NODE.format("(y (clip) () (float64) (1))"), 14, "unknown operator 'clip'; did you mean clamp? known are in"),
        (NODE.format("(y (reluu) () (float64) (1))"), 14, "unknown operator 'reluu'; did you mean relu? known are"),
        (NODE.format(f"{X} (y (clamp :low 0.0) (x))"), 48, "operator clamp needs the attribute :high (a number with"),
        (NODE.format(f"{X} (y (clamp :low 0 :high 1.0) (x))"), 59, "attribute :low of operator clamp takes a number"),
        (NODE.format(f"{X} (y (clamp :lo 0.0 :high 1.0) (x))"), 54, "operator clamp has no attribute :lo; write (cl"),
        (NODE.format(f"{X} (y (clamp :low 0.0 :low 1.0) (x))"), 63, "attribute :low of operator clamp is given twice"),
        (NODE.format(f"{X} (y (clamp :low 1.0 :high) (x))"), 63, "attribute :high of operator clamp needs a number"),
        (NODE.format(f"{X} (y (clamp :low 1.0 :high 0.0) (x))"), 48, "clamp needs low <= high, got 1.0 and 0.0"),
        (NODE.format(f"{X} (y (max_pool2d :kernel (2 true) :stride (1 1)) (x))"), 67, "attribute :kernel of operato"),
        (NODE.format(f"{X} (y (max_pool2d :kernel (2 2) :stride (0 1)) (x))"), 47, "max_pool2d 'y': max_pool2d need"),
        (NODE.format("(y (input) () (float32) (1))"), 24, "a type is (float64), (bipolar) or (int LOW HIGH), got (f"),
        (NODE.format("(y (input) () (int false true) (1))"), 24, "a type is (float64), (bipolar) or (int LOW HIGH),"),
        (NODE.format("(y (input) () (int 3 1) (1))"), 24, "an integer type needs low <= high, both within 64 bits,"),
        (NODE.format(f"(y (input) () (int 0 {1 << 70}) (1))"), 24, "an integer type needs low <= high, both within"),
        (NODE.format("(y (input) () (float64) (1.5))"), 35, "a shape has whole numbers of at least 1, got 1.5"),
        (NODE.format("(y (input) () (float64) (2 0))"), 37, "a shape has whole numbers of at least 1, got 0"),
        (NODE.format("(y (input) () (float64) (99999 99999))"), 34, "a value has at most 268435456 elements, got th"),
        (NODE.format("(y (input) () (float64))"), 24, "behind a node's type stands its shape, as in (int 0 3) (16 2"),
        (NODE.format("(y (input) ())"), 13, "input 'y' needs its type and shape, as in (int 0 3) (16 26 26)"),
        (NODE.format("(y (input) (1) (float64) (1))"), 22, "a name is a word or a string in double quotes, got 1"),
        (NODE.format(f"{X} (y (input) (x) (float64) (1))"), 55, "input 'y' takes no inputs, got x; write ()"),
        (NODE.format("(y (input) () (float64) (1) (from a b 1))"), 38, "behind a node's type come (data NUMBER..) a"),
        (NODE.format("(y (input) () (float64) (1) (at a b))"), 38, "a place looks like (at MODULE FILE LINE), got ("),
        (NODE.format("(y (input) () (float64) (1) (at a b 1) (at a b 1))"), 49, "a node has one (at ..), got two"),
        (NODE.format(f"{Y} {X}"), 21, "'y' uses 'x' before its definition in line 1; put that one in front"),
        (NODE.format("(y (relu) (y))"), 21, "'y' uses 'y' before its definition in line 1; put that one in front"),
        (NODE.format(f"{X} (y (relu) (z))"), 55, "'y' uses 'z', which is not defined"),
        (NODE.format(f"{X}\n{X} {Y}"), 2, "'x' is defined twice, first in line 1; give one of them another name"),
        (NODE.format(f"{X} (y (relu) (x x))"), 47, "relu 'y': relu takes 1 inputs, got 2"),
        (NODE.format(f"{X} (y (relu) (x) (float64) (4))"), 58, "relu 'y' gives (float64) (1 2 2), got (float64) (4)"),
        (NODE.format(f"{CODES}{W}(y (linear) (x w) (int 0 1) (1))"), 104, "linear 'y' gives (int -3 3) (1), got (in"),
        (NODE.format(f"{CODES}(w (constant) () (int 0 1) (1 2)) (y (linear) (x w))"), 74, "'y' has no type, which f"),
        (NODE.format(f"{CODES}{W.replace('-1))', '3))')}(y (linear) (x w))"), 40, "constant 'w' needs values in int"),
        (NODE.format(f"{CODES}{W.replace('-1))', '1.0))')}(y (linear) (x w))"), 81, "this constant has whole number"),
        (NODE.format(f"{CODES}{W.replace('-1))', '))')}(y (linear) (x w))"), 74, "constant 'w' of shape (1 2) needs"),
        (NODE.format("(y (input) () (int 0 1) (1) (data 1))"), 13, "input 'y' has no data: the caller gives it; use "),
        (NODE.format(f"{X} (y (relu) (x) (data 1.0))"), 47, "relu 'y' computes its value; only a constant has (data"),
        (NODE.format(f"{X} (y (upsample :factor (99999 99999)) (x))"), 47, "upsample 'y' gives float64 [1, 199998, "),
        (NODE.format("(x (input) () (float64) ()) (y (max_pool2d :kernel (1 1) :stride (1 1)) (x))"), 41, "max_pool"),
    ],
)  # fmt: skip
def test_loads_rejects_what_is_no_graph_with_its_place(text: str, where: int, message: str) -> None:
    with pytest.raises(TextError) as caught:
        loads(text, file="net.ir")
    line = text.count("\n") + 1
    assert str(caught.value).startswith(f"net.ir:{line}:{where}: {message}")
    assert str(caught.value).endswith("^")


def test_loads_tells_all_nodes_with_problems_at_once_but_not_what_follows_from_them() -> None:
    text = f"(graph g\n{X}\n(a (rely) (x))\n(b (relu) (a))\n(y (relu) (b q))\n(outputs y))"
    with pytest.raises(ProblemList) as caught:
        loads(text)
    places = [(error.line, error.column) for error in caught.value.problems if isinstance(error, TextError)]
    assert places == [(3, 5), (5, 14)]


def test_loads_infers_types_and_takes_attributes_in_any_order_with_their_defaults() -> None:
    text = """; written by hand
    (graph g
      (x (input) () (int 0 3) (1 3 3))  ; codes of 2 bits
      (w (constant) () (int -1 2) (1 1 2 2) (data 1 -1 2 0))
      (y (conv2d :groups 1 :padding (1 0)) (x w) (at conv net.py 3))
      (outputs y))
    """
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1, 3, 3), IntType(0, 3)))
    w = integers(builder, "w", [[[[1, -1], [2, 0]]]])
    builder.add("y", Conv2d(padding=(1, 0)), [x, w], Location("conv", "net.py", 3))
    assert loads(text) == builder.build(["y"])


@given(random_graphs())
@settings(max_examples=30, deadline=None)
def test_loads_gives_back_what_was_dumped_with_its_numbers(graph: Graph) -> None:
    text = dumps(graph, data=True)
    assert max(map(len, text.splitlines())) < 1000
    again = loads(text)
    assert again == graph
    assert dumps(again, data=True) == text


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_numbers_of_constants_survive_to_the_last_bit(bits: list[int]) -> None:
    array = np.array(bits, np.uint64).view(np.float64)
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType(array.shape, FLOAT))
    graph = builder.build([builder.add("y", Add(), [x, floats(builder, "c", array)])])
    assert loads(dumps(graph, data=True)).constants["c"].tobytes() == array.tobytes()


@given(random_graphs(), st.data())
@settings(max_examples=60, deadline=None)
def test_loads_of_a_damaged_text_is_a_graph_or_an_error_of_nnhw(graph: Graph, data: st.DataObject) -> None:
    text = dumps(graph, data=True)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 20)))
    damaged = text[:start] + data.draw(st.text('()": 0123456789.-abe', max_size=4)) + text[stop:]
    with suppress(IrError, ProblemList):
        verify(loads(damaged))
