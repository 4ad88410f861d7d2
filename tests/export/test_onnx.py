"""Exports to ONNX: ONNX Runtime, with and without its optimizations, and ONNX's reference give the same numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.random_networks import Network, networks
from nnhw.cli import app
from nnhw.errors import ExactnessError, InputError, LoweringError, NnhwError, ProblemList
from nnhw.export import onnx_runtime
from nnhw.export.onnx import OPSET, SEQUENCES, to_bytes, to_onnx
from nnhw.export.onnx_operators import OPERATORS, REFUSED
from nnhw.flow.commands.exporting_onnx import export_onnx
from nnhw.frontend import capture, load_source
from nnhw.ir import OPS, Builder, Graph, GraphBuilder, Value, dumps, graph_hash, loads, run
from nnhw.ir.ops import ArgMax
from nnhw.ir.ops.rounding import ROUNDINGS
from nnhw.ir.types import IntType, TensorType
from nnhw.passes import lower, split
from tests.export.onnx_running import check_export
from tests.mapping import networks as mapped
from tests.mapping.products import PRODUCTS

ROOT = Path(__file__).resolve().parents[2]
SEEDS = st.integers(0, 2**32 - 1)


def codes_for(graph: Graph, count: int = 20, seed: int = 0) -> np.ndarray:
    """Return random codes of a graph's input, both ends of its range among them."""
    node = graph.inputs[0]
    dtype = node.type.int_dtype
    codes = np.random.default_rng(seed).integers(dtype.low, dtype.high, (count, *node.type.shape), endpoint=True)
    if dtype.bipolar:
        return np.where(codes >= 0, 1, -1)
    codes[0], codes[-1] = dtype.low, dtype.high
    return codes


def test_every_operator_is_written_or_refused() -> None:
    own = {name for name, row in OPS.items() if row.__module__.startswith("nnhw.")}
    sequences = {row.name for row in get_args(SEQUENCES)}
    assert OPERATORS.keys() | REFUSED.keys() | sequences | {"input", "constant"} == own
    assert not OPERATORS.keys() & REFUSED.keys()


@pytest.mark.parametrize("example", ["mnist_mlp.py", "mnist_cnn.py"])
def test_example_gives_the_same_integers_and_results(example: str) -> None:
    source = load_source(ROOT / "examples" / example)
    lowered = lower(source.capture())
    parts = split(lowered)
    images = source.example_input.numpy().astype(np.float64)
    assert loads(dumps(lowered, data=True)) == lowered
    check_export(parts.body, run(parts.head, images)[0], reference=True)
    check_export(lowered, images)


@pytest.mark.parametrize(
    "network",
    [
        mapped.residual,
        mapped.residual_of_sums,
        mapped.concatenated,
        mapped.grouped,
        mapped.depthwise,
        mapped.padded_bipolar,
        mapped.pooled,
        mapped.upsampled,
        mapped.wide_input,
        mapped.rescaled,
        mapped.zero_point,
        *PRODUCTS.values(),
    ],
)
def test_network_of_integers_gives_the_same_integers(network: Callable[[], Graph]) -> None:
    graph = network()
    check_export(graph, codes_for(graph), reference=True)


@settings(max_examples=6, deadline=None)
@given(networks(), SEEDS)
def test_drawn_network_gives_the_same_integers_and_is_read_back(network: Network, seed: int) -> None:
    model, images = network
    try:
        captured = capture(model, images)
        parts = split(lower(captured))
    except NnhwError:
        assume(False)
    for graph in (captured, parts.body, parts.tail):
        assert loads(dumps(graph, data=True)) == graph
    check_export(parts.body, codes_for(parts.body, seed=seed))


@settings(max_examples=12, deadline=None)
@given(SEEDS, st.sampled_from([1, 7, 8, 9, 16, 31]), st.sampled_from([1, 8, 9, 20]), st.integers(1, 3))
def test_sums_of_any_width_are_exact(seed: int, x_bits: int, weight_bits: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    signed = bool(rng.integers(2))
    low, high = (-(1 << x_bits - 1), (1 << x_bits - 1) - 1) if signed else (0, (1 << x_bits) - 1)
    builder = Builder("g")
    x = builder.input("x", (2 * groups, 5, 4), low=low, high=high)
    most = 1 << weight_bits - 1
    weight = rng.integers(-most, most, (3 * groups, 2, 2, 3))
    sums = x.conv2d(weight, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=groups)
    flat = sums.max_pool2d((2, 2), (1, 1), before=(1, 0), after=(0, 1)).sum_pool2d((2, 1), (1, 1)).flatten()
    graph = builder.build(flat.linear(rng.integers(-8, 8, (3, flat.shape[0]))))
    check_export(graph, codes_for(graph, seed=seed), reference=seed % 4 == 0)


@settings(max_examples=12, deadline=None)
@given(SEEDS, st.integers(1, 40), st.booleans())
def test_thresholds_and_tables_are_exact_in_any_number(seed: int, steps: int, table: bool) -> None:
    rng = np.random.default_rng(seed)
    builder = Builder("g")
    x = builder.input("x", (3, 2, 4), low=-60, high=60)
    rows = np.sort(rng.integers(-61, 62, (3, steps)), axis=1)
    if table:
        made = x.step_table(rows, rng.integers(-5, 9, (3, steps + 1)), low=-5, high=8)
    else:
        made = x.threshold(rows, rng.random(3) < 0.5, low=-1, bipolar=steps == 1)
    check_export(builder.build(made), codes_for(builder.build(made)), reference=seed % 4 == 0)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(("reciprocal", "offset"), [(False, 0), (False, 3), (True, 0), (True, 3)])
def test_quantizer_has_its_convention_at_half_way_points(rounding: str, reciprocal: bool, offset: int) -> None:
    builder = Builder("g")
    x = builder.input("x", (1000,))
    scale = float(np.float32(0.0306))
    codes = x.quantize(scale, low=-128, high=127, rounding=rounding, reciprocal=reciprocal, offset=offset)
    images = (np.arange(2000).reshape(2, 1000) / 4 - 250) * scale
    check_export(builder.build(codes), images)


def test_float_operators_are_the_same_operations() -> None:
    builder = Builder("g")
    x = builder.input("x", (2, 3))
    y = x.clamp(-2.5, 3).leaky_relu(-0.3).prelu([0.7, -1.1]).hardswish().add([0.1, 0.2, 0.3]).div(3).sub(x).mul(1.7)
    y = y.maximum(x).minimum(2).batch_norm([0.3, -1.2], [0.1, 0.7], [0.2, -0.4], [0.9, 1.7], eps=1e-5).hardsigmoid()
    z = y.square().sqrt().neg().abs().concat(x.floor(), x.ceil(), x.round(), x.trunc(), x.relu(), axis=1)
    z = (
        z.reshape((3, 12))
        .permute((1, 0))
        .slice(0, 1, 12)
        .reshape((11, 1, 3))
        .pad((1, 0), (0, 1), -0.5)
        .upsample((2, 1))
    )
    z = z.max_pool2d((2, 2), (1, 1), before=(1, 0))
    z = z.greater(0.5).where(z, z.sign()).add(z.greater_equal(z.neg()))
    images = np.random.default_rng(3).normal(size=(50, 2, 3)) * 2
    check_export(builder.build(z), images, reference=True)
    check_export(builder.build(z.flatten().argmax()), images)


def test_model_says_what_it_is_and_is_the_same_each_time() -> None:
    graph = mapped.residual()
    model = to_onnx(graph)
    assert to_bytes(model) == to_bytes(to_onnx(graph))
    assert {node.domain for node in model.graph.node} == {""}
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", OPSET)]
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert properties["graph"] == graph_hash(graph)
    assert properties["range of x"] == "int 0..3 [4, 8, 8]"
    assert {node.name for node in graph.nodes if node.inputs} <= {node.output[0] for node in model.graph.node}


def _softmax(x: Value) -> Value:
    return x.dequantize(0.5).sigmoid(name="gate").softmax(name="shares")


def test_operators_without_an_exact_form_are_refused_by_name_all_at_once() -> None:
    builder = Builder("g", locations=False)
    shares = _softmax(builder.input("x", (3,), low=0, high=3))
    with pytest.raises(ProblemList) as caught:
        to_onnx(builder.build(shares))
    assert [str(problem) for problem in caught.value.problems] == [
        f"{op} '{name}' has no form in standard ONNX operators that gives the same numbers everywhere: the last bits "
        "of its exponential function belong to each runtime's library; export the integer part alone, or end the model "
        "in front of it"
        for op, name in (("sigmoid", "gate"), ("softmax", "shares"))
    ]
    x = builder.input("y", (2,))
    with pytest.raises(LoweringError, match="nothing computes output 'y' of graph 'g'; return what an operator gives"):
        to_onnx(builder.build(x))


def test_export_writes_nothing_that_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_file = onnx_runtime.run_file
    monkeypatch.setattr(onnx_runtime, "run_file", lambda *given: run_file(*given) + 1)
    with pytest.raises(ExactnessError, match="ONNX Runtime computes something else than the graph in 58 of 58 images"):
        export_onnx(str(ROOT / "examples" / "hand_written.ir"), tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []


def test_export_rejects_names_and_places_and_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = str(ROOT / "examples" / "hand_written.ir")
    with pytest.raises(InputError) as caught:
        export_onnx(model, tmp_path / "net.txt")
    assert str(caught.value) == (
        f"an ONNX file ends in .onnx, got {tmp_path / 'net.txt'}; give --out {tmp_path / 'net.onnx'}"
    )
    with pytest.raises(InputError, match="cannot be written: there is no folder"):
        export_onnx(model, tmp_path / "missing" / "net.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "nnhw.export.onnx_runtime")
    with pytest.raises(InputError, match=r"needs a package that is not installed: .*pip install 'nnhw\[onnx\]'"):
        export_onnx(model, tmp_path / "net.onnx")


def test_command_writes_a_file_that_onnx_reads(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    by_hand = str(ROOT / "examples" / "hand_written.ir")
    result = CliRunner().invoke(app, ["export", "onnx", by_hand, "--out", str(path), "--whole"])
    assert result.exit_code == 0, result.output
    model = onnx.load(path)
    count = len(model.graph.node)
    assert f"{path}: {count} operators; ONNX Runtime gives the same numbers on 58 samples" in result.output
    assert [value.name for value in model.graph.input] == ["images"]


def test_argmax_of_integers_that_doubles_cannot_tell_apart() -> None:
    builder = GraphBuilder("wide")
    x = builder.input("x", TensorType((3,), IntType(0, 2**60)))
    graph = builder.build([builder.add("y", ArgMax(0, False), [x])])
    check_export(graph, np.array([[2**60 - 1, 2**60, 0], [5, 7, 7]]))
