"""Models whose quantizers are another framework's, as they are: found without an import of that framework."""

from __future__ import annotations

import warnings
from types import ModuleType

from torch import Tensor, nn
from torch.export import ExportedProgram

from nnhw.errors import InputError

from .evaluation import Evaluator
from .locations import Lines

_BREVITAS = "brevitas"
EXTRAS = {_BREVITAS: "brevitas", "brevitas_examples": "brevitas"}
"""Packages that models may import --> the extra of nnhw that brings them."""


def traceable(model: nn.Module | ExportedProgram, example_input: Tensor, lines: Lines) -> nn.Module | ExportedProgram:
    """Return what computes the same with `nnhw.quantize` as its only quantizer: the model itself if it is from nnhw.

    Raises
    ------
    InputError, CaptureError, or ProblemList with all of them at once, for what has no such form.
    """
    if holds_brevitas(model):
        made: nn.Module = _brevitas().opened(model, example_input, lines)
        return made
    return model


def evaluator_of(model: nn.Module | ExportedProgram) -> Evaluator:
    """Return a model as its own framework evaluates it."""
    if holds_brevitas(model):
        evaluator: Evaluator = _brevitas().BrevitasEvaluator(model)
        return evaluator
    return Evaluator(model)


def holds_brevitas(model: nn.Module | ExportedProgram) -> bool:
    """Return whether layers of a model are from Brevitas, or made of such ones."""
    if not isinstance(model, nn.Module):
        return False
    classes = {base for module in model.modules() for base in type(module).__mro__}
    return any(base.__module__.partition(".")[0] == _BREVITAS for base in classes)


def _brevitas() -> ModuleType:
    """Return the part that imports Brevitas, which warns of packages that it would like to have."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from . import brevitas

            return brevitas
    except ImportError as error:
        raise InputError(
            f"the model has layers of Brevitas, of another version than nnhw knows: {error}; the one that it knows "
            f"comes by: pip install 'nnhw[brevitas]'"
        ) from error
