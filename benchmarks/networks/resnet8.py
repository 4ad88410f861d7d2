"""ResNet-8 in the shape of MLPerf Tiny: three additions, 1x1 convolutions on two of the shortcuts; random weights.

Source: Banbury et al., MLPerf Tiny Benchmark, arXiv:2106.07597. Here strided convolutions pad by 1 on all sides.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.settling import observed, settled
from nnhw.nn import Int, QuantConv2d, QuantLinear, UInt

CHANNELS = (16, 32, 64)
CLASSES = 10
EXAMPLES = 4


def _conv(channels_in: int, channels_out: int, size: int, stride: int, bits: int) -> QuantConv2d:
    options = {"stride": stride, "padding": size // 2, "bias": False}
    return QuantConv2d(channels_in, channels_out, size, weight_quant=Int(bits, "max_abs", axis=0), **options)


class Block(nn.Module):
    """relu(conv(conv(x)) + x), each branch quantized before the addition."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, bits: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels_in, channels_out, 3, stride, bits)
        self.norm1, self.act1 = nn.BatchNorm2d(channels_out), observed(bits)
        self.conv2 = _conv(channels_out, channels_out, 3, 1, bits)
        self.norm2, self.branch = nn.BatchNorm2d(channels_out), observed(bits, signed=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Sequential(
                _conv(channels_in, channels_out, 1, stride, bits), observed(bits, signed=True)
            )
        self.act2 = observed(bits)

    def forward(self, x: Tensor) -> Tensor:
        """Codes --> codes."""
        y = self.act1(torch.relu(self.norm1(self.conv1(x))))
        y = self.branch(self.norm2(self.conv2(y)))
        result: Tensor = self.act2(torch.relu(y + self.shortcut(x)))
        return result


class ResNet8(nn.Module):
    """[N, 3, 32, 32] in [0, 1] --> logits [N, 10]."""

    def __init__(self, bits: int, mean_bits: int) -> None:
        super().__init__()
        self.pixels = UInt(8, scale=2**-8)
        self.stem, self.norm, self.act = _conv(3, CHANNELS[0], 3, 1, bits), nn.BatchNorm2d(CHANNELS[0]), observed(bits)
        self.block1 = Block(CHANNELS[0], CHANNELS[0], 1, bits)
        self.block2 = Block(CHANNELS[0], CHANNELS[1], 2, bits)
        self.block3 = Block(CHANNELS[1], CHANNELS[2], 2, bits)
        self.mean = observed(mean_bits)
        self.fc = QuantLinear(CHANNELS[2], CLASSES, weight_quant=Int(bits, "max_abs", axis=0))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        x = self.act(torch.relu(self.norm(self.stem(self.pixels(x)))))
        x = self.block3(self.block2(self.block1(x)))
        x = self.mean(nn.functional.adaptive_avg_pool2d(x, 1)).flatten(1)
        result: Tensor = self.fc(x)
        return result


def build_model(bits: int = 8, mean_bits: int = 8) -> nn.Module:
    """Return the network with random weights; weights and activations have `bits` bits, the image 8.

    Parameters
    ----------
    mean_bits: of the activations behind the average pooling.
    """
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return settled(ResNet8(bits, mean_bits), torch.rand(16, 3, 32, 32))


example_input = torch.rand(EXAMPLES, 3, 32, 32, generator=torch.Generator().manual_seed(1))
model = build_model()
model_4bit = build_model(4)
model_2bit = build_model(2)
