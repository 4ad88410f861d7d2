"""Writes of `forward` to what a model holds: parameters, buffers, and tensors in attributes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .frames import innermost_user_frame
from .given import copied


def first_write(model: nn.Module, batch: Tensor) -> str:
    """Return the first tensor of a model that its forward writes to, as "'fc.weight' (net.py:17)"; empty if none.

    Parameters
    ----------
    model: it is copied, and not changed.
    batch: [N, ..], which goes through it.
    """
    own = copied(model)
    watch = _Writes(own)
    with torch.no_grad(), watch:
        own(batch.clone())
    return watch.first


class _Writes(TorchDispatchMode):
    """Watches operations in place while it is active.

    Members
    -------
    first: the first tensor of the model that was written to, and the user's line; empty if there is none.
    """

    supports_higher_order_operators = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.first = ""
        # By storage: a view, such as `weight.data`, is another tensor.
        self._names = {_storage(value): name for name, value in _held(model) if value.numel()}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # A loop, as a higher-order operator, has no schema, and writes to nothing.
        if not self.first and isinstance(func, OpOverload) and func._schema.is_mutable:
            self.first = self._written(func, args, kwargs or {})
        return func(*args, **kwargs or {})

    def _written(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        arguments = func._schema.arguments
        given = {argument.name: value for argument, value in zip(arguments, args, strict=False)} | dict(kwargs)
        changed = [argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write]
        written = (value for name in changed for value in tree_leaves(given.get(name)) if isinstance(value, Tensor))
        name = next((self._names[_storage(value)] for value in written if _storage(value) in self._names), "")
        return f"'{name}'{_line()}" if name else ""


def _held(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) of everything that a model holds."""
    for path, module in model.named_modules():
        for values in (vars(module), module._buffers, module._parameters):
            for name, value in values.items():
                if isinstance(value, Tensor) and value.layout == torch.strided:
                    yield f"{path}.{name}".lstrip("."), value


def _storage(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()


def _line() -> str:
    """Return the user's line that runs, as " (net.py:17)"."""
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    found = innermost_user_frame(reversed(frames))
    return f" ({PurePath(found[0]).name}:{found[1]})" if found else ""
