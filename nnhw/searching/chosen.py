"""What an exported model needs: the parameters of its trial, and its weights. Nothing here imports optuna."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nnhw.errors import InputError
from nnhw.reading import open_zip

STATE, EXAMPLE = "state", "example_input"
"""Keys of a file of weights: the model's `state_dict`, and an example input [batch, ..]."""


class Chosen:
    """A finished trial: `suggest_..` returns the values that the search chose, whatever range is asked for.

    Parameters
    ----------
    params: the chosen values by parameter name.
    number: number of the trial.

    Raises: InputError where the model asks for a parameter that the trial did not have.
    """

    def __init__(self, params: Mapping[str, Any], number: int = 0) -> None:
        self.params = dict(params)
        self.number = number

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return the chosen number."""
        return float(self._value(name))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Return the chosen whole number."""
        return int(self._value(name))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return the chosen one of several values."""
        return self._value(name)

    def report(self, accuracy: float, step: int) -> None:
        """Do nothing: the trial is over."""

    def _value(self, name: str) -> Any:
        if name not in self.params:
            raise InputError(
                f"the model asks for the parameter '{name}', which its trial had not; it had "
                f"{', '.join(self.params) or 'none'}"
            )
        return self.params[name]


def restore(model: nn.Module, file: str | Path) -> tuple[nn.Module, torch.Tensor]:
    """Load the weights `FILE.pt` beside the model's file `FILE.py` into a model.

    Returns
    -------
    The same model object in eval mode, and an example input [batch, ..].

    Raises: InputError if the weights are missing, damaged, or of another model. No code in the file of weights is run.
    """
    return fill(model, Path(file).with_suffix(".pt"))


def fill(model: nn.Module, path: Path) -> tuple[nn.Module, torch.Tensor]:
    """Load the weights at a path into a model; see `restore`."""
    state, example = load_weights(path)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(f"weights '{path}' are of another model: {' '.join(str(error).split())}") from None
    return model.eval(), example


def load_weights(path: Path) -> tuple[dict[str, Any], torch.Tensor]:
    """Return the state and the example input that `save_weights` wrote. Raises: see `restore`."""
    try:
        # torch takes memory for what entries of the archive claim.
        with open_zip(path):
            pass
        # weights_only: the file may be anybody's, and unpickling it in full could run code.
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"weights '{path}' do not exist; they belong beside the model's file") from None
    except Exception as error:  # a file that is none of torch's fails in many ways
        line = (str(error).splitlines() or [""])[0]
        raise InputError(f"weights '{path}' cannot be read: {type(error).__name__}: {line}") from None
    # A checkpoint of the user's own has other entries.
    if not isinstance(content, dict) or set(content) != {STATE, EXAMPLE} or not isinstance(content[STATE], dict):
        raise InputError(
            f"weights '{path}' need the entries '{STATE}' and '{EXAMPLE}'; 'nnhw search' writes such files"
        )
    return content[STATE], content[EXAMPLE]


def save_weights(model: nn.Module, example: torch.Tensor, path: Path) -> None:
    """Write a model's state and an example input in one step: a temporary file, then a rename."""
    state = {
        # Besides tensors, a state may hold what a module adds itself (`get_extra_state`).
        name: value.detach().cpu() if isinstance(value, torch.Tensor) else value
        for name, value in model.state_dict().items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, as a rename from another file system would be a copy that can be seen half done.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}", suffix=".tmp")
    os.close(handle)
    try:
        torch.save({STATE: state, EXAMPLE: example.detach().cpu().clone()}, temporary)
        # mkstemp makes files that only their owner may read.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
