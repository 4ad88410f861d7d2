"""Operators of ONNX one by one, with attributes left out and given, of old and new versions: equal to ONNX Runtime.

Numbers are whole, or quarters, so that sums are exact in any order, and results are compared by `==`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, NodeProto

from nnhw.errors import NnhwError
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import run
from nnhw.passes import lower

cases = pytest.importorskip(
    "tests.frontend.onnx_cases", reason="needs ONNX: pip install 'nnhw[onnx]'", exc_type=ImportError
)

from nnhw.frontend.onnx import evaluator  # noqa: E402  # behind the skip

Case = tuple[list[NodeProto], tuple[int, ...], Mapping[str, Any], int]
"""Nodes from 'x' to 'y', the shape of an image, constants, the opset version."""


def whole(*shape: int) -> np.ndarray:
    """Return whole numbers as float32, all of them other ones in neighbouring places."""
    return np.random.default_rng(8).integers(-9, 10, shape).astype(np.float32)


def case(op: str, shape: tuple[int, ...], *given: Any, version: int = 17, outputs: int = 1, **facts: Any) -> Case:
    """Return an operator whose other inputs are constants; of several outputs the last one is the result."""
    names = [f"c{number}" if one is not None else "" for number, one in enumerate(given)]
    node = cases.node(op, "x", *names, "y", **facts)
    node.output[:] = [*(f"v{number}" for number in range(outputs - 1)), "y"]
    constants = {name: np.asarray(one) for name, one in zip(names, given, strict=True) if name}
    return [node], shape, constants, version


def coded(op: str, shape: tuple[int, ...], *given: Any, **facts: Any) -> Case:
    """Return an operator between QuantizeLinear and DequantizeLinear, with a zero point."""
    nodes, _, constants, version = case(op, shape, *given, **facts)
    nodes[0].input[0], nodes[0].output[-1] = "q", "m"
    nodes[0].name = "the_m"
    front = cases.node("QuantizeLinear", "x", "s", "z", "q")
    behind = cases.node("DequantizeLinear", "m", "s", "z", "y")
    return [front, *nodes, behind], shape, {**constants, "s": cases.floats(0.25), "z": np.int8(3)}, version


def two_roundings(*, version: int = 17, axis: int | None = None) -> Case:
    """Return the quantizer of weights [inputs, outputs] with a scale for each index of an axis, 1 by default."""
    facts = {} if axis is None else {"axis": axis}
    size = 3 if axis == 0 else 4
    nodes = [cases.node("DequantizeLinear", "w", "s", "z", "wd", **facts), cases.node("MatMul", "x", "wd", "y")]
    constants = {
        "w": whole(3, 4).astype(np.int8), "s": cases.floats([0.25, 0.5, 1, 2][:size]),
        "z": np.arange(size, dtype=np.int8),
    }  # fmt: skip
    return nodes, (3,), constants, version


IMAGE, ROW = (2, 4, 6), (6,)
CASES: dict[str, Case] = {
    "Gemm": case("Gemm", ROW, whole(6, 6)),
    "Gemm, transposed": case("Gemm", ROW, whole(6, 6), transB=1),
    "Gemm, factors": case("Gemm", ROW, whole(6, 4), whole(4), alpha=0.5, beta=2.0),
    "MatMul": case("MatMul", (5, 6), whole(6, 6)),
    "BatchNormalization, epsilon": case(
        "BatchNormalization",
        (2, 3),
        *map(cases.floats, ([1, 2], [3, 4], [5, 6])),
        cases.floats([0.0, 3.0]),
        epsilon=1.0,
    ),
    "Split, last part shorter": case("Split", (5,), outputs=2, axis=1, num_outputs=2, version=18),
    "Split by sizes": case("Split", IMAGE, np.array([1, 3]), outputs=2, axis=2),
    "Split by an attribute": case("Split", IMAGE, outputs=2, axis=-1, split=[2, 4], version=11),
    "Slice with steps": case("Slice", IMAGE, *map(np.array, ([1, 0], [4, 6], [2, 3], [2, 3]))),
    "Slice from the end": case("Slice", IMAGE, *map(np.array, ([-3], [-1], [-1]))),
    "Slice of all axes": case("Slice", IMAGE, *map(np.array, ([0, 1, 0, 2], [2**40, 2, 4, 5]))),
    "Slice by attributes": case("Slice", IMAGE, starts=[1, 2], ends=[3, 9], axes=[2, 3], version=9),
    "Gather of one": case("Gather", IMAGE, np.array(-1), axis=3),
    "Gather with a step": case("Gather", IMAGE, np.array([0, 2, 4]), axis=3),
    "Unsqueeze, two axes": case("Unsqueeze", IMAGE, np.array([-1, 1])),
    "Unsqueeze by an attribute": case("Unsqueeze", IMAGE, axes=[4, 2], version=11),
    "Squeeze by an attribute": case("Squeeze", (1, 4, 1), axes=[3], version=11),
    "Concat": ([cases.node("Concat", "x", "x", "y", axis=-1)], IMAGE, {}, 17),
    "Transpose": case("Transpose", IMAGE, perm=[0, 2, 3, 1]),
    "Pad": case("Pad", IMAGE, np.array([0, 0, 1, 2, 0, 1, 0, 3]), cases.floats(5)),
    "Pad by attributes": case("Pad", IMAGE, pads=[0, 0, 1, 2, 0, 1, 0, 3], value=5.0, version=10),
    "Pad of some axes": case("Pad", IMAGE, np.array([1, 0, 2, 3]), cases.floats(5), np.array([3, 1]), version=18),
    "Pad of codes": coded("Pad", IMAGE, np.array([0, 0, 1, 0, 0, 0, 0, 2]), np.int8(7)),
    "Transpose of codes": coded("Transpose", IMAGE, perm=[0, 3, 1, 2]),
    "MaxPool of codes, uneven": coded("MaxPool", IMAGE, kernel_shape=[2, 2], pads=[1, 0, 0, 1]),
    "MaxPool, last window cut": case("MaxPool", (2, 5, 6), kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1),
    "MaxPool with dilations": case("MaxPool", (2, 7, 6), kernel_shape=[2, 3], dilations=[3, 2]),
    "AveragePool, border left out": case(
        "AveragePool", (2, 5, 6), kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    "AveragePool, border counted": case(
        "AveragePool", (2, 5, 6), kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    "GlobalAveragePool": case("GlobalAveragePool", (3, 2, 4)),
    "GlobalMaxPool": case("GlobalMaxPool", IMAGE),
    "ReduceMean by an attribute": case("ReduceMean", (3, 2, 4), axes=[2, -1], version=13),
    "ReduceMean": case("ReduceMean", (3, 2, 4), np.array([-1]), version=18, keepdims=0),
    "ReduceSum": case("ReduceSum", IMAGE, np.array([1])),
    "ReduceMax": case("ReduceMax", IMAGE, axes=[3], keepdims=0),
    "DepthToSpace": case("DepthToSpace", (8, 2, 3), blocksize=2, mode="CRD"),
    "Upsample": case("Upsample", IMAGE, cases.floats([1, 1, 2, 3]), version=9),
    "Upsample by an attribute": case("Upsample", IMAGE, scales=[1.0, 1.0, 2.0, 3.0], version=7),
    "Resize by scales": case("Resize", IMAGE, None, cases.floats([1, 1, 2, 3]), mode="nearest"),
    "Resize with channels last": case("Resize", (4, 6, 2), None, cases.floats([1, 2, 3, 1]), mode="nearest"),
    "Resize of sequences with channels last": case("Resize", (4, 2), None, cases.floats([1, 3, 1]), mode="nearest"),
    "Resize of one axis": case(
        "Resize",
        IMAGE,
        None,
        cases.floats([1, 1, 1, 2]),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    "LeakyRelu": case("LeakyRelu", ROW),
    "LeakyRelu, slope": case("LeakyRelu", ROW, alpha=0.25),
    "PRelu": case("PRelu", (2, 3), cases.floats([[0.25], [0.5]])),
    "HardSigmoid, numbers": case("HardSigmoid", ROW, alpha=0.125, beta=0.25),
    "Clip": case("Clip", ROW, cases.floats(-2), cases.floats(3)),
    "Clip, one bound": case("Clip", ROW, None, cases.floats(3)),
    "Clip by attributes": case("Clip", ROW, min=-2.0, max=3.0, version=10),
    "Sub, constant first": ([cases.node("Sub", "c", "x", "y")], ROW, {"c": whole(6)}, 17),
    "Div, constant first": ([cases.node("Div", "c", "x", "y")], ROW, {"c": cases.floats(0)}, 17),
    "Sub, constant second": case("Sub", ROW, whole(6)),
    "Min": case("Min", ROW, cases.floats(2)),
    "Max": case("Max", ROW, cases.floats(2)),
    "Pow": case("Pow", ROW, cases.floats(3)),
    "ArgMax": case("ArgMax", (4, 6), axis=1, keepdims=0),
    "ArgMax, axis kept": case("ArgMax", (4, 6), axis=2),
    "DequantizeLinear of each column": two_roundings(),
    "DequantizeLinear of each row": two_roundings(axis=0),
    "DequantizeLinear from the end": two_roundings(axis=-1),
}


def built(nodes: list[NodeProto], shape: tuple[int, ...], constants: Mapping[str, Any], version: int) -> ModelProto:
    """Return a model for any batch."""
    return cases.model(nodes, ("n", *shape), constants, opsets={"": version})


@pytest.mark.parametrize("sizes", [[1, 2, 8, 18], [1, 8, 12, 6]])
def test_resizing_to_sizes_computes_as_onnx_runtime_does(sizes: list[int]) -> None:
    """Sizes name the batch, too, so that the file takes no other."""
    nodes, shape, constants, version = case("Resize", (2, 4, 6), None, None, np.array(sizes), mode="nearest")
    model, _ = cases.loaded(cases.model(nodes, (1, *shape), constants, opsets={"": version}))
    images = whole(3, *shape)
    with torch.no_grad():
        mine = model(torch.from_numpy(images)).numpy()
    assert np.array_equal(mine, evaluator(model)(images).result)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (
            cases.floats([1, 2, 2, 3]),
            (
                "has the scales [1.0, 2.0, 2.0, 3.0] for values of 4 axes; use images or sequences, with 1 for batch "
                "and channels"
            ),
        ),
        (cases.floats([1, 1, 1.5, 2]), "has the scales [1.0, 1.0, 1.5, 2.0]; use whole numbers of 1 or more"),
    ],
)
def test_resizing_that_no_engine_does_is_refused(second: np.ndarray, said: str) -> None:
    nodes, shape, constants, version = case("Resize", IMAGE, None, second, mode="nearest")
    with pytest.raises(NnhwError) as raised:
        cases.loaded(built(nodes, shape, constants, version))
    assert str(raised.value) == f"Resize 'the_y' {said}"


@pytest.mark.parametrize("name", CASES)
def test_operator_computes_as_onnx_runtime_does(name: str) -> None:
    nodes, shape, constants, version = CASES[name]
    images = whole(3, *shape)
    model, _ = cases.loaded(built(nodes, shape, constants, version))
    with torch.no_grad():
        mine = model(torch.from_numpy(images)).numpy()
    own = evaluator(model)(images).result
    assert mine.shape == own.shape
    assert np.array_equal(mine, own, equal_nan=True)


def test_resizing_with_channels_last_between_transposes_is_upsampling_alone() -> None:
    quant = {"domain": cases.QONNX, "signed": 1, "narrow": 1, "rounding_mode": "ROUND"}
    nodes = [
        cases.node("Quant", "x", "s", "z", "b", "q", **quant),
        cases.node("Transpose", "q", "u", perm=[0, 2, 3, 1]),
        cases.node("Resize", "u", "", "factors", "r", mode="nearest"),
        cases.node("Transpose", "r", "t", perm=[0, 3, 1, 2]),
        cases.node("Quant", "w", "s", "z", "b", "wq", **quant),
        cases.node("Conv", "t", "wq", "y", kernel_shape=[3, 3]),
    ]
    constants = {
        "s": cases.floats(0.25), "z": cases.floats(0), "b": cases.floats(4), "factors": cases.floats([1, 2, 2, 1]),
        "w": whole(3, 2, 3, 3) / 4,
    }  # fmt: skip
    model, example = cases.loaded(cases.model(nodes, (1, 2, 4, 4), constants))
    graph = lower(capture_quantizers(model, example).graph)
    assert [node.op.name for node in graph.nodes if node.name not in graph.constants] == [
        *("input", "quantize", "upsample", "conv2d", "dequantize")
    ]
    images = whole(5, 2, 4, 4) / 4
    assert np.array_equal(run(graph, images)[0], evaluator(model)(images).result)
