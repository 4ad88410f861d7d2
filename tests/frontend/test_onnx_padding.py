"""Padding of ONNX files, auto_pad above all: equal to ONNX Runtime and to ONNX's own evaluator, or refused by name."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, TensorProto
from onnx.reference import ReferenceEvaluator

from nnhw.errors import NnhwError

cases = pytest.importorskip(
    "tests.frontend.onnx_cases", reason="needs ONNX: pip install 'nnhw[onnx]'", exc_type=ImportError
)

from nnhw.frontend.onnx import evaluator  # noqa: E402  # behind the skip

LAST = "qonnx.custom_op.channels_last"
WAYS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
# Kernel, strides and dilations of an image of 7 x 8: even and odd borders of both axes.
WINDOWS = (
    ([2, 2], [1, 1], [1, 1]),
    ([3, 2], [2, 1], [1, 1]),
    ([4, 3], [1, 3], [1, 1]),
    ([2, 5], [2, 2], [1, 1]),
    ([2, 3], [1, 2], [3, 2]),
)


def whole(*shape: int, low: int = -9, high: int = 10) -> np.ndarray:
    """Return whole numbers as float32, whose sums are exact in any order."""
    return np.random.default_rng(5).integers(low, high, shape).astype(np.float32)


def windows(*, dilated: bool) -> list[Any]:
    """Return each way to pad with each window. `dilated`: with dilations where the way has them, too."""
    return [
        pytest.param(way, *window, id=f"{way}-{window[0]}-{window[1]}-{window[2]}")
        for way, window in itertools.product(WAYS, WINDOWS)
        if window[2] == [1, 1] or (dilated and not way.startswith("SAME"))
    ]


def evaluate(made: ModelProto, images: np.ndarray, *, reference: bool = True) -> None:
    """Check that a module computes what ONNX Runtime and, if asked for, ONNX's own evaluator do."""
    model, _ = cases.loaded(made)
    with torch.no_grad():
        mine = model(torch.from_numpy(images)).numpy()
    own = evaluator(model)(images).result
    assert np.array_equal(mine, own)
    if reference:
        assert np.array_equal(own, ReferenceEvaluator(made).run(None, {"x": images})[0])


@pytest.mark.parametrize(("way", "kernel", "strides", "dilations"), windows(dilated=True))
@pytest.mark.parametrize("op", ["Conv", "ConvInteger"])
def test_convolution_pads_as_its_file_says(
    op: str, way: str, kernel: list[int], strides: list[int], dilations: list[int]
) -> None:
    facts = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "auto_pad": way}
    shape, images = ("n", 2, 7, 8), whole(2, 2, 7, 8)
    if op == "Conv":
        made = cases.model([cases.node("Conv", "x", "w", "y", **facts)], shape, {"w": whole(3, 2, *kernel)})
        evaluate(made, images)
        return
    constants = {"w": whole(3, 2, *kernel).astype(np.int8), "z": np.uint8(5)}
    made = cases.integers(op, "", ["x", "w", "z"], constants, shape=shape, result=TensorProto.INT32, **facts)
    evaluate(made, (images + 9).astype(np.uint8), reference=False)


@pytest.mark.parametrize("way", WAYS)
def test_convolution_of_sequences_pads_as_its_file_says(way: str) -> None:
    conv = cases.node("Conv", "x", "w", "y", kernel_shape=[4], strides=[2], auto_pad=way)
    evaluate(cases.model([conv], ("n", 2, 7), {"w": whole(3, 2, 4)}), whole(2, 2, 7))


@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
@pytest.mark.parametrize("way", WAYS)
def test_operator_with_channels_last_pads_as_its_file_says(op: str, way: str) -> None:
    facts = {"kernel_shape": [4, 3], "strides": [1, 2], "auto_pad": way}
    names, constants = (["w"], {"w": whole(3, 4, 3, 2)}) if op == "Conv" else ([], {})
    nodes = [cases.node("Relu", "x", "r"), cases.node(op, "r", *names, "y", domain=LAST, **facts)]
    evaluate(cases.model(nodes, ("n", 7, 8, 2), constants), whole(2, 7, 8, 2), reference=False)


@pytest.mark.parametrize(("way", "kernel", "strides", "dilations"), windows(dilated=True))
def test_max_pooling_pads_as_its_file_says(
    way: str, kernel: list[int], strides: list[int], dilations: list[int]
) -> None:
    facts = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "auto_pad": way}
    nodes = [cases.node("Relu", "x", "r"), cases.node("MaxPool", "r", "y", **facts)]
    # With SAME_LOWER, ONNX's own evaluator leaves the last windows out: its results are smaller than ONNX has them.
    evaluate(cases.model(nodes, ("n", 2, 7, 8), {}), whole(2, 2, 7, 8), reference=way != "SAME_LOWER")


@pytest.mark.parametrize(("way", "kernel", "strides", "dilations"), windows(dilated=False))
def test_average_pooling_pads_as_its_file_says(
    way: str, kernel: list[int], strides: list[int], dilations: list[int]
) -> None:
    facts = {"kernel_shape": kernel, "strides": strides, "auto_pad": way, "count_include_pad": 1}
    made = cases.model([cases.node("AveragePool", "x", "y", **facts)], ("n", 2, 7, 8), {})
    # Multiples of the number of elements in a window have means that are whole numbers.
    evaluate(made, whole(2, 2, 7, 8) * np.float32(np.prod(kernel)))


@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
def test_same_padding_with_dilations_is_refused(op: str) -> None:
    facts = {"kernel_shape": [2, 3], "dilations": [3, 2], "auto_pad": "SAME_LOWER"}
    names, constants = (["w"], {"w": whole(3, 2, 2, 3)}) if op == "Conv" else ([], {})
    said = (
        f"{op} 'the_y' has auto_pad='SAME_LOWER' and dilations=[3, 2], which ONNX Runtime does not pad as ONNX "
        f"specifies; export it with pads"
    )
    with pytest.raises(NnhwError) as raised:
        cases.loaded(cases.model([cases.node(op, "x", *names, "y", **facts)], ("n", 2, 7, 8), constants))
    assert str(raised.value) == said


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "MaxPool", "AveragePool"])
def test_auto_pad_that_is_not_known_is_refused(op: str) -> None:
    names, constants = (["w"], {"w": whole(2, 2, 2, 2)}) if op.startswith("Conv") else ([], {})
    made = cases.node(op, "x", *names, "y", kernel_shape=[2, 2], auto_pad="SAME")
    said = f"{op} 'the_y' has auto_pad='SAME'; use SAME_UPPER, SAME_LOWER, VALID or NOTSET"
    with pytest.raises(NnhwError) as raised:
        cases.loaded(cases.model([made], ("n", 2, 7, 8), constants))
    assert str(raised.value) == said


@pytest.mark.parametrize(
    "facts",
    [
        *({"auto_pad": way} for way in WAYS),
        {"pads": [1, 0, 0, 1]},
        {"pads": [0, 1, 1, 0], "output_padding": [1, 0]},
        {"output_shape": [8, 10]},
        {"output_shape": [8, 10], "auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER", "output_padding": [0, 1]},
        {"auto_pad": "SAME_UPPER", "output_padding": [1, 1]},
    ],
    ids=str,
)
def test_transposed_convolution_cuts_off_as_its_file_says(facts: dict[str, Any]) -> None:
    made = cases.node("ConvTranspose", "x", "w", "y", kernel_shape=[4, 5], strides=[2, 2], **facts)
    evaluate(cases.model([made], ("n", 2, 4, 5), {"w": whole(2, 3, 4, 5)}), whole(2, 2, 4, 5), reference=False)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"strides": [3, 3], "auto_pad": "SAME_UPPER"},
            "has pads=[-1, -1, 0, 0]; export it with two of 0 or more for each axis",
        ),
        (
            {"strides": [2, 2], "pads": [1, 0, 0, 0], "output_padding": [1, 1]},
            "adds [2, 1] elements at the end, but fewer than [2, 2] can be added; put Pad behind it",
        ),
    ],
)
def test_transposed_convolution_that_adds_a_border_is_refused(facts: dict[str, Any], said: str) -> None:
    made = cases.node("ConvTranspose", "x", "w", "y", kernel_shape=[2, 2], **facts)
    with pytest.raises(NnhwError) as raised:
        cases.loaded(cases.model([made], ("n", 2, 4, 5), {"w": whole(2, 3, 2, 2)}))
    assert str(raised.value) == f"ConvTranspose 'the_y' {said}"
