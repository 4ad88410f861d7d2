"""A model of Brevitas layers as one whose quantizers are calls of `nnhw.quantize`."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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

from .coding import Coding, coding_of, hooked, kernel_of
from .handlers import CodesManager
from .recurrent import call_quantizers, with_loops
from .refusals import refusal_of_codes, refusal_of_layer, refusal_of_proxy
from .truncation import TRUNCATED, TruncatedPool, refusal_of_truncation
from .values import plain_result


@dataclass(frozen=True)
class _Use:
    """One call of a quantizer, or of a layer that can end in a truncation: its argument and its result."""

    module: nn.Module
    given: Any
    made: Any


def traceable(model: nn.Module, example_input: Tensor | None, lines: Lines) -> nn.Module:
    """Return a copy of a model of Brevitas layers, in eval mode, that computes the same by `nnhw.quantize` alone.

    Weights and biases are the numbers that Brevitas made of them. What layers pass on has no scales.

    Raises
    ------
    InputError for an example that does not go through the model; CaptureError, or ProblemList with all of them at
    once, for what has no exact form.
    """
    if example_input is None:
        raise CaptureError("a module needs an example_input [batch, ..] to be captured")
    # Compiled quantizers are no modules whose parts can be read.
    if config.JIT_ENABLED:
        raise InputError("Brevitas compiles its quantizers, for BREVITAS_JIT=1 is set; unset it, and start again")
    example = checked_example(example_input).detach().cpu()
    own = copied(model)
    # In this order: quantizers of cells are called as modules before calls are noted, refusals come before handlers,
    # which know no refused form, and loops replace layers whose weights have been kept.
    call_quantizers(own)
    uses = _uses(own, example, lines)
    places = {module: _place(module, path, lines) for path, module in own.named_modules()}
    raise_all([CaptureError(f"{places[module]} {reason}") for module, reason in _refusals(own, uses)])
    codings = _codings(uses, places)
    # The class of the handler is Brevitas's choice, by the class of the quantizer.
    for proxy, coding in codings.items():
        proxy.export_handler = CodesManager.handler_from_module(proxy, no_inheritance=True)(coding).eval()
    _keep_values(own, uses, places)
    with_loops(own, codings)
    CodesManager.set_export_mode(own, True)
    own = _with_sums(own, {use.module: use for use in uses if isinstance(use.module, TRUNCATED)})
    own.register_forward_hook(lambda module, given, result: plain_result(result))
    _check_plain(own, example)
    return own


def _place(module: nn.Module, path: str, lines: Lines) -> str:
    """Return what the user calls a module, and where it was made."""
    kind = "quantizer" if isinstance(module, QuantProxyFromInjector) else type(module).__name__
    return f"{kind} {module_location(path, lines)}"


def _uses(model: nn.Module, example: Tensor, lines: Lines) -> list[_Use]:
    """Run a model on an example, and return the calls of its quantizers and truncating layers, in their order.

    What Brevitas keeps of them for an export is kept: scales of inputs, by which biases and weights of A2Q are made.
    """
    uses: list[_Use] = []

    def note(module: nn.Module, given: tuple[Any, ...], made: Any) -> None:
        if not isinstance(module, QuantProxyFromInjector) or kernel_of(module) is not None:
            uses.append(_Use(module, given[0] if given else None, made))

    kinds = QuantProxyFromInjector, *TRUNCATED
    with hooked(model, kinds, note), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try_model(model, example.clone(), lines)
        # The first run may change what a model caches; only the second is read. A model that fails has failed in the
        # first, with a message for the user.
        uses.clear()
        CodesManager._cache_inp_out(model, example.clone())
    return uses


def _refusals(model: nn.Module, uses: list[_Use]) -> Iterator[tuple[nn.Module, str]]:
    """Yield the layers and the called quantizers that have no exact form, each with the reason."""
    first = {use.module: use for use in reversed(uses)}
    for module in model.modules():
        reason, use = refusal_of_layer(module), first.get(module)
        if use is not None and isinstance(module, QuantProxyFromInjector):
            reason = refusal_of_proxy(module)
            if not reason and isinstance(use.made, IntQuantTensor):
                reason = refusal_of_codes(module, use.made)
        elif use is not None and _truncates(use):
            reason = refusal_of_truncation(module, use.given, use.made)
        if reason:
            yield module, reason


def _truncates(use: _Use) -> bool:
    """Return whether a layer that could truncate does: it has a quantizer, and got codes."""
    return kernel_of(use.module.trunc_quant) is not None and isinstance(use.given, IntQuantTensor)


def _codings(uses: list[_Use], places: Mapping[nn.Module, str]) -> dict[QuantProxyFromInjector, Coding]:
    """Return the coding of each quantizer. Raises: CaptureError for one whose scale differs from call to call."""
    codings: dict[QuantProxyFromInjector, Coding] = {}
    for proxy, _, made in _quantized(uses):
        coding = coding_of(proxy, made)
        if not codings.setdefault(proxy, coding).same(coding) and not isinstance(proxy, BiasQuantProxyFromInjector):
            raise CaptureError(
                f"{places[proxy]} has another scale from one of its layers to the next; give each layer a quantizer of "
                f"its own"
            )
    return codings


def _quantized(uses: list[_Use]) -> Iterator[tuple[QuantProxyFromInjector, Tensor, IntQuantTensor]]:
    """Yield each quantizer with the argument and the result of each of its calls."""
    for use in uses:
        if isinstance(use.module, QuantProxyFromInjector) and isinstance(use.made, IntQuantTensor):
            yield use.module, plain_result(use.given), use.made


def _keep_values(model: nn.Module, uses: list[_Use], places: Mapping[nn.Module, str]) -> None:
    """Give each layer the weights and the bias that its quantizers made of them.

    Layers may share a quantizer, so that its calls are told apart by where their numbers are.
    """
    made = [(proxy, given.data_ptr(), result.value) for proxy, given, result in _quantized(uses)]
    changes: dict[tuple[nn.Module, str], Tensor] = {}
    for layer, name in itertools.product(model.modules(), ("weight", "bias")):
        proxy, own = getattr(layer, f"{name}_quant", None), layer._parameters.get(name)
        if not isinstance(proxy, QuantProxyFromInjector) or own is None:
            continue
        for value in (value for used, place, value in made if used is proxy and place == own.data_ptr()):
            # Weights of A2Q depend on the scale of the layer's input: two inputs make two sets of weights of one layer.
            if value.shape != own.shape or not torch.equal(changes.setdefault((layer, name), value), value):
                raise CaptureError(
                    f"{places[layer]} has another quantized {name} from one call to the next; give each call a layer "
                    f"of its own"
                )
    for (layer, name), value in changes.items():
        layer._parameters[name] = nn.Parameter(value.detach().clone(), requires_grad=False)


def _with_sums(model: nn.Module, uses: Mapping[nn.Module, _Use]) -> nn.Module:
    """Put exact sums in the places of layers that truncate a mean."""
    sums = {layer: TruncatedPool(layer, use.given, use.made).eval() for layer, use in uses.items() if _truncates(use)}
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if child in sums:
                setattr(parent, name, sums[child])
    return sums.get(model, model)


def _check_plain(model: nn.Module, example: Tensor) -> None:
    """Check that a model runs without scales between its layers. Raises: CaptureError."""
    try:
        with torch.no_grad():
            model(example.clone())
    # Broad, as this is the user's own forward.
    except Exception as error:
        place = error_location(error)
        where = f" at {place.file}:{place.line}" if place.file else ""
        raise CaptureError(
            f"the model does not run{where} while it is captured, when a QuantTensor has its value and nothing else: "
            f"{type(error).__name__}: {error}; leave out what reads scales, zero points and bit widths"
        ) from error
