"""Doors: how models of other frameworks are captured.

A door returns a model that can be traced, whose only quantizers are nnhw's, and the framework's own evaluation, with
which the graph is compared. Behind the doors all models take the same path. A framework is imported only when a model
of it comes.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn
from torch.export import ExportedProgram

from nnhw.errors import InputError

from . import pt2e
from .evaluation import Evaluator
from .locations import Lines


class Door(Protocol):
    """The interface of a door, for models of one framework."""

    def traceable(
        self, model: nn.Module | ExportedProgram, example_input: Tensor | None, lines: Lines
    ) -> nn.Module | ExportedProgram:
        """Return an equal model whose only quantizers are `nnhw.quantize` and `nnhw.rescale`; the given one is not
        changed.

        Raises
        ------
        InputError, CaptureError, or ProblemList with several of them: parts of the model have no such form.
        """

    def evaluator(self, model: nn.Module | ExportedProgram) -> Evaluator:
        """Return the framework's own evaluation, whose calls of quantizers are the traced ones, in the same order."""


class FileDoor(Door, Protocol):
    """The interface of a door for files of another framework."""

    def load(self, path: Path) -> tuple[nn.Module, Tensor]:
        """Return a file's model in eval mode, and an example input.

        Raises
        ------
        InputError for a file that cannot be read; CaptureError, or ProblemList, for what has no counterpart.
        """


class _Torch:
    """The door of PyTorch itself, whose models are traced as they are."""

    def traceable(
        self, model: nn.Module | ExportedProgram, example_input: Tensor | None, lines: Lines
    ) -> nn.Module | ExportedProgram:
        """Return the model itself."""
        return model

    def evaluator(self, model: nn.Module | ExportedProgram) -> Evaluator:
        """Return PyTorch's evaluation."""
        return Evaluator(model)


@dataclass(frozen=True)
class _Framework:
    """A framework whose door is imported when a model of it comes.

    Parameters
    ----------
    name: name of the door in this package, and of the extra of nnhw that installs the framework.
    classes: module that defines the class of such models, or package of the classes of their layers.
    suffix: suffix of its files; empty if its models are modules.
    forms: ways to read a file, of which FILE:FORM chooses one.
    """

    name: str
    classes: str
    suffix: str = ""
    forms: tuple[str, ...] = ()


_BREVITAS = _Framework("brevitas", "brevitas")
_FRAMEWORKS = (
    _BREVITAS,
    _Framework("graphs", f"{__package__}.graphs", ".ir"),
    _Framework("onnx", f"{__package__}.onnx.module", ".onnx"),
    _Framework("tflite", f"{__package__}.tflite.module", ".tflite", ("double", "single")),
)
_TORCH = _Torch()
EXTRAS = {"brevitas": "brevitas", "brevitas_examples": "brevitas"}
"""Packages that models may import --> the extra of nnhw that installs them."""
SUFFIXES = tuple(framework.suffix for framework in _FRAMEWORKS if framework.suffix)
"""Suffixes of model files that have a door."""


def door_of(model: nn.Module | ExportedProgram) -> Door:
    """Return the door of a model; that of PyTorch for all models that belong to no other framework.

    Raises: InputError if the model's framework is not installed in a version that nnhw knows.
    """
    # PT2E's models have no class of their own: their operators tell.
    if pt2e.is_mine(model):
        return pt2e
    packages = set(_packages(model))
    return next((_imported(framework) for framework in _FRAMEWORKS if framework.classes in packages), _TORCH)


def is_foreign(model: nn.Module | ExportedProgram) -> bool:
    """Return whether another framework than PyTorch evaluates a model."""
    return door_of(model) is not _TORCH


def load_file(path: Path, form: str | None = None) -> tuple[nn.Module, Tensor]:
    """Return the model of a file with one of `SUFFIXES`, and an example input.

    Parameters
    ----------
    form: way to read the file, if its door has several, such as the rounding of a .tflite file.

    Raises: InputError for a form that the door does not know; what `FileDoor.load` does.
    """
    framework = next(framework for framework in _FRAMEWORKS if framework.suffix == path.suffix)
    if form is None:
        return _imported(framework).load(path)
    if form not in framework.forms:
        known = f"; it can be {' or '.join(framework.forms)}" if framework.forms else ""
        raise InputError(f"'{form}' behind {path} is no way to read a {framework.suffix} file{known}")
    made: tuple[nn.Module, Tensor] = _imported(framework).load(path, form)  # type: ignore[call-arg]
    return made


def _packages(model: nn.Module | ExportedProgram) -> Iterator[str]:
    """Yield the modules of a model's own class and its bases, then the packages of the classes of its layers."""
    if not isinstance(model, nn.Module):
        return
    # Whole names for the model itself, as the classes of doors for files are nnhw's own; of layers the package tells.
    yield from (base.__module__ for base in type(model).__mro__)
    for base in {base for module in model.modules() for base in type(module).__mro__}:
        yield base.__module__.partition(".")[0]


def _imported(framework: _Framework) -> FileDoor:
    """Import a door; warnings of its framework about optional packages are suppressed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            door: FileDoor = importlib.import_module(f"{__package__}.{framework.name}")  # type: ignore[assignment]
            return door
    except ImportError as error:
        what = f"a {framework.suffix} file" if framework.suffix else f"a model with layers of {framework.name.title()}"
        raise InputError(
            f"{what} needs a package that is not installed, or of another version than nnhw knows: {error}; it comes "
            f"by: pip install 'nnhw[{framework.name}]'"
        ) from error
