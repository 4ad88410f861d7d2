"""Networks that torch's own quantization has made, trained a little."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao import quantization
from torch.ao.quantization import disable_observer, fake_quantize, observer
from torch.ao.quantization.fake_quantize import FakeQuantizeBase
from torch.nn import functional

from nnhw.nn.written.int8 import has_int8

__all__ = ["LearnableFake", "Modules", "by_fx", "disable_observer", "eager", "imitates", "post_training"]


def imitates(model: nn.Module) -> bool:
    """Return whether a model has modules of torch that compute codes in float32."""
    return has_int8(model) or any(isinstance(module, FakeQuantizeBase) for module in model.modules())


class Qat(nn.Module):
    """A network with the marks of eager quantization."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.bn, self.relu = nn.Conv2d(1, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU()
        self.fc = nn.Linear(54, 6)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 6]."""
        x = self.relu(self.bn(self.conv(self.quant(x))))
        return self.dequant(self.fc(x.reshape(-1, 54)))


class Marked(nn.Module):
    """The same without the marks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(1, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU()
        self.fc = nn.Linear(54, 6)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 6]."""
        return self.fc(self.relu(self.bn(self.conv(x))).flatten(1))


def _trained(model: nn.Module) -> nn.Module:
    from tests.written.networks import train

    return train(model, (1, 8, 8))


def eager(backend: str, *, converted: bool = False, fused: bool = True) -> nn.Module:
    """Return an eager model for QAT, trained; `converted` to int8 modules."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any = Qat().train()
        if fused:
            model = quantization.fuse_modules_qat(model, [["conv", "bn", "relu"]])
        model.qconfig = quantization.get_default_qat_qconfig(backend)
        made = _trained(quantization.prepare_qat(model))
        made.apply(quantization.disable_observer)
        if converted:
            torch.backends.quantized.engine = backend if backend != "x86" else "fbgemm"
            return quantization.convert(made.eval())
        return made


def by_fx(backend: str, *, converted: bool = False) -> nn.Module:
    """Return a model for QAT by FX, trained; `converted` to int8 modules."""
    from torch.ao.quantization import quantize_fx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mapping = quantization.get_default_qat_qconfig_mapping(backend)
        made: Any = _trained(quantize_fx.prepare_qat_fx(Marked().train(), mapping, (torch.rand(2, 1, 8, 8),)))
        made.apply(quantization.disable_observer)
        return quantize_fx.convert_fx(made.eval()) if converted else made


def post_training() -> nn.Module:
    """Return an eager model whose observers have seen images, converted to int8 modules per channel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any = quantization.fuse_modules(Qat().eval(), [["conv", "bn", "relu"]])
        model.qconfig = quantization.get_default_qconfig("fbgemm")
        made = quantization.prepare(model)
        made(torch.rand(16, 1, 8, 8, generator=torch.Generator().manual_seed(3)))
        return quantization.convert(made)


class Modules(nn.Module):
    """torch's fake quantizers called in `forward`, of 4 bits."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        common = {"quant_min": 0, "quant_max": 15, "dtype": torch.quint8}
        weight = {"quant_min": -7, "quant_max": 7, "dtype": torch.qint8}
        if kind == "fused":
            make: Any = fake_quantize.FusedMovingAvgObsFakeQuantize
        else:
            make = fake_quantize.FakeQuantize
        seen = observer.MovingAverageMinMaxObserver
        channels = observer.MovingAveragePerChannelMinMaxObserver
        self.pixels, self.values = make(observer=seen, **common), make(observer=seen, **common)
        per_channel = {"observer": channels, "ch_axis": 0, "qscheme": torch.per_channel_symmetric}
        self.of_conv, self.of_fc = make(**per_channel, **weight), make(**per_channel, **weight)
        self.conv, self.bn, self.fc = nn.Conv2d(1, 6, 3, stride=2), nn.BatchNorm2d(6), nn.Linear(54, 6)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 6]."""
        x = functional.conv2d(self.pixels(x), self.of_conv(self.conv.weight), self.conv.bias, stride=2)
        x = self.values(functional.relu(self.bn(x)))
        return functional.linear(x.flatten(1), self.of_fc(self.fc.weight), self.fc.bias)


class LearnableFake(nn.Module):
    """torch's operator with a learned scale and zero point."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.bn, self.fc2 = nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Linear(16, 6)
        self.scales = nn.ParameterList(torch.tensor([value]) for value in (0.07, 0.09, 0.2, 0.08))
        self.zero_points = nn.ParameterList(torch.tensor([value]) for value in (0.0, 0.0, 2.0, 0.0))

    def quantized(self, x: Tensor, place: int, low: int, high: int) -> Tensor:
        """Return multiples of a learned scale."""
        scale, zero_point = self.scales[place], self.zero_points[place]
        return torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero_point, low, high, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 6]."""
        x = functional.linear(self.quantized(x.flatten(1), 0, 0, 15), self.quantized(self.fc1.weight, 1, -8, 7))
        x = self.quantized(functional.leaky_relu(self.bn(x)), 2, 0, 15)
        return functional.linear(x, self.quantized(self.fc2.weight, 3, -8, 7), self.fc2.bias)
