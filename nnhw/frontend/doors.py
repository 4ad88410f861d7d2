"""Doors: models that came in another form, as programs whose quantizers are nnhw's."""

from __future__ import annotations

from types import MappingProxyType

import torch
from torch import nn
from torch.export import ExportedProgram

from nnhw.errors import raise_all
from nnhw.nn.given import unready

from . import pt2e
from .answers import check_answers
from .locations import Lines

_NO_LINES: Lines = MappingProxyType({})
_DOORS = (pt2e,)
"""Modules with `is_mine(model)` and `opened(model, example_input, lines)`."""


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
