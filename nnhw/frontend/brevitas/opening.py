"""A model of Brevitas layers as one whose quantizers are calls of `nnhw.quantize`."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from brevitas import config
from brevitas.proxy.parameter_quant import BiasQuantProxyFromInjector
from brevitas.proxy.quant_proxy import QuantProxyFromInjector
from brevitas.quant_tensor import IntQuantTensor
from torch import Tensor, nn

from nnhw.errors import CaptureError, InputError, raise_all
from nnhw.frontend.export import checked_example, try_model
from nnhw.frontend.locations import Lines, error_location, module_location
from nnhw.nn.given import copied

from .coding import Coding, coding_of, hooked, kernel_of, plain_tensor
from .handlers import STAND_INS, CodesManager
from .refusals import refusal_of_codes, refusal_of_layer, refusal_of_proxy


@dataclass(frozen=True)
class _Use:
    """One call of a quantizer.

    Parameters
    ----------
    given: what it quantized.
    """

    proxy: QuantProxyFromInjector
    given: Tensor
    made: object


def opened(model: nn.Module, example_input: Tensor, lines: Lines) -> nn.Module:
    """Return a copy of a model of Brevitas layers, in eval mode, that computes the same by `nnhw.quantize` alone.

    Its layers return plain tensors. Weights and biases are the numbers that Brevitas made of them.

    Raises
    ------
    InputError for an example that does not go through the model; CaptureError, or ProblemList with all of them at
    once, for what has no exact form.
    """
    if config.JIT_ENABLED:
        raise InputError("Brevitas compiles its quantizers, for BREVITAS_JIT=1 is set; unset it, and start again")
    example = checked_example(example_input).detach().cpu()
    own = copied(model)
    uses = _uses(own, example, lines)
    places = {module: f"{type(module).__name__} {module_location(path, lines)}" for path, module in own.named_modules()}
    raise_all([CaptureError(f"{places[module]} {reason}") for module, reason in _refusals(own, uses)])
    _set_handlers(uses, places)
    _keep_values(own, uses, places)
    CodesManager.set_export_mode(own, True)
    own = _with_stand_ins(own)
    _check_plain(own, example)
    return own


def _uses(model: nn.Module, example: Tensor, lines: Lines) -> list[_Use]:
    """Run a model, and return the calls of its quantizers in their order.

    What Brevitas keeps of them for an export is kept: scales of inputs, by which biases and weights of A2Q are made.
    """
    uses: list[_Use] = []

    def note(proxy: QuantProxyFromInjector, given: tuple[object, ...], made: object) -> None:
        if kernel_of(proxy) is not None and isinstance(given[0], Tensor | IntQuantTensor):
            uses.append(_Use(proxy, plain_tensor(given[0]), made))

    with hooked(model, note), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try_model(model, example.clone(), lines)
        uses.clear()
        CodesManager._cache_inp_out(model, example.clone())
    return uses


def _refusals(model: nn.Module, uses: list[_Use]) -> Iterator[tuple[nn.Module, str]]:
    """Yield the layers and the called quantizers that have no exact form, each with the reason."""
    made = {use.proxy: use.made for use in reversed(uses)}
    for module in model.modules():
        reason = refusal_of_layer(module)
        if isinstance(module, QuantProxyFromInjector) and module in made:
            reason = refusal_of_proxy(module)
            if not reason and isinstance(made[module], IntQuantTensor):
                reason = refusal_of_codes(module, made[module])
        if reason:
            yield module, reason


def _set_handlers(uses: list[_Use], places: Mapping[nn.Module, str]) -> None:
    """Give each quantizer its handler. Raises: CaptureError for one that quantizes in two ways."""
    codings: dict[QuantProxyFromInjector, Coding] = {}
    for proxy, made in ((use.proxy, use.made) for use in uses if isinstance(use.made, IntQuantTensor)):
        coding = coding_of(proxy, made)
        if not codings.setdefault(proxy, coding).same(coding) and not isinstance(proxy, BiasQuantProxyFromInjector):
            raise CaptureError(
                f"{places[proxy]} has another scale from one of its layers to the next; give each layer a quantizer of "
                f"its own"
            )
    for proxy, coding in codings.items():
        proxy.export_handler = CodesManager.handler_from_module(proxy, no_inheritance=True)(coding).eval()


def _keep_values(model: nn.Module, uses: list[_Use], places: Mapping[nn.Module, str]) -> None:
    """Give each layer the weights and the bias that its quantizers made of them.

    Layers may share a quantizer, so that its calls are told apart by where their numbers are.
    """
    made = [(use.proxy, use.given, use.made.value) for use in uses if isinstance(use.made, IntQuantTensor)]
    changes: dict[tuple[nn.Module, str], Tensor] = {}
    for layer, name in itertools.product(model.modules(), ("weight", "bias")):
        proxy, own = getattr(layer, f"{name}_quant", None), layer._parameters.get(name)
        if not isinstance(proxy, QuantProxyFromInjector) or own is None:
            continue
        for value in (value for used, given, value in made if used is proxy and given.data_ptr() == own.data_ptr()):
            if value.shape != own.shape or not torch.equal(changes.setdefault((layer, name), value), value):
                raise CaptureError(
                    f"{places[layer]} has another quantized {name} from one call to the next; give each call a layer "
                    f"of its own"
                )
    for (layer, name), value in changes.items():
        layer._parameters[name] = nn.Parameter(value.detach().clone(), requires_grad=False)


def _with_stand_ins(model: nn.Module) -> nn.Module:
    """Put layers of plain tensors in the places of those whose code needs a QuantTensor; let no other return one."""
    for layer in list(model.modules()):
        if hasattr(layer, "return_quant_tensor"):
            layer.return_quant_tensor = False
        for name, child in layer.named_children():
            if type(child) in STAND_INS:
                setattr(layer, name, STAND_INS[type(child)](child).eval())
    return STAND_INS[type(model)](model).eval() if type(model) in STAND_INS else model


def _check_plain(model: nn.Module, example: Tensor) -> None:
    """Check that a model runs without QuantTensors. Raises: CaptureError."""
    try:
        with torch.no_grad():
            model(example.clone())
    except Exception as error:
        place = error_location(error)
        where = f" at {place.file}:{place.line}" if place.file else ""
        raise CaptureError(
            f"the model needs a QuantTensor{where}: {type(error).__name__}: {error}; layers give plain tensors while a "
            f"model is captured: leave out .value, .scale and what else a plain tensor does not have"
        ) from error
