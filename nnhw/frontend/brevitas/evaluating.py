"""What Brevitas itself computes: a model's result, and the codes of each of its quantizers."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from brevitas.proxy.parameter_quant import BiasQuantProxyFromInjector
from brevitas.proxy.quant_proxy import QuantProxyFromInjector
from brevitas.quant_tensor import IntQuantTensor
from torch import nn

from nnhw.frontend.evaluation import Evaluation, Evaluator, QuantizerCall, call_of

from .coding import coding_of, hooked, plain_tensor


class BrevitasEvaluator(Evaluator):
    """A model of Brevitas layers as Brevitas evaluates it, in eval mode and in the model's own precision.

    Parameters
    ----------
    model: it is copied.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)

    def __call__(self, images: np.ndarray, *, numbers: bool = False) -> Evaluation:
        """Evaluate images [N, *shape]; the calls are those of weights, activations and truncations."""
        calls: list[QuantizerCall] = []

        def note(proxy: QuantProxyFromInjector, given: object, made: object) -> None:
            if isinstance(made, IntQuantTensor) and not isinstance(proxy, BiasQuantProxyFromInjector):
                coding = coding_of(proxy, made)
                value = made.value.detach()
                calls.append(call_of(value, (value, coding.scale, coding.zero_point, *coding.convention)))

        with hooked(self.model, note), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = plain_tensor(self.model(torch.from_numpy(images)))
        return Evaluation(result.detach().cpu().numpy(), tuple(calls))
