"""Networks with quantizers of their own, as one writes them with `nnhw.nn`."""

from __future__ import annotations

from torch import Tensor, nn

from nnhw.nn import Int, QuantConv1d, QuantConv2d, QuantIdentity, QuantLinear, QuantReLU, Sign, UInt

from .model import PeopleModel

ACT_SCALE = 2**-4


def mlp(weight_bits: int, act_bits: int) -> nn.Module:
    """784-32-16-10, batch norm and a quantized ReLU behind each layer."""
    layers: list[nn.Module] = [nn.Flatten(), UInt(8, scale=2**-8)]
    for before, behind in ((784, 32), (32, 16)):
        linear = QuantLinear(before, behind, weight_quant=Int(weight_bits, "max_abs", axis=0))
        layers += [linear, nn.BatchNorm1d(behind), QuantReLU(act_bits, ACT_SCALE)]
    return nn.Sequential(*layers, QuantLinear(16, 10, weight_quant=Int(weight_bits, "max_abs", axis=0)))


def binary_cnn() -> nn.Module:
    """Binary weights and activations, pooling of signs."""
    layers: list[nn.Module] = [UInt(4, scale=2**-4)]
    for before, behind in ((1, 16), (16, 32)):
        layers += [QuantConv2d(before, behind, 3, bias=False), nn.BatchNorm2d(behind), Sign(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), QuantLinear(32 * 25, 10, bias=False))


class ResidualCnn(nn.Module):
    """Four bits, a residual sum of codes, the mean at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.pixels = UInt(8, scale=2**-8)
        self.stem = QuantConv2d(3, 16, 3, padding=1, weight_quant=Int(4, "max_abs", axis=0))
        self.act1 = QuantReLU(4, ACT_SCALE)
        self.conv = QuantConv2d(16, 16, 3, padding=1, weight_quant=Int(4, "max_abs", axis=0))
        self.branch = QuantIdentity(4, ACT_SCALE)
        self.act2 = QuantReLU(4, ACT_SCALE)
        self.pool, self.mean = nn.AdaptiveAvgPool2d(1), QuantIdentity(8, 2**-8)
        self.fc = QuantLinear(16, 10, weight_quant=Int(4, "max_abs", axis=0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.act1(self.stem(self.pixels(x)))
        x = self.act2(self.branch(self.conv(x)) + x)
        return self.fc(self.mean(self.pool(x)).flatten(1))


def sensor() -> nn.Module:
    """Eight-bit 1-D convolutions on three axes of acceleration."""
    return nn.Sequential(
        QuantIdentity(8, 2**-7),
        QuantConv1d(3, 8, 5, stride=2, weight_quant=Int(8, "max_abs", axis=0)),
        QuantReLU(8, ACT_SCALE),
        QuantConv1d(8, 8, 5, stride=2, weight_quant=Int(8, "max_abs", axis=0)),
        QuantReLU(8, ACT_SCALE),
        nn.Flatten(),
        QuantLinear(8 * 29, 6, weight_quant=Int(8, "max_abs", axis=0)),
    )


MODELS: dict[str, PeopleModel] = {
    "quant_mlp_w8a8": PeopleModel(lambda: mlp(8, 8), (1, 28, 28), quantized=True),
    "quant_mlp_w2a4": PeopleModel(lambda: mlp(2, 4), (1, 28, 28), quantized=True),
    "quant_binary_cnn": PeopleModel(binary_cnn, (1, 28, 28), quantized=True),
    "quant_residual_cnn": PeopleModel(ResidualCnn, (3, 16, 16), quantized=True),
    "quant_sensor": PeopleModel(sensor, (3, 128), quantized=True),
}
