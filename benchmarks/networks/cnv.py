"""CNV: six convolutions without padding and three linear layers for 32x32 images; random weights.

59.5 M products at full width. Source of the topology: Umuroglu et al., FINN, arXiv:1612.07119, as in
brevitas_examples.bnn_pynq.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn

from benchmarks.networks.settling import settled
from nnhw.nn import Bipolar, Int, QuantConv2d, QuantHardTanh, QuantIdentity, Quantizer, QuantLinear, Scale, Sign

WIDTH = 64
CLASSES = 10


class Centre(nn.Module):
    """[0, 1] --> [-1, 1]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape."""
        return 2.0 * x - 1.0


def _weights(bits: int) -> Quantizer:
    return Bipolar() if bits == 1 else Int(bits, scale=2.0 ** (1 - bits))


def _activation(bits: int) -> Quantizer:
    return Sign() if bits == 1 else QuantHardTanh(bits)


def build_model(bits: int = 1, width: int = WIDTH) -> nn.Module:
    """Return the network: [N, 3, 32, 32] in [0, 1] --> logits [N, 10].

    Parameters
    ----------
    bits: of weights and activations; the image has 8.
    width: channels of the first layer.
    """
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers: list[nn.Module] = [Centre(), QuantIdentity(8)]
        channels = (3, width, width, 2 * width, 2 * width, 4 * width, 4 * width)
        for number, (inputs, outputs) in enumerate(itertools.pairwise(channels)):
            conv = QuantConv2d(inputs, outputs, 3, bias=False, weight_quant=_weights(bits))
            layers += [conv, nn.BatchNorm2d(outputs), _activation(bits)]
            layers += [nn.MaxPool2d(2)] if number in (1, 3) else []
        layers.append(nn.Flatten())
        for inputs, outputs in ((4 * width, 8 * width), (8 * width, 8 * width)):
            linear = QuantLinear(inputs, outputs, bias=False, weight_quant=_weights(bits))
            layers += [linear, nn.BatchNorm1d(outputs), _activation(bits)]
        layers += [QuantLinear(8 * width, CLASSES, bias=False, weight_quant=_weights(bits)), Scale(2**-5)]
        model = nn.Sequential(*layers)
        for layer in model:
            if isinstance(layer, QuantConv2d | QuantLinear):
                nn.init.uniform_(layer.weight, -1.0, 1.0)  # so that all codes occur
        return settled(model, torch.rand(16, 3, 32, 32))


example_input = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
model = build_model()
model_half_2bit = build_model(2, WIDTH // 2)
