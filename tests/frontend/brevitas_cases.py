"""Brevitas's own quantizers and layers, each in a small model."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import brevitas.nn as qnn
import brevitas.quant as quantizers
import torch
from brevitas.inject import ExtendedInjector
from torch import Tensor, nn

from benchmarks.bnn_pynq import NETWORKS, bnn_pynq
from tests.frontend.cases import Case

CHANNELS, SIZE = 4, 8


def trained(make: Callable[[], tuple[nn.Module, Tensor]]) -> tuple[nn.Module, Tensor]:
    """Return a model, trained for a few steps in which statistics are collected, and an example input."""
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, example = make()
        for _ in range(3):
            more = example.repeat(4, *(1,) * (example.dim() - 1))
            model(torch.randn_like(more) if more.is_floating_point() else more)
    return model.eval(), example


def _case(source: str, name: str, make: Callable[[], tuple[nn.Module, Tensor]]) -> Case:
    return Case(source, name, functools.partial(trained, make))


def images(*shape: int) -> Tensor:
    """Return an example input."""
    return torch.randn(4, *shape)


def _weights(name: str) -> Case:
    def make() -> tuple[nn.Module, Tensor]:
        conv = qnn.QuantConv2d(2, CHANNELS, 3, bias=True, weight_quant=getattr(quantizers, name))
        act = qnn.QuantIdentity(return_quant_tensor=True)
        return nn.Sequential(act, conv, qnn.QuantReLU(bit_width=4)), images(2, SIZE, SIZE)

    return _case("weights", name, make)


def _activations(name: str) -> Case:
    def make() -> tuple[nn.Module, Tensor]:
        options = {"per_channel_broadcastable_shape": (1, CHANNELS, 1, 1), "scaling_stats_permute_dims": (1, 0, 2, 3)}
        bounds = {"min_val": -2.0, "max_val": 2.0} if name.endswith("Init") else {}
        groups = {"group_dim": 1, "group_size": 2} if name.startswith("MX") else {}
        act = qnn.QuantIdentity(getattr(quantizers, name), **options, **bounds, **groups)
        conv = qnn.QuantConv2d(CHANNELS, CHANNELS, 3, bias=False)
        return nn.Sequential(qnn.QuantIdentity(), conv, nn.BatchNorm2d(CHANNELS), act), images(CHANNELS, SIZE, SIZE)

    return _case("activations", name, make)


def _biases(name: str) -> Case:
    def make() -> tuple[nn.Module, Tensor]:
        act = qnn.QuantIdentity(return_quant_tensor=True)
        return nn.Sequential(
            act, qnn.QuantLinear(8, CHANNELS, bias=True, bias_quant=getattr(quantizers, name))
        ), images(8)

    return _case("biases", name, make)


def _truncations(name: str) -> Case:
    def make() -> tuple[nn.Module, Tensor]:
        act = qnn.QuantIdentity(quantizers.Uint8ActPerTensorFloat, bit_width=4, return_quant_tensor=True)
        pool = qnn.TruncAvgPool2d(2, trunc_quant=getattr(quantizers, name), bit_width=4)
        return nn.Sequential(act, pool, qnn.QuantConv2d(1, CHANNELS, 3, bias=False)), images(1, SIZE, SIZE)

    return _case("truncations", name, make)


class Two(nn.Module):
    """Two branches and a layer that takes both."""

    def __init__(self, joined: nn.Module, *, listed: bool = False) -> None:
        super().__init__()
        self.act = qnn.QuantIdentity(return_quant_tensor=True)
        self.left = qnn.QuantConv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.joined, self.listed = joined, listed

    def forward(self, x: Tensor) -> Tensor:
        """Join a layer with what goes around it."""
        x = self.act(x)
        branches = self.left(x), x
        return self.joined(list(branches)) if self.listed else self.joined(*branches)


class Shared(nn.Module):
    """Two layers with one quantizer of weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(qnn.QuantIdentity(), qnn.QuantLinear(8, 8, bias=False), qnn.QuantReLU(bit_width=4))
        self.second = qnn.QuantLinear(8, CHANNELS, bias=False, weight_quant=self.first[1].weight_quant)

    def forward(self, x: Tensor) -> Tensor:
        """Run both layers."""
        return self.second(self.first(x))


class Added(nn.Module):
    """QuantTensors that are added by the model's own code."""

    def __init__(self) -> None:
        super().__init__()
        self.act = qnn.QuantIdentity(return_quant_tensor=True)
        self.conv = qnn.QuantConv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.again = qnn.QuantReLU(bit_width=4, return_quant_tensor=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return a QuantTensor."""
        x = self.act(x)
        return self.again(self.act(self.conv(x)) + x)


class Recurrent(nn.Module):
    """A recurrent layer of 4 features, and a linear layer of each step or of the last one."""

    def __init__(
        self, kind: type[nn.Module], units: int = 4, *, last: bool = False, ends: bool = True, **options: Any
    ) -> None:
        super().__init__()
        self.batch_first = bool(options.setdefault("batch_first", True))
        self.rnn, self.last = kind(4, units, **options), last
        self.fc = qnn.QuantLinear(units * self.rnn.num_directions, 3, bias=True) if ends else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 4] --> [batch, steps, 3] or [batch, 3]."""
        y = self.rnn(x)[0] if self.batch_first else self.rnn(x.transpose(0, 1))[0].transpose(0, 1)
        return self.fc(y[:, -1] if self.last else y)


def _behind_act(*layers: nn.Module, shape: tuple[int, ...] = (CHANNELS, SIZE, SIZE)) -> tuple[nn.Module, Tensor]:
    return nn.Sequential(qnn.QuantIdentity(return_quant_tensor=True), *layers), images(*shape)


def _conv(**options: object) -> nn.Module:
    return qnn.QuantConv2d(CHANNELS, CHANNELS, 3, **{"bias": False, **options})


_Q = quantizers
LAYERS: Mapping[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "QuantLinear": lambda: _behind_act(qnn.QuantLinear(8, 4, bias=True), shape=(8,)),
    "QuantLinear, Int8Bias, QuantTensor out": lambda: _behind_act(
        qnn.QuantLinear(8, 4, bias=True, bias_quant=_Q.Int8Bias, return_quant_tensor=True), shape=(8,)
    ),
    "QuantConv1d": lambda: _behind_act(qnn.QuantConv1d(4, 4, 3, bias=True), shape=(4, 16)),
    "QuantConv2d": lambda: _behind_act(_conv(bias=True)),
    "QuantConv2d, depthwise, stride 2, padding": lambda: _behind_act(_conv(groups=CHANNELS, stride=2, padding=1)),
    "QuantConv2d, per channel": lambda: _behind_act(_conv(weight_quant=_Q.Int8WeightPerChannelFloat)),
    "QuantConv2d, bit width learned": lambda: _behind_act(_conv(weight_bit_width_impl_type="parameter")),
    "QuantConv2d, 3 bits": lambda: _behind_act(_conv(weight_bit_width=3)),
    "QuantConv2d, input_quant, output_quant": lambda: (
        nn.Sequential(_conv(input_quant=_Q.Int8ActPerTensorFloat, output_quant=_Q.Int8ActPerTensorFloat)),
        images(CHANNELS, SIZE, SIZE),
    ),
    "QuantConv3d": lambda: _behind_act(qnn.QuantConv3d(1, 2, 3, bias=False), shape=(1, 5, 5, 5)),
    "QuantConvTranspose1d": lambda: _behind_act(qnn.QuantConvTranspose1d(4, 4, 3, stride=2, bias=True), shape=(4, 8)),
    "QuantConvTranspose2d": lambda: _behind_act(qnn.QuantConvTranspose2d(4, 4, 3, stride=2, bias=True)),
    "QuantIdentity, signed": lambda: _behind_act(qnn.QuantIdentity(bit_width=4)),
    "QuantReLU, 2 bits": lambda: _behind_act(_conv(), qnn.QuantReLU(bit_width=2)),
    "QuantReLU, per channel": lambda: _behind_act(
        _conv(),
        qnn.QuantReLU(
            scaling_per_output_channel=True,
            per_channel_broadcastable_shape=(1, CHANNELS, 1, 1),
            scaling_stats_permute_dims=(1, 0, 2, 3),
        ),
    ),
    "QuantReLU, bit width learned": lambda: _behind_act(_conv(), qnn.QuantReLU(bit_width_impl_type="parameter")),
    "QuantReLU, power-of-two scale": lambda: _behind_act(_conv(), qnn.QuantReLU(_Q.Uint8ActPerTensorFixedPoint)),
    "QuantReLU, floor": lambda: _behind_act(_conv(), qnn.QuantReLU(float_to_int_impl_type="floor")),
    "QuantReLU, ceil": lambda: _behind_act(_conv(), qnn.QuantReLU(float_to_int_impl_type="ceil")),
    "QuantReLU, round to zero": lambda: _behind_act(_conv(), qnn.QuantReLU(float_to_int_impl_type="round_to_zero")),
    "QuantReLU, dpu": lambda: _behind_act(_conv(), qnn.QuantReLU(float_to_int_impl_type="dpu")),
    "QuantReLU, stochastic": lambda: _behind_act(_conv(), qnn.QuantReLU(float_to_int_impl_type="stochastic_round")),
    "QuantIdentity, round to zero": lambda: _behind_act(
        _conv(), qnn.QuantIdentity(float_to_int_impl_type="round_to_zero")
    ),
    "QuantIdentity, dpu": lambda: _behind_act(_conv(), qnn.QuantIdentity(float_to_int_impl_type="dpu")),
    "QuantIdentity, 24 bits": lambda: _behind_act(_conv(), qnn.QuantIdentity(bit_width=24)),
    "QuantHardTanh": lambda: _behind_act(_conv(), qnn.QuantHardTanh(max_val=1.0, min_val=-1.0)),
    "QuantHardSwish": lambda: _behind_act(_conv(), qnn.QuantHardSwish()),
    "QuantSigmoid": lambda: _behind_act(_conv(), qnn.QuantSigmoid()),
    "QuantTanh": lambda: _behind_act(_conv(), qnn.QuantTanh()),
    "MaxPool2d of QuantTensors": lambda: _behind_act(nn.MaxPool2d(2), _conv()),
    "AvgPool2d of QuantTensors": lambda: _behind_act(nn.AvgPool2d(2), qnn.QuantIdentity()),
    "Dropout, Flatten of QuantTensors": lambda: _behind_act(
        nn.Dropout(0.5), nn.Flatten(), qnn.QuantLinear(8, 4, bias=False), shape=(2, 2, 2)
    ),
    "BatchNorm2d, QuantReLU": lambda: _behind_act(_conv(), nn.BatchNorm2d(CHANNELS), qnn.QuantReLU(bit_width=4)),
    "BatchNorm2dToQuantScaleBias": lambda: _behind_act(
        _conv(),
        qnn.BatchNorm2dToQuantScaleBias(CHANNELS, bias_quant=_Q.Int8BiasPerTensorFloatInternalScaling),
        qnn.QuantReLU(),
    ),
    "BatchNorm1dToQuantScaleBias": lambda: _behind_act(
        qnn.QuantConv1d(4, 4, 3, bias=False),
        qnn.BatchNorm1dToQuantScaleBias(4, bias_quant=_Q.Int8BiasPerTensorFloatInternalScaling),
        qnn.QuantReLU(),
        shape=(4, 8),
    ),
    "TruncAvgPool2d": lambda: _behind_act(qnn.TruncAvgPool2d(2, bit_width=8)),
    "TruncAvgPool2d, floor": lambda: _behind_act(qnn.TruncAvgPool2d(2, bit_width=6, float_to_int_impl_type="floor")),
    "TruncAvgPool2d, QuantReLU in front": lambda: _behind_act(
        _conv(), qnn.QuantReLU(bit_width=4, return_quant_tensor=True), qnn.TruncAvgPool2d(3, bit_width=4)
    ),
    "TruncAvgPool2d, windows beyond the edge": lambda: _behind_act(qnn.TruncAvgPool2d(3, ceil_mode=True)),
    "TruncAdaptiveAvgPool2d, windows of different sizes": lambda: _behind_act(qnn.TruncAdaptiveAvgPool2d(3)),
    "TruncAdaptiveAvgPool2d": lambda: _behind_act(qnn.TruncAdaptiveAvgPool2d(1, bit_width=8)),
    "TruncQuantAccumulator": lambda: _behind_act(
        _conv(return_quant_tensor=True), qnn.TruncQuantAccumulator(_Q.RoundTo8bit)
    ),
    "QuantEltwiseAdd": lambda: (Two(qnn.QuantEltwiseAdd()), images(CHANNELS, SIZE, SIZE)),
    "QuantCat": lambda: (Two(qnn.QuantCat(), listed=True), images(CHANNELS, SIZE, SIZE)),
    "QuantTensors that are added": lambda: (Added(), images(CHANNELS, SIZE, SIZE)),
    "QuantUpsample": lambda: _behind_act(qnn.QuantUpsample(scale_factor=2, mode="nearest"), _conv()),
    "QuantUpsamplingNearest2d": lambda: _behind_act(qnn.QuantUpsamplingNearest2d(scale_factor=2), _conv()),
    "QuantUpsamplingBilinear2d": lambda: _behind_act(qnn.QuantUpsamplingBilinear2d(scale_factor=2), _conv()),
    "weight quantizer shared": lambda: (Shared(), images(8)),
    "weight quantizer absent": lambda: _behind_act(_conv(weight_quant=None)),
    "activation quantizer absent": lambda: (nn.Sequential(_conv()), images(CHANNELS, SIZE, SIZE)),
    "QuantRNN": lambda: (Recurrent(qnn.QuantRNN), images(6, 4)),
    "QuantRNN, relu": lambda: (Recurrent(qnn.QuantRNN, nonlinearity="relu"), images(6, 4)),
    "QuantRNN, QuantTensors out": lambda: (Recurrent(qnn.QuantRNN, return_quant_tensor=True), images(6, 4)),
    "QuantRNN, two layers, both directions": lambda: (
        Recurrent(qnn.QuantRNN, num_layers=2, bidirectional=True),
        images(6, 4),
    ),
    "QuantRNN, no io_quant": lambda: (Recurrent(qnn.QuantRNN, io_quant=None, bias_quant=None), images(6, 4)),
    "QuantLSTM": lambda: (Recurrent(qnn.QuantLSTM), images(6, 4)),
    "QuantLSTM, steps first": lambda: (Recurrent(qnn.QuantLSTM, batch_first=False), images(6, 4)),
    "QuantLSTM, per channel": lambda: (
        Recurrent(qnn.QuantLSTM, weight_quant=_Q.Int8WeightPerChannelFloat),
        images(6, 4),
    ),
    "QuantLSTM, coupled gates": lambda: (Recurrent(qnn.QuantLSTM, coupled_input_forget_gates=True), images(6, 4)),
    "QuantLSTM, no gate_acc_quant": lambda: (Recurrent(qnn.QuantLSTM, gate_acc_quant=None), images(6, 4)),
    "QuantLSTM, no bias, quantizers shared": lambda: (
        Recurrent(
            qnn.QuantLSTM,
            bias=False,
            shared_intra_layer_weight_quant=True,
            shared_intra_layer_gate_acc_quant=True,
        ),
        images(6, 4),
    ),
    "QuantLSTM, two layers": lambda: (Recurrent(qnn.QuantLSTM, num_layers=2), images(6, 4)),
    "QuantLSTM, both directions, weights shared": lambda: (
        Recurrent(qnn.QuantLSTM, bidirectional=True, shared_input_hidden_weights=True),
        images(6, 4),
    ),
    "QuantLSTM, no sigmoid_quant, no cell_state_quant": lambda: (
        Recurrent(qnn.QuantLSTM, sigmoid_quant=None, cell_state_quant=None),
        images(6, 4),
    ),
    "QuantMultiheadAttention": lambda: (Attention(), images(3, 8)),
    "QuantEmbedding": lambda: (nn.Sequential(qnn.QuantEmbedding(8, 4)), torch.randint(0, 8, (4, 3))),
}


class Attention(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = qnn.QuantMultiheadAttention(8, 2, packed_in_proj=False, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the result without the weights."""
        return self.attention(x, x, x)[0]


_KINDS: Mapping[str, tuple[str, Callable[[str], Case]]] = {
    "weights": ("Weight", _weights),
    "activations": ("Act", _activations),
    "biases": ("Bias", _biases),
    "truncations": ("To8bit", _truncations),
}
# Of these, quantizers are made: they lack a bit width, or a class of what quantizes.
_PARTS = ("FpFNUZ", "FpOCP", "IntBias", "None", "MSEWeightZeroPoint", "ActQuantSolver", "WeightQuantSolver")


def _names(kind: str) -> Iterator[str]:
    for name, value in inspect.getmembers(quantizers, inspect.isclass):
        whole = not name.startswith(_PARTS) and not any(part in name for part in ("Mixin", "Base"))
        if issubclass(value, ExtendedInjector) and whole and _KINDS[kind][0] in name:
            yield name


@functools.cache
def cases() -> list[Case]:
    """Return all cases: every quantizer that `brevitas.quant` has by name, and the layers and models above."""
    found = [make(name) for kind, (_, make) in _KINDS.items() for name in _names(kind)]
    found += [_case("layers", name, make) for name, make in LAYERS.items()]
    names = (*NETWORKS, "resnet18_4w4a")
    return found + [_case("models", name, lambda name=name: bnn_pynq(name)) for name in names]


_LIKE_OTHERS: Mapping[str, tuple[str, ...]] = {
    # How Brevitas finds a scale (MSE, statistics, a maximum) is not read: it is a number of one kind or another.
    "weights": (
        *("Int8AccumulatorAwareZeroCenterWeightQuant", "Int8WeightNormL2PerChannelFixedPoint"),
        *("Int8WeightPerChannelFixedPointMSE", "Int8WeightPerChannelFloatMSE", "Int8WeightPerTensorFixedPointMSE"),
        *("Int8WeightPerTensorFloat", "ShiftedUint8WeightPerChannelFloatMSE", "ShiftedUint8WeightPerTensorFloatMSE"),
    ),
    "activations": (
        *("Int8ActPerTensorFixedPointMSE", "Int8ActPerTensorFloat", "Int8ActPerTensorFloatBatchQuant1d"),
        *("Int8ActPerTensorFloatMSE", "ShiftedUint8ActPerTensorFixedPoint", "ShiftedUint8ActPerTensorFixedPointMSE"),
        *("ShiftedUint8ActPerTensorFloatMSE", "Uint8ActPerTensorFixedPoint", "Uint8ActPerTensorFixedPointMSE"),
        *("Uint8ActPerTensorFloatBatchQuant1d", "Uint8ActPerTensorFloatBatchQuant2d", "Uint8ActPerTensorFloatMaxInit"),
    ),
    "biases": ("Int16Bias", "Int32Bias"),
    "layers": (
        *("QuantConv2d, per channel", "QuantConv2d, 3 bits", "QuantReLU, 2 bits"),
        # Of these, `test_brevitas_loops.py` compares each step for sequences of any length.
        *("QuantRNN", "QuantRNN, relu", "QuantRNN, QuantTensors out", "QuantRNN, two layers, both directions"),
        *("QuantLSTM, steps first", "QuantLSTM, coupled gates", "QuantLSTM, no gate_acc_quant"),
        *("QuantLSTM, no bias, quantizers shared", "QuantLSTM, two layers"),
        "QuantLSTM, both directions, weights shared",
    ),
    # Deeper than those of tfc, with the layers above.
    "models": tuple(name for name in (*NETWORKS, "resnet18_4w4a") if not name.startswith("tfc")),
}
_MINIFLOATS = ("Fp8e4m3Weight", "Fp8e5m2OCPWeightPerChannelFloatMSE", "Fp8e4m3FNUZWeightPerTensorFloat")
_MINIFLOAT_ACTIVATIONS = ("Fp8e5m2Act", "Fp8e4m3ActPerChannelFloat2dMSE", "Fp8e4m3FNUZActPerTensorFloat")


def long() -> set[str]:
    """Return the cases that run nothing but what others run; of minifloats, which are all refused, six are enough."""
    kept = (*_MINIFLOATS, *_MINIFLOAT_ACTIVATIONS)
    minifloats = {str(case) for case in cases() if case.name.startswith("Fp8") and case.name not in kept}
    return minifloats | {f"{source}-{name}" for source, names in _LIKE_OTHERS.items() for name in names}
