"""Brevitas's own export handlers: in export mode each quantizer is a call of `nnhw.quantize`."""

from __future__ import annotations

from typing import Any

import torch
from brevitas.export.common.handler.base import BaseHandler
from brevitas.export.manager import BaseManager
from brevitas.nn import (
    QuantCat,
    QuantUpsample,
    QuantUpsamplingNearest2d,
    TruncAdaptiveAvgPool2d,
    TruncAvgPool2d,
    TruncQuantAccumulator,
)
from brevitas.proxy.parameter_quant import (
    BiasQuantProxyFromInjector,
    DecoupledWeightQuantProxyFromInjector,
    DecoupledWeightQuantWithInputProxyFromInjector,
    WeightQuantProxyFromInjector,
)
from brevitas.proxy.quant_proxy import QuantProxyFromInjector
from brevitas.proxy.runtime_quant import ActQuantProxyFromInjector, TruncQuantProxyFromInjector
from torch import Tensor, nn

from nnhw.nn.functional import quantize

from .coding import Coding

HANDLED = "export_handler"
"""The name that Brevitas gives to the handler of a quantizer."""


class _CodesHandler(BaseHandler):
    """Quantizes by the operator `nnhw.quantize`.

    What Brevitas's tuples have beside the value is not used: its quantizers return plain tensors in export mode.
    """

    results = 4

    def __init__(self, coding: Coding) -> None:
        super().__init__()
        self.register_buffer("scale", coding.scale.clone())
        self.register_buffer("zero_point", coding.zero_point.clone())
        self.convention = coding.convention

    def prepare_for_export(self, module: nn.Module) -> None:
        """Do nothing: the handler has all that it needs."""

    def forward(self, x: Tensor, *context: Any) -> tuple[Tensor | None, ...]:
        """Quantize a tensor."""
        return quantize(x, self.scale, self.zero_point, *self.convention), *(None,) * (self.results - 1)


class ActivationHandler(_CodesHandler):
    """Of activations, behind the nonlinear function of the layer."""

    handled_layer = ActQuantProxyFromInjector


class WeightHandler(_CodesHandler):
    """Of weights: the layer has the numbers that Brevitas made of them, so that only their codes are to be found."""

    handled_layer = WeightQuantProxyFromInjector


class DecoupledWeightHandler(_CodesHandler):
    """Of weights that are scaled twice, such as those of A2Q."""

    handled_layer = (DecoupledWeightQuantProxyFromInjector, DecoupledWeightQuantWithInputProxyFromInjector)
    results = 6


class TruncationHandler(_CodesHandler):
    """Of sums and averages of codes; the layers call it by themselves, as Brevitas's quantizer needs a QuantTensor."""

    handled_layer = TruncQuantProxyFromInjector


class BiasHandler(BaseHandler):
    """Of a bias: the layer has the numbers that Brevitas made of it."""

    handled_layer = BiasQuantProxyFromInjector

    def __init__(self, coding: Coding) -> None:
        super().__init__()

    def prepare_for_export(self, module: nn.Module) -> None:
        """Do nothing: there is nothing to prepare."""

    def forward(self, x: Tensor, *context: Any) -> tuple[Tensor | None, ...]:
        """Return a bias as it is."""
        return x, None, None, None


class CodesManager(BaseManager):
    """Says which handler a quantizer has, as the managers of Brevitas's own exports do."""

    target_name = "nnhw"
    handlers = (ActivationHandler, WeightHandler, DecoupledWeightHandler, TruncationHandler, BiasHandler)

    @classmethod
    def export(cls, *args: Any, **kwargs: Any) -> None:
        """Not used: the model is traced by torch.export."""
        raise NotImplementedError

    @classmethod
    def set_export_mode(cls, model: nn.Module, enabled: bool) -> None:
        """Let the quantizers that have a handler use it, and return plain tensors."""
        for module in model.modules():
            if isinstance(module, QuantProxyFromInjector):
                module.skip_create_quant_tensor = enabled
                if module.export_handler is not None:
                    module.export_mode = enabled

    @classmethod
    def set_export_handler(cls, module: nn.Module) -> None:
        """Not used: a handler is made of what its quantizer made."""
        raise NotImplementedError


class Cat(nn.Module):
    """QuantCat of plain tensors."""

    def __init__(self, layer: QuantCat) -> None:
        super().__init__()
        self.input_quant, self.output_quant = layer.input_quant, layer.output_quant

    def forward(self, tensors: list[Tensor], dim: int = 1) -> Tensor:
        """Quantize each with the same quantizer, and join them."""
        result: Tensor = self.output_quant(torch.cat([self.input_quant(tensor) for tensor in tensors], dim))
        return result


class Upsample(nn.Module):
    """Upsampling of plain tensors."""

    def __init__(self, layer: QuantUpsample | QuantUpsamplingNearest2d) -> None:
        super().__init__()
        self.sizes = layer.size, layer.scale_factor, layer.mode, layer.align_corners

    def forward(self, x: Tensor) -> Tensor:
        """Repeat rows and columns."""
        return nn.functional.interpolate(x, *self.sizes)


class Truncated(nn.Module):
    """A layer that ends in a truncation, of plain tensors.

    Parameters
    ----------
    layer: a pooling layer, or an accumulator that does nothing else.
    """

    def __init__(self, layer: TruncAvgPool2d | TruncAdaptiveAvgPool2d | TruncQuantAccumulator) -> None:
        super().__init__()
        self.trunc_quant = layer.trunc_quant
        self.pool: nn.Module = nn.Identity()
        if isinstance(layer, TruncAvgPool2d):
            options = layer.ceil_mode, layer.count_include_pad, layer.divisor_override
            self.pool = nn.AvgPool2d(layer.kernel_size, layer.stride, layer.padding, *options)
        elif isinstance(layer, TruncAdaptiveAvgPool2d):
            self.pool = nn.AdaptiveAvgPool2d(layer.output_size)

    def forward(self, x: Tensor) -> Tensor:
        """Pool, and truncate."""
        handler = self.trunc_quant.export_handler
        pooled: Tensor = self.pool(x)
        return pooled if handler is None else handler(pooled)[0]


STAND_INS: dict[type[nn.Module], type[nn.Module]] = {
    QuantCat: Cat,
    QuantUpsample: Upsample,
    QuantUpsamplingNearest2d: Upsample,
    TruncAvgPool2d: Truncated,
    TruncAdaptiveAvgPool2d: Truncated,
    TruncQuantAccumulator: Truncated,
}
"""What stands in for layers whose code needs a QuantTensor."""
