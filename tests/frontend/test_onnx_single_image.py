"""ONNX files that take one image: its axis of the batch may move, go away and come back, as converters write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, TensorProto

import nnhw
from nnhw.errors import NnhwError
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import run
from nnhw.passes import lower

cases = pytest.importorskip(
    "tests.frontend.onnx_cases", reason="needs ONNX: pip install 'nnhw[onnx]'", exc_type=ImportError
)

from nnhw.frontend.onnx import evaluator, pooling  # noqa: E402  # behind the skip

SHAPE = (1, 2, 3, 4)
Chain = list[tuple[str, dict[str, Any], list[int] | None]]
"""Operators one after the other, with their attributes, and their second input where they have one."""


def chained(chain: Chain, shape: tuple[int | str, ...] = SHAPE, opsets: Mapping[str, int] | None = None) -> ModelProto:
    """Return a model of operators one after the other."""
    nodes, constants, name = [], {}, "x"
    for number, (op, facts, given) in enumerate(chain):
        made = "y" if number == len(chain) - 1 else f"v{number}"
        second = [f"c{number}"] if given is not None else []
        constants |= {second[0]: np.array(given, np.int64)} if second else {}
        nodes.append(cases.node(op, name, *second, made, **facts))
        name = made
    return cases.model(nodes, shape, constants, opsets=opsets)


CHAINS: dict[str, Chain] = {
    "flatten 0": [("Flatten", {"axis": 0}, None)],
    "flatten 2": [("Flatten", {"axis": 2}, None)],
    "flatten 4": [("Flatten", {"axis": 4}, None)],
    "flatten -1": [("Flatten", {"axis": -1}, None)],
    "flatten 2, back": [("Flatten", {"axis": 2}, None), ("Reshape", {}, [1, 2, 12])],
    "all in one row": [("Reshape", {}, [-1]), ("Unsqueeze", {}, [0])],
    "rows": [("Reshape", {}, [-1, 4])],
    "rows, back": [("Reshape", {}, [6, -1]), ("Reshape", {}, [1, 2, 12])],
    "size of the axis kept": [("Reshape", {}, [6, -1]), ("Reshape", {}, [0, 2, 2])],
    "without the batch": [("Squeeze", {}, [0])],
    "without the batch, transposed": [("Squeeze", {}, [0]), ("Transpose", {"perm": [1, 2, 0]}, None)],
    "without the batch, back": [("Squeeze", {}, [0]), ("Unsqueeze", {}, [0])],
    "without the batch, back elsewhere": [("Squeeze", {}, [0]), ("Unsqueeze", {}, [2])],
    "batch second": [("Transpose", {"perm": [1, 0, 2, 3]}, None)],
    "batch last, back": [("Transpose", {"perm": [2, 3, 1, 0]}, None), ("Transpose", {"perm": [3, 2, 0, 1]}, None)],
    "batch last, gone": [("Transpose", {"perm": [2, 3, 1, 0]}, None), ("Squeeze", {}, None)],
    "no axes": [("Squeeze", {}, None)],
    "one more in front": [("Unsqueeze", {}, [0])],
    "two more": [("Unsqueeze", {}, [0, -1]), ("Squeeze", {}, [1])],
    "the first image": [("Gather", {"axis": 0}, 0), ("Transpose", {}, None)],  # type: ignore[list-item]
    "all of the batch": [("Slice", {"starts": [0, 1], "ends": [1, 3], "axes": [0, 2]}, None)],
    "turned around": [("Transpose", {}, None)],
}


@pytest.mark.parametrize("name", CHAINS)
def test_single_image_is_moved_as_by_onnx_runtime(name: str) -> None:
    # Until version 9, Slice had its bounds as attributes.
    opsets = {"": 9} if any(op == "Slice" for op, _, _ in CHAINS[name]) else None
    model, _ = cases.loaded(chained(CHAINS[name], opsets=opsets))
    images = np.random.default_rng(3).normal(size=(5, *SHAPE[1:])).astype(np.float32)
    with torch.no_grad():
        mine = model(torch.from_numpy(images)).numpy()
    own = evaluator(model)(images).result
    assert mine.shape == own.shape
    assert np.array_equal(mine, own)


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        (
            [("Flatten", {"axis": 2}, None)],
            "Flatten 'the_y' has axis=2, and so mixes images; use axis=1",
        ),
        (
            [("Squeeze", {}, [0])],
            "Squeeze 'the_y' removes the axis of the batch; give the axes behind it that have the size 1",
        ),
        ([("Reshape", {}, [-1])], "Reshape 'the_y' makes the shape [-1] of images of 24 numbers, and so mixes images"),
    ],
)
def test_open_batch_is_not_moved(chain: Chain, said: str) -> None:
    with pytest.raises(NnhwError) as raised:
        cases.loaded(chained(chain, ("n", 2, 3, 4)))
    assert said in str(raised.value)


def test_open_batch_is_flattened_at_an_axis_behind_axes_of_one() -> None:
    model, _ = cases.loaded(chained([("Flatten", {"axis": 2}, None)], ("n", 1, 3, 4)))
    assert model(torch.zeros(5, 1, 3, 4)).shape == (5, 12)


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        (
            [("Squeeze", {}, [0]), ("Relu", {}, None)],
            (
                "Relu 'the_y' reads a value of shape [2, 3, 4] without the batch axis; keep the "
                "batch as first axis, or put Reshape or Unsqueeze in front of it"
            ),
        ),
        (
            [("Reshape", {}, [5, -1])],
            "Reshape 'the_y' cannot reshape [1, 2, 3, 4] to [5, -1]; export the model again",
        ),
        (
            [("Squeeze", {}, [1])],
            "Squeeze 'the_y' removes the axes [1] of the shape [1, 2, 3, 4]; give axes of size 1",
        ),
        (
            [("Transpose", {"perm": [0, 1, 1, 2]}, None)],
            "Transpose 'the_y' has perm=[0, 1, 1, 2] for values of 4 axes; name each of them once",
        ),
    ],
)
def test_what_a_single_image_cannot_become_is_refused(chain: Chain, said: str) -> None:
    with pytest.raises(NnhwError) as raised:
        cases.loaded(chained(chain))
    assert str(raised.value) == said


def test_network_with_a_moved_batch_is_exact() -> None:
    """A convolution with channels last, flattened at axis 0, as converters of Keras write it."""
    nodes = [
        cases.node("QuantizeLinear", "x", "s", "z", "xq"),
        cases.node("DequantizeLinear", "xq", "s", "z", "xd"),
        cases.node("Transpose", "xd", "t", perm=[0, 3, 1, 2]),
        cases.node("DequantizeLinear", "w", "s", "z", "wd"),
        cases.node("Conv", "t", "wd", "c"),
        cases.node("Relu", "c", "r"),
        cases.node("QuantizeLinear", "r", "s", "z", "rq"),
        cases.node("DequantizeLinear", "rq", "s", "z", "rd"),
        cases.node("Transpose", "rd", "u", perm=[0, 2, 3, 1]),
        cases.node("Flatten", "u", "f", axis=0),
        cases.node("DequantizeLinear", "v", "s", "z", "vd"),
        cases.node("Gemm", "f", "vd", "y"),
    ]
    rng = np.random.default_rng(4)
    constants = {
        "s": cases.floats(0.25), "z": np.int8(0), "w": rng.integers(-9, 9, (3, 1, 3, 3)).astype(np.int8),
        "v": rng.integers(-9, 9, (48, 2)).astype(np.int8),
    }  # fmt: skip
    model, example = cases.loaded(cases.model(nodes, (1, 6, 6, 1), constants))
    graph = capture_quantizers(model, example).graph
    images = rng.normal(size=(7, 6, 6, 1)).astype(np.float32)
    assert np.array_equal(run(lower(graph), images)[0], evaluator(model)(images).result)


def test_float_network_with_a_moved_batch_is_quantized() -> None:
    nodes = [
        cases.node("Relu", "x", "r"),
        cases.node("Squeeze", "r", "a", "q"),
        cases.node("Transpose", "q", "t", perm=[1, 2, 0]),
        cases.node("Reshape", "t", "b", "u"),
        cases.node("Gemm", "u", "v", "g"),
        cases.node("Squeeze", "g", "a", "y"),
    ]
    constants = {"a": np.array([0]), "b": np.array([1, 24]), "v": cases.numbers(24, 3)}
    model, example = cases.loaded(cases.model(nodes, SHAPE, constants, result=TensorProto.FLOAT))
    quantized = nnhw.quantize(model, torch.randn(16, *SHAPE[1:]), example_input=example)
    assert nnhw.reference(quantized, example)(np.ones((3, *SHAPE[1:]), np.float32)).shape == (3, 3)


def test_evaluation_of_another_number_of_images_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were a size of the batch in the file overlooked, ONNX Runtime would make fewer results than there are images."""
    resize = cases.node("Resize", "x", "", "", "sizes", "y", mode="nearest")
    made = cases.model([resize], SHAPE, {"sizes": np.array([1, 2, 6, 8])})
    monkeypatch.setattr(pooling, "keep_batch", lambda *_: None)
    model, _ = cases.loaded(made)
    with pytest.raises(NnhwError) as raised:
        evaluator(model)(np.zeros((3, *SHAPE[1:]), np.float32))
    assert str(raised.value) == (
        "the file makes 1 parts of tensor 'y' from 3 images, so its batch size is fixed; export it with an open batch"
    )
