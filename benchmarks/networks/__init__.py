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


NETWORKS: dict[str, Network] = {
    "ai8x_mnist": Network("ai8x_mnist", "MNIST, 8 bit, trained by analogdevicesinc/ai8x", needs="ai8x"),
    "tfc_w1a1": Network("tfc_w1a1", "MNIST, 1 bit, trained by Xilinx for QONNX", needs="qonnx", package="onnx"),
    "resnet8_w8a8": Network("resnet8", "CIFAR-10 shape, 8 bit, random weights", {"bits": 8}),
    "resnet8_w4a4": Network("resnet8", "CIFAR-10 shape, 4 bit, random weights", {"bits": 4}),
    "resnet8_w2a2": Network("resnet8", "CIFAR-10 shape, 2 bit, random weights", {"bits": 2}),
    "ds_cnn_w8a8": Network("ds_cnn", "spoken digits, 8 bit, random weights", {"bits": 8}),
    "ds_cnn_w4a4": Network("ds_cnn", "spoken digits, 4 bit, random weights", {"bits": 4}),
    "sensor_cnn1d": Network("sensor_cnn1d", "6-axis motions, 8 bit; see the file for its weights"),
    "ecg_autoencoder": Network("ecg_autoencoder", "heartbeats, 8 bit; see the file for its weights"),
    "mlp784_w8a8": Network("mlp784", "MNIST 784-32-16-10, 8 bit; see the file for its weights", {"bits": 8}),
    "mlp784_w4a4": Network("mlp784", "MNIST 784-32-16-10, 4 bit; see the file for its weights", {"bits": 4}),
    "cnn_small": Network("cnn_small", "MNIST, two strided convolutions, 8 bit; see the file for its weights"),
    "cnv_w1a1": Network("cnv", "CIFAR-10 shape, CNV, 1 bit, random weights", {"bits": 1}),
    "cnv_half_w2a2": Network(
        "cnv", "CIFAR-10 shape, CNV of half width, 2 bit, random weights", {"bits": 2, "width": 32}
    ),
}
