"""The MNIST network of ai8x: 8-bit integers, power-of-two shifts; its weights are those that its authors trained.

Source: the checkpoint ai85-mnist-qat8-q of analogdevicesinc/ai8x-synthesis (Apache-2.0). 99.44 % on the 10,000 test
digits.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.data import data_path
from nnhw.errors import InputError
from nnhw.nn import Int, QuantConv2d, QuantLinear, UInt

CHECKPOINT = ("ai8x", "ai85-mnist-qat8-q.clean.pt")
CHANNELS = (1, 60, 60, 56, 12)
PADDING = (1, 2, 1, 1)
FRACTION = 128  # what the accumulators' steps count for: 7 bits of fraction
CLASSES = 10


class Layer(nn.Module):
    """Convolution, then clip(floor(sum * 2**shift / 128 + 0.5), -128, 127), then ReLU."""

    factor: Tensor

    def __init__(self, number: int) -> None:
        super().__init__()
        channels_in, channels_out = CHANNELS[number : number + 2]
        quantizer = Int(8, scale=1.0)
        self.conv = QuantConv2d(
            channels_in, channels_out, 3, padding=PADDING[number], bias=False, weight_quant=quantizer
        )
        self.register_buffer("factor", torch.tensor(1.0))
        self.codes = UInt(7, scale=1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Codes -128..127 or 0..127 --> codes 0..127."""
        rounded = torch.floor(self.conv(x) * self.factor + 0.5).clamp(-128, 127)
        result: Tensor = self.codes(torch.relu(rounded))
        return result


class Ai8xMnist(nn.Module):
    """[N, 1, 28, 28], pixels - 128 --> accumulators of the last layer, [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.pixels = Int(8, scale=1.0)
        self.conv1, self.conv2, self.conv3, self.conv4 = (Layer(number) for number in range(4))
        self.mean = UInt(7, scale=1.0)
        self.fc = QuantLinear(192, CLASSES, weight_quant=Int(8, scale=1.0))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the accumulators; pooling stands in front of a layer."""
        x = self.conv1(self.pixels(x))
        x = self.conv2(nn.functional.max_pool2d(x, 2))
        x = self.conv3(nn.functional.max_pool2d(x, 2))
        x = self.mean(torch.floor(nn.functional.avg_pool2d(x, 2)))  # codes are not negative: truncating is floor
        result: Tensor = self.fc(self.conv4(x).flatten(1))
        return result


def build_model() -> nn.Module:
    """Return the network with the weights of the checkpoint. Raises: InputError if that is not there."""
    network = Ai8xMnist()
    state = torch.load(data_path(*CHECKPOINT), weights_only=True)
    state = state.get("state_dict", state)
    with torch.no_grad():
        for name in ("conv1", "conv2", "conv3", "conv4"):
            layer = getattr(network, name)
            layer.conv.weight.copy_(state[f"{name}.op.weight"])
            layer.factor.copy_(2.0 ** state[f"{name}.output_shift"].item() / FRACTION)
        network.fc.weight.copy_(state["fc.op.weight"])
        network.fc.bias.copy_(torch.floor(state["fc.op.bias"] / FRACTION) * FRACTION)
    return network.eval()


def _model() -> nn.Module | None:
    try:
        return build_model()
    except InputError:
        return None


model = _model()  # None without the checkpoint
example_input = torch.randint(-128, 128, (4, 1, 28, 28), generator=torch.Generator().manual_seed(1)).float()
