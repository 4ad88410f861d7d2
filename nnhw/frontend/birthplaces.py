"""The lines of the user's program at which the modules of a model were made."""

from __future__ import annotations

from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.nn.modules import module as torch_module

from nnhw.nn.frames import running_user_frame

from .locations import Lines


class Birthplaces:
    """A context manager that notes modules as they are made, with the user's line.

    Layers inside nn.Sequential are called by torch, so no line of the user's forward belongs to them; the line that
    made them does. A module is noted when it gets its first parameter or buffer, in its own constructor, or else when
    it is put into another module.
    """

    def __init__(self) -> None:
        self._places: WeakKeyDictionary[nn.Module, tuple[str, int]] = WeakKeyDictionary()
        self._hooks: list[Any] = []

    def __enter__(self) -> Birthplaces:
        self._hooks = [
            # torch has no hook for constructors; registration is what constructors of layers do first.
            torch_module.register_module_parameter_registration_hook(self._note_owner),
            torch_module.register_module_buffer_registration_hook(self._note_owner),
            torch_module.register_module_module_registration_hook(self._note_child),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()

    def lines(self, model: nn.Module) -> Lines:
        """Return the (file, line) of each module that is known, by module path."""
        return {path: self._places[module] for path, module in model.named_modules() if module in self._places}

    def _note_owner(self, owner: nn.Module, name: str, value: object) -> None:
        self._note(owner)

    def _note_child(self, owner: nn.Module, name: str, child: nn.Module | None) -> None:
        if child is not None:
            self._note(child)

    def _note(self, module: nn.Module) -> None:
        if module in self._places:
            return
        place = running_user_frame()
        if place is not None:
            self._places[module] = place
