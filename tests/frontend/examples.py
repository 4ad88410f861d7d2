"""Small example models, one or more for each operator that is captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from nnhw.frontend.tflite.torch_operators import fixed_softmax, lookup
from nnhw.nn import (
    Int,
    QuantConv1d,
    QuantConv2d,
    QuantConvTranspose1d,
    QuantConvTranspose2d,
    QuantIdentity,
    QuantLinear,
    QuantRNN,
    Rescale,
    Sign,
)
from nnhw.nn.integers import integer_norm, integer_softmax

aten: Any = torch.ops.aten
Forward = Callable[["Net", torch.Tensor], torch.Tensor]


class Net(nn.Module):
    """A model whose forward is a function of itself and of 6-bit codes."""

    def __init__(self, function: Forward, codes: nn.Module | None = None) -> None:
        super().__init__()
        self.function = function
        self.codes = codes or QuantIdentity(6, 2**-3)
        self.finer, self.other, self.sign = Int(8, 2**-5), Int(5, 2**-2), Sign()
        self.quant = Int(4, 2**-2)
        self.weight, self.slopes = nn.Parameter(torch.zeros(8, 5)), nn.PReLU(3)
        self.line, self.plane = QuantConv1d(3, 4, 3, padding=1), QuantConv2d(3, 4, (2, 4), padding="same")
        self.fc = QuantLinear(8, 5, weight_quant=Int(4, 2**-2, axis=0))
        self.row, self.patch = QuantConv1d(3, 4, 3, padding="same"), QuantConv2d(3, 4, 3)
        self.all, self.norm = QuantLinear(192, 5), nn.BatchNorm2d(3)
        self.up = QuantConvTranspose2d(3, 2, 4, stride=2, padding=1, weight_quant=Int(3, 2**-1))
        self.whole, self.rescale = Int(8, 1.0), Rescale([0.3, 0.7, 1.4], [5, -3, 0], zero_point=-2)
        self.register_buffer("table", torch.arange(-128, 128) ** 2 // 100 - 60)
        self.register_buffer("step", torch.tensor([2**-3]))
        self.register_buffer("token", torch.linspace(-3, 3, 64)[None, None])
        self.register_buffer("positions", torch.linspace(-4, 4, 64).sin().reshape(1, 8, 8) * 4)
        self.up_line = QuantConvTranspose1d(3, 2, 2, stride=2, weight_quant=Int(3, 2**-1), bias=False)
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.__dict__.get("used", set()).add(name)
        return super().__getattr__(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, self.codes(x))


def trimmed(model: nn.Module, x: torch.Tensor) -> nn.Module:
    """Take out of the nets in a model what they do not use: to trace a parameter takes more than a millisecond."""
    nets = [module for module in model.modules() if isinstance(module, Net)]
    for net in nets:
        net.used.clear()
    with torch.no_grad():
        model(x)
    for net in nets:
        for members in (net._modules, net._parameters, net._buffers):
            for name in members.keys() - net.used:
                del members[name]
    return model


EXACT: dict[str, tuple[Forward, list[str]]] = {
    "rescale": (lambda m, x: m.rescale(m.whole(x * 8)), ["dequantize", "mul", "quantize", "rescale", "dequantize"]),
    "lookup": (lambda m, x: lookup(m.whole(x * 8), m.table, -128), []),
    "leaky_relu": (lambda m, x: functional.leaky_relu(x, 0.1), ["dequantize", "leaky_relu"]),
    "leaky_relu_": (lambda m, x: functional.leaky_relu(x * 2, 0.1, inplace=True), ["dequantize", "mul", "leaky_relu"]),
    "prelu": (lambda m, x: m.slopes(x), ["dequantize", "prelu"]),
    "prelu_one": (lambda m, x: functional.prelu(x, m.slopes.weight[:1]), ["dequantize", "prelu"]),
    "hardsigmoid": (lambda m, x: functional.hardsigmoid(x), ["dequantize", "hardsigmoid"]),
    "hardswish": (lambda m, x: functional.hardswish(x), ["dequantize", "hardswish"]),
    "abs": (lambda m, x: abs(x), ["dequantize", "abs"]),
    "square": (lambda m, x: x**2 + x.square(), ["dequantize", "square", "square", "add"]),
    "power_one": (lambda m, x: x**1, ["dequantize"]),
    "rounding": (lambda m, x: x.round() + x.floor() * 2 + x.ceil() * 4 + x.trunc() * 8, []),
    "fix": (lambda m, x: torch.fix(x), ["dequantize", "trunc"]),
    "relus": (lambda m, x: functional.relu(x) - functional.relu6(x * 2) + functional.hardtanh(x, -1.5, 0.75), []),
    "clamps": (lambda m, x: torch.clip(x, -3, 2).clamp(-2.5, 1.75).clamp_min(-2).clamp_max(1.5), []),
    "scalars": (lambda m, x: aten.div.Scalar(aten.mul.Scalar(aten.add.Scalar(x, 1), 3), 2), []),
    "differences": (lambda m, x: aten.rsub.Scalar(aten.sub.Scalar(x, 1), 3) + torch.rsub(x, torch.tensor(0.5)), []),
    "spellings": (
        lambda m, x: torch.true_divide(torch.subtract(torch.multiply(torch.negative(x), 3), 1), 2).divide(4),
        ["dequantize", "neg", "mul", "sub", "div", "div"],
    ),
    "spellings_of_scalars": (
        lambda m, x: aten.true_divide.Scalar(
            aten.divide.Scalar(aten.subtract.Scalar(aten.multiply.Scalar(x, 3), 1), 2), 4
        ),
        [],
    ),
    "alpha": (
        lambda m, x: torch.sub(torch.add(x, x.abs(), alpha=2), torch.tensor([1.0, 2.0, 3.0])[:, None, None], alpha=0.5),
        ["dequantize", "abs", "mul", "add", "sub"],
    ),
    "alpha_of_numbers": (lambda m, x: torch.rsub(torch.add(x, 1.0, alpha=2), 3.0, alpha=2), []),
    "absolute": (lambda m, x: torch.absolute(x).type_as(x), ["dequantize", "abs"]),
    "cube": (lambda m, x: x**3, ["dequantize", "square", "mul"]),
    "inverse": (lambda m, x: (x.abs() + 0.5) ** -1, ["dequantize", "abs", "add", "div"]),
    "power_of_tensor": (lambda m, x: torch.pow(x, torch.tensor(2.0)), ["dequantize", "square"]),
    "clamp_tensor": (
        lambda m, x: x.clamp(torch.tensor(-0.5), torch.tensor([0, 1, 2])[:, None, None]),
        ["dequantize", "maximum", "minimum"],
    ),
    "clamp_one_tensor": (
        lambda m, x: torch.clamp_max(torch.clamp_min(x, torch.tensor(-0.5)), torch.tensor(2.5)),
        ["dequantize", "maximum", "minimum"],
    ),
    "greater": (lambda m, x: torch.max(x, x * -0.5), []),
    "comparisons": (
        lambda m, x: 1.0 * (x > 0.5) + 2 * (x >= 1) + 4 * (x < -0.5) + 8 * (x <= -1) + 16 * (x == 2) + 32 * (x != 3), []
    ),
    "comparisons_with_tensors": (
        lambda m, x: (
            1.0 * torch.gt(x, torch.tensor([0.5, 1, 2])[:, None, None]) + 2 * torch.ge(x, torch.tensor(1.0))
            + 4 * torch.lt(x, torch.tensor(-0.5)) + 8 * torch.le(x, torch.tensor(-1.0))
            + 16 * torch.eq(x, torch.tensor(2.0)) + 32 * torch.ne(x, torch.tensor(3.0))
        ),
        [],
    ),
    "spellings_of_comparisons": (
        lambda m, x: (
            1.0 * torch.greater(x, 0.5) + 2 * torch.greater_equal(x, 1) + 4 * torch.less(x, -0.5)
            + 8 * torch.less_equal(x, -1) + 16 * torch.not_equal(x, 3) + torch.greater(x, torch.tensor(0.5))
            + torch.less_equal(x, torch.tensor(0.5)) + torch.greater_equal(x, torch.tensor(0.5))
            + torch.less(x, torch.tensor(0.5)) + torch.not_equal(x, torch.tensor(0.5))
        ),
        [],
    ),
    "combined_conditions": (
        lambda m, x: 1.0 * ((x > 0) & (x < 2)) + 2 * ((x > 1) | (x < -1)) + 4 * ((x > 0) ^ (x > 2)) + 8 * (~(x > 1)), []
    ),
    "combined_by_functions": (
        lambda m, x: (
            1.0 * torch.logical_and(x > 0, x < 2) + 2 * torch.logical_or(x > 1, x < -1)
            + 4 * torch.logical_xor(x > 0, x > 2) + 8 * torch.logical_not(x > 1)
            + torch.bitwise_and(x > 0, x < 2) + torch.bitwise_or(x > 1, x < -1) + torch.bitwise_xor(x > 0, x > 2)
        ),
        [],
    ),
    "condition_as_number": (lambda m, x: x * (x > 0).float() + (x > 1).int() * 2 + (x > 2).to(x.dtype), []),
    "where": (lambda m, x: torch.where(x > 0, x, 0.25 * x), ["dequantize", "greater", "mul", "where"]),
    "where_numbers": (lambda m, x: torch.where(x > 0, 1.5, -0.5), ["dequantize", "greater", "where"]),
    "where_number_first": (lambda m, x: torch.where(x > 1, 1.0, x), ["dequantize", "greater", "where"]),
    "where_number_second": (lambda m, x: torch.where(x > -1, x, -1.0), ["dequantize", "greater", "where"]),
    "where_constant": (lambda m, x: torch.where(torch.tensor([True, False, True])[:, None, None], x, -x), []),
    "masked_fill": (lambda m, x: x.masked_fill(x < 0, 0.5), ["dequantize", "greater", "where"]),
    "masked_fill_tensor": (lambda m, x: x.masked_fill(x < 0, torch.tensor(0.5)), ["dequantize", "greater", "where"]),
    "signs": (lambda m, x: torch.sign(x) + 2 * torch.sgn(x - 1), []),
    "heaviside": (lambda m, x: torch.heaviside(x, m.step[0] * 4), []),
    "threshold": (lambda m, x: functional.threshold(x, 0.5, -1.0), ["dequantize", "greater", "where"]),
    "shrinks": (lambda m, x: functional.hardshrink(x, 1.0) + functional.softshrink(x, 0.5), []),
    "lesser": (lambda m, x: torch.minimum(x, torch.tensor(0.5)), ["dequantize", "minimum"]),
    "dropouts": (
        lambda m, x: torch.feature_alpha_dropout(
            torch.feature_dropout(functional.alpha_dropout(functional.dropout(x, 0.5, False)), 0.5, False), 0.5, False
        ),
        ["dequantize"],
    ),
    "copies": (
        lambda m, x: aten.alias(aten.lift_fresh_copy(x.mT.contiguous().clone().detach())), ["permute", "dequantize"]
    ),
    "casts": (
        lambda m, x: aten._to_copy(
            aten.to.dtype_layout(aten.to.device(x.to(torch.float64), "cpu", torch.float64), dtype=torch.float64),
            dtype=torch.float32,
        ),
        ["dequantize"],
    ),
    "maximum": (lambda m, x: torch.maximum(x, torch.tensor(0.5)), ["dequantize", "maximum"]),
    "minimum": (lambda m, x: torch.min(x, -x), []),
    "clamp_tensors": (
        lambda m, x: x.clamp(torch.tensor(-0.5), torch.linspace(0, 1, 8)), ["dequantize", "maximum", "minimum"]
    ),
    "reciprocal": (lambda m, x: (x + 99).reciprocal(), ["dequantize", "add", "div"]),
    "reciprocal_of_square": (lambda m, x: (x.square() + 1).reciprocal(), []),
    "softsign": (lambda m, x: functional.softsign(x), ["dequantize", "abs", "add", "div"]),
    "residual": (lambda m, x: m.finer(x * 2) + x, ["dequantize", "mul", "quantize", "dequantize", "add"]),
    "gate": (lambda m, x: x * functional.hardsigmoid(x), ["dequantize", "hardsigmoid", "mul"]),
    "product": (
        lambda m, x: m.finer(x * 2) * x, ["dequantize", "mul", "quantize", "product", "dequantize"]
    ),
    "product_of_a_channel": (
        lambda m, x: x.amax((2, 3), keepdim=True) * x, ["max_pool2d", "product", "dequantize"]
    ),
    "maximum_of_codes": (
        lambda m, x: torch.maximum(x[:, :1], x[:, 1:2]), ["slice", "slice", "maximum", "dequantize"]
    ),
    "minimum_of_codes": (
        lambda m, x: m.fc(torch.min(x[:, :1], x[:, 1:2])), []
    ),
    "expand": (
        lambda m, x: x.amax((2, 3), keepdim=True).expand(-1, -1, 8, 8), ["max_pool2d", "upsample", "dequantize"]
    ),
    "expand_as": (lambda m, x: x * x.amax((2, 3), keepdim=True).expand_as(x), []),
    "broadcast_to": (lambda m, x: x.amax((2, 3), keepdim=True).broadcast_to((-1, -1, 2, 4)), []),
    "difference": (lambda m, x: x - m.other(x), ["dequantize", "quantize", "dequantize", "sub"]),
    "max_pool2d": (
        lambda m, x: functional.max_pool2d(x, 3, 2, 1, ceil_mode=True), ["max_pool2d", "dequantize"]
    ),
    "max_pool2d_rest": (lambda m, x: functional.max_pool2d(x, 3, 3), ["max_pool2d", "dequantize"]),
    "max_pool2d_ceil": (lambda m, x: functional.max_pool2d(x, 3, 3, ceil_mode=True), ["max_pool2d", "dequantize"]),
    "max_pool1d": (
        lambda m, x: functional.max_pool1d(x.flatten(2), 5, 4, 2), ["reshape", "max_pool2d", "reshape", "dequantize"]
    ),
    "adaptive_max_pool2d": (lambda m, x: functional.adaptive_max_pool2d(x, (2, 4)), ["max_pool2d", "dequantize"]),
    "adaptive_max_pool1d": (lambda m, x: nn.AdaptiveMaxPool1d(4)(x.flatten(2)), []),
    "amax": (lambda m, x: x.amax((2, 3)), ["max_pool2d", "flatten", "dequantize"]),
    "avg_pool2d": (lambda m, x: functional.avg_pool2d(x, (2, 3), 2), ["sum_pool2d", "dequantize", "div"]),
    "avg_pool2d_padding": (
        lambda m, x: functional.avg_pool2d(x, 3, 2, 1), ["pad", "sum_pool2d", "dequantize", "div"]
    ),
    "avg_pool2d_uncounted": (
        lambda m, x: functional.avg_pool2d(x, 2, 2, count_include_pad=False, ceil_mode=True),
        ["sum_pool2d", "dequantize", "div"],
    ),
    "avg_pool2d_border": (lambda m, x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False), []),
    "avg_pool2d_rest": (lambda m, x: functional.avg_pool2d(x, 3, 3, ceil_mode=True), []),
    "avg_pool1d_rest": (lambda m, x: functional.avg_pool1d(x.flatten(2), 5, ceil_mode=True), []),
    "avg_pool2d_divisor": (
        lambda m, x: functional.avg_pool2d(x, 3, 3, 1, ceil_mode=True, divisor_override=7),
        ["pad", "sum_pool2d", "dequantize", "div"],
    ),
    "avg_pool1d": (lambda m, x: functional.avg_pool1d(x.flatten(2), 4), []),
    "adaptive_avg_pool2d": (lambda m, x: functional.adaptive_avg_pool2d(x, (None, 2)), []),
    "adaptive_avg_pool1d": (lambda m, x: functional.adaptive_avg_pool1d(x.flatten(2), 16), []),
    "global": (lambda m, x: nn.AdaptiveAvgPool2d(1)(x).flatten(1), []),
    "mean": (lambda m, x: x.mean((2, 3)), ["sum_pool2d", "dequantize", "div", "flatten"]),
    "mean_rows": (lambda m, x: x.mean(-2, keepdim=True), ["sum_pool2d", "dequantize", "div"]),
    "sum": (lambda m, x: x.sum((-1, -2)), ["sum_pool2d", "flatten", "dequantize"]),
    "mean_of_rows": (
        lambda m, x: x.flatten(2).mean(1),
        ["reshape", "permute", "reshape", "sum_pool2d", "dequantize", "div", "flatten"],
    ),
    "sum_of_rows": (lambda m, x: x.sum((1, 2), keepdim=True), []),
    "amax_of_rows": (lambda m, x: (-x).amax(1), []),
    "cat": (lambda m, x: torch.cat([x, -x, x], 1), ["dequantize", "neg", "concat"]),
    "cat_codes": (lambda m, x: torch.cat([x, x], -1), ["concat", "dequantize"]),
    "cat_scales": (
        lambda m, x: torch.cat([x, m.other(x)], 1), ["dequantize", "quantize", "dequantize", "concat"]
    ),
    "stack": (lambda m, x: torch.stack([x, x], 2), ["reshape", "reshape", "concat", "dequantize"]),
    "stack_scales": (lambda m, x: torch.stack([x, m.other(x)], -1).flatten(2), []),
    "pad": (lambda m, x: functional.pad(x, (1, 2, 0, 3)), ["pad", "dequantize"]),
    "pad_line": (lambda m, x: functional.pad(x.flatten(2), (1, 2)), ["reshape", "pad", "reshape", "dequantize"]),
    "pad_code": (lambda m, x: functional.pad(x, (1, 1), value=-0.25), ["pad", "dequantize"]),
    "pad_between_codes": (lambda m, x: functional.pad(x, (1, 1), value=0.3), ["dequantize", "pad"]),
    "pad_beyond_codes": (lambda m, x: functional.pad(x, (1, 1), value=64.0), ["dequantize", "pad"]),
    "pad_constant": (lambda m, x: torch.constant_pad_nd(x, (1, 2), 0.5), ["pad", "dequantize"]),
    "pad_nothing": (lambda m, x: functional.pad(x, (0, 0)), ["dequantize"]),
    "upsample": (lambda m, x: functional.interpolate(x, scale_factor=(2, 3)), ["upsample", "dequantize"]),
    "upsample_size": (lambda m, x: functional.interpolate(x, size=(16, 24)), ["upsample", "dequantize"]),
    "upsample_exact": (lambda m, x: functional.interpolate(x, scale_factor=2.0, mode="nearest-exact"), []),
    "upsample_exact_line": (lambda m, x: nn.Upsample(scale_factor=2, mode="nearest-exact")(x.flatten(2)), []),
    "upsample_line": (lambda m, x: nn.Upsample(scale_factor=2)(x.flatten(2)), []),
    "permute": (lambda m, x: x.permute(0, 2, 3, 1), ["permute", "dequantize"]),
    "permute_back": (lambda m, x: x.transpose(1, 2).movedim(2, 1), ["dequantize"]),
    "permute_sizes_of_one": (lambda m, x: x.amax((2, 3), keepdim=True).transpose(1, 3), []),
    "transposes": (lambda m, x: x.mT.swapaxes(1, 2), ["permute", "dequantize"]),
    "channel_shuffle": (
        lambda m, x: functional.channel_shuffle(x.reshape(-1, 12, 4, 4), 3),
        ["reshape", "permute", "reshape", "dequantize"],
    ),
    "pixel_shuffle": (lambda m, x: functional.pixel_shuffle(x.reshape(-1, 12, 4, 4), 2), []),
    "pixel_unshuffle": (
        lambda m, x: functional.pixel_unshuffle(x, 2), ["reshape", "permute", "reshape", "dequantize"]
    ),
    "reshapes": (lambda m, x: x.flatten(1).unflatten(1, (6, 32)).unsqueeze(1).squeeze(), ["reshape", "dequantize"]),
    "views": (lambda m, x: x.view(-1, 1, 192).squeeze(1).reshape(-1, 1, 1, 192).squeeze((1, 2)), []),
    "view_as": (lambda m, x: x.flatten(1).view_as(x), ["dequantize"]),
    "reshape_as": (lambda m, x: x.flatten(1).reshape_as(x), ["dequantize"]),
    "orders": (
        lambda m, x: x.moveaxis(1, 3).moveaxis((1, 2), (2, 1)).movedim((1, 2), (2, 3)).swapdims(1, 2), []
    ),
    "whole_slice": (lambda m, x: x[:, :, :], ["dequantize"]),
    "slice": (lambda m, x: x[:, 1:, :, :-2], ["slice", "slice", "dequantize"]),
    "slice_steps": (lambda m, x: x[:, :, 3::2], ["slice", "reshape", "slice", "reshape", "dequantize"]),
    "slice_steps_beyond": (lambda m, x: x[..., 1::3], []),
    "select": (lambda m, x: x[:, :, -1], ["slice", "reshape", "dequantize"]),
    "narrow": (lambda m, x: x.narrow(2, -5, 4), ["slice", "dequantize"]),
    "chunk": (lambda m, x: x.chunk(3, 2)[1], ["slice", "dequantize"]),
    "parts_of_nothing": (lambda m, x: x.tensor_split((0, 2, 2), 1)[1], ["slice", "dequantize"]),
    "part_in_place": (lambda m, x: (x * 1).detach().chunk(3, 1)[1].mul_(2), []),
    "split": (lambda m, x: x.split(5, 3)[1], ["slice", "dequantize"]),
    "split_sizes": (lambda m, x: x.split([3, 5], 3)[0] * 2.0, ["slice", "dequantize", "mul"]),
    "split_with_sizes": (lambda m, x: x.split_with_sizes((1, 2), 1)[1], ["slice", "dequantize"]),
    "tensor_split": (lambda m, x: x.tensor_split(3, 2)[2], ["slice", "dequantize"]),
    "tensor_split_indices": (lambda m, x: x.tensor_split((2, 3), 2)[1], ["slice", "dequantize"]),
    "unbind": (lambda m, x: x.unbind(2)[3], ["slice", "reshape", "dequantize"]),
    "conv1d": (
        lambda m, x: m.line(x.flatten(2)), ["reshape", "conv2d", "reshape", "dequantize", "add"]
    ),
    "conv1d_same": (lambda m, x: m.row(x.flatten(2)), []),
    "conv_transpose1d": (lambda m, x: m.up_line(x.flatten(2)[:, :, :8]), []),
    "conv_transpose2d": (lambda m, x: m.up(x), []),
    "conv2d": (lambda m, x: m.patch(x), ["conv2d", "dequantize", "add"]),
    "even_same": (lambda m, x: m.plane(x), ["pad", "conv2d", "dequantize", "add"]),
    "linear_rows": (
        lambda m, x: m.fc(x), ["permute", "reshape", "conv2d", "reshape", "permute", "dequantize", "add"]
    ),
    "linear_batches": (
        lambda m, x: m.fc(x.amax(2).unsqueeze(1)), []
    ),
    "linear_one_row": (
        lambda m, x: m.fc(functional.adaptive_max_pool1d(x.flatten(1).unsqueeze(1), 8)),
        ["reshape", "max_pool2d", "flatten", "linear", "reshape", "dequantize", "add"],
    ),
    "matmul": (lambda m, x: x @ m.quant(m.weight), []),
    "matmul_transposed": (lambda m, x: torch.matmul(x, m.quant(m.weight.t()).t()), []),
    "transposed_weights": (lambda m, x: torch.matmul(x, m.quant(m.weight.T).T), []),
    "observed_weights": (lambda m, x: x @ Int(4)(m.weight), []),
    "matmul_heads": (lambda m, x: x @ m.quant(torch.stack([m.weight, -m.weight, m.weight * 2])), []),
    "einsum": (lambda m, x: torch.einsum("bchw,wo->bcho", x, m.quant(m.weight)), []),
    "einsum_heads": (lambda m, x: torch.einsum("hio, bchi", m.quant(torch.stack([m.weight] * 8)), x), []),
    "mm": (lambda m, x: torch.mm(x.flatten(1), m.quant(m.weight).flatten().repeat(24)[:192, None]), []),
    "normalized": (lambda m, x: integer_norm(x[:, :, :2, :3], m.step, 1e-3, 1, 10, True), []),
    "shared_out": (lambda m, x: integer_softmax(x[:, :, :2, :3], m.step, None, 64, 1, 7, 127), []),
}  # fmt: skip

CURVES: dict[str, Forward] = {
    "sigmoid": lambda m, x: torch.sigmoid(x),
    "expit": lambda m, x: torch.special.expit(x),
    "tanh": lambda m, x: torch.tanh(x),
    "elu": lambda m, x: functional.elu(x, 0.7),
    "selu": lambda m, x: functional.selu(x),
    "celu": lambda m, x: functional.celu(x, 0.7),
    "silu": lambda m, x: functional.silu(x),
    "swish": lambda m, x: x * torch.sigmoid(x),
    "mish": lambda m, x: functional.mish(x),
    "gelu": lambda m, x: functional.gelu(x),
    "gelu_tanh": lambda m, x: functional.gelu(x, approximate="tanh"),
    "softplus": lambda m, x: functional.softplus(x, 2, 3),
    "log_sigmoid": lambda m, x: functional.logsigmoid(x),
    "exp": lambda m, x: torch.exp(x),
    "sqrt": lambda m, x: torch.sqrt(x.abs()) + abs(x) ** 0.5,
    "batch_norm": lambda m, x: m.norm(x),
}
ENDS: dict[str, Forward] = {
    "softmax": lambda m, x: m.all(x.flatten(1)).softmax(1),
    "glu": lambda m, x: functional.glu(m.all(x.flatten(1))[:, :4], 1),
    "log_softmax": lambda m, x: m.all(x.flatten(1)).log_softmax(1),
    "argmax": lambda m, x: m.all(x.flatten(1)).argmax(1),
    "fixed_softmax": lambda m, x: fixed_softmax(m.whole(m.all(x.flatten(1))), 1 << 30, 22, -248),
}
"""Of models, computed by the host."""
BETWEEN_VALUES: dict[str, Forward] = {
    "product": lambda m, x: x @ x.mT,
    "product_of_permuted": lambda m, x: x.permute(0, 3, 1, 2) @ m.other(x).permute(0, 3, 2, 1),
    "mm_of_rows": lambda m, x: torch.bmm(x[:, 0], x[:, 1].transpose(1, 2)),
    "einsum_of_two": lambda m, x: torch.einsum("bhqd,bhkd->bqhk", x, m.other(x)),
    "einsum_of_many_axes": lambda m, x: torch.einsum("bhqd,bcqd->bch", x, m.other(x)),
    "batch_behind": lambda m, x: x.permute(1, 0, 3, 2)[1] @ x.transpose(0, 1).unbind(0)[-1],
    "integer_softmax": lambda m, x: integer_softmax(x, m.step, None, 64, 2, 7, 127),
    "masked_softmax": lambda m, x: integer_softmax(x, m.step, torch.ones(8, 8).tril(), 64, 3, 10, 255),
    "layer_norm": lambda m, x: integer_norm(x, m.step, 1e-3, 3, 10, True),
    "rms_norm": lambda m, x: integer_norm(x, m.step, 1e-3, 1, 8, False),
    "class_token": lambda m, x: torch.cat([m.codes(m.token).expand(x.shape[0], -1, -1), x.flatten(2)], 1),
    "repeated_token": lambda m, x: torch.cat([x.flatten(2), m.codes(m.token).repeat(x.shape[0], 2, 1)], 1),
    "positions": lambda m, x: m.quant(x[:, 0] - m.other(m.positions)) + m.quant(m.other(m.positions) + x[:, 1]),
}
"""Of computed values with one another, and of constants of each position: compared with exported C."""


class Reading(nn.Module):
    """A model of sequences [batch, steps, 3], read in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = Int(6, 2**-3)
        self.rnn = QuantRNN(3, 2, bidirectional=True, batch_first=True)
        self.fc = QuantLinear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, steps, 3] --> [batch, 2]."""
        return self.fc(self.rnn(self.codes(x))[0][:, -1])


class Onward(nn.Module):
    """A model of sequences [batch, steps, 3], read step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = Int(6, 2**-3)
        self.rnn = QuantRNN(3, 2, batch_first=True)
        self.fc = QuantLinear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, steps, 3] --> [batch, 2]."""
        return self.fc(self.rnn(self.codes(x))[0][:, -1])


STEP_BY_STEP: dict[str, type[nn.Module]] = {"onward": Onward}
"""Models of sequences that run on a device."""
SEQUENCES: dict[str, type[nn.Module]] = {"reading": Reading, **STEP_BY_STEP}
"""Models of sequences."""
