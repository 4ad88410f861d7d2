"""What Brevitas itself computes: a model's result, and the codes of each of its quantizers."""

from __future__ import annotations

import warnings
from typing import Any

from brevitas.proxy.parameter_quant import BiasQuantProxyFromInjector
from brevitas.proxy.quant_proxy import QuantProxyFromInjector
from brevitas.proxy.runtime_quant import TruncQuantProxyFromInjector
from brevitas.quant_tensor import IntQuantTensor
from torch import Tensor

from nnhw.frontend.evaluation import Evaluator, QuantizerCall, call_of

from .coding import coding_of, hooked, truncating
from .recurrent import CodeOfOne, call_quantizers
from .values import plain_result


class BrevitasEvaluator(Evaluator):
    """A model of Brevitas layers as Brevitas evaluates it; layers of nnhw may be among them."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        call_quantizers(self.model)

    def _result(self, batch: Tensor, calls: list[QuantizerCall]) -> Any:
        """Return the result for a batch, and note the calls of weights, activations and truncations."""

        def note(module: QuantProxyFromInjector | CodeOfOne, given: object, made: object) -> None:
            proxy = module.proxy if isinstance(module, CodeOfOne) else module
            if not isinstance(made, IntQuantTensor) or isinstance(proxy, BiasQuantProxyFromInjector):
                return
            truncated = [truncating(proxy, made)] if isinstance(proxy, TruncQuantProxyFromInjector) else []
            for coding in (*truncated, coding_of(proxy, made)):
                value = made.value.detach()
                calls.append(call_of(value, (value, coding.scale, coding.zero_point, *coding.convention)))

        with hooked(self.model, (QuantProxyFromInjector, CodeOfOne), note), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return plain_result(self.model(batch))
