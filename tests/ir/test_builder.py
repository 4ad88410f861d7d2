"""Graphs written in Python by the builder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nnhw.errors import IrError
from nnhw.ir import BIPOLAR, OPS, Builder, IntType, Value, dumps, load, loads, run, verify
from nnhw.ir.attributes import KINDS, fields_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "ir.md").read_text(encoding="utf-8")


def strokes() -> tuple[Builder, Value]:
    """Return the network of examples/hand_written.ir."""
    builder = Builder("strokes")
    pixels = builder.input("pixels", (1, 4, 4), low=0, high=3)
    edges = pixels.conv2d([[[[1, -1], [1, -1]]], [[[1, 1], [-1, -1]]]], padding=(1, 1), name="edges")
    codes = edges.threshold([[1, 4], [1, 4]], name="codes")
    flat = codes.max_pool2d((2, 2), name="strongest").flatten(name="flat")
    return builder, flat.linear([[1] * 4 + [-1] * 4, [-1] * 4 + [1] * 4], name="votes")


def test_builder_makes_the_network_that_is_written_by_hand() -> None:
    builder, votes = strokes()
    graph = builder.build(votes)
    by_hand = load(ROOT / "examples" / "hand_written.ir")
    images = np.random.default_rng(1).integers(0, 4, (50, 1, 4, 4))
    assert (run(graph, images)[0] == run(by_hand, images)[0]).all()
    assert len(np.unique(run(graph, images)[0])) > 5
    assert loads(dumps(graph, data=True)) == graph


def test_builder_has_shapes_and_types_at_once() -> None:
    _, votes = strokes()
    assert (votes.shape, votes.dtype, repr(votes)) == ((2,), IntType(-8, 8), "<Value 'votes': int -8..8 [2]>")
    builder = Builder("g", locations=False)
    x = builder.input("x", (3,), bipolar=True)
    assert x.dtype == BIPOLAR
    wide = x.linear(builder.constant([[1, 2, 3]], IntType(-8, 7), "w"), name="y")
    assert builder.build(wide).node("w").type.dtype == IntType(-8, 7)


def test_builder_notes_the_line_of_the_program() -> None:
    builder, votes = strokes()
    node = builder.build(votes).node("votes")
    assert (node.location.module, node.location.file) == ("votes", "test_builder.py")
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert 'name="votes"' in source[node.location.line - 1]


def test_value_has_a_method_with_the_attributes_of_each_operator() -> None:
    for name, row in ((name, row) for name, row in OPS.items() if row.__module__.startswith("nnhw.")):
        if row.arity:
            parameters = inspect.signature(getattr(Value, name)).parameters
            assert set(fields_of(row)) <= set(parameters), name
            assert "name" in parameters
        assert {str(field.type) for field in fields_of(row).values()} <= KINDS.keys()


def test_builder_makes_every_operator_of_floats() -> None:
    builder = Builder("g")
    x = builder.input("x", (2, 3))
    y = x.quantize(0.5, low=-8, high=7).dequantize(0.5)
    for name in ("relu", "neg", "hardsigmoid", "hardswish", "sigmoid", "tanh", "silu", "mish", "abs", "square", "exp"):
        y = getattr(y, name)()
    y = y.clamp(0, 4).leaky_relu(0.5).prelu([1.0, 2.0]).elu().gelu(tanh_form=True).softplus().sqrt().floor().ceil()
    y = y.round().trunc().add(1).sub([1.0, 2.0, 3.0]).mul(x).div(3).minimum(x).maximum(0)
    y = y.batch_norm([1, 1], [0, 0], [0, 0], [1, 1], eps=1e-5).softmax(1).log_softmax(1)
    graph = verify(builder.build(y))
    assert run(graph, np.zeros((1, 2, 3)))[0].shape == (1, 2, 3)
    assert len({node.op.name for node in graph.nodes}) == 35


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.linear([[1, 2]]), "linear 'linear' (test_builder.py:LINE): linear needs x [inputs] and weig"),
        (lambda x: x.conv2d([[[[1.5]]]], name="c"), "conv2d 'c' (test_builder.py:LINE): weight must be an intege"),
        (lambda x: x.relu(), "relu 'relu' (test_builder.py:LINE): x must be float64, got int 0..3 [1, 4, 4]"),
        (lambda x: x.max_pool2d((2, "a")), "max_pool2d 'max_pool2d' (test_builder.py:LINE): attribute 'kernel' t"),
        (lambda x: x.max_pool2d((2, 2, 2)), "max_pool2d 'max_pool2d' (test_builder.py:LINE): attribute 'kernel'"),
        (lambda x: x.builder.apply("flatten", x, axis=1), "flatten 'flatten' (test_builder.py:LINE): it has no a"),
        (lambda x: x.builder.apply("clamp", x, low=1), "clamp 'clamp' (test_builder.py:LINE): it needs the attri"),
        (lambda x: x.builder.apply("relux", x), "there is no operator 'relux'; there are input, constant, quantize,"),
        (lambda x: x.builder.apply("linear", x, [[1]], [[1]]), "linear 'linear' (test_builder.py:LINE): linear t"),
        (lambda x: x.builder.apply("linear"), "linear 'linear' (test_builder.py:LINE): linear takes 2 inputs, got 0"),
        (lambda x: x.flatten(name="x"), "flatten 'x' (test_builder.py:LINE): the name 'x' is taken; give another one"),
        (lambda x: x.builder.input("x", (1,)), "the name 'x' is taken; give another one"),
        (lambda x: x.builder.input("y", (1,), low=0), "input 'y' of integers needs both low and high, got 0 and None"),
        (lambda x: x.builder.input("", (1,)), "a name needs printable characters, got ''"),
        (lambda x: x.builder.constant(["a"], name="c"), "constant 'c' needs numbers, got <U1 of shape [1]"),
        (lambda x: x.builder.constant([2**63], name="c"), "constant 'c' needs numbers of at most 64 bits with th"),
        (lambda x: x.concat(Builder("h").input("z", (1, 4, 4))), "concat 'concat' (test_builder.py:LINE): value"),
    ],
)  # fmt: skip
def test_builder_rejects_calls_that_do_not_fit(call: Callable[[Value], object], message: str) -> None:
    x = Builder("g").input("x", (1, 4, 4), low=0, high=3)
    line = inspect.getsourcelines(call)[1]
    with pytest.raises(IrError) as caught:
        call(x)
    assert str(caught.value).startswith(message.replace("LINE", str(line)))


def test_program_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = DOCS.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "page.py", "exec"), {})
    assert capsys.readouterr().out.strip() == program.split("# ")[1].split("\n")[0]
    images = np.random.default_rng(1).integers(0, 4, (20, 1, 4, 4))
    by_hand = load(ROOT / "examples" / "hand_written.ir")
    assert (run(load("strokes.ir"), images)[0] == run(by_hand, images)[0]).all()
