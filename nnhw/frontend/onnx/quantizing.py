"""Layers that call the operator `nnhw.quantize`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from nnhw.nn.functional import quantize

PER_TENSOR = -1
Convention = tuple[int, int, int, bool, str, bool, bool]
"""qmin, qmax, axis, bipolar, rounding, reciprocal, zero_point_first: see `nnhw.nn.functional.quantize`."""


class QuantizeNode(nn.Module):
    """A call of `nnhw.quantize` with constant arguments.

    Parameters
    ----------
    scale, zero_point: float32; one, or one for each index of the convention's axis.
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(self, scale: np.ndarray, zero_point: np.ndarray, convention: Convention) -> None:
        super().__init__()
        self.register_buffer("scale", torch.from_numpy(np.array(scale, np.float32).reshape(-1)))
        self.register_buffer("zero_point", torch.from_numpy(np.array(zero_point, np.float32).reshape(-1)))
        self.convention = convention

    def forward(self, x: Tensor) -> Tensor:
        """Return the numbers that the codes of x stand for; the shape stays."""
        result: Tensor = quantize(x, self.scale, self.zero_point, *self.convention)
        return result


class QuantizedWeight(nn.Module):
    """A constant of the file, quantized."""

    def __init__(self, weight: np.ndarray, codes: QuantizeNode) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(np.array(weight, np.float32)), requires_grad=False)
        self.codes = codes

    def forward(self) -> Tensor:
        """Return the numbers that the codes of the constant stand for."""
        result: Tensor = self.codes(self.weight)
        return result


class Requantized(nn.Module):
    """The way integer operators make codes of sums: sums * factors / divisor, quantized with scale 1.

    Parameters
    ----------
    layer: computes the sums from the operands; None for one operand as it is.
    factors: they broadcast to the sums, which they multiply one after the other, each product in float32.
    divisor: of the products.
    codes: the quantizer, of scale 1.
    """

    def __init__(
        self, layer: nn.Module | None, factors: tuple[np.ndarray, ...], divisor: float, codes: QuantizeNode
    ) -> None:
        super().__init__()
        self.layer, self.divisor, self.codes = layer, divisor, codes
        for number, factor in enumerate(factors):
            self.register_buffer(f"factor{number}", torch.from_numpy(np.array(factor, np.float32)))
        self.count = len(factors)

    def forward(self, *operands: Tensor) -> Tensor:
        """Operands of the layer --> codes minus zero point, of the shape of the sums."""
        x = operands[0] if self.layer is None else self.layer(*operands)
        # One product after the other, each rounded to float32: ONNX Runtime does so, and another order gives other
        # codes at ties.
        for number in range(self.count):
            x = x * getattr(self, f"factor{number}")
        result: Tensor = self.codes(x / self.divisor if self.divisor != 1 else x)
        return result
