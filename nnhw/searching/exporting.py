"""A trial as a model of its own: a Python file without the search, and its weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from nnhw.errors import BuildError, InputError
from nnhw.frontend.source import Source, load_source

from .chosen import Chosen, fill, save_weights
from .estimating import estimate
from .trial_records import COMPLETE, ExportedNetwork, Tried
from .trying import Setting, weights_of
from .user_sources import local_modules, needed_text

_FOOTER = """

# What `nnhw search` chose in trial {number}; the weights lie beside this file, in {weights}.
import nnhw.searching.chosen as _chosen

PARAMETERS = {params}
model, example_input = _chosen.restore(model(_chosen.Chosen(PARAMETERS, {number})), __file__)
"""


def export(setting: Setting, tried: Tried, out: Path) -> ExportedNetwork:
    """Write a trial's network into a folder: `<file>_<number>.py`, its weights, and the modules beside the file.

    The written file is loaded again, and its graphs are compared by hash with those of the trained network. Then the
    user's `test` is called with the loaded model, once.

    Parameters
    ----------
    setting: of the search.
    tried: the trial to export.
    out: folder to write to; it need not exist.

    Raises
    ------
    InputError: the trial has no trained network, its weights are on another machine, or a copied module would
        overwrite a different file. BuildError: the written network is not the trained one.
    """
    if tried.outcome != COMPLETE:
        raise InputError(f"trial {tried.number} has no network to export: {tried.outcome}: {tried.reason}")
    program = setting.program
    kept = weights_of(setting.weights, tried.number)
    if not kept.is_file():
        raise InputError(
            f"the weights of trial {tried.number} are not in '{kept}': the machine '{tried.host}' trained it; copy the "
            "file from there, or export there"
        )
    # Built again from its parameters, as the search keeps no models, then filled with the kept weights.
    model = program.source(Chosen(tried.params, tried.number)).model
    assert isinstance(model, torch.nn.Module)
    fill(model, kept)
    path = out / f"{program.name}_{tried.number}.py"
    text = needed_text(program.path.read_text(encoding="utf-8"), "model")
    modules = _copy_modules(text, program.path.parent, out)
    save_weights(model, program.example_input, path.with_suffix(".pt"))
    footer = _FOOTER.format(number=tried.number, weights=path.with_suffix(".pt").name, params=literal(tried.params))
    path.write_text(text + footer, encoding="utf-8")
    # The hash is that of what a user of the file will get, with the copied modules.
    loaded = _loaded(path, modules)
    _check_same(setting, tried, loaded)
    assert isinstance(loaded.model, torch.nn.Module)
    return ExportedNetwork(path, tried.number, program.test(loaded.model))


def literal(params: Mapping[str, Any]) -> str:
    """Return parameters as the text of a Python dict; values are strings, numbers, booleans or None."""
    # One line for each parameter, as people will read and change the file.
    lines = "".join(f"    {name!r}: {_literal(value)},\n" for name, value in params.items())
    return f"{{\n{lines}}}"


def _literal(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        # repr gives inf and nan, which are no Python literals.
        return f"float('{value}')"
    return repr(value)


def _copy_modules(text: str, folder: Path, out: Path) -> list[str]:
    """Copy the modules in `folder` that a program's text imports to `out`; return their top-level names."""
    files = local_modules(text, folder)
    # All are compared before one is written, so that a refusal leaves the folder as it was.
    places = [(file, out / file.relative_to(folder)) for file in files]
    for file, place in places:
        if place.exists() and place.read_bytes() != file.read_bytes():
            raise InputError(
                f"the exported network needs the module '{file}', but '{place}' is another file; move that away, or "
                "give another folder with --out"
            )
    for file, place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    return sorted({file.relative_to(folder).parts[0].removesuffix(".py") for file in files})


def _loaded(path: Path, modules: Sequence[str]) -> Source:
    """Return the exported model, loaded with the copied modules instead of those that this process has imported."""
    with _forgotten(modules):
        return load_source(path)


@contextmanager
def _forgotten(modules: Sequence[str]) -> Iterator[None]:
    """Remove modules from `sys.modules` inside of a block, so that they are imported again; restore them afterwards."""
    import sys

    def taken() -> dict[str, Any]:
        mine = [name for name in sys.modules if name.partition(".")[0] in modules]
        return {name: sys.modules.pop(name) for name in mine}

    # `taken` removes them from sys.modules and returns them. At the end it removes the copies, and the originals come
    # back.
    before = taken()
    try:
        yield
    finally:
        taken()
        sys.modules.update(before)


def _check_same(setting: Setting, tried: Tried, loaded: Source) -> None:
    """Raise BuildError if the graphs of the exported network differ from those of the trained one."""
    made = estimate(loaded, setting.board, setting.options)
    if made.hash != tried.hash:
        raise BuildError(
            f"the network exported as '{loaded.name}' is not the one that trial {tried.number} trained: its graphs "
            f"have the hash {made.hash[:16]} instead of {tried.hash[:16]}; keep all that the model computes with in "
            "its parameters and buffers, and let model(trial) depend on trial alone"
        )
