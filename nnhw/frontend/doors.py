"""Doors: how models that are from another framework come in.

A door gives what is traced, with nnhw's quantizers alone, and the framework's own evaluation, which the graph is
compared with. Everything behind it is one path. No framework is imported before a model of it is seen.
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
    """How models of one form come in."""

    def traceable(
        self, model: nn.Module | ExportedProgram, example_input: Tensor | None, lines: Lines
    ) -> nn.Module | ExportedProgram:
        """Return what computes the same with `nnhw.quantize` and `nnhw.rescale` alone; the model is not changed.

        Raises
        ------
        InputError, CaptureError, or ProblemList with all of them at once, for what has no such form.
        """

    def evaluator(self, model: nn.Module | ExportedProgram) -> Evaluator:
        """Return the framework's own evaluation. Its calls are those that are traced, in their order."""


class FileDoor(Door, Protocol):
    """How models that are files of another framework come in."""

    def load(self, path: Path) -> tuple[nn.Module, Tensor]:
        """Return a file's model in eval mode, and an example input.

        Raises
        ------
        InputError for a file that cannot be read; CaptureError, or ProblemList, for what has no counterpart.
        """


class _Torch:
    """Models of PyTorch: what they are is what is traced."""

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
    """A framework that is imported when a model of it comes.

    Parameters
    ----------
    name: of the door in this package, and of the extra of nnhw that brings the framework.
    classes: the package that has the classes of such models, or of their layers.
    suffix: of its files; nothing if its models are modules.
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
    _Framework("onnx", f"{__package__}.onnx.model", ".onnx"),
    _Framework("tflite", f"{__package__}.tflite.module", ".tflite", ("double", "single")),
)
_TORCH = _Torch()
EXTRAS = {"brevitas": "brevitas", "brevitas_examples": "brevitas"}
"""Packages that models may import --> the extra of nnhw that brings them."""
SUFFIXES = tuple(framework.suffix for framework in _FRAMEWORKS if framework.suffix)
"""Of files that have a door."""


def door_of(model: nn.Module | ExportedProgram) -> Door:
    """Return the door of a model; that of PyTorch itself for any that is from nowhere else.

    Raises: InputError if the model's framework is not installed in a version that nnhw knows.
    """
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
    form: how the file is read, where its door knows several ways: of a .tflite file its rounding.

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
    """Yield the packages that the classes of a model's layers are from, and the modules of its own class's bases."""
    if not isinstance(model, nn.Module):
        return
    yield from (base.__module__ for base in type(model).__mro__)
    for base in {base for module in model.modules() for base in type(module).__mro__}:
        yield base.__module__.partition(".")[0]


def _imported(framework: _Framework) -> FileDoor:
    """Return a door, whose framework may warn of packages that it would like to have."""
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
