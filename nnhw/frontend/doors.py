"""Doors: models that came in another form, found without an import of the framework that they are from.

Programs are made anew with nnhw's quantizers, and compared with what they were (`opened`). Modules with layers of
another framework stay what they are: a copy is traced (`traceable`), and the graph compared with the framework's own
evaluation (`evaluator_of`).
"""

from __future__ import annotations

import warnings
from types import MappingProxyType, ModuleType

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from nnhw.errors import InputError, raise_all
from nnhw.nn.given import copied, unready

from . import pt2e
from .answers import check_answers
from .evaluation import Evaluator
from .locations import Lines

_NO_LINES: Lines = MappingProxyType({})
_DOORS = (pt2e,)
"""Modules with `is_mine(model)` and `opened(model, example_input, lines)`."""
_BREVITAS = "brevitas"
EXTRAS = {_BREVITAS: "brevitas", "brevitas_examples": "brevitas"}
"""Packages that models may import --> the extra of nnhw that brings them."""


def opened(
    model: nn.Module | ExportedProgram, example_input: torch.Tensor | None = None, lines: Lines = _NO_LINES
) -> nn.Module | ExportedProgram:
    """Return a model as the frontend reads it; one that has nnhw's quantizers, or none, is returned as it is.

    Raises
    ------
    InputError for a model that cannot be traced at all; CaptureError, or ProblemList, for what has no counterpart;
    ExactnessError where both evaluations differ.
    """
    if not isinstance(model, nn.Module | ExportedProgram):
        return model
    raise_all(list(unready(model)))
    for door in _DOORS:
        if door.is_mine(model):
            made = door.opened(model, example_input, lines)
            check_answers(made)
            return made.program
    return model


def traceable(model: nn.Module | ExportedProgram, example_input: Tensor, lines: Lines) -> nn.Module | ExportedProgram:
    """Return what computes the same with `nnhw.quantize` as its only quantizer: the model itself if it is from nnhw.

    Raises
    ------
    InputError, CaptureError, or ProblemList with all of them at once, for what has no such form.
    """
    if holds_brevitas(model):
        made: nn.Module = _brevitas().opened(model, example_input, lines)
        return made
    if is_onnx(model):
        return copied(model)  # type: ignore[arg-type]  # an OnnxModel is a module
    return model


def evaluator_of(model: nn.Module | ExportedProgram) -> Evaluator:
    """Return a model as its own framework evaluates it."""
    if holds_brevitas(model):
        evaluator: Evaluator = _brevitas().BrevitasEvaluator(model)
        return evaluator
    if is_onnx(model):
        made: Evaluator = onnx_door().evaluator(model)
        return made
    return Evaluator(model)


def is_onnx(model: nn.Module | ExportedProgram) -> bool:
    """Return whether a model was loaded from an ONNX file."""
    return type(model).__module__.startswith(f"{__package__}.onnx.")


def onnx_door() -> ModuleType:
    """Return the part that imports onnx."""
    try:
        from . import onnx

        return onnx
    except ImportError as error:
        raise InputError(f"an ONNX file needs packages that are missing: {error}; pip install 'nnhw[onnx]'") from error


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
