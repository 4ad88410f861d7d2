"""Files of FINN: annotated integers, thresholds, TopK; equal to QONNX's own execution, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, StringStringEntryProto, TensorAnnotation, TensorProto, helper

from nnhw.errors import NnhwError
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import run
from nnhw.passes import lower

cases = pytest.importorskip(
    "tests.frontend.onnx_cases", reason="needs ONNX: pip install 'nnhw[onnx]'", exc_type=ImportError
)
pytest.importorskip("qonnx.core.modelwrapper", reason="needs QONNX: pip install 'nnhw[onnx]'", exc_type=ImportError)

from nnhw.frontend.onnx import evaluator  # noqa: E402  # behind the skip
from nnhw.frontend.onnx.quantizing import QuantizeNode  # noqa: E402

RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Give each test the same numbers, in whatever order they run."""
    global RNG
    RNG = np.random.default_rng(12)


def annotated(made: ModelProto, **kinds: str) -> ModelProto:
    """Annotate tensors as FINN does."""
    for name, kind in kinds.items():
        entry = StringStringEntryProto(key="finn_datatype", value=kind)
        made.graph.quantization_annotation.append(
            TensorAnnotation(tensor_name=name, quant_parameter_tensor_names=[entry])
        )
    return made


def whole(low: int, high: int, *shape: int) -> np.ndarray:
    """Return whole numbers from `low` to `high` as float32."""
    return RNG.integers(low, high + 1, shape).astype(np.float32)


def steps(count: int, *, rows: int = 5, size: int = 40) -> np.ndarray:
    """Return thresholds of each channel, rising."""
    return np.sort(whole(-size, size, rows, count), axis=1)


def perceptron(*kinds: str, domain: str = cases.QONNX, weights: np.ndarray | None = None, **facts: Any) -> ModelProto:
    """Return input, weights, thresholds, weights, TopK, as FINN has networks behind its streamlining.

    Parameters
    ----------
    kinds: annotations of the input and of both weights.
    facts: attributes of the thresholds.
    """
    nodes = [
        cases.node("MatMul", "x", "w", "h"),
        cases.node("MultiThreshold", "h", "t", "a", domain=domain, **{"out_dtype": "UINT2", **facts}),
        cases.node("MatMul", "a", "v", "s"),
        helper.make_node("TopK", ["s", "k"], ["greatest", "y"], name="the_top", axis=-1, largest=1, sorted=1),
    ]
    low, high = (-1, 1) if kinds[1:2] == ("TERNARY",) else (-8, 7)
    v = np.where(whole(0, 1, 5, 4) > 0, 1, -1) if kinds[2:3] == ("BIPOLAR",) else whole(-2, 1, 5, 4)
    constants = {
        "w": whole(low, high, 6, 5) if weights is None else weights, "t": steps(3, size=12), "v": v.astype(np.float32),
        "k": np.array([1]),
    }  # fmt: skip
    made = cases.model(nodes, (1, 6), constants, result=TensorProto.INT64)
    return annotated(made, **dict(zip(("x", "w", "v"), kinds, strict=False)), t="INT8", a="UINT2", y="UINT32")


def executed(made: ModelProto, images: np.ndarray) -> np.ndarray:
    """Return the results of QONNX's own execution, image by image."""
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx
    from qonnx.transformation.infer_shapes import InferShapes

    model = ModelWrapper(made).transform(InferShapes())
    return np.concatenate([execute_onnx(model, {"x": image[None]})["y"] for image in images])


KINDS = [
    ("INT4", "INT4", "INT2", (-8, 7)),
    ("UINT8", "TERNARY", "BIPOLAR", (0, 255)),
    ("BIPOLAR", "INT5", "INT2", (-1, 1)),
    ("BINARY", "INT4", "INT2", (0, 1)),
]


@pytest.mark.parametrize(("given", "first", "second", "limits"), KINDS)
@pytest.mark.filterwarnings("ignore")
def test_annotated_integers_are_codes(given: str, first: str, second: str, limits: tuple[int, int]) -> None:
    made = perceptron(given, first, second)
    images = whole(*limits, 40, 6)
    images = np.where(images < 0, -1, 1).astype(np.float32) if given == "BIPOLAR" else images
    expected = executed(made, images)
    model, example = cases.loaded(made)
    assert next(part.convention[:2] for part in model.modules() if isinstance(part, QuantizeNode)) == limits
    graph = capture_quantizers(model, example).graph
    assert np.array_equal(run(lower(graph), images)[0], expected)
    assert len(np.unique(expected)) > 1


@pytest.mark.filterwarnings("ignore")
def test_fixed_point_weights_have_their_step() -> None:
    made = perceptron("INT4", "FIXED<5,3>", "INT2", weights=whole(-16, 15, 6, 5) / np.float32(4))
    images = whole(-8, 7, 40, 6)
    expected = executed(made, images)
    model, example = cases.loaded(made)
    quantizers = [part for part in model.modules() if isinstance(part, QuantizeNode)]
    assert (-16, 15, 0.25) in [(*part.convention[:2], part.scale.item()) for part in quantizers]
    assert np.array_equal(run(lower(capture_quantizers(model, example).graph), images)[0], expected)


@pytest.mark.parametrize("domain", ["", "finn", "finn.custom_op.general", "onnx.brevitas"])
def test_thresholds_of_older_domains_are_those_of_qonnx(domain: str) -> None:
    model, example = cases.loaded(perceptron("INT4", "INT4", "INT2", domain=domain))
    images = whole(-8, 7, 20, 6)
    assert np.array_equal(run(capture_quantizers(model, example).graph, images)[0], evaluator(model)(images).result)


def test_quantizer_in_the_default_domain_is_that_of_qonnx() -> None:
    made = cases.quant(domain="")
    model, example = cases.loaded(made)
    images = cases.numbers(20, 6)
    own = evaluator(cases.loaded(cases.quant())[0])
    assert evaluator(model)(images).result.shape == own(images).result.shape
    assert np.array_equal(run(capture_quantizers(model, example).graph, images)[0], evaluator(model)(images).result)


@pytest.mark.parametrize("facts", [{}, {"out_scale": 2.0, "out_bias": -1.0}])
@pytest.mark.filterwarnings("ignore")
def test_thresholds_of_a_sequence_have_the_channels_last(facts: dict[str, float]) -> None:
    nodes = [cases.node("MultiThreshold", "x", "t", "y", domain=cases.QONNX, out_dtype="INT4", **facts)]
    made = cases.model(nodes, (1, 3, 5), {"t": steps(3, size=9)})
    images = whole(-9, 9, 12, 3, 5)
    model, example = cases.loaded(made)
    graph = capture_quantizers(model, example).graph
    assert np.array_equal(run(graph, images)[0], executed(made, images))


LAST = "qonnx.custom_op.channels_last"
# Such nodes are evaluated here as Transpose, node, Transpose: that this is what QONNX means by them is shown by QONNX.
CHANNELS_LAST: dict[str, tuple[Any, dict[str, np.ndarray]]] = {
    "MaxPoolNHWC": (
        cases.node(
            "MaxPoolNHWC", "x", "y", domain=cases.QONNX, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]
        ),
        {},
    ),
    "MaxPool": (
        cases.node("MaxPool", "x", "y", domain=LAST, kernel_shape=[2, 3], strides=[2, 1], pads=[0, 0, 0, 0]),
        {},
    ),
    "Conv": (
        cases.node(
            "Conv", "x", "w", "y", domain=LAST, kernel_shape=[3, 2], strides=[2, 1], dilations=[1, 1], group=1,
            pads=[1, 0, 0, 1],
        ),
        {"w": np.random.default_rng(1).integers(-8, 8, (3, 3, 2, 2)).astype(np.float32)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANNELS_LAST)
@pytest.mark.filterwarnings("ignore")
def test_operator_with_channels_last_is_that_of_qonnx(name: str) -> None:
    node, constants = CHANNELS_LAST[name]
    made = cases.model([node], (1, 6, 4, 2), constants)
    images = whole(-9, 9, 5, 6, 4, 2)
    model, _ = cases.loaded(made)
    expected = executed(made, images)
    with torch.no_grad():
        assert np.array_equal(model(torch.from_numpy(images)).numpy(), expected)
    assert np.array_equal(evaluator(model)(images).result, expected)


@pytest.mark.filterwarnings("ignore")
def test_version_of_qonnx_is_that_of_its_older_domain() -> None:
    """QONNX takes `finn.custom_op.general` for its own domain, and so the version that is imported for that."""
    made = cases.trunc(2, signed=1)
    images = cases.numbers(12, 2, 4, 4)
    expected = executed(made, images)
    for node in made.graph.node:
        node.domain = "finn.custom_op.general" if node.op_type == "Trunc" else node.domain
    model, example = cases.loaded(made)
    assert np.array_equal(evaluator(model)(images).result, expected)
    assert np.array_equal(run(lower(capture_quantizers(model, example).graph), images)[0], expected)


@pytest.mark.parametrize("version", [9, 11, 17])
def test_first_of_equal_greatest_numbers_is_taken(version: int) -> None:
    given = ["x"] if version < 10 else ["x", "k"]
    facts = {"k": 1} if version < 10 else {}
    nodes = [helper.make_node("TopK", given, ["greatest", "y"], name="the_y", axis=-1, **facts)]
    constants = {"k": np.array([1])} if version > 9 else {}
    made = cases.model(nodes, ("n", 7), constants, result=TensorProto.INT64, opsets={"": version})
    model, _ = cases.loaded(made)
    images = whole(-2, 2, 50, 7)
    assert np.array_equal(model(torch.from_numpy(images)).numpy(), evaluator(model)(images).result)


@pytest.mark.parametrize(
    ("kind", "weights", "said"),
    [
        ("INT2", np.full((6, 5), 2, np.float32), "INT2, but holds 2; correct the annotation"),
        ("INT4", np.full((6, 5), 0.5, np.float32), "INT4, but holds 0.5; correct the annotation"),
        ("BIPOLAR", np.zeros((6, 5), np.float32), "BIPOLAR, but holds 0; correct the annotation"),
        ("INT32", None, "INT32, but codes have 1 to 16 bits; use fewer"),
    ],
)
def test_annotation_that_is_not_true_is_refused(kind: str, weights: np.ndarray | None, said: str) -> None:
    with pytest.raises(NnhwError) as raised:
        cases.loaded(perceptron("INT4", kind, weights=weights))
    assert str(raised.value) == f"MatMul 'the_h' has the constant 'w', which is annotated as {said}"


@pytest.mark.parametrize("kind", ["POSIT8", "FIXED<4,4>", "INT"])
def test_annotation_that_is_no_type_is_refused(kind: str) -> None:
    with pytest.raises(NnhwError) as raised:
        cases.loaded(perceptron(kind))
    assert str(raised.value) == (
        f"the input 'x' is annotated as {kind}, which is not a FINN type; use INT<bits>, UINT<bits>, BIPOLAR, TERNARY, "
        f"BINARY, FIXED<bits,int_bits> or FLOAT32"
    )


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("Im2Col", "is a step of FINN's own hardware flow; use the file from before LowerConvsToMatMul"),
        ("XnorPopcountMatMul", "counts equal bits, a step of FINN's own hardware flow; use the file from before it"),
        ("QuantAvgPool2d", "cuts bits off the sum of a window; use AveragePool and a Quant, or Trunc"),
    ],
)
def test_operator_of_finn_is_refused_by_name(op: str, said: str) -> None:
    made = cases.model([cases.node(op, "x", "y", domain=cases.QONNX)], (1, 4, 4, 2), {})
    with pytest.raises(NnhwError) as raised:
        cases.loaded(made)
    assert str(raised.value) == f"{op} 'the_y' {said}"


def test_hardware_of_finn_is_refused_by_its_domain() -> None:
    made = cases.model([cases.node("MVAU", "x", "y", domain="finn", backend="fpgadataflow")], (1, 4), {})
    with pytest.raises(NnhwError) as raised:
        cases.loaded(made)
    assert "has the operator MVAU of the domain 'finn', but operators of this domain are not known here" in str(
        raised.value
    )


@pytest.mark.parametrize("facts", [{"largest": 0}, {"axis": 0}])
def test_other_selections_of_numbers_are_refused(facts: dict[str, int]) -> None:
    top = helper.make_node("TopK", ["x", "k"], ["greatest", "y"], name="the_y", **facts)
    made = cases.model([top], ("n", 7), {"k": np.array([1])}, result=TensorProto.INT64)
    with pytest.raises(NnhwError) as raised:
        cases.loaded(made)
    assert str(raised.value) == (
        "TopK 'the_y' has k=[1], takes the smallest values, or runs along the batch; use k=1, largest=1 and axis=-1"
    )
