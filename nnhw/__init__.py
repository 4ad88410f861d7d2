"""Quantized PyTorch networks to verified FPGA accelerators.

`build` makes an accelerator, `open` runs it, `reference` is the model in exact arithmetic, `quantize` makes a quantized
model from a float one, `sensitivity` tells which layers need more bits, `swap` replaces modules of a model, a `Rewrite`
changes its graph, `search` finds the best of many networks, `fit` tells on which boards a network fits, and `export_c`
writes portable C. `nn` has quantized layers.
All are imported at their first use: `import nnhw` alone needs neither torch nor amaranth. All errors that they raise on
purpose are `NnhwError`s.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nnhw.errors import NnhwError

if TYPE_CHECKING:
    from nnhw import nn
    from nnhw.fitting import fit
    from nnhw.flow.commands.exporting_c import export_c
    from nnhw.flow.pipeline import build
    from nnhw.flow.running.finished import open
    from nnhw.frontend.after_training import quantize, sensitivity
    from nnhw.frontend.reference import reference
    from nnhw.nn.swapping import swap
    from nnhw.rewrites import Rewrite
    from nnhw.searching.search import search

__all__ = [
    "NnhwError",
    "Rewrite",
    "__version__",
    "build",
    "export_c",
    "fit",
    "nn",
    "open",
    "quantize",
    "reference",
    "search",
    "sensitivity",
    "swap",
]

__version__ = "0.1.0"

_HOMES = {
    "Rewrite": "nnhw.rewrites",
    "build": "nnhw.flow.pipeline",
    "export_c": "nnhw.flow.commands.exporting_c",
    "fit": "nnhw.fitting",
    "open": "nnhw.flow.running.finished",
    "quantize": "nnhw.frontend.after_training",
    "reference": "nnhw.frontend.reference",
    "search": "nnhw.searching.search",
    "sensitivity": "nnhw.frontend.after_training",
    "swap": "nnhw.nn.swapping",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name == "nn":
        return importlib.import_module("nnhw.nn")
    if name not in _HOMES:
        raise AttributeError(f"module 'nnhw' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
