"""Models that have quantizers everywhere but at their input: that one is put there from data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import nnhw
from nnhw.cli import app
from nnhw.errors import ExactnessError, InputError, NnhwError
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import run
from nnhw.nn import Int, QuantConv2d, QuantLinear, QuantReLU, UInt
from nnhw.nn.quantizers import PER_TENSOR, Quantizer
from nnhw.passes import lower

cases = pytest.importorskip(
    "tests.frontend.onnx_cases", reason="needs ONNX: pip install 'nnhw[onnx]'", exc_type=ImportError
)

from nnhw.frontend.onnx import evaluator  # noqa: E402  # behind the skip
from nnhw.frontend.onnx.module import OnnxModel  # noqa: E402
from nnhw.frontend.onnx.quantizing import QuantizeNode  # noqa: E402

QUANT = {"domain": cases.QONNX, "narrow": 0, "rounding_mode": "ROUND"}


def jets(*front: Any, opsets: Any = None) -> Any:
    """Return a file whose first layer reads floats. `front`: nodes from 'x' to 'a', in front of it."""
    nodes = [
        *front,
        cases.node("Quant", "w", "s", "z", "b", "wq", signed=1, **QUANT),
        cases.node("MatMul", "a" if front else "x", "wq", "h"),
        cases.node("Relu", "h", "r"),
        cases.node("Quant", "r", "t", "z", "b", "rq", signed=0, **QUANT),
        cases.node("Quant", "v", "s", "z", "b", "vq", signed=1, **QUANT),
        cases.node("MatMul", "rq", "vq", "y"),
    ]
    rng = np.random.default_rng(0)
    arrays = {"w": rng.normal(0, 0.3, (6, 8)), "v": rng.normal(0, 0.3, (8, 3)), "s": 0.125, "z": 0.0, "b": 4.0}
    arrays |= {"t": 0.25, "mean": 0.5}
    read = {name for node in nodes for name in node.input}
    return cases.model(nodes, ("n", 6), {k: cases.floats(v) for k, v in arrays.items() if k in read}, opsets=opsets)


def data(low: float, *shape: int) -> Tensor:
    """Return images with numbers from `low` to 1."""
    return torch.rand(64, *shape, generator=torch.Generator().manual_seed(1)) * (1 - low) + low


def conventions(model: nn.Module) -> list[tuple[Any, ...]]:
    """Return limits and scales of a file's quantizers, in their order."""
    parts = [part for part in model.modules() if isinstance(part, QuantizeNode)]
    return [(*part.convention[:2], part.scale.tolist()) for part in parts]


@pytest.mark.parametrize(
    ("low", "bits", "limits"),
    [
        (0.0, {}, (0, 255)),
        (-1.0, {}, (-128, 127)),
        (-1.0, {"act_bits": 4}, (-8, 7)),
        (0.0, {"input_bits": 3}, (0, 7)),
        (-1.0, {"act_bits": 1}, (-1, 1)),
    ],
)
def test_input_of_a_file_is_quantized_and_qonnx_evaluates_it(
    low: float, bits: dict[str, int], limits: tuple[int, int]
) -> None:
    model, example = cases.loaded(jets())
    made = nnhw.quantize(model, data(low, 6), example_input=example, **bits)
    assert isinstance(made, OnnxModel)
    kept, own = conventions(made), conventions(model)
    # Its own quantizers stay as they are, and the new one has a scale of nnhw.quantize.
    assert [one for one in kept if one in own] == own
    (added,) = (one for one in kept if one not in own)
    assert added[:2] == limits
    like = nnhw.quantize(nn.Sequential(nn.Linear(6, 2)), data(low, 6), input_bits=min([*bits.values(), 8]))
    (alike,) = (part for part in like.modules() if isinstance(part, Quantizer) and part.axis == PER_TENSOR)
    assert added[2] == alike.scale.tolist()
    graph = capture_quantizers(made, example).graph
    images = data(low * 2, 6).numpy()
    assert np.array_equal(run(lower(graph), images)[0], evaluator(made)(images).result)


def test_result_says_what_was_added() -> None:
    model, example = cases.loaded(jets())
    images, labels = data(0.0, 6), torch.zeros(64, dtype=torch.int64)
    made = nnhw.quantize(model, images, example_input=example, evaluate=(images, labels))
    scale = made.x_quantized.scale.item()
    assert made.added == (
        f"the model's own quantizers stay as they are; added: codes 0..255 with the scale {scale:.6g} at the input"
    )
    assert made.accuracy is not None
    assert made.accuracy.samples == 64
    assert model.added == ""


def test_quantizer_stands_behind_what_prepares_the_input() -> None:
    front = cases.node("Sub", "x", "mean", "a")
    model, example = cases.loaded(jets(front))
    made = nnhw.quantize(model, data(0.0, 6), example_input=example)
    assert "codes -128..127 with the scale" in made.added
    assert "behind 'the_a'" in made.added
    graph = capture_quantizers(made, example).graph
    images = data(-1.0, 6).numpy()
    assert np.array_equal(run(lower(graph), images)[0], evaluator(made)(images).result)


def test_added_quantizer_is_compared_with_the_files_own_evaluation() -> None:
    model, example = cases.loaded(jets())
    made = nnhw.quantize(model, data(0.0, 6), example_input=example)
    made.x_quantized.scale *= 1.5
    with pytest.raises(ExactnessError, match="x_quantized"):
        capture_quantizers(made, example)


def test_check_says_what_to_do_and_what_was_added(tmp_path: Path) -> None:
    (tmp_path / "jets.onnx").write_bytes(jets().SerializeToString())
    np.save(tmp_path / "x.npy", data(0.0, 6).numpy())
    said = CliRunner().invoke(app, ["check", str(tmp_path / "jets.onnx")]).output
    assert (
        "matmul 'the_h' needs quantized inputs, but reads the model's input as floats; add a quantizer there with "
        "--calibrate DATA.npy or nnhw.quantize(model, data)"
    ) in " ".join(said.split())
    arguments = ["check", str(tmp_path / "jets.onnx"), "--calibrate", str(tmp_path / "x.npy"), "--act-bits", "5"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "the model's own quantizers stay as they are; added: codes 0..31 with the scale" in said


class Network(nn.Module):
    """A network of nnhw's layers without a quantizer at its input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = QuantConv2d(1, 4, 3, weight_quant=Int(4, 0.125))
        self.act, self.fc = QuantReLU(4, scale=0.25), QuantLinear(16, 3, weight_quant=Int(4, 0.125))

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 4, 4] --> [N, 3]."""
        return self.fc(self.act(self.conv((x - 0.5) * 2)).flatten(1))


def test_module_of_quantized_layers_gets_an_input_quantizer() -> None:
    torch.manual_seed(0)
    model = Network().eval()
    images = data(0.0, 1, 4, 4)
    made = nnhw.quantize(model, images)
    added = [part for part in made.modules() if isinstance(part, Int) and part.qmin == -128]
    assert len(added) == 1
    assert repr(made).startswith("<Network: the model's own quantizers stay as they are; added: codes -128..127 with")
    assert np.array_equal(nnhw.reference(made, images[:2])(images.numpy()), made(images).detach().numpy())


def test_module_that_is_quantized_already_is_refused() -> None:
    model = nn.Sequential(UInt(8, 2.0**-8), Network()).eval()
    with pytest.raises(InputError) as raised:
        nnhw.quantize(model, data(0.0, 1, 4, 4))
    assert str(raised.value).startswith("the model is quantized already: it has quantizers at 0, ")


def test_calibration_data_that_does_not_fit_is_refused() -> None:
    model, _ = cases.loaded(jets())
    with pytest.raises(NnhwError) as raised:
        nnhw.quantize(model, data(0.0, 7))
    assert str(raised.value).startswith("calibration data of shape [64, 7] does not go through the model: ")


def test_model_of_brevitas_gets_an_input_quantizer() -> None:
    import brevitas.nn as qnn

    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Flatten(),
        qnn.QuantLinear(16, 8, weight_bit_width=4, bias=False),
        qnn.QuantReLU(bit_width=4),
        qnn.QuantLinear(8, 3, weight_bit_width=4, bias=False),
    )
    images = data(-1.0, 1, 4, 4)
    model(images)
    model.eval()
    made = nnhw.quantize(model, images)
    assert made.added.startswith("the model's own quantizers stay as they are; added: codes -128..127 with the scale ")
    # Capturing compares all codes with those of Brevitas's own evaluation.
    captured = capture_quantizers(made, images[:4])
    assert captured.graph.node(captured.graph.outputs[0]).type.shape == (3,)
    reference = nnhw.reference(made, images[:4])
    assert np.array_equal(run(lower(captured.graph), images.numpy())[0], reference(images.numpy()))


def test_quantized_model_of_brevitas_is_refused() -> None:
    model, example = cases.brevitas_network()
    with pytest.raises(InputError) as raised:
        nnhw.quantize(model, example)
    assert str(raised.value) == (
        "layer '0' is a Brevitas layer, and no Brevitas layer of the model reads the input as floats; the model's own "
        "quantizers stay as they are: build it as it is, or give a float model"
    )
