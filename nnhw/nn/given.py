"""Models given by users: copies of them, and reasons why one cannot be traced."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from nnhw.errors import InputError

from .foreign import foreign
from .frozen import freeze, unfit


def plain(model: nn.Module) -> nn.Module:
    """Return the original module of one that `torch.compile` made; any other module is returned as it is."""
    original = getattr(model, "_orig_mod", None)
    return original if isinstance(original, nn.Module) else model


def class_name(model: nn.Module | ExportedProgram) -> str:
    """Return the name of the class of the user's model, also behind `torch.compile`."""
    return type(plain(model) if isinstance(model, nn.Module) else model).__name__


def copied(model: nn.Module) -> nn.Module:
    """Return a copy of a model on the CPU and in eval mode.

    `copy.deepcopy` refuses tensors that were computed with a gradient, such as the weights that
    `torch.nn.utils.prune` and `torch.nn.utils.weight_norm` keep beside their parameters. The copy's fake
    quantizers are frozen at their current scales.

    Raises
    ------
    InputError: it cannot be copied.
    """
    model = plain(model)
    held = [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor)]
    # deepcopy takes an object whose id is in its memo for copied already.
    memo = {id(value): value.detach().clone() for value in held if not value.is_leaf}
    try:
        return freeze(copy.deepcopy(model, memo).cpu().eval())  # type: ignore[arg-type]  # memo: by id, any value
    # deepcopy runs the `__deepcopy__` and `__reduce__` of whatever the user's model holds, which may fail in any way.
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"the model cannot be copied: {type(error).__name__}: {line}; copy.deepcopy(model) has to work"
        ) from error


def dense(images: Tensor) -> Tensor:
    """Return images on the CPU in a form that NumPy can hold: sparse ones dense, floats below 32 bits as float32.

    Raises
    ------
    InputError: they are quantized, nested, complex, or on the device 'meta'.
    """
    if kind := unusable(images):
        raise InputError(f"images need to be a plain tensor of real numbers, got {kind}; give float32")
    plain = images.detach().cpu()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    return plain.float() if plain.is_floating_point() and plain.element_size() < 4 else plain


def unusable(tensor: Tensor) -> str:
    """Return the kind of a tensor, in words, that is no array of real numbers; empty for all others."""
    kinds = {
        "a quantized one": tensor.is_quantized,
        "a nested one": tensor.is_nested,
        "complex numbers": tensor.is_complex(),
        "one on the device 'meta', without values": tensor.is_meta,
    }
    return next((kind for kind, given in kinds.items() if given), "")


def unready(model: nn.Module | ExportedProgram) -> Iterator[InputError]:
    """Yield the reasons why a model cannot be traced at all."""
    if isinstance(model, torch.jit.ScriptModule):
        yield InputError("a TorchScript model cannot be traced; give the nn.Module that it was made of")
        return
    if isinstance(model, nn.Module) and (found := list(foreign(model))):
        yield from found
        return
    if isinstance(model, nn.Module):
        yield from unfit(model)
    tensors = _tensors(model)
    # Shapes of lazy parameters and values on 'meta' are not there to be looked at, so these two come first.
    if lazy := [name for name, value in tensors.items() if is_lazy(value)]:
        yield InputError(f"'{lazy[0]}' of the model has no shape yet, for its layer is a lazy one; run the model once")
    elif empty := [name for name, value in tensors.items() if value.is_meta]:
        yield InputError(f"'{empty[0]}' of the model is on the device 'meta', without values; load its parameters")
    for name, value in tensors.items():
        if name.endswith("weight") and not is_lazy(value) and not value.numel():
            yield InputError(
                f"'{name}' of the model has the shape {list(value.shape)}, without a number; a layer needs one input "
                f"and one output or more: correct its sizes, or leave it out"
            )


def half_floats(model: nn.Module | ExportedProgram) -> Iterator[InputError]:
    """Yield a problem if a model has parameters of lower precision than float32."""
    for name, value in _tensors(model).items():
        if value.is_floating_point() and value.dtype not in (torch.float32, torch.float64):
            yield InputError(
                f"the model holds {str(value.dtype).removeprefix('torch.')} in '{name}'; only float32 and float64 are "
                f"supported: use model.float()"
            )
            return


def _tensors(model: nn.Module | ExportedProgram) -> dict[str, Tensor]:
    """Return the parameters and buffers by name."""
    state: Mapping[str, object] = model.state_dict if isinstance(model, ExportedProgram) else model.state_dict()
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}
