"""torch's modules that imitate quantization during training, with the scales that they have reached."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from nnhw.errors import InputError

from .functional import quantize
from .quantizers import PER_TENSOR

OBSERVERS_HOMES = ("torch.ao.quantization.", "torchao.")
"""Packages of observers and fake quantizers. Their classes are known by name, as torchao need not be installed."""


class FrozenFakeQuantize(nn.Module):
    """A fake quantizer of torch with its observer off and its scale fixed.

    Parameters
    ----------
    fake: the fake quantizer: its scale and zero point are copied.
    """

    def __init__(self, fake: nn.Module) -> None:
        super().__init__()
        observer = fake.activation_post_process
        self.low, self.high = int(observer.quant_min), int(observer.quant_max)  # type: ignore[union-attr,arg-type]
        self.axis = int(fake.ch_axis) if bool(fake.is_per_channel) else None  # type: ignore[arg-type]
        self.is_on = bool(fake.fake_quant_enabled[0])  # type: ignore[index]
        # No buffers, as torch's operators take scales in float32 alone, whatever the dtype of the model.
        scale: Tensor = fake.scale.detach().clone()  # type: ignore[operator,assignment,union-attr]
        zero_point: Tensor = fake.zero_point.detach().clone()  # type: ignore[operator,assignment,union-attr]
        self._scale, self._zero_point = scale, zero_point

    def forward(self, x: Tensor) -> Tensor:
        """Round `x` to the numbers of its codes; shape and dtype stay."""
        if not self.is_on:
            return x
        if x.dtype == torch.float64:
            # torch's own kernels multiply in float32, whatever the dtype.
            axis = PER_TENSOR if self.axis is None else self.axis
            options = self.low, self.high, axis, False, "half_even", True, False
            made: Tensor = quantize(x, self._scale, self._zero_point.to(torch.float32), *options)
            return made
        if self.axis is None:
            one, zero = float(self._scale), int(self._zero_point)
            return torch.fake_quantize_per_tensor_affine(x, one, zero, self.low, self.high)
        return torch.fake_quantize_per_channel_affine(x, self._scale, self._zero_point, self.axis, self.low, self.high)

    def extra_repr(self) -> str:
        """Return what the text of the layer shows of it."""
        return f"codes {self.low}..{self.high}, scale={self._scale.tolist()}, zero_point={self._zero_point.tolist()}"


def freeze(model: nn.Module) -> nn.Module:
    """Replace torch's fake quantizers by fixed ones; changes and returns the model."""
    if is_fake(model) and _is_plain(model):
        return FrozenFakeQuantize(model)
    frozen: dict[nn.Module, FrozenFakeQuantize] = {}
    for module in list(model.modules()):
        # One module may have several names, as where values share a scale.
        for name, child in list(module._modules.items()):
            if child is not None and is_fake(child) and _is_plain(child):
                module._modules[name] = frozen.setdefault(child, FrozenFakeQuantize(child))
    return model


def unfit(model: nn.Module) -> Iterator[InputError]:
    """Yield a problem for each kind of fake quantizer that has no fixed codes."""
    fakes = {name or "the model itself": module for name, module in model.named_modules() if is_fake(module)}
    if found := [name for name, fake in fakes.items() if not _is_plain(fake)]:
        yield InputError(
            f"'{found[0]}' of the model is a {type(fakes[found[0]]).__name__}, which computes something else than "
            f"torch's FakeQuantize; use that, or write a module of your own with torch.round and torch.clamp"
        )
        return
    if found := [name for name, fake in fakes.items() if bool(getattr(fake, "is_dynamic", False))]:
        yield InputError(
            f"'{found[0]}' of the model chooses its scale at run time, and an accelerator has fixed ones; use "
            f"is_dynamic=False, and train or calibrate"
        )
    if found := [name for name, fake in fakes.items() if not _has_seen(fake)]:
        yield InputError(
            f"'{found[0]}' of the model has seen no data, so that it has no scale; run the prepared model on some "
            f"images in training mode first"
        )


def is_fake(module: nn.Module) -> bool:
    """Return whether a module is a fake quantizer of torch, or of torchao, which is not imported."""
    bases = (base for base in type(module).__mro__ if base.__name__ == "FakeQuantizeBase")
    own = any(base.__module__.startswith(OBSERVERS_HOMES) for base in bases)
    return own and hasattr(module, "activation_post_process")


def _is_plain(fake: nn.Module) -> bool:
    """Return whether a fake quantizer computes what torch's own classes do, and not something of its own."""
    home = getattr(type(fake).forward, "__module__", "")
    return home.startswith(OBSERVERS_HOMES) and hasattr(fake, "is_per_channel")


def _has_seen(fake: nn.Module) -> bool:
    """Return whether a fake quantizer has a range; one with fixed numbers has it from the beginning."""
    least = getattr(fake.activation_post_process, "min_val", None)
    return not isinstance(least, Tensor) or (bool(least.numel()) and bool(torch.isfinite(least).all()))
