"""Replacing modules of a model by others, by class or by name, before the model is captured."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from nnhw.errors import ExactnessError, InputError

from .given import copied

Made = nn.Module | Callable[[nn.Module], nn.Module]
"""A module, of which each place gets a copy; or a function from the module that is replaced to the new one."""


def swap(
    model: nn.Module,
    modules: Mapping[type[nn.Module] | str, Made],
    *,
    example_input: torch.Tensor | None = None,
    approximates: bool = False,
) -> nn.Module:
    """Return a copy of a model in which some modules are replaced; the model itself is not changed.

    >>> swap(model, {nn.GELU: lambda gelu: nn.ReLU(), "features.*.act": nn.Hardtanh()}, approximates=True)

    Parameters
    ----------
    model: in any mode; the copy is in eval mode.
    modules: new modules by class, for all modules of exactly that class, or by name in `model.named_modules()`, with
        `*` and `?` as in file names. Where several match a module, names come before classes, and then the first entry.
        Modules within others are replaced first: a function is given a module whose parts are the new ones.
    example_input: [batch, ..]: images on which both models are compared; needed unless `approximates`.
    approximates: results may change.

    Raises
    ------
    InputError: an entry of `modules` matches nothing, or is no module; or there is no example to compare on.
    ExactnessError: a result changes without `approximates`.
    """
    if not modules:
        raise InputError("swap needs what to replace: a mapping from a class or name to a module, given an empty one")
    if example_input is None and not approximates:
        raise InputError(
            "swap needs an example_input to compare on; give one, or approximates=True if results are meant to change"
        )
    changed = copied(model)
    before = changed if example_input is None else copied(model)
    used: set[type[nn.Module] | str] = set()
    named = list(changed.named_modules(remove_duplicate=False))
    # The innermost first: modules within one that is replaced are replaced before it, and so none within the new one.
    for name, module in sorted(named, key=lambda pair: -pair[0].count(".")):
        key = _key_of(name, module, modules)
        # The model itself is at no place where another module could be put.
        if key is None or not name:
            continue
        used.add(key)
        parent, _, last = name.rpartition(".")
        setattr(changed.get_submodule(parent), last, _made(modules[key], module, name))
    _check_used(changed, modules, used)
    changed.eval()
    if example_input is not None and not approximates:
        _compare(before, changed, example_input)
    return changed


def _key_of(
    name: str, module: nn.Module, modules: Mapping[type[nn.Module] | str, Made]
) -> type[nn.Module] | str | None:
    """Return the key in `modules` that matches a module; None if none does."""
    by_name = (key for key in modules if isinstance(key, str) and fnmatch.fnmatchcase(name, key))
    return next(by_name, type(module) if type(module) in modules else None)


def _made(replacement: Made, module: nn.Module, name: str) -> nn.Module:
    if isinstance(replacement, nn.Module):
        return copied(replacement)
    try:
        made: Any = replacement(module)
    except Exception as error:  # the user's own code may fail in any way
        raise InputError(f"what replaces module '{name}' fails: {type(error).__name__}: {error}") from error
    if not isinstance(made, nn.Module):
        raise InputError(f"what replaces module '{name}' must be an nn.Module, given {type(made).__name__}")
    return made


def _check_used(
    model: nn.Module, modules: Mapping[type[nn.Module] | str, Made], used: set[type[nn.Module] | str]
) -> None:
    """Raise InputError for a class or a name in `modules` that has matched no module."""
    for key in modules:
        if key in used:
            continue
        if not isinstance(key, str):
            if not (isinstance(key, type) and issubclass(key, nn.Module)):
                raise InputError(f"swap replaces classes of modules and names, given {key!r}")
            found = sorted({type(module).__name__ for module in model.modules()})
            raise InputError(f"the model has no {key.__name__} to replace; it has {', '.join(found)}")
        names = [name for name, _ in model.named_modules() if name]
        near = difflib.get_close_matches(key, names, n=1)
        raise InputError(
            f"the model has no module '{key}' to replace, or another entry took it"
            + (f"; did you mean '{near[0]}'?" if near else "")
        )


def _compare(before: nn.Module, after: nn.Module, example_input: torch.Tensor) -> None:
    with torch.no_grad():
        results = [model(example_input) for model in (before, after)]
    if torch.equal(*results):
        return
    rows = (results[0] != results[1]).reshape(len(example_input), -1).any(dim=1)
    place = int(torch.nonzero(rows)[0])
    raise ExactnessError(
        f"the modules that were swapped change what the model computes, in {int(rows.sum())} of {len(rows)} rows of "
        f"example_input, first in row {place}; say approximates=True if that is meant"
    )
