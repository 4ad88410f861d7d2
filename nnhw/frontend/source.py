"""Loading models from files: FILE.py, FILE.py:NAME, FILE.pt2, and files of other frameworks."""

from __future__ import annotations

import difflib
import importlib.util
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

from nnhw.errors import InputError, ModelFileError, NnhwError
from nnhw.ir import Graph
from nnhw.model_files import DEFAULT_MODEL, check_model_file, identifier, model_name, split_name
from nnhw.nn.sensors import FrontLayer, SensorModel

from .agreement import Captured, OwnAnswers, own_answers
from .archive import load_archive, random_input
from .birthplaces import Birthplaces
from .capture import capture_quantizers
from .doors import EXTRAS, SUFFIXES, load_file
from .export import checked_example
from .locations import Lines, error_location

REWRITES = "rewrites"
_SEED = 0
EXAMPLE = "example_input"


@dataclass(frozen=True)
class Source:
    """A model of a user.

    Parameters
    ----------
    model: the model.
    example_input: [batch, ..]; for an exported program random numbers of its shape, the same each time.
    name: name of the file without folder and suffix, followed by the model's name if that was given.
    lines: (file, line) at which the model's modules were made, by module path.
    rewrites: `nnhw.Rewrite`s of its graph, in order.
    front: the front end of a sensor that the network stands behind; None: it has none.
    signals: of the front end, [batch, ..], from which the example input was made.
    is_random: the example input is random numbers, which say nothing about the inputs that the model is for.
    """

    model: nn.Module | ExportedProgram
    example_input: torch.Tensor
    name: str
    lines: Lines = field(default_factory=dict)
    rewrites: tuple[Any, ...] = ()
    front: FrontLayer | None = None
    signals: torch.Tensor | None = None
    is_random: bool = False

    def capture(self) -> Graph:
        """Return the model's float-level graph; see `capture`."""
        return self.capture_quantizers().graph

    def capture_quantizers(self) -> Captured:
        """Return the graph, with its quantizers in the trace; see `capture_quantizers`."""
        return capture_quantizers(self.model, self.example_input, self.name, self.lines)

    def own_answers(self, captured: Captured, images: np.ndarray) -> OwnAnswers:
        """Return PyTorch's own results for images, compared with the graph; see `own_answers`."""
        return own_answers(self.model, captured, images)


EXAMPLES_MAX = 16
"""Frames of a front end that become the example input of the network behind it."""


def sensed(source: Source) -> Source:
    """Return the network of a `SensorModel`, with its front end beside it; any other source as it is.

    Raises
    ------
    InputError: the signals are too short, so that they give no frame; see `FrontLayer.codes`.
    """
    model = source.model
    if not isinstance(model, SensorModel):
        return source
    frames = model.front(source.example_input).flatten(0, 1)
    if not len(frames):
        raise InputError(
            f"example_input, of shape {list(source.example_input.shape)}, gives no frame of {model.front}; give longer "
            "signals"
        )
    start = "network."
    # The network is captured alone, so that the paths of its modules begin in it.
    lines = {path.removeprefix(start): line for path, line in source.lines.items() if path.startswith(start)}
    if "network" in source.lines:
        lines[""] = source.lines["network"]
    # Spread over the whole signal, as its beginning may be silent.
    example = frames[:: -(-len(frames) // EXAMPLES_MAX)].contiguous()
    signals = source.example_input
    return replace(source, model=model.network, example_input=example, lines=lines, front=model.front, signals=signals)


def load_source(source: str | Path) -> Source:
    """Load a model from FILE.py (with `model` and `example_input`), FILE.py:NAME, FILE.pt2, or a file with a door.

    A Python file is the user's own program and is run. Any other is inspected first, and nothing in it is run.

    Raises
    ------
    InputError for a file that does not exist or lacks what is needed; ModelFileError for one that fails.
    """
    check_model_file(str(source))
    path, name = split_name(str(source))
    if path.suffix == ".pt2":
        program = load_archive(path)
        return Source(program, random_input(program), model_name(str(source)), is_random=True)
    if path.suffix in SUFFIXES:
        return Source(*load_file(path, name), model_name(str(source)), is_random=True)
    return _from_python(path, name)


def _from_python(path: Path, name: str | None) -> Source:
    with Birthplaces() as places:
        module = execute(path)
    model = _member(module, path, name or DEFAULT_MODEL)
    if not isinstance(model, nn.Module | ExportedProgram):
        raise InputError(
            f"'{name or DEFAULT_MODEL}' in {path} must be an nn.Module, got {type(model).__name__}{_models_in(module)}"
        )
    example = _member(module, path, EXAMPLE)
    example = checked_example(torch.from_numpy(example) if isinstance(example, np.ndarray) else example)
    title = model_name(f"{path}:{name}" if name else str(path))
    lines = places.lines(model) if isinstance(model, nn.Module) else {}
    return sensed(Source(model, example, title, lines, _rewrites_in(module, path)))


def _rewrites_in(module: ModuleType, path: Path) -> tuple[Any, ...]:
    """Return the rewrites that a file has beside its model; none without them."""
    rewrites = getattr(module, REWRITES, ())
    if not isinstance(rewrites, list | tuple):
        raise InputError(f"'{REWRITES}' in {path} must be a list of nnhw.Rewrite, got {type(rewrites).__name__}")
    return tuple(rewrites)


class _SourceOnly(SourceFileLoader):
    """Compiles the file each time: bytecode is kept by size and second, so an edit within a second would be missed."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file's present content."""
        return self.source_to_code(self.get_data(self.path), self.path)


def execute(path: Path) -> ModuleType:
    """Run a Python file as a module that is not in sys.modules afterwards, its folder first on the path.

    Raises: ModelFileError for a file that fails.
    """
    title = f"_nnhw_model_{identifier(path.stem)}"
    spec = importlib.util.spec_from_file_location(title, loader=_SourceOnly(title, str(path.resolve())))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As Python does for a program: its folder first, so that it can import modules beside it.
    with first_on_path(path.resolve().parent), _registered(title, module), _seeded():
        try:
            spec.loader.exec_module(module)
        # A model's file is a program: it may also call sys.exit.
        except (Exception, SystemExit) as error:
            place = error_location(error)
            where = f"{place.file}:{place.line}" if place.file else path.name
            if isinstance(error, NnhwError):
                raise ModelFileError(f"{where}: {error}") from error
            if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
                raise ModelFileError(
                    f"{where}: the package '{error.name}' is not installed; it comes by: "
                    f"pip install 'nnhw[{EXTRAS[error.name]}]'"
                ) from error
            raise ModelFileError(
                f"{path} fails at {where}: {type(error).__name__}: {error}; it must run by itself: try 'python {path}'"
            ) from error
    return module


@contextmanager
def first_on_path(folder: Path) -> Iterator[None]:
    """Let modules of a folder be imported in a `with` block."""
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _seeded() -> Iterator[None]:
    """Let a program that seeds no generator of random numbers make the same model each time it is run."""
    kept = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(_SEED)
        np.random.seed(_SEED)
        torch.manual_seed(_SEED)
        try:
            yield
        finally:
            random.setstate(kept[0])
            np.random.set_state(kept[1])


@contextmanager
def _registered(title: str, module: ModuleType) -> Iterator[None]:
    """Keep a module in sys.modules while it runs, which dataclasses and pickling inside of it need."""
    sys.modules[title] = module
    try:
        yield
    finally:
        sys.modules.pop(title, None)


def _member(module: ModuleType, path: Path, name: str) -> object:
    value = getattr(module, name, None)
    if value is not None:
        return value
    if hasattr(module, name):
        raise InputError(f"'{name}' in {path} is None; is its checkpoint missing? run its training script first")
    names = [key for key in vars(module) if not key.startswith("_")]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    what = "a tensor [batch, ..]" if name == EXAMPLE else "an nn.Module"
    raise InputError(
        f"{path} has no '{name}': {what} is needed{hint}{_models_in(module) if name != EXAMPLE else ''}; "
        f"it has the names {', '.join(names) or '(none)'}"
    )


def _models_in(module: ModuleType) -> str:
    models = [key for key, value in vars(module).items() if isinstance(value, nn.Module)]
    return f"; models in it are {', '.join(models)}: give one as FILE.py:{models[0]}" if models else ""
