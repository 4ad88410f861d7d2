"""Models that return a tuple or a dict: from PyTorch to hardware, whose one result packet the driver takes apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from nnhw.errors import CaptureError, InputError, LoweringError
from nnhw.export.c import make_c
from nnhw.flow.models.lowering import lower_graph
from nnhw.flow.running.finished import run_file
from nnhw.flow.verification.comparison import compare_stages
from nnhw.flow.verification.equality import check_equality
from nnhw.frontend import capture
from nnhw.ir import dumps, loads, run
from nnhw.ir.interpreter import joined
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.nn import Int, QuantConv2d, QuantLinear, QuantReLU, QuantRNN, Sign, UInt
from nnhw.passes import Parts, lower
from tests.sim.test_benches import pytestmark as needs_simulator

LARGE = Budget(lc=100_000, ebr=1000)


class Heads(nn.Module):
    """A trunk with heads of sums and of codes, their types and shapes unlike."""

    def __init__(self, form: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form = form
        self.trunk = nn.Sequential(UInt(8, 2**-8), QuantLinear(12, 9, weight_quant=Int(4)), QuantReLU(4))
        self.wide = QuantLinear(9, 3, weight_quant=Int(4), bias=True)
        self.codes = nn.Sequential(QuantLinear(9, 5, weight_quant=Int(4)), QuantReLU(3))

    def forward(self, x: Tensor) -> Any:
        """[batch, 12] --> three results, the last one whole numbers."""
        y = self.trunk(x)
        wide, codes = self.wide(y), self.codes(y)
        if self.form == "dict":
            return {"wide": wide, "codes": codes, "best": wide.argmax(1)}
        return (wide, functional.relu(codes - 0.25), wide.argmax(1))


class Maps(nn.Module):
    """Heads of a detector at one scale or at two."""

    def __init__(self, form: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(UInt(8, 2**-8), QuantConv2d(1, 4, 3, weight_quant=Int(4)), QuantReLU(4))
        self.fine, stride = QuantConv2d(4, 3, 1, weight_quant=Int(4)), 1 if form == "one scale" else 2
        self.coarse = QuantConv2d(4, 5, 1, stride=stride, weight_quant=Int(4), bias=True)

    def forward(self, x: Tensor) -> Any:
        """[batch, 1, 6, 7] --> two maps."""
        y = self.trunk(x)
        return [self.fine(y), self.coarse(y)]


class Signs(nn.Module):
    """Heads that count signs, vectors or maps."""

    def __init__(self, form: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(UInt(8, 2**-8), QuantConv2d(1, 4, 3, weight_quant=Int(4)), Sign())
        self.left = QuantConv2d(4, 3, 3 if form == "unlike" else 2, weight_quant=Sign(), bias=True)
        self.right = QuantConv2d(4, 5, 2, weight_quant=Sign())

    def forward(self, x: Tensor) -> Any:
        """[batch, 1, 6, 7] --> two maps."""
        y = self.trunk(x)
        return self.left(y), self.right(y)


MODELS: dict[str, tuple[type[nn.Module], str, tuple[int, ...]]] = {
    "tuple": (Heads, "tuple", (12,)),
    "dict": (Heads, "dict", (12,)),
    "maps of one size": (Maps, "one scale", (1, 6, 7)),
    "maps of two sizes": (Maps, "two scales", (1, 6, 7)),
    "counted signs": (Signs, "alike", (1, 6, 7)),
    "counted signs of two sizes": (Signs, "unlike", (1, 6, 7)),
}


def made(name: str) -> tuple[nn.Module, Tensor]:
    """Return one of `MODELS`, trained for a step, and images."""
    kind, form, shape = MODELS[name]
    model, images = kind(form), torch.rand(9, *shape)
    model.train()(images)
    return model.eval(), images


def parts_of(name: str) -> Parts:
    """Return the parts of a lowered model, for which its samples are compared around each pass."""
    model, images = made(name)
    return lower_graph(capture(model, images), {"inputs": images.numpy()})[0]


def codes_for(parts: Parts, count: int) -> np.ndarray:
    """Return random codes of images."""
    kind = parts.body.inputs[0].type
    return np.random.default_rng(0).integers(kind.int_dtype.low, kind.int_dtype.high + 1, (count, *kind.shape))


def listed(results: Any) -> list[Any]:
    """Return results of any form as a list."""
    return list(results.values()) if isinstance(results, dict) else list(results)


@pytest.mark.parametrize("name", MODELS)
def test_reference_returns_what_the_model_returns(name: str) -> None:
    model, images = made(name)
    reference = nnhw.reference(model, images)
    ours, theirs = reference(images), model.double()(images.double())
    assert type(ours) is (dict if isinstance(theirs, dict) else tuple)
    assert list(ours) == list(theirs) if isinstance(theirs, dict) else len(ours) == len(theirs)
    for mine, own in zip(listed(ours), listed(theirs), strict=True):
        assert mine.dtype == own.dtype
        assert torch.equal(mine, own)
    assert all(isinstance(one, np.ndarray) for one in listed(reference(images.numpy())))


@pytest.mark.parametrize("name", MODELS)
def test_body_has_one_result_that_the_tail_takes_apart(name: str) -> None:
    model, images = made(name)
    graph, parts = capture(model, images), parts_of(name)
    assert len(parts.body.outputs) == 1
    assert parts.tail.keys == graph.keys == (("wide", "codes", "best") if name == "dict" else ())
    assert loads(dumps(parts.tail, data=True)) == parts.tail
    for one, other in zip(parts.run(images.numpy()), run(graph, images.numpy()), strict=True):
        assert np.array_equal(one, other)
    assert f"double *result_{len(graph.outputs) - 1}" in make_c(parts.body, parts.head, parts.tail).files["model.h"]


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", MODELS)
def test_mapped_heads_equal_their_graph_in_each_stage(name: str) -> None:
    parts = parts_of(name)
    compared = compare_stages(map_body(parts.body, "board", LARGE), parts.body, codes_for(parts, 4))
    assert compared
    assert [one.name for one in compared if not one.equal] == []


@needs_simulator
@pytest.mark.parametrize("name", ["dict", "maps of two sizes", "counted signs"])
def test_heads_equal_their_graph_in_hardware(name: str) -> None:
    parts = parts_of(name)
    codes = codes_for(parts, 3)
    for found in check_equality(map_body(parts.body, "board", LARGE), parts.body, codes, [("random", "bursts")]):
        assert found.equal


@pytest.mark.parametrize(("name", "style"), [("dict", "streaming"), ("maps of two sizes", "shared")])
def test_device_returns_what_the_model_returns(name: str, style: str, tmp_path: Path) -> None:
    model, images = made(name)
    build = nnhw.build(model, images, out=tmp_path / "build", style=style, stop_at="map", progress=False)
    expected = nnhw.reference(model, images)(images)
    with nnhw.open(build, link="model") as device:
        results = device(images.double())
    assert type(results) is type(expected)
    assert all(torch.equal(one, other) for one, other in zip(listed(results), listed(expected), strict=True))
    np.save(tmp_path / "x.npy", images.numpy())
    run_file(build.path, tmp_path / "x.npy", "model", tmp_path / "y.npz")
    saved = np.load(tmp_path / "y.npz")
    assert list(saved) == (list(expected) if name == "dict" else ["0", "1"])
    assert all(np.array_equal(one, other) for one, other in zip(saved.values(), listed(expected), strict=True))
    with pytest.raises(InputError) as raised:
        run_file(build.path, tmp_path / "x.npy", "model", tmp_path / "y.npy")
    assert str(raised.value) == (
        f"the model returns several results ({', '.join(saved)}), which a .npz file holds, got {tmp_path / 'y.npy'}; "
        f"give --out {tmp_path / 'y.npz'}"
    )


def test_float_model_with_a_dict_is_quantized() -> None:
    class Float(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
            self.left, self.right = nn.Linear(8, 2), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            y = self.trunk(x)
            return {"left": self.left(y), "right": torch.sigmoid(self.right(y))}

    images = torch.rand(20, 6)
    quantized = nnhw.quantize(Float().eval(), images)
    results = nnhw.reference(quantized, images)(images)
    assert [(key, [*value.shape]) for key, value in results.items()] == [("left", [20, 2]), ("right", [20, 3])]


class Other(nn.Module):
    """A model with results that cannot be returned together."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.first, self.rnn = form, Int(8, 2**-5), QuantRNN(4, 3, batch_first=True)
        self.linear = QuantLinear(4, 3, weight_quant=Int(4))

    def forward(self, x: Tensor) -> Any:
        """Return two tensors."""
        codes = self.first(x)
        if self.form == "input":
            return self.linear(codes), codes
        return self.rnn(codes)[0], self.rnn(codes)[0][:, -1]


def test_sequence_among_several_results_is_refused() -> None:
    with pytest.raises(CaptureError) as raised:
        capture(Other("steps").eval(), torch.randn(2, 5, 4))
    assert str(raised.value).startswith("the model returns 2 tensors, among them a sequence, ")
    assert str(raised.value).endswith("return one of them, or all in one by torch.cat")


def test_input_among_several_results_is_refused() -> None:
    with pytest.raises(LoweringError) as raised:
        lower_graph(capture(Other("input").eval(), torch.randn(2, 4)), {"inputs": np.zeros((2, 4))})
    assert str(raised.value).startswith("model 'model' returns dequantize 'first'")
    assert str(raised.value).endswith(", which no layer computes; return what its layers compute")


def test_whole_model_has_as_many_outputs_in_onnx() -> None:
    pytest.importorskip("onnxruntime")
    from nnhw.export.onnx import to_bytes, to_onnx
    from nnhw.export.onnx_runtime import run_file

    model, images = made("dict")
    graph = lower(capture(model, images))
    exported = to_onnx(graph)
    assert len(exported.graph.output) == 3
    inputs = images.numpy().astype(np.float64)
    assert np.array_equal(run_file(to_bytes(exported), graph, inputs), joined(run(graph, inputs)))
