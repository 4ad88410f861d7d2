"""Networks of two to eight bits and of ternary weights, in the manner of the repositories of their papers."""

# torch gives autograd.Function.apply no types.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class RoundSTE(torch.autograd.Function):
    """Rounding whose gradient passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return whole numbers."""
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Return the gradient."""
        return gradients[0]


def uniform_quantize(k: int) -> Callable[[Tensor], Tensor]:
    """Return DoReFa's quantizer of numbers from 0 to 1; of one bit, the sign."""

    class Quantize(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            if k == 32:
                return x
            if k == 1:
                return torch.sign(x)
            n = float(2**k - 1)
            return torch.round(x * n) / n

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0].clone()

    return Quantize.apply  # type: ignore[return-value]


class DorefaWeight(nn.Module):
    """DoReFa's quantizer of weights."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.w_bit, self.uniform_q = bits, uniform_quantize(bits)

    def forward(self, x: Tensor) -> Tensor:
        """Return quantized weights."""
        if self.w_bit == 32:
            return x
        if self.w_bit == 1:
            e = torch.mean(torch.abs(x)).detach()
            return self.uniform_q(x / e) * e
        weight = torch.tanh(x)
        max_w = torch.max(torch.abs(weight)).detach()
        weight = weight / 2 / max_w + 0.5
        return max_w * (2 * self.uniform_q(weight) - 1)


class DorefaActivation(nn.Module):
    """DoReFa's quantizer of activations."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.a_bit, self.uniform_q = bits, uniform_quantize(bits)

    def forward(self, x: Tensor) -> Tensor:
        """Return multiples of 1 / (2^bits - 1)."""
        return x if self.a_bit == 32 else self.uniform_q(torch.clamp(x, 0, 1))


class DorefaConv(nn.Conv2d):
    """A convolution with DoReFa's weights."""

    def __init__(self, *sizes: Any, bits: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.quantize_fn = DorefaWeight(bits)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] --> [N, outputs, H', W']."""
        weight_q = self.quantize_fn(self.weight)
        return functional.conv2d(x, weight_q, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Dorefa(nn.Module):
    """DoReFa-Net: float layers first and last where the paper has them."""

    def __init__(self, w_bits: int, a_bits: int, *, input_bits: int = 32) -> None:
        super().__init__()
        self.input_q = DorefaActivation(input_bits)
        ends = 32 if input_bits == 32 else 8
        self.conv1 = DorefaConv(1, 6, 3, stride=2, bits=ends, bias=False)
        self.conv2 = DorefaConv(6, 8, 3, bits=w_bits, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(6), nn.BatchNorm2d(8)
        self.act = DorefaActivation(a_bits)
        self.fc = nn.Linear(128, 10)
        self.fc_q = DorefaWeight(ends)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 14, 14] --> [N, 10]."""
        x = self.act(self.bn1(self.conv1(self.input_q(x))))
        x = self.act(self.bn2(self.conv2(x)))
        return functional.linear(x.flatten(1), self.fc_q(self.fc.weight), self.fc.bias)


class PactFunction(torch.autograd.Function):
    """PACT with a number that is read from its parameter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Tensor, k: int) -> Tensor:
        """Return multiples of alpha / (2^k - 1)."""
        ctx.save_for_backward(x, alpha)
        y = torch.clamp(x, min=0, max=alpha.item())
        scale = (2**k - 1) / alpha
        return torch.round(y * scale) / scale

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients of the operand, and of alpha where it was above."""
        x, alpha = ctx.saved_tensors
        above = (x >= alpha).float()
        inside = (x >= 0).float() * (1 - above)
        return gradients[0] * inside, (gradients[0] * above).sum().view(-1), None


class PactAbs(nn.Module):
    """PACT's own formula: half of |x| - |x - alpha| + alpha."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.alpha, self.bits = nn.Parameter(torch.tensor(1.7)), bits

    def forward(self, x: Tensor) -> Tensor:
        """Return multiples of alpha / (2^bits - 1)."""
        y = 0.5 * (x.abs() - (x - self.alpha).abs() + self.alpha)
        steps = 2**self.bits - 1
        return RoundSTE.apply(y * steps / self.alpha) * self.alpha / steps


class PactItem(nn.Module):
    """PACT by its function with a context."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.alpha, self.bits = nn.Parameter(torch.tensor([1.3])), bits

    def forward(self, x: Tensor) -> Tensor:
        """Return multiples of alpha / (2^bits - 1)."""
        return PactFunction.apply(x, self.alpha, self.bits)


class PactWhere(nn.Module):
    """PACT by two choices."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.alpha, self.bits = nn.Parameter(torch.tensor(1.1)), bits

    def forward(self, x: Tensor) -> Tensor:
        """Return multiples of alpha / (2^bits - 1)."""
        x = torch.where(x < 0, torch.zeros_like(x), x)
        x = torch.where(x > self.alpha, self.alpha, x)
        scale = self.alpha / (2**self.bits - 1)
        return RoundSTE.apply(x / scale) * scale


def sawb(w: Tensor, bits: int) -> Tensor:
    """Return weights by statistics-aware binning: the scale from their first two moments."""
    c1, c2 = {2: (3.12, -2.064), 3: (7.509, -6.892), 4: (12.68, -12.80)}[bits]
    std, mean = w.pow(2).mean().sqrt(), w.abs().mean()
    alpha = (c1 * std + c2 * mean).detach()
    steps = 2**bits - 1
    w = (torch.minimum(torch.maximum(w, -alpha), alpha) / alpha + 1) / 2
    return (RoundSTE.apply(w * steps) / steps * 2 - 1) * alpha


class Pact(nn.Module):
    """PACT with SAWB weights between float layers."""

    def __init__(self, activation: type[nn.Module], bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.first, self.bn1 = nn.Conv2d(1, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6)
        self.conv, self.bn2 = nn.Conv2d(6, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.act1, self.act2 = activation(bits), activation(bits)
        self.fc = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = self.act1(self.bn1(self.first(x)))
        x = self.act2(self.bn2(functional.conv2d(x, sawb(self.conv.weight, self.bits))))
        return self.fc(x.flatten(1))


def grad_scale(x: Tensor, scale: float) -> Tensor:
    """Return the same number, whose gradient is scaled."""
    y, y_grad = x, x * scale
    return (y - y_grad).detach() + y_grad


def grad_scale_reversed(x: Tensor, scale: float) -> Tensor:
    """Return the same by subtraction of two constants."""
    y_out, y_grad = x, x * scale
    return y_out.detach() - y_grad.detach() + y_grad


def round_pass(x: Tensor) -> Tensor:
    """Return whole numbers, whose gradient is that of the operand."""
    y, y_grad = x.round(), x
    return (y - y_grad).detach() + y_grad


class LsqQuantizer(nn.Module):
    """LSQ: a learned step; its gradient is scaled by the number of elements."""

    def __init__(self, bits: int, *, all_positive: bool, channels: int = 0) -> None:
        super().__init__()
        self.thd_neg = 0 if all_positive else -(2 ** (bits - 1))
        self.thd_pos = 2**bits - 1 if all_positive else 2 ** (bits - 1) - 1
        self.per_channel = channels > 0
        self.s = nn.Parameter(torch.full((channels, 1, 1, 1), 0.1) if channels else torch.ones(1) * 0.12)

    def init_from(self, x: Tensor) -> None:
        """Begin with the step that the paper gives."""
        mean = (
            x.detach().abs().mean(dim=list(range(1, x.dim())), keepdim=True)
            if self.per_channel
            else x.detach().abs().mean()
        )
        self.s = nn.Parameter(mean * 2 / (self.thd_pos**0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Return multiples of the step."""
        s_grad_scale = 1.0 / ((self.thd_pos * x.numel()) ** 0.5)
        s_scale = grad_scale(self.s, s_grad_scale)
        x = x / s_scale
        x = torch.clamp(x, self.thd_neg, self.thd_pos)
        return round_pass(x) * s_scale


class Lsq(nn.Module):
    """LSQ: each layer quantizes its operand and its weights; the ends have 8 bits."""

    def __init__(self, bits: int, *, per_channel: bool = False) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 10)
        layers: list[tuple[nn.Conv2d | nn.Linear, int]] = [(self.conv1, 8), (self.conv2, bits), (self.fc, 8)]
        self.acts = nn.ModuleList(LsqQuantizer(width, all_positive=True) for _, width in layers)
        made = [
            LsqQuantizer(
                width,
                all_positive=False,
                channels=layer.weight.shape[0] if per_channel and layer.weight.ndim > 2 else 0,
            )
            for layer, width in layers
        ]
        self.weights = nn.ModuleList(made)
        for quantizer, (layer, _) in zip(made, layers, strict=True):
            quantizer.init_from(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = functional.conv2d(self.acts[0](x), self.weights[0](self.conv1.weight), stride=2)
        x = self.acts[1](functional.relu(self.bn1(x)))
        x = functional.relu(self.bn2(functional.conv2d(x, self.weights[1](self.conv2.weight))))
        return functional.linear(self.acts[2](x).flatten(1), self.weights[2](self.fc.weight), self.fc.bias)


class LsqState(nn.Module):
    """LSQ as modules that begin with their first batch; buffers say whether they have, and whether they are signed."""

    init_state: Tensor
    signed: Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.nbits = bits
        self.alpha = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("init_state", torch.zeros(1))
        self.register_buffer("signed", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return multiples of the step."""
        if self.training and self.init_state == 0:
            if x.min() < -1e-5:
                self.signed.data.fill_(1)
        if self.signed == 1:
            qn, qp = -(2 ** (self.nbits - 1)), 2 ** (self.nbits - 1) - 1
        else:
            qn, qp = 0, 2**self.nbits - 1
        if self.training and self.init_state == 0:
            self.alpha.data.copy_(2 * x.abs().mean() / math.sqrt(qp))
            self.init_state.fill_(1)
        g = 1.0 / math.sqrt(x.numel() * qp)
        alpha = grad_scale_reversed(self.alpha, g)
        return round_pass((x / alpha).clamp(qn, qp)) * alpha


class LsqStateNet(nn.Module):
    """LSQ with initial states between float layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.bn1 = nn.Linear(64, 16), nn.BatchNorm1d(16)
        self.act, self.weight_q = LsqState(2), LsqState(3)
        self.middle, self.bn2, self.last = nn.Linear(16, 12), nn.BatchNorm1d(12), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 5]."""
        x = self.act(functional.relu(self.bn1(self.first(x.flatten(1)))))
        x = functional.linear(x, self.weight_q(self.middle.weight), self.middle.bias)
        return self.last(functional.relu(self.bn2(x)))


class LsqPlusActivation(nn.Module):
    """LSQ+: a learned step and a learned offset."""

    def __init__(self, bits: int, *, offset: float) -> None:
        super().__init__()
        self.qn, self.qp = 0, 2**bits - 1
        self.s, self.beta = nn.Parameter(torch.tensor(0.21)), nn.Parameter(torch.tensor(offset))

    def forward(self, x: Tensor) -> Tensor:
        """Return multiples of the step, plus the offset."""
        g = 1.0 / math.sqrt(x.numel() * self.qp)
        s, beta = grad_scale(self.s, g), grad_scale(self.beta, g)
        x = torch.clamp((x - beta) / s, self.qn, self.qp)
        return round_pass(x) * s + beta


class LsqPlus(nn.Module):
    """LSQ+ behind SiLU, whose values go below zero."""

    def __init__(self, padding: int = 0) -> None:
        super().__init__()
        self.first, self.bn1 = nn.Conv2d(1, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6)
        self.act, self.weight_q = LsqPlusActivation(3, offset=-0.278), LsqQuantizer(3, all_positive=False)
        self.conv, self.bn2 = nn.Conv2d(6, 8, 3, bias=False, padding=padding), nn.BatchNorm2d(8)
        self.padding = padding
        self.fc = nn.Linear(72 if padding else 8, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = self.act(functional.silu(self.bn1(self.first(x))))
        x = functional.conv2d(x, self.weight_q(self.conv.weight), padding=self.padding)
        return self.fc(functional.silu(self.bn2(x)).flatten(1))


def ternary_by_mean(w: Tensor) -> Tensor:
    """Return weights of TWN: -1, 0 and 1 by a threshold of 0.7 of the mean magnitude, times the mean beyond it."""
    flat = w.view(w.size(0), -1)
    delta = 0.7 * flat.abs().mean(1, keepdim=True)
    mask = (flat.abs() > delta).float()
    alpha = (flat.abs() * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
    return ((flat > delta).float() - (flat < -delta).float()).mul(alpha).view_as(w)


class Twn(nn.Module):
    """Ternary weight networks: float activations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 6, 3, bias=False), nn.BatchNorm2d(6)
        self.fc = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = functional.relu(self.bn1(functional.conv2d(x, ternary_by_mean(self.conv1.weight))))
        x = functional.relu(self.bn2(functional.conv2d(x, ternary_by_mean(self.conv2.weight))))
        return self.fc(functional.max_pool2d(x, 2).flatten(1))


class TernarySTE(torch.autograd.Function):
    """Ternary weights by a function that indexes with masks."""

    @staticmethod
    def forward(ctx: Any, w: Tensor) -> Tensor:
        """Return -alpha, 0 and alpha."""
        delta = 0.7 * w.abs().mean()
        out = torch.zeros_like(w)
        out[w > delta] = 1
        out[w < -delta] = -1
        alpha = w.abs()[w.abs() > delta].mean()
        return out * alpha

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Return the gradient."""
        return gradients[0]


class TwnMasks(nn.Module):
    """Ternary weights by masks, and ternary activations."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(64, 24, bias=False), nn.BatchNorm1d(24)
        self.fc2, self.bn2 = nn.Linear(24, 10, bias=False), nn.BatchNorm1d(10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = torch.round(x.flatten(1) * 2 - 1)
        x = self.bn1(functional.linear(x, TernarySTE.apply(self.fc1.weight)))
        x = (x > 0.5).float() - (x < -0.5).float()
        return self.bn2(functional.linear(x, TernarySTE.apply(self.fc2.weight)))


class TtqConv(nn.Conv2d):
    """Trained ternary quantization: two learned scales, of positive and of negative weights."""

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.wp, self.wn = nn.Parameter(torch.tensor(0.31)), nn.Parameter(torch.tensor(0.22))

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] --> [N, outputs, H', W']."""
        delta = 0.05 * self.weight.abs().max()
        a, b = (self.weight > delta).float(), (self.weight < -delta).float()
        return functional.conv2d(x, self.wp * a - self.wn * b, None, self.stride, self.padding)


class Ttq(nn.Module):
    """TTQ: float layers first and last, float activations."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.bn1 = nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6)
        self.conv, self.bn2 = TtqConv(6, 6, 3, bias=False), nn.BatchNorm2d(6)
        self.fc = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = functional.relu(self.bn1(self.first(x)))
        return self.fc(functional.max_pool2d(functional.relu(self.bn2(self.conv(x))), 2).flatten(1))


class Qil(nn.Module):
    """QIL: learned intervals of weights and activations."""

    def __init__(self, bits: int = 3) -> None:
        super().__init__()
        self.q_a, self.q_w = 2**bits - 1, 2 ** (bits - 1) - 1
        self.first, self.bn1 = nn.Conv2d(1, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6)
        self.conv, self.bn2 = nn.Conv2d(6, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 10)
        self.c_w, self.d_w, self.gamma = (nn.Parameter(torch.tensor(v)) for v in (0.07, 0.06, 1.2))
        self.c_x, self.d_x = nn.Parameter(torch.tensor(0.9)), nn.Parameter(torch.tensor(0.8))

    def weights(self) -> Tensor:
        """Return weights from -1 to 1 in steps."""
        w, size = self.conv.weight, self.conv.weight.abs()
        alpha, beta = 0.5 / self.d_w, -0.5 * self.c_w / self.d_w + 0.5
        inner = torch.sign(w) * (alpha * size + beta).clamp(min=1e-6) ** self.gamma
        w = torch.where(size > self.c_w + self.d_w, torch.sign(w), inner)
        w = torch.where(size < self.c_w - self.d_w, torch.zeros_like(w), w)
        return RoundSTE.apply(w * self.q_w) / self.q_w

    def activation(self, x: Tensor) -> Tensor:
        """Return numbers from 0 to 1 in steps."""
        alpha, beta = 0.5 / self.d_x, -0.5 * self.c_x / self.d_x + 0.5
        inner = alpha * x + beta
        x = torch.where(x < self.c_x - self.d_x, 0.0, torch.where(x > self.c_x + self.d_x, 1.0, inner))
        return RoundSTE.apply(x * self.q_a) / self.q_a

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = self.activation(self.bn1(self.first(x)))
        return self.fc(functional.relu(self.bn2(functional.conv2d(x, self.weights()))).flatten(1))


def powers_of_two(w: Tensor, bits: int) -> Tensor:
    """Return weights of INQ: 0 and powers of two with signs."""
    s = w.abs().max()
    n1 = torch.floor(torch.log2(4 * s / 3))
    n2 = n1 + 1 - 2 ** (bits - 1) / 2
    exponent = torch.floor(torch.log2(4 * w.abs() / 3)).clamp(max=n1)
    return torch.where(exponent < n2, torch.zeros_like(w), torch.sign(w) * torch.pow(2.0, exponent))


class Inq(nn.Module):
    """INQ: weights are powers of two while activations are float."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 6, 3, stride=2), nn.BatchNorm2d(6)
        self.fc1, self.fc2 = nn.Linear(54, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = functional.relu(self.bn1(functional.conv2d(x, powers_of_two(self.conv1.weight, 4), self.conv1.bias, 2)))
        x = functional.relu(functional.linear(x.flatten(1), powers_of_two(self.fc1.weight, 4), self.fc1.bias))
        return functional.linear(x, powers_of_two(self.fc2.weight, 4), self.fc2.bias)


def apot_levels(bits: int) -> Tensor:
    """Return the levels of APoT for numbers from 0 to 1: sums of two powers of two."""
    first, second = {
        2: ([0.0, 0.5, 0.25, 0.125], [0.0]),
        4: ([0.0, 0.5, 0.125, 0.03125], [0.0, 0.25, 0.0625, 0.015625]),
    }[bits]
    values = torch.tensor(sorted({a + b for a in first for b in second}))
    return values / values.max()


class ApotWeights(nn.Module):
    """APoT's weights: standardized, clipped, to the nearest level, times alpha."""

    levels: Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.register_buffer("levels", apot_levels(bits))
        self.alpha = nn.Parameter(torch.tensor(2.3))

    def forward(self, w: Tensor) -> Tensor:
        """Return quantized weights."""
        w = (w - w.mean()) / w.std()
        w = (w / self.alpha).clamp(-1, 1)
        nearest = (w.abs().unsqueeze(-1) - self.levels).abs().argmin(-1)
        q = self.levels[nearest] * w.sign()
        return ((q - w).detach() + w) * self.alpha


class ApotActivation(nn.Module):
    """APoT's activations: to the nearest level of a table."""

    levels: Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.register_buffer("levels", apot_levels(bits))
        self.alpha = nn.Parameter(torch.tensor(1.9))

    def forward(self, x: Tensor) -> Tensor:
        """Return levels times alpha."""
        x = (x / self.alpha).clamp(0, 1)
        nearest = (x.unsqueeze(-1) - self.levels).abs().argmin(-1)
        return self.levels[nearest] * self.alpha


class Apot(nn.Module):
    """APoT: 4-bit weights as sums of two powers of two; activations in steps or in levels of the same kind."""

    def __init__(self, *, levels: bool) -> None:
        super().__init__()
        self.first, self.bn1 = nn.Conv2d(1, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6)
        self.conv, self.bn2 = nn.Conv2d(6, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.weight_q, self.act = ApotWeights(4), ApotActivation(4) if levels else PactAbs(4)
        self.fc = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = self.act(self.bn1(self.first(x)))
        return self.fc(functional.relu(self.bn2(functional.conv2d(x, self.weight_q(self.conv.weight)))).flatten(1))


class Wrpn(nn.Module):
    """WRPN: weights clipped to -1 and 1, twice as many channels."""

    def __init__(self, w_bits: int = 2, a_bits: int = 4) -> None:
        super().__init__()
        self.w_scale, self.a_scale = 2 ** (w_bits - 1) - 1, 2**a_bits - 1
        self.conv1, self.bn1 = nn.Conv2d(1, 12, 3, stride=2, bias=False), nn.BatchNorm2d(12)
        self.conv2, self.bn2 = nn.Conv2d(12, 16, 3, bias=False), nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, 10)

    def weight(self, w: Tensor) -> Tensor:
        """Return clipped weights in steps."""
        return RoundSTE.apply(torch.clamp(w * 4, -1, 1) * self.w_scale) / self.w_scale

    def activation(self, x: Tensor) -> Tensor:
        """Return numbers from 0 to 1 in steps."""
        return RoundSTE.apply(torch.clamp(x, 0, 1) * self.a_scale) / self.a_scale

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = functional.conv2d(self.activation(x), self.weight(self.conv1.weight), stride=2)
        x = functional.conv2d(self.activation(self.bn1(x)), self.weight(self.conv2.weight))
        x = self.activation(self.bn2(x)).flatten(1)
        return functional.linear(x, self.weight(self.fc.weight), self.fc.bias)


class HalfWaveGaussian(torch.autograd.Function):
    """HWGQ: the half wave in steps that suit a normal distribution."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, step: float, levels: int) -> Tensor:
        """Return 0 and multiples of the step."""
        ctx.save_for_backward(x)
        ctx.top = step * levels
        return torch.clamp(torch.ceil(x / step - 0.5), 0, levels) * step

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient within the range."""
        (x,) = ctx.saved_tensors
        return gradients[0] * ((x > 0) & (x < ctx.top)), None, None


class Hwgq(nn.Module):
    """HWGQ-Net: binary weights with alpha, activations of 2 bits, first and last layer float."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.bn1 = nn.Conv2d(1, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6)
        self.conv, self.bn2 = nn.Conv2d(6, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(72, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = HalfWaveGaussian.apply(self.bn1(self.first(x)), 0.538, 3)
        alpha = self.conv.weight.abs().mean(dim=[1, 2, 3], keepdim=True)
        x = functional.conv2d(x, self.conv.weight.sign() * alpha, padding=1)
        return self.fc(HalfWaveGaussian.apply(self.bn2(x), 0.538, 3).flatten(1))


class SymmetricQuant(torch.autograd.Function):
    """HAWQ's quantizer with a scale for each output of a layer, or one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bits: int, scale: Tensor) -> Tensor:
        """Return whole numbers."""
        n = 2 ** (bits - 1) - 1
        ctx.scale = scale
        return torch.clamp(torch.round(1.0 / scale * x), -n - 1, n)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the operand."""
        return gradients[0] / ctx.scale, None, None


class HawqActivation(nn.Module):
    """HAWQ's QuantAct: a running range in buffers while training."""

    x_min: Tensor
    x_max: Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("x_min", torch.zeros(1))
        self.register_buffer("x_max", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return multiples of a step."""
        if self.training:
            self.x_min.copy_(torch.min(self.x_min, x.detach().min()))
            self.x_max.copy_(torch.max(self.x_max, x.detach().max()))
        scale = torch.max(self.x_min.abs(), self.x_max.abs()).clamp(min=1e-8) / (2 ** (self.bits - 1) - 1)
        return SymmetricQuant.apply(x, self.bits, scale) * scale


class HawqLayer(nn.Module):
    """HAWQ's layer around another one, with bits of its own."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, bits: int) -> None:
        super().__init__()
        self.layer, self.bits = layer, bits

    def forward(self, x: Tensor) -> Tensor:
        """Return what the layer computes with quantized weights."""
        w = self.layer.weight
        flat = w.data.contiguous().view(w.shape[0], -1)
        top = torch.max(flat.min(dim=1).values.abs(), flat.max(dim=1).values.abs())
        scale = (top / (2 ** (self.bits - 1) - 1)).view(-1, *[1] * (w.dim() - 1))
        weight = SymmetricQuant.apply(w, self.bits, scale) * scale
        if isinstance(self.layer, nn.Linear):
            return functional.linear(x, weight, self.layer.bias)
        return functional.conv2d(x, weight, self.layer.bias, self.layer.stride, self.layer.padding)


class Hawq(nn.Module):
    """HAWQ: each layer has bits of its own, 8, 4, 2 and 8."""

    def __init__(self) -> None:
        super().__init__()
        self.acts = nn.ModuleList(HawqActivation(bits) for bits in (8, 4, 4, 8))
        self.conv1, self.bn1 = HawqLayer(nn.Conv2d(1, 6, 3, stride=2), 8), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = HawqLayer(nn.Conv2d(6, 8, 3, bias=False), 4), nn.BatchNorm2d(8)
        self.fc1, self.fc2 = HawqLayer(nn.Linear(8, 12), 2), HawqLayer(nn.Linear(12, 10), 8)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = functional.relu(self.bn1(self.conv1(self.acts[0](x))))
        x = functional.relu(self.bn2(self.conv2(self.acts[1](x))))
        x = functional.relu(self.fc1(self.acts[2](x.flatten(1))))
        return self.fc2(self.acts[3](x))
