"""Captured graphs compute what PyTorch does, and keep names, places and the user's model as they are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from nnhw.frontend import capture
from nnhw.ir import BIPOLAR, FLOAT, IntType, TensorType, run
from nnhw.nn import Int, QuantConv2d, QuantHardTanh, QuantLinear, QuantReLU, Sign, Ternary, UInt
from tests.frontend.models import binary_mlp, images, mixed_cnn, settled


class Function(nn.Module):
    """A model whose forward is a function of its input, a quantizer, a layer and the input."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function
        self.sign = Sign()
        self.fc = QuantLinear(64, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)  # type: ignore[operator, no-any-return]


def computed(model: nn.Module, x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return what the captured graph computes, and what the model does in float64."""
    graph = capture(model, x)
    with torch.no_grad():
        expected = copy.deepcopy(model).eval().double()(x.double())
    return run(graph, x.numpy())[0], expected.numpy()


FUNCTIONS = {
    "view": lambda m, x: m.fc(m.sign(x.view(x.size(0), -1) - 0.5)),
    "reshape": lambda m, x: m.fc(m.sign(x - 0.5).reshape(-1, 64)),
    "squeeze": lambda m, x: m.fc(m.sign(x - 0.5).squeeze(1).flatten(1)),
    "unsqueeze": lambda m, x: m.fc(m.sign(x - 0.5).flatten(1).unsqueeze(1).flatten(1)),
    "rsub": lambda m, x: m.fc(m.sign(0.5 - x.flatten(1))),
    "constants": lambda m, x: m.fc(m.sign((x.flatten(1) - torch.tensor(0.5)) * torch.linspace(-1, 1, 64) / 2)),
    "batch_of_one": lambda m, x: m.fc(m.sign(x.flatten(1) + torch.full((1, 64), -0.25))),
    "negate": lambda m, x: -m.fc(m.sign(-x.flatten(1) + 0.5)),
    "clamps": lambda m, x: m.fc(m.sign(x.flatten(1) - 0.5)).clamp(-3, 5).clamp(min=-2).clamp_max(4).relu(),
    "hardtanh": lambda m, x: functional.relu6(functional.hardtanh(m.fc(m.sign(x.flatten(1) - 0.5)), -5.0, 2.0)),
    "in_place": lambda m, x: functional.relu(m.fc(m.sign(x.flatten(1) - 0.5)), inplace=True),
    "types": lambda m, x: m.fc(m.sign(x.flatten(1).contiguous() - 0.5)).clone().to(torch.float64),
    "argmax": lambda m, x: m.fc(m.sign(x.flatten(1) - 0.5)).argmax(1),
    "argmax_keepdim": lambda m, x: m.fc(m.sign(x.flatten(1) - 0.5)).argmax(-1, keepdim=True),
    "dropout_in_place": lambda m, x: m.fc(torch.dropout_(m.sign(x.flatten(1) - 0.5), 0.5, m.training)),
    "dropout": lambda m, x: m.fc(functional.dropout(m.sign(x.flatten(1) - 0.5), training=m.training)),
    "two_branches": lambda m, x: m.fc(m.sign(x.flatten(1) - 0.5)) * 2 + m.fc(m.sign(x.flatten(1) - 0.25)),
    "dead_code": lambda m, x: (torch.cumsum(x, 1), m.fc(m.sign(x.flatten(1) - 0.5)))[1],
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_capture_translates(name: str) -> None:
    result, expected = computed(settled(Function(FUNCTIONS[name])), images())
    np.testing.assert_array_equal(result, expected)
    assert result.shape == expected.shape


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "dim", "formula"), [("softmax", -1, _softmax), ("log_softmax", 1, _log_softmax)], ids=["softmax", "log"]
)
def test_capture_computes_softmax_in_the_stated_order(
    name: str, dim: int, formula: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Torch leaves the order of its sum open; the operator states it."""
    model = settled(Function(lambda m, x: m.fc(m.sign(x.flatten(1) - 0.5)) * 0.1))
    _, logits = computed(model, images())
    head = getattr(functional, name)
    model.function = lambda m, x: head(m.fc(m.sign(x.flatten(1) - 0.5)) * 0.1, dim=dim)
    result, by_torch = computed(model, images())
    np.testing.assert_array_equal(result, formula(logits))
    np.testing.assert_array_equal(result.argmax(1), by_torch.argmax(1))


def conv(*arguments: int, **options: object) -> QuantConv2d:
    return QuantConv2d(*arguments, bias=False, **options)  # type: ignore[arg-type]


LAYERS = {
    "stride_padding_groups": [Sign(), conv(1, 4, 3, stride=2, padding=1), Sign(), conv(4, 4, (2, 3), groups=2)],
    "dilation": [UInt(8, 2**-8), conv(1, 4, 3, dilation=(2, 1), padding=(0, 2))],
    "same": [Sign(), conv(1, 4, (3, 5), padding="same")],
    "valid": [Sign(), conv(1, 4, 3, padding="valid")],
    "pool_stride": [Sign(), conv(1, 4, 3), nn.MaxPool2d(3, stride=1), Sign(), conv(4, 2, 1)],
    "pool_ceil_without_rest": [Sign(), conv(1, 4, 1), Sign(), nn.MaxPool2d(2, ceil_mode=True), conv(4, 2, 1)],
    "int_weights": [nn.Flatten(), Int(4, 0.125), QuantLinear(64, 3, weight_quant=Int(8), bias=False)],
    "per_channel": [nn.Flatten(), Int(4, 0.125), QuantLinear(64, 3, weight_quant=Int(4, axis=0), bias=False)],
    "ternary": [nn.Flatten(), Int(2, 0.5), QuantLinear(64, 3, weight_quant=Ternary(), bias=False), QuantReLU(3, 2.0)],
    "zero_points": [
        nn.Flatten(),
        UInt(8, 2**-7, zero_point=100),
        QuantLinear(64, 3, weight_quant=Int(4, zero_point=2), bias=False),
        UInt(4, 0.5, zero_point=3),
    ],
    "batch_norms": [
        nn.Flatten(), nn.BatchNorm1d(64), QuantHardTanh(3), QuantLinear(64, 3, bias=False),
        nn.BatchNorm1d(3, affine=False), nn.ReLU(), nn.Dropout(),
    ],
    "identity": [nn.Flatten(), nn.Identity(), Sign(), Sign(), QuantLinear(64, 3, bias=False)],
}  # fmt: skip


class StatedBatchNorm(nn.Module):
    """Batch normalization in the order that the operator states; that of torch is its own."""

    def __init__(self, norm: nn.BatchNorm1d) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = self.norm
        weight = torch.ones_like(norm.running_mean) if norm.weight is None else norm.weight
        bias = torch.zeros_like(norm.running_mean) if norm.bias is None else norm.bias
        inverse = 1.0 / torch.sqrt(norm.running_var + norm.eps)
        alpha = inverse * weight
        return x * alpha + (bias - norm.running_mean * alpha)


@pytest.mark.parametrize("name", LAYERS)
def test_capture_translates_layers(name: str) -> None:
    model, x = settled(nn.Sequential(*copy.deepcopy(LAYERS[name]))), images() - 0.5
    stated = nn.Sequential(*[StatedBatchNorm(m) if isinstance(m, nn.BatchNorm1d) else m for m in copy.deepcopy(model)])
    with torch.no_grad():
        expected = stated.eval().double()(x.double()).numpy()
    np.testing.assert_array_equal(run(capture(model, x), x.numpy())[0], expected)


def test_capture_names_nodes_and_types_sums_by_their_weights() -> None:
    graph = capture(mixed_cnn(), images(), "mixed")
    names = [node.name for node in graph.nodes if node.op.name != "constant"]
    assert names == [
        "input", "quantize_0", "conv2d_1", "conv2d_1.dequantize", "conv2d_1.bias", "batch_norm_2", "max_pool2d_3",
        "quantize_4", "flatten_5", "linear_6", "linear_6.dequantize", "linear_6.bias", "log_softmax_7",
    ]  # fmt: skip
    assert graph.name == "mixed"
    assert graph.node("quantize_0").type == TensorType((1, 8, 8), IntType(0, 15))
    weight = graph.constants["1.weight"]
    assert graph.node("1.weight").type.dtype == BIPOLAR
    sums = [15 * int((row > 0).sum()) for row in weight.reshape(6, -1)]
    rest = [-15 * int((row < 0).sum()) for row in weight.reshape(6, -1)]
    assert graph.node("conv2d_1").type == TensorType((6, 6, 6), IntType(min(rest), max(sums)))
    assert graph.node("log_softmax_7").type == TensorType((5,), FLOAT)
    assert (graph.node("conv2d_1").location.module, graph.node("conv2d_1.bias").location.module) == ("1", "1")


def test_capture_says_the_users_line() -> None:
    graph = capture(settled(Function(FUNCTIONS["reshape"])), images())
    location = graph.node("fc").location
    assert (location.module, location.file) == ("fc", "test_capture.py")
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[location.line - 1]
    assert "return self.function(self, x)" in line


def test_capture_keeps_pooling_and_reshaping_on_codes() -> None:
    model = nn.Sequential(Sign(), conv(1, 4, 3), nn.MaxPool2d(2), Sign(), nn.MaxPool2d(3), nn.Flatten(), conv(4, 2, 1))
    graph = capture(settled(nn.Sequential(*model[:6], QuantLinear(4, 2))), images())
    dtypes = {node.op.name: node.type.is_int for node in graph.nodes}
    assert dtypes["max_pool2d"]
    assert dtypes["flatten"]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_capture_does_not_fix_the_batch(count: int) -> None:
    model, x = binary_mlp(), images(3) - 0.5
    graph = capture(model, images(count))
    with torch.no_grad():
        assert run(graph, x.numpy())[0].tolist() == model(x).double().tolist()


def test_capture_does_not_change_the_model_nor_the_example() -> None:
    model = mixed_cnn().train()
    model[1].weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    example = images()
    capture(model, example)
    assert all(module.training for module in model.modules())
    assert [p.requires_grad for p in model.parameters()][:2] == [False, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(example, images())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_capture_does_not_change_an_example_that_the_model_writes_to() -> None:
    example = images()
    model = settled(Function(lambda m, x: m.fc(m.sign(x.sub_(0.5).flatten(1)))))
    graph = capture(model, example)
    assert torch.equal(example, images())
    with torch.no_grad():
        assert run(graph, example.numpy())[0].tolist() == model(example.clone()).tolist()


def test_capture_takes_float64_models_and_exported_programs() -> None:
    model = binary_mlp()
    double = capture(model.double(), images().double())
    program = torch.export.export(model.eval(), (images().double(),), strict=False)
    static = capture(program)
    x = images(3, seed=5).numpy()
    assert run(double, x)[0].tolist() == run(static, x)[0].tolist()
