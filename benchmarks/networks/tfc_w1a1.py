"""TFC_1W1A of the QONNX model zoo: 784-64-64-64-10 in single bits; its weights are those that its authors trained.

Source: https://github.com/fastmachinelearning/qonnx_model_zoo. 92.96 % on the 10,000 test digits.

The integers in front of the tail are equal everywhere. The tail has four roundings, and float32 takes them otherwise
than float64 does; so of the logits of PyTorch's float32 many differ from the reference in their last bit, and none of
its float64. The file's own logits are float32: the same integers through the tail in float32 give each of them exactly.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from benchmarks.networks.data import data_path
from nnhw.errors import InputError
from nnhw.nn import QuantLinear, Sign

FILE = ("qonnx", "TFC_1W1A.onnx")
SIZES = (784, 64, 64, 64, 10)
WEIGHTS = ("38", "46", "54", "62")  # the names of these tensors in the file
NORMS = ("features.3", "features.7", "features.11")
TAIL, TAIL_VARIANCE = "features.15", "76"  # the variance holds its epsilon already
EPSILON = 9.999999747378752e-06


class Tail(nn.Module):
    """(x - mean) / variance ** 0.5 * weight + bias, each one number, in this order."""

    mean: Tensor
    variance: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("mean", "variance", "weight", "bias"):
            self.register_buffer(name, torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Any shape."""
        result: Tensor = (x - self.mean) / torch.pow(self.variance, 0.5) * self.weight + self.bias
        return result


class Tfc(nn.Module):
    """[N, 1, 28, 28] in [0, 1] --> logits [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(SIZES[:-1]):
            layers += [QuantLinear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs, eps=EPSILON), Sign()]
        self.sign = Sign()
        self.features = nn.Sequential(*layers, QuantLinear(*SIZES[-2:], bias=False))
        self.tail = Tail()

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        result: Tensor = self.tail(self.features(self.sign(2.0 * x.flatten(1) - 1.0)))
        return result


def build_model() -> nn.Module:
    """Return the network with the weights of the file. Raises: InputError if that is not there."""
    path = data_path(*FILE)
    import onnx
    from onnx import numpy_helper

    found = {
        item.name: torch.from_numpy(numpy_helper.to_array(item).copy()) for item in onnx.load(path).graph.initializer
    }
    network = Tfc()
    linears = [module for module in network.features if isinstance(module, QuantLinear)]
    norms = [module for module in network.features if isinstance(module, nn.BatchNorm1d)]
    with torch.no_grad():
        for linear, name in zip(linears, WEIGHTS, strict=True):
            linear.weight.copy_(found[name])
        for norm, name in zip(norms, NORMS, strict=True):
            for key in ("weight", "bias", "running_mean", "running_var"):
                getattr(norm, key).copy_(found[f"{name}.{key}"])
    tail = {"mean": "running_mean", "weight": "weight", "bias": "bias"}
    network.tail.load_state_dict(
        {"variance": found[TAIL_VARIANCE], **{key: found[f"{TAIL}.{name}"] for key, name in tail.items()}}
    )
    return network.eval()


def _model() -> nn.Module | None:
    try:
        return build_model()
    except (InputError, ImportError):
        return None


model = _model()  # None without the file, or without the package onnx
example_input = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(1))
