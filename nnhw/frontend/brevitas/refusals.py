"""What of Brevitas has no exact integer form here, each with its reason and a remedy."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from brevitas.core.function_wrapper import Identity, StochasticRoundSte
from brevitas.core.quant import BinaryQuant, ClampedBinaryQuant, RescalingIntQuant, TernaryQuant, TruncIntQuant
from brevitas.core.quant.delay import _DelayQuant
from brevitas.nn import (
    QuantMultiheadAttention,
    QuantScaledDotProductAttention,
    QuantUpsample,
    QuantUpsamplingBilinear2d,
)
from brevitas.nn.mixin.base import QuantRecurrentLayerMixin
from brevitas.proxy.parameter_quant import BiasQuantProxyFromInjector, WeightQuantProxyFromInjectorBase
from brevitas.proxy.quant_proxy import QuantProxyFromInjector
from brevitas.quant_tensor import IntQuantTensor
from torch import nn

from .coding import channel_axes, coding_of, is_of_parameters, kernel_of, rounding_module, rounding_of
from .handlers import CodesManager
from .recurrent import absent_quantizers

_WIDEST_BITS = 16
"""Most bits of a code, as an LSTM's cell has them."""
_HALF = 0.5  # of the scale: where rounding to the nearest begins to give 1
_KERNELS = (RescalingIntQuant, BinaryQuant, ClampedBinaryQuant, TernaryQuant, TruncIntQuant)
_OF_TWO_TENSORS = (QuantMultiheadAttention, QuantScaledDotProductAttention)


def refusal_of_layer(layer: nn.Module) -> str:
    """Return why a layer has no exact form here; empty if no reason is known."""
    if isinstance(layer, QuantRecurrentLayerMixin):
        absent = ", ".join(dict.fromkeys(absent_quantizers(layer)))
        if absent:
            return f"keeps or multiplies numbers that are no codes, for it has no {absent}; give it quantizers"
        if getattr(layer, "cifg", False) and layer.cell.input_sigmoid_quant.scale().numel() > 1:
            return "has coupled gates whose quantizer has a scale for each unit; let sigmoid_quant have one scale"
    if isinstance(layer, _OF_TWO_TENSORS):
        return "multiplies tensors that both depend on the input; the engines multiply by constants"
    if isinstance(layer, QuantUpsample | QuantUpsamplingBilinear2d) and layer.mode != "nearest":
        return f"interpolates ({layer.mode}), and rounds to the scale of its input; use QuantUpsamplingNearest2d"
    for name in ("weight", "bias"):
        if isinstance(getattr(layer, f"{name}_quant", None), QuantProxyFromInjector) and _is_computed(layer, name):
            return (
                f"computes its {name} anew in each call; make it a parameter, such as by "
                f"torch.nn.utils.parametrize.remove_parametrizations or torch.nn.utils.prune.remove"
            )
    return ""


def refusal_of_proxy(proxy: QuantProxyFromInjector) -> str:
    """Return why a quantizer has no exact form here, for any input; empty if no reason is known."""
    name = type(proxy).__name__
    # By the beginning of the name, which the classes for weights and for activations have in common.
    if name.startswith("Dynamic"):
        return f"finds its scale from each image ({name}); {_integers(proxy)}"
    if proxy.is_groupwise or name.startswith("Groupwise"):
        return f"has scales for groups inside of a channel ({name}); {_integers(proxy)}"
    if "Float" in name:
        return f"makes minifloats ({name}), whose products are no integers; {_integers(proxy)}"
    if CodesManager.handler_from_module(proxy, no_inheritance=True) is None:
        return f"is of the class {name}, of which nothing is known here; use one of brevitas.quant"
    if proxy.disable_quant:
        return "is switched off (disable_quant); switch it on, such as by leaving calibration_mode"
    return next(_refusals_of_kernel(proxy), "")


def refusal_of_codes(proxy: QuantProxyFromInjector, made: IntQuantTensor) -> str:
    """Return why a quantizer's result for an example cannot be expressed as codes; empty if it can."""
    if isinstance(proxy, BiasQuantProxyFromInjector):
        return ""  # a bias may be any number
    # Bit widths may be learned, and then be no whole numbers.
    bits = float(made.bit_width.max())
    if bits != int(bits) or not 1 <= bits <= _WIDEST_BITS:
        return f"has {bits:g} bits, but codes have 1 to {_WIDEST_BITS} whole bits; set bit_width"
    if len(channel_axes(made.scale)) > 1:
        return f"has a scale of the shape {list(made.scale.shape)}; {_integers(proxy)}"
    fractions = made.zero_point[made.zero_point != made.zero_point.round()]
    if fractions.numel():
        return (
            f"has the zero point {fractions.flatten()[0]:g}, but only with an integer a code stands for 0.0; use a "
            f"quantizer without HQO, or quantize_zero_point=True"
        )
    if isinstance(proxy, WeightQuantProxyFromInjectorBase):
        # Weights are the numbers that Brevitas made; they must be codes times a scale to the bit, or no integers stand
        # for them.
        kept = coding_of(proxy, made)(made.value.detach())
        return "" if torch.equal(kept, made.value) else "makes weights that are no codes times a scale"
    kernel = kernel_of(proxy)
    if rounding_of(kernel, coding_of(proxy, made).qmin) is None:
        return (
            f"rounds by {type(rounding_module(kernel)).__name__}, which the hardware does not do; use "
            f"float_to_int_impl_type 'round', 'floor' or 'ceil'"
        )
    return ""


def _integers(proxy: QuantProxyFromInjector) -> str:
    example = "Int8WeightPerChannelFloat" if is_of_parameters(proxy) else "Int8ActPerTensorFloat"
    return f"use integers with one scale for the tensor or for each channel, such as {example}"


def _is_computed(layer: nn.Module, name: str) -> bool:
    return getattr(layer, name, None) is not None and name not in layer._parameters


def _refusals_of_kernel(proxy: QuantProxyFromInjector) -> Iterator[str]:
    kernel = kernel_of(proxy)
    assert kernel is not None
    if getattr(kernel, "observer_only", False):
        yield "only observes (observer_only), and quantizes nothing; leave calibration_mode"
    for module in kernel.modules():
        if isinstance(module, _DelayQuant) and module.quant_delay_steps > 0:
            yield (
                f"lets numbers through for {module.quant_delay_steps} more calls (quant_delay_steps); train on, or "
                f"set it to 0"
            )
    rounding = rounding_module(kernel)
    if isinstance(rounding, StochasticRoundSte) and not rounding.deterministic_inference:
        yield "draws random numbers (StochasticRoundSte) in eval mode, too; set deterministic_inference=True"
    if is_of_parameters(proxy):
        return  # of parameters, what was made counts, and not how
    if type(kernel) not in _KERNELS:
        yield f"computes by {type(kernel).__name__}, of which nothing is known here; use one of brevitas.quant"
    # Ternary codes become a quantizer of -1..1 that rounds, and rounding gives 1 from a half on.
    if isinstance(kernel, TernaryQuant) and kernel.threshold != _HALF:
        yield f"has the threshold {kernel.threshold:g}; use threshold=0.5, at which rounding changes"
    if isinstance(kernel, RescalingIntQuant) and not isinstance(kernel.int_quant.input_view_impl, Identity):
        yield f"views its input by {type(kernel.int_quant.input_view_impl).__name__}; {_integers(proxy)}"
