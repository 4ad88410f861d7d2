"""A 1-D convolutional classifier of motions: 100 samples of a 6-axis sensor.

Trained by `train.py`; without its checkpoint, weights are random.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.settling import observed, weighted
from nnhw.nn import Int, QuantConv1d, QuantLinear

AXES, SAMPLES, CLASSES = 6, 100, 4
CHANNELS = (16, 32)
BITS = 8


class SensorCnn(nn.Module):
    """[N, 6, 100] --> logits [N, 4]."""

    def __init__(self) -> None:
        super().__init__()
        first, second = CHANNELS
        self.samples = Int(BITS, scale=2**-2)  # the gyroscope reaches 30
        self.conv1 = QuantConv1d(AXES, first, 5, padding=2, bias=False, weight_quant=Int(BITS, "max_abs", axis=0))
        self.norm1, self.act1 = nn.BatchNorm1d(first), observed(BITS)
        self.conv2 = QuantConv1d(first, second, 5, padding=2, bias=False, weight_quant=Int(BITS, "max_abs", axis=0))
        self.norm2, self.act2 = nn.BatchNorm1d(second), observed(BITS)
        self.mean = observed(BITS)
        self.fc = QuantLinear(second, CLASSES, weight_quant=Int(BITS, "max_abs", axis=0))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        x = nn.functional.max_pool1d(self.act1(torch.relu(self.norm1(self.conv1(self.samples(x))))), 2)
        x = nn.functional.max_pool1d(self.act2(torch.relu(self.norm2(self.conv2(x)))), 2)
        x = self.mean(nn.functional.adaptive_avg_pool1d(x, 1)).flatten(1)
        result: Tensor = self.fc(x)
        return result


def build_model() -> nn.Module:
    """Return the network."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return weighted(SensorCnn(), "sensor_cnn1d", torch.randn(16, AXES, SAMPLES) * 4)


example_input = torch.randn(4, AXES, SAMPLES, generator=torch.Generator().manual_seed(1)) * 4
model = build_model()
