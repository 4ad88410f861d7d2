"""MobileNetV1 of a quarter of the width, for images of 96 x 96, in the shape of MLPerf Tiny; random weights.

Source: Howard et al., MobileNets, arXiv:1704.04861; Banbury et al., MLPerf Tiny Benchmark, arXiv:2106.07597. Here
strided convolutions pad by 1 on all sides.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.settling import observed, settled
from nnhw.nn import Int, QuantConv2d, QuantLinear, UInt

Bits = tuple[int, int]
"""Of weights, and of activations."""
Pairs = tuple[tuple[int, int], ...]
"""(output channels, stride) of each depthwise convolution and the pointwise one behind it."""

STEM = 8
PAIRS: Pairs = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *((128, 1),) * 5, (256, 2), (256, 1))
CLASSES = 2
SIDE = 96


def _block(
    channels_in: int, channels_out: int, size: int, bits: Bits, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    conv = QuantConv2d(
        channels_in,
        channels_out,
        size,
        stride=stride,
        padding=size // 2,
        groups=groups,
        bias=False,
        weight_quant=Int(bits[0], "max_abs", axis=0),
    )
    return nn.Sequential(conv, nn.BatchNorm2d(channels_out), nn.ReLU(), observed(bits[1]))


class MobileNet(nn.Module):
    """Square images [N, 3, side, side] in [0, 1] --> logits [N, classes].

    Parameters
    ----------
    stem: channels and stride of the first convolution.
    """

    def __init__(
        self, bits: Bits, stem: tuple[int, int] = (STEM, 2), pairs: Pairs = PAIRS, classes: int = CLASSES
    ) -> None:
        super().__init__()
        self.pixels = UInt(8, scale=2**-8)
        self.stem = _block(3, stem[0], 3, bits, stride=stem[1])
        blocks, channels = list[nn.Module](), stem[0]
        for outputs, stride in pairs:
            blocks += [_block(channels, channels, 3, bits, stride, groups=channels), _block(channels, outputs, 1, bits)]
            channels = outputs
        self.pairs = nn.Sequential(*blocks)
        self.mean = observed(bits[1])
        self.fc = QuantLinear(channels, classes, weight_quant=Int(bits[0], "max_abs", axis=0))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        x = self.pairs(self.stem(self.pixels(x)))
        x = self.mean(nn.functional.avg_pool2d(x, x.shape[-1])).flatten(1)
        result: Tensor = self.fc(x)
        return result


def build_model(weight_bits: int = 2, bits: int = 4) -> nn.Module:
    """Return the network with random weights; activations have `bits` bits, the image 8."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return settled(MobileNet((weight_bits, bits)), torch.rand(8, 3, SIDE, SIDE))


example_input = torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
model = build_model()
