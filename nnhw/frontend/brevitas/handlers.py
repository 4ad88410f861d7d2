"""Brevitas's own export handlers: in export mode each quantizer is a call of `nnhw.quantize`."""

from __future__ import annotations

from typing import Any

from brevitas.export.common.handler.base import BaseHandler
from brevitas.export.manager import BaseManager
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
from .values import PlainQuantTensor


class QuantizeCall(nn.Module):
    """The operator `nnhw.quantize` with its arguments."""

    scale: Tensor
    zero_point: Tensor

    def __init__(self, coding: Coding) -> None:
        super().__init__()
        self.register_buffer("scale", coding.scale.clone())
        self.register_buffer("zero_point", coding.zero_point.clone())
        self.convention = coding.convention

    def forward(self, x: Tensor) -> Tensor:
        """Quantize a tensor."""
        result: Tensor = quantize(x, self.scale, self.zero_point, *self.convention)
        return result


class _CodesHandler(QuantizeCall, BaseHandler):
    """Makes codes. Brevitas takes scale, zero point and bit width beside the value, which nothing reads here."""

    results = 4

    def prepare_for_export(self, module: nn.Module) -> None:
        """Do nothing: the handler has all that it needs."""

    def forward(self, x: Tensor, *context: Any) -> tuple[Any, ...]:  # type: ignore[override]
        """Quantize a tensor."""
        return PlainQuantTensor(super().forward(x)), *(None,) * (self.results - 1)


class ActivationHandler(_CodesHandler):
    """Quantizes activations, after the layer's nonlinear function."""

    handled_layer = ActQuantProxyFromInjector


class WeightHandler(_CodesHandler):
    """Finds the codes of weights: the layer's weights have been replaced by the numbers that Brevitas made of them."""

    handled_layer = WeightQuantProxyFromInjector


class DecoupledWeightHandler(_CodesHandler):
    """Quantizes weights that are scaled twice, such as those of A2Q."""

    handled_layer = (DecoupledWeightQuantProxyFromInjector, DecoupledWeightQuantWithInputProxyFromInjector)
    results = 6


class TruncationHandler(_CodesHandler):
    """Truncates sums of codes."""

    handled_layer = TruncQuantProxyFromInjector


class BiasHandler(BaseHandler):
    """Leaves a bias as it is: the layer's bias has been replaced by the numbers that Brevitas made of it."""

    handled_layer = BiasQuantProxyFromInjector

    def __init__(self, coding: Coding) -> None:
        super().__init__()

    def prepare_for_export(self, module: nn.Module) -> None:
        """Do nothing: there is nothing to prepare."""

    def forward(self, x: Tensor, *context: Any) -> tuple[Any, ...]:
        """Return a bias as it is."""
        # Four results, as the layer unpacks them; it reads the value alone.
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
        """Let the quantizers that have a handler return what it returns, and the others numbers without a scale."""
        for proxy in (module for module in model.modules() if isinstance(module, QuantProxyFromInjector)):
            if proxy.export_handler is None:
                # A layer without codes of its own gives its result the scale of its input, which a plain value has not.
                proxy.create_quant_tensor = _passed_on
            else:
                proxy.skip_create_quant_tensor = proxy.export_mode = enabled
            if isinstance(proxy, DecoupledWeightQuantWithInputProxyFromInjector):
                # What it reads of the layer's input, it has kept from the call before.
                proxy.register_forward_pre_hook(lambda module, given: given[:1])

    @classmethod
    def set_export_handler(cls, module: nn.Module) -> None:
        """Not used: handlers are made from the tensors that their quantizers returned."""
        raise NotImplementedError


def _passed_on(value: Tensor, x: object = None) -> PlainQuantTensor:
    """Return the result of a layer that has no quantizer of its own, and keeps that of its input."""
    return PlainQuantTensor(value)
