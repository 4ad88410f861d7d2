"""ONNX files: equal to ONNX Runtime's and QONNX's own evaluation, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper
from torch import Tensor, nn
from typer.testing import CliRunner

import nnhw
from nnhw.cli import app
from nnhw.errors import ExactnessError, InputError, NnhwError
from nnhw.frontend import load_source
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import run
from nnhw.passes import lower
from tests.frontend.cases import WRONG, check, check_names, rows
from tests.sim.test_benches import pytestmark as needs_simulator

cases = pytest.importorskip(
    "tests.frontend.onnx_cases", reason="needs ONNX: pip install 'nnhw[onnx]'", exc_type=ImportError
)
nodes = pytest.importorskip("tests.frontend.onnx_nodes", exc_type=ImportError)
table = pytest.importorskip("tests.frontend.doors_table")

from nnhw.frontend.onnx import evaluator, load, qdq, qonnx  # noqa: E402  # behind the skip
from nnhw.frontend.onnx.quantizing import QuantizeNode  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = Path(__file__).parents[2] / "docs" / "onnx.md"
SOURCES = ("ONNX (QONNX)", "ONNX (QDQ)", "ONNX (QOperator)")


def refusal(made: object) -> str:
    """Return what is said of a model that is refused."""
    with pytest.raises(NnhwError) as raised:
        capture_quantizers(*cases.loaded(made))
    return str(raised.value)


@pytest.mark.parametrize("case", rows(cases.cases()))
def test_case_is_built_and_equal_or_refused_by_name(case: object) -> None:
    check(case)


def test_page_counts_the_cases_as_they_are() -> None:
    check_names(cases.cases())
    for source in SOURCES:
        table.check_row(source)


def test_export_of_brevitas_is_the_model_of_brevitas() -> None:
    network, example = cases.brevitas_network()
    own = capture_quantizers(network, example).graph
    images = np.random.default_rng(3).normal(size=(32, 3, 12, 12)).astype(np.float32)
    for path in cases.brevitas_exports().values():
        graph = capture_quantizers(*load(path)).graph
        assert np.array_equal(run(graph, images)[0], run(own, images)[0])


def test_tfc_of_the_zoo_has_the_sums_of_the_network_by_hand() -> None:
    from benchmarks.networks.data import data_path, mnist_pixels
    from benchmarks.networks.tfc_w1a1 import build_model

    try:
        path, (pixels, labels) = data_path("qonnx", "TFC_1W1A.onnx"), mnist_pixels()
    except InputError as error:
        pytest.skip(str(error))
    images = pixels.astype(np.float32) / np.float32(255)
    graphs = [
        lower(capture_quantizers(model, torch.from_numpy(images[:4])).graph) for model in (load(path)[0], build_model())
    ]
    answers, sums = [], []
    for graph in graphs:
        names = [node.name for node in graph.nodes if node.op.name == "linear"]
        values: dict[str, np.ndarray] = {}
        answers.append(run(graph, images, values.__setitem__)[0])
        sums.append([values[name] for name in names])
    assert len(sums[0]) == 4
    for mine, theirs in zip(*sums, strict=True):
        assert np.array_equal(mine, theirs)
    assert (answers[0].argmax(1) == labels).sum() == 9296
    golden = np.load(path.with_name("golden_TFC_1W1A_mnist_first1000.npz"), allow_pickle=False)
    own = evaluator(load(path)[0])(images[: len(golden["logits"])]).result
    assert np.array_equal(own.argmax(1), golden["logits"].argmax(1))


@pytest.mark.parametrize("name", nodes.INTEGERS)
def test_node_test_of_integers_is_exact_in_the_interpreter(name: str) -> None:
    built, refusals = 0, []
    for case in nodes.collected(name):
        made, x, expected = nodes.bound(case)
        try:
            graph = capture_quantizers(nodes.opened(made), torch.from_numpy(x)).graph
        except NnhwError as error:
            refusals.append(str(error))
            continue
        for exact in (graph, lower(graph)):
            assert np.array_equal(run(exact, x)[0], expected)
        built += 1
    assert built
    # Weights for each image of a batch, and what ONNX Runtime itself does not have.
    known = ("does not fit its inputs", "Non per-tensor quantization")
    assert [said for said in refusals if not any(part in said for part in known)] == []


@needs_simulator
@pytest.mark.parametrize(
    "name", ["test_qlinearconv", pytest.param("test_qlinearmatmul_2D_uint8_float32", marks=pytest.mark.long)]
)
def test_node_test_of_integers_is_exact_in_rtl(name: str, tmp_path: Path) -> None:
    case = next(case for case in nodes.collected("qlinearconv", "qlinearmatmul") if case.name == name)
    made, x, expected = nodes.bound(case)
    build = nnhw.build(nodes.opened(made), torch.from_numpy(x), out=tmp_path / "build", frames=2, stop_at="simulate")
    assert build.report["exactness"]["ir_rtl"] == 0
    assert np.array_equal(nnhw.reference(nodes.opened(made), torch.from_numpy(x))(x), expected)


def test_node_tests_of_known_operators_have_their_results() -> None:
    outcomes = [nodes.outcome(case.name) for case in nodes.claimed()]
    assert [outcome.message for outcome in outcomes if outcome.kind == WRONG] == []
    built = sum(outcome.kind == nodes.BUILT for outcome in outcomes)
    assert f"{len(outcomes)} node tests, {built} are built" in PAGE.read_text(encoding="utf-8").replace("\n", " ")


@pytest.mark.parametrize("dynamo", [False, True])
def test_files_of_both_exporters_come_in(dynamo: bool, tmp_path: Path) -> None:
    torch.manual_seed(4)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.AvgPool2d(2), nn.Conv2d(4, 4, 3), nn.Softplus(),
        nn.Upsample(scale_factor=2), nn.ConvTranspose2d(4, 2, 2, stride=2), nn.Hardswish(), nn.Flatten(1),
        nn.Linear(512, 3), nn.LogSoftmax(1),
    ).eval()  # fmt: skip
    images = torch.rand(5, 1, 12, 12)
    path = cases.exported(network, images, tmp_path / "net.onnx", dynamo=dynamo, opset=13)
    assert path.with_name("net.onnx.data").exists() == dynamo
    model, example = load(path)
    with torch.no_grad():
        assert torch.allclose(model(images), network(images), rtol=1e-5, atol=1e-6)
    quantized = nnhw.quantize(model, torch.rand(16, 1, 12, 12), example_input=example)
    assert lower(capture_quantizers(quantized, example).graph).nodes


def test_float_file_is_calibrated_on_the_command_line(tmp_path: Path) -> None:
    path = cases.exported(cases.perceptron(), torch.rand(2, 1, 6, 6), tmp_path / "net.onnx")
    np.save(tmp_path / "images.npy", np.random.default_rng(0).random((16, 1, 6, 6), np.float32))
    arguments = ["build", str(path), "--calibrate", str(tmp_path / "images.npy"), "--board", "icebreaker"]
    result = CliRunner().invoke(app, [*arguments, "--stop-at", "lower", "--out", str(tmp_path / "build")])
    assert result.exit_code == 0, result.output
    assert "use --calibrate DATA.npy" in CliRunner().invoke(app, ["check", str(path)]).output


def test_sums_of_a_convolution_are_rounded_as_by_onnx_runtime() -> None:
    rng = np.random.default_rng(7)
    constants = cases.scales(
        w=rng.integers(-128, 128, (8, 4, 3, 3)).astype(np.int8), ws=rng.random(8, np.float32) * np.float32(0.01),
        wz=np.zeros(8, np.int8), b=rng.integers(-3000, 3000, 8).astype(np.int32),
    )  # fmt: skip
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    model, example = cases.loaded(cases.integers("QLinearConv", "", names, constants, shape=(1, 4, 10, 10)))
    images = rng.integers(0, 256, (144, 4, 10, 10)).astype(np.uint8)
    graph = capture_quantizers(model, example).graph
    own = evaluator(model)(images).result
    assert own.size == 73_728
    assert np.array_equal(run(graph, images)[0], own)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_zero_point_is_added_first_by_operators_of_two_values(op: str) -> None:
    constants = cases.scales(xs=np.float32(0.5), xz=np.uint8(3), ys=np.float32(1.0), yz=np.uint8(7))
    operand = ["x", "xs", "xz"]
    if op == "QLinearMul":
        constants |= {"c": np.uint8([4]), "cs": np.float32(1), "cz": np.uint8(1)}
        operand = ["c", "cs", "cz"]
    made = cases.integers(op, "com.microsoft", ["x", "xs", "xz", *operand, "ys", "yz"], constants, shape=(1, 256))
    model, example = cases.loaded(made)
    images = np.arange(256, dtype=np.uint8)[None]
    graph = capture_quantizers(model, example).graph
    assert np.array_equal(run(graph, images)[0], evaluator(model)(images).result)


def _scaled(own: Callable[..., object]) -> Callable[..., object]:
    def changed(self: QuantizeNode, scale: np.ndarray, *rest: object) -> None:
        own(self, np.asarray(scale) * np.float32(1.01), *rest)

    return changed


def test_comparison_names_the_first_layer_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cases.quant()
    capture_quantizers(*cases.loaded(made))
    monkeypatch.setattr(QuantizeNode, "__init__", _scaled(QuantizeNode.__init__))
    with pytest.raises(ExactnessError, match="'the_q' is the first"):
        capture_quantizers(*cases.loaded(made))


def test_comparison_finds_another_convention(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cases.quant()
    monkeypatch.setitem(qonnx._ROUNDINGS, "ROUND", "half_away")
    with pytest.raises(ExactnessError, match="gives another code than its framework for the same number"):
        capture_quantizers(*cases.loaded(made))


def test_model_is_evaluated_in_batches_of_the_size_that_a_file_fixes() -> None:
    made = cases.moved_integers()
    model, example = cases.loaded(made)
    assert model.file.batch == 1
    images = np.random.default_rng(0).normal(size=(5, 2, 3, 3)).astype(np.float32)
    with torch.no_grad():
        assert np.allclose(evaluator(model)(images).result, model(torch.from_numpy(images)).numpy(), atol=1e-4)
    assert example.shape == (1, 2, 3, 3)


def test_attributes_that_qonnx_requires_are_asked_for() -> None:
    made = cases.quant()
    (quant,) = [item for item in made.graph.node if item.name == "the_q"]
    quant.attribute.remove(next(item for item in quant.attribute if item.name == "narrow"))
    assert refusal(made) == "Quant 'the_q' lacks the attribute 'narrow'; write it into the file"


def test_layers_have_the_names_of_the_nodes() -> None:
    message = refusal(cases.quant(scale=[0.25, 0.25, 0.5, 1.0, 2.0, 0.125]))
    assert message.startswith("matmul 'the_y' needs inputs with one scale")


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("Erf", "Erf 'the_y' is no part of a GELU here; export GELU as one operator, with opset 20 or later"),
        (
            "LayerNormalization",
            "LayerNormalization 'the_y' finds its statistics from each image; use BatchNormalization",
        ),
        ("Det", "Det 'the_y' is not supported; docs/onnx.md lists the operators that are"),
    ],
)
def test_operator_without_a_counterpart_is_refused(op: str, said: str) -> None:
    assert refusal(cases.model([cases.node(op, "x", "y")], ("n", 4), {})) == said


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (cases.node("Gather", "x", "i", "y", axis=1), "picks element 6 along an axis of 4; use -4 to 3"),
        (cases.node("Gather", "x", "j", "y", axis=1), "picks element -5 along an axis of 4; use -4 to 3"),
        (cases.node("Gather", "x", "k", "y", axis=3), "has the axis 3 of a value with 2 axes; use -2 to 1"),
        (cases.node("Concat", "x", "x", "y", axis=3), "has the axis 3 of a value with 2 axes; use -2 to 1"),
        (cases.node("ReduceMean", "x", "k", "y"), "has the axis 3 of a value with 2 axes; use -2 to 1"),
        (
            cases.node("QuantizeLinear", "x", "s", "z", "y", axis=2),
            "has the axis 2 of a value with 2 axes; use -2 to 1",
        ),
        (
            cases.node("QuantizeLinear", "x", "s", "z", "y", axis=1),
            "scales of the shape [3] and zero points of the shape [3] for the 4 channels along axis 1",
        ),
    ],
)
def test_index_beyond_what_is_there_is_refused(made: NodeProto, said: str) -> None:
    constants = {"i": np.int64(6), "j": np.array([-5, -4]), "k": np.array([3])}
    constants |= {"s": np.ones(3, np.float32), "z": np.zeros(3, np.int8)}
    assert said in refusal(cases.model([made], ("n", 4), {name: constants[name] for name in made.input if name != "x"}))


@pytest.mark.parametrize(
    ("made", "constants", "said"),
    [
        (cases.node("Squeeze", "x", "a", "y"), {"a": np.array([0])}, "removes the axis of the batch"),
        (
            cases.node("Gemm", "x", "w", "b", "y"),
            {"w": np.eye(4, dtype=np.float32), "b": np.ones((4, 1), np.float32)},
            "has a bias of the shape [4, 1], with numbers for each image of a batch",
        ),
        (
            cases.node("Add", "x", "c", "y"),
            {"c": np.ones((1, 1, 4), np.float32)},
            "has a constant of the shape [1, 1, 4] for values of 2 axes",
        ),
        (
            cases.node("Reshape", "x", "r", "y", allowzero=1),
            {"r": np.array([0, 4])},
            "makes the shape [0, 4] without any numbers (allowzero)",
        ),
        (cases.node("Pad", "x", "y"), {}, "has no widths (pads) of its border"),
    ],
)
def test_what_is_not_done_to_each_image_is_refused(
    made: NodeProto, constants: dict[str, np.ndarray], said: str
) -> None:
    assert said in refusal(cases.model([made], ("n", 4), constants))


def test_transposed_convolution_with_another_kernel_shape_is_refused() -> None:
    made = cases.node("ConvTranspose", "x", "w", "y", kernel_shape=[3, 3])
    weights = {"w": np.ones((2, 2, 2, 2), np.float32)}
    said = "ConvTranspose 'the_y' has kernel_shape=[3, 3] for weights of the shape [2, 2, 2, 2]; export the model again"
    assert refusal(cases.model([made], (1, 2, 4, 4), weights)) == said


def test_arithmetic_on_the_integers_of_the_input_is_refused() -> None:
    made = cases.integers("Add", "", ["x", "c"], {"c": np.uint8(200)})
    assert refusal(made) == "Add 'the_y' computes with integers; put DequantizeLinear in front of it"


def test_scales_of_each_row_of_an_integer_product_are_refused() -> None:
    constants = cases.scales(
        xs=np.full(6, 0.02, np.float32), w=np.eye(6, dtype=np.int8), ws=np.float32(1), wz=np.int8(0)
    )
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    said = "has 6 scales as its input 1; use one: only weights may have several"
    assert said in refusal(cases.integers("QLinearMatMul", "", names, constants))


def evaluated(made: ModelProto) -> None:
    """Check that a module computes what ONNX Runtime does."""
    model, example = cases.loaded(made)
    images = np.random.default_rng(1).integers(-9, 10, tuple(example.shape)).astype(np.float32)  # for exact sums
    with torch.no_grad():
        assert np.array_equal(model(torch.from_numpy(images)).numpy(), evaluator(model)(images).result)


def test_resizing_of_opset_10_has_its_scales_as_second_input() -> None:
    scales = {"s": np.array([1, 1, 2, 3], np.float32)}
    evaluated(cases.model([cases.node("Resize", "x", "s", "y")], (1, 2, 3, 3), scales, opsets={"": 10}))


def test_border_below_zero_is_seen_by_the_pooling_behind_it() -> None:
    nodes_ = [
        cases.node("Relu", "x", "r"),
        cases.node("Pad", "r", "w", "v", "p"),
        cases.node("MaxPool", "p", "y", kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
    ]
    widths = {"w": np.array([0, 0, 0, 0, 0, 0, 2, 2]), "v": np.float32(-1)}
    assert "others in front than behind" in refusal(cases.model(nodes_, (1, 2, 3, 3), widths))


def test_constant_weights_with_channels_last_may_have_a_computed_bias() -> None:
    bias = cases.node("Quant", "b", "s", "z", "n", "q", domain=cases.QONNX, signed=1, narrow=0)
    conv = cases.node("Conv", "x", "w", "q", "y", domain="qonnx.custom_op.channels_last", kernel_shape=[3, 3])
    rng = np.random.default_rng(2)
    constants = {
        "w": rng.integers(-9, 10, (3, 3, 3, 3)).astype(np.float32), "b": np.ones(3, np.float32),
        "s": cases.floats(0.25), "z": cases.floats(0), "n": cases.floats(8),
    }  # fmt: skip
    evaluated(cases.model([bias, conv], (1, 4, 4, 3), constants))


@pytest.mark.parametrize("moved", [False, True])
def test_constants_of_4_bits_keep_their_type_behind_nodes(moved: bool) -> None:
    """A zero point of INT4 from a node, or behind one, limits codes to 4 bits as an initializer does."""
    made = cases.newer(cases.pair_of(0.25, np.int8(0)))
    zero = next(item for item in made.graph.initializer if item.name == "z")
    zero.CopyFrom(helper.make_tensor("z4" if moved else "z", TensorProto.INT4, [], [1]))
    front = cases.node("Identity", "z4", "z")
    if not moved:
        front = cases.node("Constant", "z", value=zero)
        made.graph.initializer.remove(zero)
    made.graph.node.insert(0, front)
    model, _ = cases.loaded(made)
    quantizers = [part for part in model.modules() if isinstance(part, QuantizeNode)]
    assert [(-8, 7), (-128, 127)] == [quantizer.convention[:2] for quantizer in quantizers]


def test_attribute_that_nobody_knows_is_refused() -> None:
    made = cases.model([cases.node("Relu", "x", "y", slope=1.0)], ("n", 4), {})
    assert refusal(made) == "Relu 'the_y' has the attribute 'slope', of which nothing is known here; export it without"


def test_all_problems_are_listed_at_once() -> None:
    made = cases.model(
        [cases.node("Sign", "x", "s"), cases.node("Erf", "x", "e"), cases.node("Add", "s", "e", "y")], ("n", 4), {}
    )
    message = refusal(made)
    assert "Sign 'the_s'" in message
    assert "Erf 'the_e'" in message


def test_quantized_file_is_not_quantized_again() -> None:
    model, example = cases.loaded(cases.pair_of(0.25, np.int8(0)))
    with pytest.raises(NnhwError, match="quantized already"):
        nnhw.quantize(model, torch.rand(4, 6), example_input=example)


def test_example_tells_real_digits() -> None:
    source = load_source(EXAMPLES / "mnist_qdq.onnx")
    with np.load(EXAMPLES / "data" / "mnist_300.npz", allow_pickle=False) as samples:
        images = samples["images"][:, None].astype(np.float32) / np.float32(255)
        labels = samples["labels"]
    graph = source.capture()
    assert (run(graph, images)[0].argmax(1) == labels).sum() == 300
    assert (evaluator(source.model)(images).result.argmax(1) == labels).sum() == 300


@needs_simulator
def test_example_equals_reference_in_rtl(tmp_path: Path) -> None:
    source = load_source(EXAMPLES / "mnist_qdq.onnx")
    build = nnhw.build(
        source.model, source.example_input, board="ulx3s_85f", out=tmp_path / "build", frames=2, stop_at="simulate"
    )
    assert build.report["exactness"]["ir_rtl"] == 0


def test_commands_of_the_page_run(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("nnhw ")]
    commands = [command for command in commands if "examples/" in command]
    assert len(commands) == 2
    for command in commands:
        result = CliRunner().invoke(
            app, [*command.split()[1:], *(["--out", str(tmp_path / "b")] if "build" in command else [])]
        )
        assert result.exit_code == 0, result.output


def test_integers_that_no_code_holds_are_refused() -> None:
    assert "UINT16" not in qdq.LIMITS
    message = refusal(cases.pair_of(0.25, np.uint16(3)))
    assert message.startswith("QuantizeLinear 'the_q' has integers of the type UINT16; use UINT8, INT8")


def test_result_of_integers_is_theirs() -> None:
    made = cases.model(
        [cases.node("QuantizeLinear", "x", "s", "z", "y")],
        ("n", 4),
        {"s": cases.floats(0.25), "z": np.uint8(9)},
        result=TensorProto.UINT8,
    )
    model, _ = cases.loaded(made)
    x: Tensor = torch.tensor([[-3.0, 0.0, 0.375, 100.0]])
    assert model(x).tolist() == [[0, 9, 11, 255]]
