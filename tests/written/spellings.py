"""One small network whose quantizers are written in the many ways in which people write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

Function = Callable[[Tensor], Tensor]


class Spelled(nn.Module):
    """[N, 1, 8, 8] --> [N, 6]: a convolution and a linear layer; functions quantize the image, weights, values."""

    def __init__(self, pixels: Function, weights: Function, values: Function) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6)
        self.fc = nn.Linear(54, 6)
        self.pixels, self.weights, self.values = pixels, weights, values

    def forward(self, x: Tensor) -> Tensor:
        """Return scores."""
        x = functional.conv2d(self.pixels(x), self.weights(self.conv.weight), stride=2)
        x = self.values(self.norm(x)).flatten(1)
        return functional.linear(x, self.weights(self.fc.weight), self.fc.bias)


def where(x: Tensor) -> Tensor:
    """By a choice."""
    return torch.where(x >= 0, 1.0, -1.0)


def where_tensors(x: Tensor) -> Tensor:
    """By a choice between tensors."""
    return torch.where(x > 0, torch.ones_like(x), -torch.ones_like(x))


def greater_or_equal(x: Tensor) -> Tensor:
    """By a comparison that becomes a number."""
    return x.ge(0).float() * 2 - 1


def sign_add_sign(x: Tensor) -> Tensor:
    """Without a 0."""
    return x.sign().add(0.5).sign()


def sign_in_place(x: Tensor) -> Tensor:
    """Without a 0, in place."""
    return x.clone().sign_().add_(0.01).sign_()


def sgn(x: Tensor) -> Tensor:
    """By the sign that also complex numbers have."""
    return torch.sgn(x)


def heaviside(x: Tensor) -> Tensor:
    """By the step function."""
    hard = 2 * torch.heaviside(x.detach(), torch.tensor(1.0, dtype=x.dtype)) - 1
    return hard + x - x.detach()


def copysign(x: Tensor) -> Tensor:
    """By the sign bit."""
    return torch.copysign(torch.ones_like(x), x)


def masked_fill(x: Tensor) -> Tensor:
    """By masks."""
    mask = x < 0
    return x.masked_fill(mask, -1.0).masked_fill(~mask, 1.0)


def indexed(x: Tensor) -> Tensor:
    """By assignments to what a mask selects."""
    out = torch.ones_like(x)
    out[x < 0] = -1
    return out


def floor_of_clamp(x: Tensor) -> Tensor:
    """A hard sigmoid, rounded to 0 or 1, then moved."""
    p = torch.clamp((x + 1) / 2, 0, 1)
    return torch.floor(p + 0.5) * 2 - 1


def quotient(x: Tensor) -> Tensor:
    """By its own magnitude."""
    return x / x.abs()


def softsign_detached(x: Tensor) -> Tensor:
    """The sign in front, the gradient of tanh behind."""
    soft = torch.tanh(2 * x)
    return (torch.sign(x).detach() - soft.detach()) + soft


def bool_times(x: Tensor) -> Tensor:
    """By differences of comparisons."""
    return (x >= 0).type_as(x) - (x < 0).type_as(x)


SIGNS: dict[str, Function] = {
    function.__name__: function
    for function in (
        *(where, where_tensors, greater_or_equal, sign_add_sign, sign_in_place, sgn, heaviside, copysign, masked_fill),
        *(indexed, floor_of_clamp, quotient, softsign_detached, bool_times),
    )
}


def floor_half(x: Tensor) -> Tensor:
    """Half is added, and the rest cut off."""
    return torch.floor(x.clamp(0, 1) * 15 + 0.5) / 15


def int_cast(x: Tensor) -> Tensor:
    """By a whole number of 32 bits."""
    return (x.clamp(0, 1) * 15).int().float() / 15


def byte_cast(x: Tensor) -> Tensor:
    """By a byte."""
    return (x.clamp(0, 1) * 15).round().to(torch.uint8).to(torch.float32).div(15)


def detach_minus(x: Tensor) -> Tensor:
    """x + (q - x).detach()."""
    q = torch.round(x.clamp(0, 1) * 15) / 15
    return x + (q - x).detach()


def detach_plus(x: Tensor) -> Tensor:
    """q.detach() + x - x.detach()."""
    q = torch.round(x.clamp(0, 1) * 15) / 15
    return q.detach() + x - x.detach()


def data_minus(x: Tensor) -> Tensor:
    """By `.data`."""
    q = x.clamp(0, 1)
    q.data = torch.round(q.data * 15) / 15
    return q


def no_grad_error(x: Tensor) -> Tensor:
    """The error of rounding, computed without gradient."""
    x = x.clamp(0, 1)
    with torch.no_grad():
        error = torch.round(x * 15) / 15 - x
    return x + error


def floor_division(x: Tensor) -> Tensor:
    """By the division that rounds down."""
    return torch.div(x.clamp(0, 1), 1 / 16, rounding_mode="floor").clamp(max=15) / 16


def remainder(x: Tensor) -> Tensor:
    """What a step leaves is taken off."""
    x = x.clamp(0, 0.99)
    return x - x % 0.0625


def decimals(x: Tensor) -> Tensor:
    """Rounded to a digit."""
    return torch.round(x.clamp(0, 1), decimals=1)


def thresholds(x: Tensor) -> Tensor:
    """A sum of comparisons."""
    return sum((x > t).float() for t in (0.125, 0.375, 0.625)) / 4  # type: ignore[return-value]


def bucketized(x: Tensor) -> Tensor:
    """The number of limits below."""
    return torch.bucketize(x, torch.tensor([0.125, 0.375, 0.625, 0.875])).float() / 4


def quantize_per_tensor(x: Tensor) -> Tensor:
    """By torch's quantized tensors."""
    return torch.quantize_per_tensor(x, 1 / 16, 0, torch.quint8).dequantize()


def fake_quantize(x: Tensor) -> Tensor:
    """By torch's fake quantizer with a zero point."""
    return torch.fake_quantize_per_tensor_affine(x, 0.0625, 3, 0, 15)


def tanh_steps(x: Tensor) -> Tensor:
    """Steps of a tanh."""
    return torch.round(torch.tanh(x) * 7) / 7


def min_max(x: Tensor) -> Tensor:
    """Limits by minimum and maximum with tensors."""
    low, high = torch.tensor(0.0), torch.tensor(15.0)
    return torch.minimum(torch.maximum(torch.round(x * 15), low), high) / 15


def nested(x: Tensor) -> Tensor:
    """Two quantizers, one behind the other: 6 and 3 bits."""
    x = torch.round(x.clamp(0, 1) * 63) / 63
    return torch.round(x * 7) / 7


def log_steps(x: Tensor) -> Tensor:
    """Powers of two from 1/8 to 1, and 0."""
    e = torch.round(torch.log2(x.clamp(min=1e-4))).clamp(-4, 0)
    return torch.where(e > -4, 2.0**e, torch.zeros_like(x))


UNIFORM: dict[str, Function] = {
    function.__name__: function
    for function in (
        *(floor_half, int_cast, byte_cast, detach_minus, detach_plus, data_minus, no_grad_error, floor_division),
        *(remainder, decimals, thresholds, bucketized, quantize_per_tensor, fake_quantize, tanh_steps, min_max, nested),
        *(log_steps,),
    )
}


def grid(x: Tensor) -> Tensor:
    """Return pixels of 4 bits."""
    return torch.round(x.clamp(0, 1) * 15) / 15


def four_bits(w: Tensor) -> Tensor:
    """Return weights of 4 bits with a scale for each output."""
    scale = w.detach().abs().amax(dim=tuple(range(1, w.ndim)), keepdim=True) / 7
    return w + ((w / scale).round().clamp(-8, 7) * scale - w).detach()


def spelled_sign(name: str) -> nn.Module:
    """Return the network with signs everywhere; the image is moved in front of them."""
    sign = SIGNS[name]
    return Spelled(lambda x: sign(x - 0.5), sign, sign)


def spelled_uniform(name: str) -> nn.Module:
    """Return the network with a quantizer of a spelling behind the image and the convolution."""
    quantizer = UNIFORM[name]
    return Spelled(quantizer, four_bits, lambda x: quantizer(functional.relu(x)))


class Scaled(nn.Module):
    """A quantizer of signed numbers; a subclass says where the scale comes from."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.low, self.high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def step(self) -> Any:
        """Return the scale."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Return multiples of the scale."""
        scale = self.step()
        q = torch.clamp(torch.round(x / scale), self.low, self.high) * scale
        return x + (q - x).detach()


class BufferScale(Scaled):
    """The scale is a buffer."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits)
        self.register_buffer("scale", torch.tensor(0.137))

    def step(self) -> Any:
        """Return the buffer."""
        return self.scale


class PropertyScale(Scaled):
    """The scale is a property that is computed from a parameter by softplus."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits)
        self.raw = nn.Parameter(torch.tensor(-2.0))

    @property
    def scale(self) -> Tensor:
        """Return a scale above 0."""
        return functional.softplus(self.raw) + 1e-6

    def step(self) -> Any:
        """Return the property."""
        return self.scale


class DecadeScale(Scaled):
    """The scale is a power of 10 to the nearest whole exponent."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits)
        self.scale = nn.Parameter(torch.tensor(0.17))

    def step(self) -> Any:
        """Return 10 ** round(log10)."""
        return 10 ** torch.round(torch.log10(self.scale))


class PowerScale(Scaled):
    """The scale is two to a learned exponent, rounded."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits)
        self.exponent = nn.Parameter(torch.tensor(-2.7))

    def step(self) -> Any:
        """Return 2 ** round(exponent)."""
        return 2.0 ** (self.exponent + (self.exponent.round() - self.exponent).detach())


class NumberScale(Scaled):
    """The scale is a number of Python that `math` has computed."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits)
        self.number = math.sqrt(2) / self.high

    def step(self) -> Any:
        """Return the number."""
        return self.number


SCALES: dict[str, type[Scaled]] = {
    "buffer": BufferScale,
    "property": PropertyScale,
    "decade": DecadeScale,
    "power of two": PowerScale,
    "number": NumberScale,
}


class ScaledNet(nn.Module):
    """[N, 1, 8, 8] --> [N, 6], with modules that quantize."""

    def __init__(self, name: str) -> None:
        super().__init__()
        make = SCALES[name]
        self.q1, self.q2, self.q3, self.q4 = make(4), make(4), make(4), make(4)
        self.conv, self.norm, self.fc = nn.Conv2d(1, 6, 3, stride=2), nn.BatchNorm2d(6), nn.Linear(54, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores."""
        x = functional.conv2d(self.q1(x), self.q2(self.conv.weight), self.conv.bias, stride=2)
        x = self.q3(functional.hardtanh(self.norm(x))).flatten(1)
        return functional.linear(x, self.q4(self.fc.weight), self.fc.bias)


class AffineByHand(nn.Module):
    """Scale and zero point from running limits in buffers, as a tutorial on fake quantization writes them."""

    low: Tensor
    high: Tensor

    def __init__(self, bits: int = 4) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("low", torch.tensor(0.0))
        self.register_buffer("high", torch.tensor(0.0))

    def forward(self, x: Tensor) -> Tensor:
        """Return multiples of the scale."""
        if self.training:
            self.low = torch.minimum(self.low, x.detach().min())
            self.high = torch.maximum(self.high, x.detach().max())
        qmax = 2**self.bits - 1
        scale = (self.high - self.low) / qmax
        zero_point = torch.clamp(torch.round(-self.low / scale), 0, qmax)
        q = torch.clamp(torch.round(x / scale + zero_point), 0, qmax)
        return x + (scale * (q - zero_point) - x).detach()


class AffineNet(nn.Module):
    """[N, 1, 8, 8] --> [N, 6] behind values that go below zero."""

    def __init__(self) -> None:
        super().__init__()
        self.q1, self.q2 = AffineByHand(), AffineByHand()
        self.conv, self.norm, self.fc = nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6), nn.Linear(96, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores."""
        x = functional.conv2d(self.q1(x), four_bits(self.conv.weight), self.conv.bias, stride=2, padding=1)
        x = self.q2(functional.leaky_relu(self.norm(x), 0.2)).flatten(1)
        return functional.linear(x, four_bits(self.fc.weight), self.fc.bias)


class Parametrization(nn.Module):
    """Signs times the mean magnitude as a parametrization of weights."""

    def forward(self, w: Tensor) -> Tensor:
        """Return binary weights."""
        alpha = w.abs().mean()
        b = torch.where(w >= 0, alpha, -alpha)
        return w + (b - w).detach()


def parametrized() -> nn.Module:
    """Return a network whose layers get binary weights by `torch.nn.utils.parametrize`."""
    model = Spelled(grid, lambda w: w, lambda x: grid(functional.relu(x)))
    parametrize.register_parametrization(model.conv, "weight", Parametrization())
    parametrize.register_parametrization(model.fc, "weight", Parametrization())
    return model


class Plain(nn.Module):
    """[N, 1, 8, 8] --> [N, 6], layers without a quantizer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(1, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6), nn.ReLU()
        self.fc = nn.Linear(54, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores."""
        return self.fc(self.relu(self.norm(self.conv(x))).flatten(1))


def hooked() -> nn.Module:
    """Return a network whose hooks quantize operands and weights in front of each layer."""
    model = Plain()

    def before(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (grid(given[0]),)

    for layer in (model.conv, model.fc):
        parametrize.register_parametrization(layer, "weight", Parametrization())
        layer.register_forward_pre_hook(before)
    return model


def hooked_outputs() -> nn.Module:
    """Return a network with a forward hook behind ReLU, and weights that are quantized once, in `.data`."""
    model = Plain()
    model.relu.register_forward_hook(lambda module, given, result: grid(result))
    model.register_forward_pre_hook(lambda module, given: (grid(given[0]),))
    return model


class WeightData(nn.Module):
    """Weights are overwritten in `forward`, from copies of full precision."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Linear(64, 16, bias=False), nn.BatchNorm1d(16), nn.Linear(16, 6)
        self.full = [layer.weight.detach().clone() for layer in (self.fc1, self.fc2)]

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 6]."""
        self.fc1.weight.data = self.full[0].to(x.dtype).sign()
        self.fc2.weight.data = four_bits(self.full[1].to(x.dtype))
        x = self.norm(self.fc1(grid(x).flatten(1)))
        return self.fc2(grid(functional.relu(x)))


class MatmulNet(nn.Module):
    """Functional layers: matrices as parameters, einsum and @."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.randn(64, 12) * 0.2), nn.Parameter(torch.randn(12, 6) * 0.3)
        self.bias, self.norm = nn.Parameter(torch.zeros(12)), nn.BatchNorm1d(12)

    @staticmethod
    def quantized(w: Tensor) -> Tensor:
        """Return weights of 3 bits with one scale."""
        scale = w.abs().max() / 3
        return (w / scale).round() * scale

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 6]."""
        x = torch.einsum("ni,io->no", grid(x).flatten(1), self.quantized(self.w1)) + self.bias
        x = where(self.norm(x))
        return x @ self.quantized(self.w2)


class Residual(nn.Module):
    """Quantized branches that are added, depthwise and pointwise layers, average pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6)
        self.depth, self.bn2 = nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False), nn.BatchNorm2d(6)
        self.point, self.bn3 = nn.Conv2d(6, 6, 1, bias=False), nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 6]."""
        x = functional.conv2d(grid(x), four_bits(self.conv1.weight), stride=2)
        x = grid(functional.relu(self.bn1(x)))
        y = grid(functional.relu6(self.bn2(functional.conv2d(x, four_bits(self.depth.weight), padding=1, groups=6))))
        y = grid(functional.relu(self.bn3(functional.conv2d(y, four_bits(self.point.weight)))))
        x = grid(functional.avg_pool2d(x + y, 3))
        return functional.linear(x.flatten(1), four_bits(self.fc.weight), self.fc.bias)


class Upsampling(nn.Module):
    """A transposed convolution behind a small code, as an autoencoder has it."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm = nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4)
        self.up = nn.ConvTranspose2d(4, 1, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> the same."""
        x = functional.conv2d(grid(x), torch.sign(self.down.weight), stride=2, padding=1)
        x = grid(torch.sigmoid(self.norm(x)))
        scale = self.up.weight.abs().max() / 7
        weight = (self.up.weight / scale).round() * scale
        return functional.conv_transpose2d(x, weight, self.up.bias, stride=2)


class Dynamic(nn.Module):
    """Activations whose scale follows each batch: no fixed steps."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(64, 16), nn.Linear(16, 6)

    @staticmethod
    def dynamic(x: Tensor) -> Tensor:
        """Return 8 bits of the batch's own range."""
        scale = x.abs().max() / 127
        return torch.round(x / scale) * scale

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 6]."""
        x = functional.relu(functional.linear(self.dynamic(x.flatten(1)), four_bits(self.fc1.weight)))
        return functional.linear(self.dynamic(x), four_bits(self.fc2.weight))


class Sequence(nn.Module):
    """A layer list with lambdas as modules."""

    class Lambda(nn.Module):
        """A function as a module."""

        def __init__(self, function: Function) -> None:
            super().__init__()
            self.function = function

        def forward(self, x: Tensor) -> Tensor:
            """Apply the function."""
            return self.function(x)

    class Linear(nn.Linear):
        """A layer with ternary weights by rounding and clamping."""

        def forward(self, input: Tensor) -> Tensor:
            """[N, inputs] --> [N, outputs]: weights as BitNet b1.58 has them."""
            scale = self.weight.abs().mean().clamp(min=1e-5)
            w = (self.weight / scale).round().clamp(-1, 1) * scale
            return functional.linear(input, self.weight + (w - self.weight).detach(), self.bias)

    def __init__(self) -> None:
        super().__init__()
        quantize = self.Lambda(lambda x: torch.round(torch.clamp(x, -1, 1) * 7) / 7)
        self.layers = nn.Sequential(
            *(nn.Flatten(), quantize, self.Linear(64, 16), nn.BatchNorm1d(16), quantize),
            *(self.Linear(16, 12), nn.BatchNorm1d(12), nn.Tanh(), quantize, self.Linear(12, 6)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 6]."""
        return self.layers(x)


class QuantCell(nn.Module):
    """A recurrent cell over rows, quantized by hand, its steps written out."""

    def __init__(self) -> None:
        super().__init__()
        self.wx, self.wh = nn.Parameter(torch.randn(8, 8) * 0.3), nn.Parameter(torch.randn(8, 8) * 0.3)
        self.fc = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 4, 8] --> [N, 6]."""
        h = torch.zeros(x.size(0), 8)
        wx, wh = MatmulNet.quantized(self.wx), MatmulNet.quantized(self.wh)
        for step in range(4):
            h = tanh_steps(grid(x[:, step]) @ wx.t() + h @ wh.t())
        return functional.linear(h, four_bits(self.fc.weight), self.fc.bias)
