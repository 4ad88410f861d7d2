"""PT2E programs made by hand, of the operators that PT2E leaves: what XNNPACK's and Inductor's quantizers write."""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional

from tests.frontend.models import images

OPS = torch.ops.quantized_decomposed
INT8, UINT8 = (-128, 127, torch.int8), (0, 255, torch.uint8)
SCALE = float(torch.tensor(0.0306))
"""A number of float32 whose reciprocal rounds: multiplication by it differs from division at many half-way points."""


def pair(x: Tensor, scale: float = SCALE, zero_point: int = 0, codes: tuple[Any, ...] = INT8) -> Tensor:
    """Quantize and dequantize, per tensor."""
    quantized = OPS.quantize_per_tensor(x, scale, zero_point, *codes)
    numbers: Tensor = OPS.dequantize_per_tensor(quantized, scale, zero_point, *codes)
    return numbers


class Weight(nn.Module):
    """Codes of weights that are dequantized per channel, or per tensor without `channels`."""

    def __init__(self, *shape: int, seed: int, channels: bool = True, zero_point: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        count = shape[0] if channels else 1
        self.register_buffer("codes", torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8))
        self.register_buffer("scales", torch.rand(count, generator=generator) * 0.01 + 0.001)
        self.register_buffer("zero_points", torch.full((count,), zero_point))
        self.channels, self.scale, self.zero_point = channels, self.scales[0].item(), zero_point

    def forward(self) -> Tensor:
        """Return the numbers."""
        if self.channels:
            numbers: Tensor = OPS.dequantize_per_channel(self.codes, self.scales, self.zero_points, 0, -127, *INT8[1:])
            return numbers
        numbers = OPS.dequantize_per_tensor(self.codes, self.scale, self.zero_point, -127, *INT8[1:])
        return numbers


class Residual(nn.Module):
    """Two convolutions, a sum of branches, both poolings and a linear layer, quantized at each edge as XNNPACK does."""

    def __init__(self, codes: tuple[Any, ...] = INT8, zero_point: int = 3, channels: bool = True) -> None:
        super().__init__()
        self.first, self.second = Weight(4, 1, 3, 3, seed=1, channels=channels), Weight(4, 4, 3, 3, seed=2)
        self.last = Weight(5, 16, seed=3, channels=channels)
        self.bias = nn.Parameter(torch.linspace(-1, 1, 4))
        self.codes, self.zero_point = codes, zero_point

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 5]."""
        low = self.codes[0]
        x = pair(x, SCALE / 4, self.zero_point, self.codes)
        x = functional.relu(functional.conv2d(x, self.first(), self.bias, padding=1))
        x = functional.max_pool2d(pair(x, SCALE, low, self.codes), 2)
        y = pair(functional.conv2d(x, self.second(), padding=1), SCALE / 2, self.zero_point, self.codes)
        x = pair(functional.relu(x + y), 2 * SCALE, low, self.codes)
        x = pair(functional.avg_pool2d(x, 2), 2 * SCALE, low, self.codes)
        return pair(functional.linear(x.flatten(1), self.last()), SCALE, 0, self.codes)


class Shared(nn.Module):
    """Codes that two branches dequantize, the raw sums of one of them added, as Inductor's quantizer leaves it."""

    def __init__(self, channels: bool = False) -> None:
        super().__init__()
        self.weight = Weight(6, 6, seed=4, channels=channels)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 6] --> [N, 6]."""
        codes = OPS.quantize_per_tensor(x, SCALE, 0, *UINT8)
        one, other = (OPS.dequantize_per_tensor(codes, SCALE, 0, *UINT8) for _ in range(2))
        sums = functional.relu(one + functional.linear(other, self.weight()))
        return functional.linear(pair(sums, SCALE, 0, UINT8), self.weight())


class Trained(nn.Module):
    """Float weights with a pair of their own, as in a program that is not folded; a bias of 32 bits; tensors as scales.

    Parameters
    ----------
    overload: of quantize and dequantize per tensor: '' for numbers, 'tensor' or 'tensor2'.
    """

    def __init__(self, overload: str = "tensor") -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(6)
        self.weight = nn.Parameter(torch.randn(3, 6, generator=generator) * 0.1)
        self.register_buffer("bias_codes", torch.tensor([70000, -5, 3], dtype=torch.int32))
        self.register_buffer("scale", torch.tensor([SCALE]))
        self.register_buffer("zero", torch.tensor([0]))
        self.register_buffer("low", torch.tensor([-128]))
        self.register_buffer("high", torch.tensor([127]))
        self.overload = overload

    def forward(self, x: Tensor) -> Tensor:
        """[N, 6] --> [N, 3]."""
        ends = (self.low, self.high) if self.overload == "tensor2" else (-128, 127)
        arguments = (self.scale, self.zero, *ends, torch.int8)
        make = getattr(OPS.quantize_per_tensor, self.overload)
        read = getattr(OPS.dequantize_per_tensor, self.overload)
        scales, zeros = self.scale.expand(3) / 8, self.zero.expand(3)
        weight = OPS.quantize_per_channel(self.weight, scales, zeros, 0, *INT8)
        numbers = OPS.dequantize_per_channel(weight, scales, zeros, 0, *INT8)
        wide = (-(2**31), 2**31 - 1, torch.int32)
        bias = OPS.dequantize_per_tensor(self.bias_codes, SCALE * 2**-10, 0, *wide)
        x = read(make(x, *arguments), *arguments)
        return pair(functional.linear(x, numbers, bias))


def exported(model: nn.Module, shape: tuple[int, ...], batch: int | None = None) -> ExportedProgram:
    """Export a model: for any batch, or for one of a single size."""
    sizes = None if batch else ({0: Dim.DYNAMIC},)
    with torch.no_grad():
        return torch.export.export(model.eval(), (images(batch or 2, shape),), dynamic_shapes=sizes)


CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "xnnpack_int8": (Residual(), (1, 8, 8)),
    "xnnpack_uint8": (Residual(UINT8, 120), (1, 8, 8)),
    "per_tensor_weights": (Residual(channels=False), (1, 8, 8)),
    "inductor": (Shared(), (6,)),
    "float_weights": (Trained(), (6,)),
    "tensor2": (Trained("tensor2"), (6,)),
}
