"""Gates, squeeze-and-excitation and gated linear units: float models --> quantized ones that lower exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from nnhw.frontend import capture
from nnhw.ir import run
from nnhw.passes import lower, split


class SqueezeExcitation(nn.Module):
    """As MobileNetV3 and EfficientNet write it."""

    def __init__(self, channels: int, squeezed: int, activation: Any, scale_activation: Any) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, x: Tensor) -> Tensor:
        scale = self.activation(self.fc1(self.avgpool(x)))
        return self.scale_activation(self.fc2(scale)) * x


class ClassicSqueeze(nn.Module):
    """With linear layers, a view and `expand_as`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(channels, 3), nn.ReLU(), nn.Linear(3, channels), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, _, _ = x.size()
        y = functional.adaptive_avg_pool2d(x, 1).view(batch, channels)
        return x * self.fc(y).view(batch, channels, 1, 1).expand_as(x)


class Function(nn.Module):
    """A function of the sums of a convolution."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.other = nn.Conv2d(6, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


class Around(nn.Module):
    """A convolution in front of a block, and a linear layer behind it."""

    def __init__(self, block: nn.Module, features: int = 6) -> None:
        super().__init__()
        self.conv, self.block = nn.Conv2d(2, 6, 3, padding=1), block
        self.fc = nn.Linear(features * 20, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.block(torch.relu(self.conv(x)) - 0.25).flatten(1))


BLOCKS: dict[str, Callable[[], Around]] = {
    "mobilenet_v3": lambda: Around(SqueezeExcitation(6, 2, nn.ReLU, nn.Hardsigmoid)),
    "efficientnet": lambda: Around(SqueezeExcitation(6, 2, nn.SiLU, nn.Sigmoid)),
    "classic": lambda: Around(ClassicSqueeze(6)),
    "gate_of_another_layer": lambda: Around(Function(lambda m, x: x * torch.sigmoid(m.other(x)))),
    "glu_function": lambda: Around(Function(lambda m, x: functional.glu(x, 1)), 3),
    "glu_module": lambda: Around(nn.GLU(dim=1), 3),
    "glu_of_rows": lambda: Around(Function(lambda m, x: functional.glu(x.flatten(2).transpose(1, 2))), 3),
    "tanh_times_sigmoid": lambda: Around(Function(lambda m, x: torch.tanh(m.other(x)) * torch.sigmoid(x))),
    "spatial": lambda: Around(Function(lambda m, x: x * torch.sigmoid(m.other(x).amax((2, 3), keepdim=True)))),
    "greater": lambda: Around(Function(lambda m, x: torch.maximum(x, m.other(x)))),
    "lesser": lambda: Around(Function(lambda m, x: functional.relu(torch.minimum(m.other(x), x)))),
    "product_of_three": lambda: Around(Function(lambda m, x: x * torch.sigmoid(m.other(x)) * torch.tanh(x))),
}


def made(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(4)
    return BLOCKS[name]().eval(), torch.randn(30, 2, 4, 5)


FEW_BITS = ("mobilenet_v3", "classic", "glu_of_rows", "greater")
"""Blocks that are quantized to unlike and few bits, too."""


@pytest.mark.parametrize(
    ("name", "weight_bits", "act_bits"), [*((name, 8, 8) for name in BLOCKS), *((name, 4, 3) for name in FEW_BITS)]
)
def test_block_lowers_exactly(name: str, weight_bits: int, act_bits: int) -> None:
    model, images = made(name)
    quantized = nnhw.quantize(model, images, weight_bits, act_bits)
    graph = capture(quantized, images[:6])
    parts = split(lower(graph))
    ops = {node.op.name for node in parts.body.nodes}
    assert ops & {"product", "maximum", "minimum"}
    given = images[:6].numpy().astype(np.float64)
    (expected,) = run(graph, given)
    (found,) = parts.run(given)
    np.testing.assert_array_equal(found, expected)
    with torch.no_grad():
        np.testing.assert_allclose(expected, quantized(images[:6]).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["mobilenet_v3", "classic", "glu_module", "glu_of_rows"])
def test_quantized_block_stays_close_to_the_float_one(name: str) -> None:
    model, images = made(name)
    quantized = nnhw.quantize(model, images)
    with torch.no_grad():
        error, size = (quantized(images) - model(images)).abs().mean(), model(images).abs().mean()
    assert error < 0.05 * size


def test_glu_of_an_exported_program_is_written_out() -> None:
    model, images = made("glu_module")
    program = torch.export.export(model, (images[:2],), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    quantized = nnhw.quantize(program, images)
    with torch.no_grad():
        assert torch.equal(quantized(images[:3]), nnhw.quantize(model, images)(images[:3]))
