"""What codes a quantizer of Brevitas makes, as arguments of the operator `nnhw.quantize`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from brevitas.core import function_wrapper as rounding_modules
from brevitas.core.quant import BinaryQuant, ClampedBinaryQuant, TernaryQuant
from brevitas.function.ops import max_int, min_int
from brevitas.proxy.parameter_quant import ParameterQuantProxyFromInjector
from brevitas.proxy.quant_proxy import QuantProxyFromInjector
from brevitas.proxy.runtime_quant import ActQuantProxyFromInjector, _TensorQuantDisabledIdentity
from brevitas.quant_tensor import IntQuantTensor
from torch import Tensor, nn

from nnhw.nn.functional import quantize

PER_TENSOR = -1
_BINARY = (BinaryQuant, ClampedBinaryQuant)
_ROUNDINGS: dict[type[nn.Module], str] = {
    rounding_modules.RoundSte: "half_even",
    rounding_modules.FloorSte: "floor",
    rounding_modules.CeilSte: "ceil",
    rounding_modules.StochasticRoundSte: "half_even",  # in eval mode
}
_ROUNDINGS_ABOVE_ZERO: dict[type[nn.Module], str] = {
    rounding_modules.RoundToZeroSte: "floor",
    rounding_modules.DPURoundSte: "half_even",
}


@dataclass(frozen=True, eq=False)
class Coding:
    """Codes with their scale: the arguments of `nnhw.quantize`.

    Parameters
    ----------
    scale, zero_point: one, or one for each channel; the zero point is added in front of rounding.
    qmin, qmax: least and greatest code.
    axis: of the channels; -1 for one scale.
    """

    scale: Tensor
    zero_point: Tensor
    qmin: int
    qmax: int
    axis: int
    bipolar: bool
    rounding: str

    @property
    def convention(self) -> tuple[int, int, int, bool, str, bool, bool]:
        """The arguments that are no tensors."""
        shifted = bool((self.zero_point != 0).any())
        return self.qmin, self.qmax, self.axis, self.bipolar, self.rounding, False, shifted

    def __call__(self, x: Tensor) -> Tensor:
        """Quantize a tensor."""
        result: Tensor = quantize(x, self.scale, self.zero_point, *self.convention)
        return result

    def same(self, other: Coding) -> bool:
        """Return whether two quantizers make the same codes of the same numbers."""
        return self.convention == other.convention and all(
            torch.equal(mine, theirs)
            for mine, theirs in ((self.scale, other.scale), (self.zero_point, other.zero_point))
        )


def coding_of(proxy: QuantProxyFromInjector, made: IntQuantTensor) -> Coding:
    """Return the scale, zero point and code range of a quantizer, read off a tensor that it returned.

    Parameters and results of truncations are codes times the scale already, but for rounding errors of floats. Whatever
    Brevitas rounded by, the nearest code is the right one, so that their coding rounds half to even.
    """
    kernel = kernel_of(proxy)
    bipolar = isinstance(kernel, _BINARY)
    # Bit widths do not say these: Brevitas gives 1 bit to signs and 2 to ternary codes, of which one is not used.
    if bipolar or isinstance(kernel, TernaryQuant):
        qmin, qmax = -1, 1
    else:
        narrow = bool(proxy.is_narrow_range)
        qmin, qmax = (int(edge(made.signed, narrow, made.bit_width)) for edge in (min_int, max_int))
    axes = channel_axes(made.scale)
    return Coding(
        scale=made.scale.detach().reshape(-1),
        zero_point=made.zero_point.detach().reshape(-1).to(made.scale.dtype),
        qmin=qmin,
        qmax=qmax,
        axis=axes[0] if axes else PER_TENSOR,
        bipolar=bipolar,
        rounding=rounding_of(kernel, qmin) or "" if isinstance(proxy, ActQuantProxyFromInjector) else "half_even",
    )


def truncating(proxy: QuantProxyFromInjector, made: IntQuantTensor) -> Coding:
    """Return the scale, zero point and code range of a truncation, read off its result; the scale is the result's."""
    coding = coding_of(proxy, made)
    return replace(coding, rounding=rounding_of(kernel_of(proxy), coding.qmin) or "")


def kernel_of(proxy: QuantProxyFromInjector) -> nn.Module | None:
    """Return the module that does a quantizer's arithmetic, or None if it passes numbers on unchanged."""
    fused = getattr(proxy, "fused_activation_quant_proxy", None)
    kernel: nn.Module | None = proxy.tensor_quant if fused is None else fused.tensor_quant
    return None if isinstance(kernel, _TensorQuantDisabledIdentity) else kernel


def is_of_parameters(proxy: QuantProxyFromInjector) -> bool:
    """Return whether a quantizer is of weights or of a bias."""
    return isinstance(proxy, ParameterQuantProxyFromInjector)


def rounding_module(kernel: nn.Module | None) -> nn.Module | None:
    """Return the module with which a quantizer rounds, or None if it does not round, such as a sign."""
    # Brevitas wraps the integer quantizer once or twice, under one of two names.
    inner = getattr(kernel, "int_quant", getattr(kernel, "decoupled_int_quant", kernel))
    rounding: nn.Module | None = getattr(inner, "float_to_int_impl", None)
    return rounding


def rounding_of(kernel: nn.Module | None, qmin: int) -> str | None:
    """Return the rounding mode of `nnhw.quantize` that equals a quantizer's, or None if there is none.

    Where no code is below 0, towards zero is downwards, and the rounding of Xilinx's DPU is half to even: they differ
    for numbers below 0 alone, which become 0.
    """
    module = rounding_module(kernel)
    # A sign or a ternary code is decided by comparison: rounding is by the nearest code there.
    if module is None:
        return "half_even"
    if qmin >= 0 and type(module) in _ROUNDINGS_ABOVE_ZERO:
        return _ROUNDINGS_ABOVE_ZERO[type(module)]
    return _ROUNDINGS.get(type(module))


def channel_axes(scale: Tensor) -> list[int]:
    """Return the axes along which scales differ."""
    return [axis for axis, size in enumerate(scale.shape) if size != 1]


@contextmanager
def hooked(
    model: nn.Module, kinds: type[nn.Module] | tuple[type[nn.Module], ...], note: Callable[..., None]
) -> Iterator[None]:
    """While active, call a function behind each module of some kinds: with it, its arguments and its result."""
    hooks = [module.register_forward_hook(note) for module in model.modules() if isinstance(module, kinds)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
