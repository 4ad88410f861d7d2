"""DS-CNN in the shape of MLPerf Tiny's keyword spotting, for spoken digits: depthwise and pointwise convolutions.

Source: Zhang et al., Hello Edge, arXiv:1711.07128; Banbury et al., MLPerf Tiny Benchmark, arXiv:2106.07597. Padding is
'same' as there: of the first layer, the greater half behind. Trained by `train.py`, tested with other recordings of the
same four speakers; without a checkpoint, weights are random.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.data import COEFFICIENTS, FRAMES
from benchmarks.networks.settling import observed, weighted
from nnhw.nn import Int, QuantConv2d, QuantLinear

CHANNELS, CLASSES, PAIRS = 64, 10, 4


def _block(channels_in: int, size: int | tuple[int, int], bits: int, **options: int) -> nn.Sequential:
    conv = QuantConv2d(channels_in, CHANNELS, size, bias=False, weight_quant=Int(bits, "max_abs", axis=0), **options)
    return nn.Sequential(conv, nn.BatchNorm2d(CHANNELS), nn.ReLU(), observed(bits))


class DsCnn(nn.Module):
    """Log-mel features [N, 1, 49, 10] --> logits [N, 10]."""

    def __init__(self, bits: int, mean_bits: int) -> None:
        super().__init__()
        self.features = Int(8, scale=2**-3)  # log-mel values of samples in [-1, 1) lie in (-16, 16)
        self.border = nn.ZeroPad2d((1, 1, 4, 5))
        self.stem = _block(1, (10, 4), bits, stride=2)
        pairs = [
            [_block(CHANNELS, 3, bits, padding=1, groups=CHANNELS), _block(CHANNELS, 1, bits)] for _ in range(PAIRS)
        ]
        self.pairs = nn.Sequential(*(block for pair in pairs for block in pair))
        self.mean = observed(mean_bits)
        self.fc = QuantLinear(CHANNELS, CLASSES, weight_quant=Int(bits, "max_abs", axis=0))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        x = self.pairs(self.stem(self.border(self.features(x))))
        x = self.mean(nn.functional.avg_pool2d(x, (25, 5))).flatten(1)
        result: Tensor = self.fc(x)
        return result


def build_model(bits: int = 8, mean_bits: int = 8) -> nn.Module:
    """Return the network; weights and activations have `bits` bits, the features 8.

    Parameters
    ----------
    mean_bits: of the activations behind the average pooling; checkpoints have 8.
    """
    name = f"ds_cnn_w{bits}a{bits}" if mean_bits == 8 else f"ds_cnn_all{bits}"
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return weighted(DsCnn(bits, mean_bits), name, torch.randn(16, 1, FRAMES, COEFFICIENTS) * 4 - 6)


example_input = torch.randn(4, 1, FRAMES, COEFFICIENTS, generator=torch.Generator().manual_seed(1)) * 4 - 6
model = build_model()
model_4bit = build_model(4)
