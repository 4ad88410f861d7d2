"""A user's file: what it has to define, and calls into it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from nnhw.errors import InputError
from nnhw.frontend.birthplaces import Birthplaces
from nnhw.frontend.export import checked_example
from nnhw.frontend.source import Source, execute, first_on_path
from nnhw.model_files import check_exists, identifier

from .user_sources import digest

_MEANINGS = {
    "model": "model(trial), which returns an untrained nn.Module of the parameters that trial.suggest_..() gives,",
    "train": "train(model, trial), which trains it and returns its accuracy on validation data,",
    "test": "test(model), which returns its accuracy on test data,",
}


class AnyTrial(Protocol):
    """The argument of `model` and `train`: a running trial of a search, or a finished one (`chosen.Chosen`)."""

    number: int

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return a number from low to high, both included, for the parameter of this name."""
        ...

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Return a whole number from low to high, both included, for the parameter of this name."""
        ...

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """Return one of several texts, numbers or booleans for the parameter of this name."""
        ...

    def report(self, accuracy: float, step: int) -> None:
        """Take the accuracy so far at a step, such as an epoch; a running trial may end here."""
        ...


@dataclass(frozen=True)
class Program:
    """A user's file, loaded.

    Parameters
    ----------
    path: path of the file.
    name: its stem as an identifier, for names of files and hardware.
    digest: SHA-256, hex, of its text and of the modules beside it that it imports.
    example_input: an input of the model, shape [batch, ..].
    make, fit: its functions `model` and `train`.
    judge: its function `test`, or None.
    """

    path: Path
    name: str
    digest: str
    example_input: torch.Tensor
    make: Callable[[AnyTrial], object]
    fit: Callable[[nn.Module, AnyTrial], object]
    judge: Callable[[nn.Module], object] | None

    def source(self, trial: AnyTrial) -> Source:
        """Return the untrained model of a trial.

        Raises: InputError if `model` returns no nn.Module; whatever `model` raises.
        """
        with self._folder(), Birthplaces() as places:
            model = self.make(trial)
        if not isinstance(model, nn.Module):
            raise InputError(f"model(trial) in {self.path} must return an nn.Module, got {type(model).__name__}")
        return Source(model, self.example_input, self.name, places.lines(model))

    def train(self, model: nn.Module, trial: AnyTrial) -> float:
        """Train a model in place and return its accuracy on validation data.

        Raises: InputError if `train` returns no finite number; whatever `train` raises.
        """
        with self._folder():
            result = self.fit(model, trial)
        return _number(result, f"train(model, trial) in {self.path}")

    def test(self, model: nn.Module) -> float | None:
        """Return the accuracy on test data, or None if the file has no `test`. Raises: see `train`."""
        if self.judge is None:
            return None
        with self._folder():
            # The accuracy is that of the network as it is exported, with fixed batch norms.
            result = self.judge(model.eval())
        return _number(result, f"test(model) in {self.path}")

    def _folder(self) -> AbstractContextManager[None]:
        """Put the file's folder on `sys.path` inside of a block: its functions may import modules when called."""
        return first_on_path(self.path.resolve().parent)


def load_program(file: str | Path) -> Program:
    """Run a user's Python file and return what it defines.

    Raises
    ------
    InputError: it does not exist, or lacks `model`, `train` or `example_input`. ModelFileError: running it fails.
    """
    path = Path(file)
    check_exists(path)
    if path.suffix != ".py":
        raise InputError(f"a search needs FILE.py with 'model', 'train' and 'example_input', got {path}")
    module = execute(path)
    make, fit = (_function(module, path, name) for name in ("model", "train"))
    # A `test` of None counts as none.
    judge = _function(module, path, "test") if getattr(module, "test", None) is not None else None
    example = getattr(module, "example_input", None)
    if example is None:
        raise InputError(f"{path} has no 'example_input': a tensor [batch, ..] like what the model will see is needed")
    example = checked_example(torch.from_numpy(example) if isinstance(example, np.ndarray) else example)
    return Program(path, identifier(path.stem), digest(path), example, make, fit, judge)


def _function(module: ModuleType, path: Path, name: str) -> Callable[..., object]:
    value = getattr(module, name, None)
    if isinstance(value, nn.Module):
        raise InputError(
            f"'{name}' in {path} is a network that is made already ({type(value).__name__}); a search needs "
            f"{_MEANINGS[name]} as a function"
        )
    if not callable(value):
        given = "there is none" if value is None else f"'{name}' is {type(value).__name__}"
        raise InputError(f"{path} needs {_MEANINGS[name]} as a function; {given}")
    return value  # type: ignore[no-any-return]


def _number(value: object, what: str) -> float:
    """Return a result as a number. Raises: InputError where it is none, or not finite."""
    try:
        number = float(value)  # type: ignore[arg-type]
    # RuntimeError: a tensor with several elements.
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{what} must return a number, got {type(value).__name__}") from None
    if not math.isfinite(number):
        raise InputError(f"{what} must return a finite number, got {number}")
    return number
