"""Rewrites by the user: where they apply, what takes the place, and the comparison that may refuse them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import nnhw
from nnhw.errors import ExactnessError, InputError, NnhwError
from nnhw.frontend import capture
from nnhw.ir import Graph, IntType, TensorType
from nnhw.ir.graph import GraphBuilder
from nnhw.ir.interpreter import run
from nnhw.ir.ops import Add, Clamp, Maximum, Minimum, Relu, WeightedSum
from nnhw.ir.types import FLOAT
from nnhw.nn import QuantIdentity, QuantLinear, QuantReLU
from nnhw.rewrites import Rewrite, apply_rewrites

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = np.random.default_rng(0).normal(size=(40, 8))


class Scaled(nn.Module):
    """A layer with an addition and a division behind it."""

    def __init__(self, divisor: float) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.codes, self.layer, self.divisor = QuantIdentity(8), QuantLinear(8, 4), divisor
        self.act, self.head = QuantReLU(), QuantLinear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.act((self.layer(self.codes(x)) + 3) / self.divisor))


def scaled(divisor: float) -> Graph:
    model = Scaled(divisor)
    model(torch.randn(64, 8))
    return capture(model.eval(), torch.randn(4, 8))


def before(ir: Any, sums: Any, scale: Any, bias: Any, addend: Any, divisor: Any) -> Any:
    return ir.div(ir.add(ir.add(ir.dequantize(sums, scale), bias), addend), divisor)


def after(ir: Any, match: Any) -> Any:
    divisor = match.divisor.constant
    scaled = ir.dequantize(match.sums, match.scale.constant / divisor)
    return ir.add(scaled, (match.bias.constant + match.addend.constant) / divisor)


def small(*ops: Any) -> Graph:
    """Return a graph of float operators in a row."""
    builder = GraphBuilder("small")
    name = builder.input("x", TensorType((8,), FLOAT))
    for op in ops:
        name = builder.add(op.name, op, [name])
    return builder.build([name])


def test_rewrite_that_changes_nothing_is_applied() -> None:
    graph = scaled(2)
    changed, (done,) = apply_rewrites(graph, [Rewrite(before, after)], SAMPLES)
    assert "div" not in [node.op.name for node in changed.nodes]
    assert (done.differing, [place.differing for place in done.places]) == (0, [0])
    assert done.places[0].rows > len(SAMPLES) / 2
    assert (run(graph, SAMPLES)[0] == run(changed, SAMPLES)[0]).all()


def test_replacement_may_leave_out_a_value_that_the_pattern_reads() -> None:
    builder = GraphBuilder("absorbed")
    x = builder.input("x", TensorType((8,), FLOAT))
    a, b = builder.add("a", Clamp(-1.0, 1.0), [x]), builder.add("b", Relu(), [x])
    graph = builder.build([builder.add("max", Maximum(), [builder.add("min", Minimum(), [a, b]), a])])
    right = Rewrite(lambda ir, a, b: ir.maximum(ir.minimum(a, b), a), lambda ir, match: match.a)
    changed, (done,) = apply_rewrites(graph, [right], SAMPLES)
    assert [node.name for node in changed.nodes] == ["x", "a"]
    assert (done.places[0].differing, done.places[0].rows) == (0, 32)
    wrong = Rewrite(lambda ir, a, b: ir.maximum(ir.minimum(a, b), a), lambda ir, match: match.b)
    with pytest.raises(ExactnessError, match="changes what max"):
        apply_rewrites(graph, [wrong], SAMPLES)


def test_rewrite_that_changes_a_result_is_refused_with_the_first_difference() -> None:
    with pytest.raises(ExactnessError, match=r"'before' \(test_apply.py:\d+\) changes what div .* computes, in \d+ of"):
        apply_rewrites(scaled(3), [Rewrite(before, after)], SAMPLES)


def test_rewrite_that_approximates_is_counted() -> None:
    _, (done,) = apply_rewrites(scaled(3), [Rewrite(before, after, approximates=True)], SAMPLES)
    assert done.places[0].differing > 0
    assert done.facts()["places"][0]["differing"] == done.places[0].differing


def test_rewrite_is_compared_at_the_ends_of_the_input_range() -> None:
    graph = small(Clamp(-1.0, 1.0))
    wrong = Rewrite(lambda ir, x: ir.clamp(x), lambda ir, match: ir.clamp(match.x, low=-1.0, high=5.0))
    with pytest.raises(ExactnessError, match="changes what"):
        apply_rewrites(graph, [wrong], np.array([[0.5] * 8, [2.0] * 8]))


def test_place_is_compared_at_the_ends_of_ranges_of_codes() -> None:
    builder = GraphBuilder("codes")
    codes = builder.input("x", TensorType((4,), IntType(-8, 7)))
    graph = builder.build([builder.add("sum", WeightedSum((2, -2)), [codes, codes])])
    wrong = Rewrite(
        lambda ir, x, y: ir.weighted_sum(x, y),
        lambda ir, match: ir.weighted_sum(match.x, ir.like(match.root, match.x, match.y), factors=(1, 1)),
    )
    with pytest.raises(ExactnessError, match="changes what weighted_sum"):
        apply_rewrites(graph, [wrong], np.zeros((1, 4), np.int64))


def test_rewrite_applies_at_every_place_once() -> None:
    graph = small(Relu(), Relu(), Relu())
    twice = Rewrite(lambda ir, x: ir.relu(x), lambda ir, match: ir.relu(ir.relu(match.x)))
    changed, (done,) = apply_rewrites(graph, [twice], SAMPLES)
    assert len(done.places) == 3
    assert [node.op.name for node in changed.nodes].count("relu") == 6


def test_rewrite_may_leave_out_what_does_nothing() -> None:
    idempotent = Rewrite(lambda ir, x: ir.relu(ir.relu(x)), lambda ir, match: ir.relu(match.x))
    changed, _ = apply_rewrites(small(Relu(), Relu()), [idempotent], SAMPLES)
    assert [node.op.name for node in changed.nodes] == ["input", "relu"]
    same = Rewrite(lambda ir, x: ir.relu(ir.relu(x, label="inner")), lambda ir, match: match.inner)
    changed, _ = apply_rewrites(small(Relu(), Relu()), [same], SAMPLES)
    assert [node.op.name for node in changed.nodes] == ["input", "relu"]


@pytest.mark.parametrize("swapped", [False, True])
def test_pattern_finds_commutative_inputs_in_either_order(swapped: bool) -> None:
    builder = GraphBuilder("pair")
    x = builder.input("x", TensorType((8,), FLOAT))
    pair = [builder.add("relu", Relu(), [x]), x]
    graph = builder.build([builder.add("sum", Add(), pair[::-1] if swapped else pair)])
    rewrite = Rewrite(lambda ir, x: ir.add(ir.relu(x), x), lambda ir, match: ir.add(match.x, ir.relu(match.x)))
    assert len(apply_rewrites(graph, [rewrite], SAMPLES)[1][0].places) == 1


def test_parameter_that_stands_twice_is_one_value() -> None:
    builder = GraphBuilder("three")
    x, y = (builder.input(name, TensorType((8,), FLOAT)) for name in "xy")
    graph = builder.build([builder.add("m", Maximum(), [builder.add("n", Minimum(), [x, y]), x])])
    absorbed = Rewrite(lambda ir, a, b: ir.maximum(ir.minimum(a, b), a), lambda ir, match: match.a)
    assert absorbed.matches(graph) is not None
    other = builder.build([builder.add("o", Maximum(), ["n", builder.add("r", Relu(), [x])])])
    assert absorbed.matches(other) is None


def test_condition_chooses_places() -> None:
    graph = small(Clamp(-1.0, 1.0), Clamp(-2.0, 0.5))
    rewrite = Rewrite(
        lambda ir, x: ir.clamp(x, label="clamp"),
        lambda ir, match: ir.minimum(ir.maximum(match.x, match.clamp.op.low), match.clamp.op.high),
        where=lambda match: match.clamp.op.high == 0.5,
    )
    changed, (done,) = apply_rewrites(graph, [rewrite], SAMPLES)
    assert len(done.places) == 1
    assert [node.op.name for node in changed.nodes if node.inputs] == ["clamp", "maximum", "minimum"]


def test_attribute_in_a_pattern_has_to_be_the_same() -> None:
    rewrite = Rewrite(lambda ir, x: ir.clamp(x, low=0.0), lambda ir, match: match.x)
    assert rewrite.matches(small(Clamp(-1.0, 1.0))) is None
    assert rewrite.matches(small(Clamp(0.0, 1.0))) is not None


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (lambda ir, x: x, "must return an operator, such as"),
        (lambda ir, x: ir.rleu(x), "no operator 'rleu'; did you mean 'relu'"),
        (lambda ir, x, y: ir.relu(x), "does not use its parameter 'y'"),
        (lambda ir, x: ir.relu(x, slope=1), "'relu' has no attribute 'slope'"),
        (lambda ir, x: ir.add(x, 3.0), "input 1 of 'add' in a pattern must be a parameter"),
        (lambda ir, root: ir.relu(root), "cannot call a value 'root'"),
        (lambda ir, x: ir.relu(x, label="items"), "cannot call a value 'items'"),
        (lambda ir, x: ir.add(x), "'add' has 2 inputs, the pattern gives it 1"),
    ],
)
def test_pattern_that_is_none_is_refused(pattern: Callable[..., Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Rewrite(pattern, lambda ir, match: match.x)


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (lambda ir, match: match.y, "the pattern has no parameter or label 'y'; it has x"),
        (lambda ir, match: 3, "must return a value of the graph, given 3"),
        (lambda ir, match: ir.clamp(match.x, low=0.0), "'clamp' needs its attribute 'high'"),
        (lambda ir, match: 1 / 0, "fails: ZeroDivisionError"),
        (lambda ir, match: ir.slice(match.x, axis=0, start=0, stop=2), "it needs a value of type"),
        (lambda ir, match: ir.quantize(match.x, 1.0, low=0, high=7, bipolar=False), "it needs a value of type"),
    ],
)
def test_replacement_that_cannot_be_is_refused(replacement: Callable[..., Any], message: str) -> None:
    with pytest.raises(NnhwError, match=re.escape(message)):
        apply_rewrites(small(Relu()), [Rewrite(lambda ir, x: ir.relu(x), replacement)], SAMPLES)


def test_pattern_that_is_nowhere_is_an_error_unless_it_is_optional() -> None:
    rewrite = Rewrite(lambda ir, x: ir.tanh(x), lambda ir, match: match.x)
    with pytest.raises(InputError, match="nowhere in model 'small', which has the operators relu"):
        apply_rewrites(small(Relu()), [rewrite], SAMPLES)
    optional = Rewrite(lambda ir, x: ir.tanh(x), lambda ir, match: match.x, optional=True)
    graph = small(Relu())
    assert apply_rewrites(graph, [optional], SAMPLES)[0] == graph


def test_list_of_something_else_is_refused() -> None:
    with pytest.raises(InputError, match=r"list of nnhw.Rewrite"):
        apply_rewrites(small(Relu()), [before], SAMPLES)  # type: ignore[list-item]


def test_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "rewrites.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL)):
        path = tmp_path / f"program_{number}.py"
        path.write_text(program, encoding="utf-8")
        exec(compile(program, str(path), "exec"), names)
    (rewritten,) = names["built"].report["exactness"]["rewrites"]
    assert (rewritten["name"], rewritten["differing"]) == ("added_and_divided", 0)
    assert isinstance(names["cheaper"][1], nn.ReLU)


def test_rewrites_of_a_file_are_applied(tmp_path: Path) -> None:
    path = tmp_path / "scaled.py"
    path.write_text(
        "from tests.rewrites.test_apply import Scaled, before, after\nimport torch\nfrom nnhw import Rewrite\n"
        "model = Scaled(2)\nmodel(torch.randn(64, 8))\nmodel.eval()\nexample_input = torch.randn(4, 8)\n"
        "rewrites = [Rewrite(before, after)]\n",
        encoding="utf-8",
    )
    from nnhw.flow.commands.inspection import ir_text

    assert " (div)" not in ir_text(str(path), "capture", "icebreaker")
    path.write_text(path.read_text(encoding="utf-8").replace("[Rewrite(before, after)]", "before"), encoding="utf-8")
    with pytest.raises(InputError, match=r"'rewrites' in .* must be a list"):
        ir_text(str(path), "capture", "icebreaker")


def test_build_applies_rewrites_that_it_is_given(tmp_path: Path) -> None:
    model = Scaled(3)
    model(torch.randn(64, 8))
    rewrites = [Rewrite(before, after, approximates=True)]
    built = nnhw.build(model.eval(), torch.randn(4, 8), rewrites=rewrites, out=tmp_path / "build", stop_at="lower")
    assert built.report["exactness"]["rewrites"][0]["approximates"] is True
