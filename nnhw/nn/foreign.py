"""Models of other quantization tools that cannot be traced: they are refused by name, with what works instead."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from nnhw.errors import InputError

from .frozen import OBSERVERS_HOMES, is_fake

_PT2E = "quantize with PT2E (prepare_pt2e, calibrate, convert_pt2e), or give the float model to nnhw.quantize"
_OBSERVERS = {"ObserverBase"}
"""Names of base classes instead of the classes, as torchao need not be installed."""


def foreign(model: nn.Module) -> Iterator[InputError]:
    """Yield a problem for each kind of foreign quantization that a model holds."""
    modules = {name or "the model itself": module for name, module in model.named_modules()}
    inside = {observer for module in modules.values() if is_fake(module) for observer in module.children()}
    if found := [name for name, module in modules.items() if _observes(module) and module not in inside]:
        yield InputError(
            f"'{found[0]}' of the model is a {type(modules[found[0]]).__name__}, an observer: the "
            f"model is not quantized yet; call convert_pt2e(model) if prepare_pt2e or prepare_qat_pt2e has made "
            f"it; otherwise take the float model, and {_PT2E}"
        )
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    if found := [name for name, value in state.items() if _subclass(value)]:
        yield InputError(
            f"'{found[0]}' of the model is torchao's {_subclass(state[found[0]])}, which is unpacked, and for dynamic "
            f"quantization scaled, at run time; an accelerator has fixed scales: {_PT2E}"
        )


def _observes(module: nn.Module) -> bool:
    """Return whether a module is an observer of torch, or of torchao, which is not imported."""
    bases = [base for base in type(module).__mro__ if base.__name__ in _OBSERVERS]
    return any(base.__module__.startswith(OBSERVERS_HOMES) for base in bases)


def _subclass(value: Tensor) -> str:
    """Return the name of a tensor's class if it is one of torchao's; else nothing."""
    # A parameter may hold the subclass as its data, and be a plain Parameter itself.
    kinds = (type(value), type(value.data))
    return next((kind.__name__ for kind in kinds if kind.__module__.startswith("torchao")), "")
