"""The networks of the benchmarks as torch modules: topologies of the field and two networks trained by others."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

__all__ = ["NETWORKS", "Network"]


@dataclass(frozen=True)
class Network:
    """One network.

    Parameters
    ----------
    module: its file in this folder, which has `build_model`, `model` and `example_input`.
    about: what it is, and where its weights come from.
    options: arguments of `build_model`.
    needs: folder below NNHW_DATA that its weights come from; empty if it needs none.
    package: that reads the weights, a development dependency; empty if none.
    """

    module: str
    about: str
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    package: str = ""

    def load(self) -> tuple[nn.Module, torch.Tensor]:
        """Return the model in eval mode and an example input."""
        home = importlib.import_module(f"{__name__}.{self.module}")
        model: nn.Module = home.build_model(**self.options)
        example: torch.Tensor = home.example_input
        return model.eval(), example


# Accuracies are of the test sets, in eval mode; `benchmarks/networks/train.py` trained what is not said to be others'.
NETWORKS: dict[str, Network] = {
    "ai8x_mnist": Network("ai8x_mnist", "MNIST, 8 bit, trained by analogdevicesinc/ai8x: 99.44 %", needs="ai8x"),
    "tfc_w1a1": Network("tfc_w1a1", "MNIST, 1 bit, of the QONNX zoo: 92.96 %", needs="qonnx", package="onnx"),
    "resnet8_w8a8": Network("resnet8", "ResNet-8, CIFAR-10 shape, 8 bit, random weights", {"bits": 8}),
    "resnet8_w4a4": Network("resnet8", "ResNet-8, CIFAR-10 shape, 4 bit, random weights", {"bits": 4}),
    "resnet8_w2a2": Network("resnet8", "ResNet-8, CIFAR-10 shape, 2 bit, random weights", {"bits": 2}),
    "ds_cnn_w8a8": Network("ds_cnn", "DS-CNN, spoken digits, 8 bit: 100 % of 200", {"bits": 8}),
    "ds_cnn_w4a4": Network("ds_cnn", "DS-CNN, spoken digits, 4 bit: 99.00 % of 200", {"bits": 4}),
    "sensor_cnn1d": Network("sensor_cnn1d", "1-D convolutions, four motions of a 6-axis sensor, 8 bit: 100 % of 40"),
    "ecg_autoencoder": Network("ecg_autoencoder", "140-32-8-32-140, unusual heartbeats, 8 bit: 98.80 % of 665"),
    "mlp784_w8a8": Network("mlp784", "784-32-16-10, MNIST, 8 bit: 96.53 %", {"bits": 8}),
    "mlp784_w4a4": Network("mlp784", "784-32-16-10, MNIST, 4 bit: 95.78 %", {"bits": 4}),
    "cnn_small": Network("cnn_small", "two strided convolutions and a linear layer, MNIST, 8 bit: 98.54 %"),
    "cnv_w1a1": Network("cnv", "CNV, CIFAR-10 shape, 1 bit, random weights", {"bits": 1}),
    "cnv_half_w2a2": Network(
        "cnv", "CNV of half width, CIFAR-10 shape, 2 bit, random weights", {"bits": 2, "width": 32}
    ),
    "resnet8_all4": Network("resnet8", "the same, 4 bit also behind the mean", {"bits": 4, "mean_bits": 4}),
    "resnet8_all2": Network("resnet8", "the same, 2 bit also behind the mean", {"bits": 2, "mean_bits": 2}),
    "ds_cnn_all4": Network("ds_cnn", "DS-CNN, 4 bit also behind the mean, random weights", {"bits": 4, "mean_bits": 4}),
    "ds_cnn_all2": Network("ds_cnn", "DS-CNN, 2 bit also behind the mean, random weights", {"bits": 2, "mean_bits": 2}),
    "mobilenet_w2a4": Network(
        "mobilenet", "MobileNetV1-0.25, 96 x 96 pixels, 2-bit weights, 4-bit activations, random"
    ),
    "mobilenet_w8a8": Network(
        "mobilenet", "MobileNetV1-0.25, 96 x 96 pixels, 8 bit, random weights", {"weight_bits": 8, "bits": 8}
    ),
    "wide_maps_w8a8": Network("wide_maps", "depthwise-separable layers, 64 x 64 pixels, 8 bit, random weights"),
    "autoencoder_w2a8": Network("autoencoder", "640-128-..-8-..-640, 2-bit weights, 8-bit activations, random weights"),
}
