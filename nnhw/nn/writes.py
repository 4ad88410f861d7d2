"""Writes of `forward` to what a model holds: parameters, buffers, and tensors in attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .frames import running_user_frame
from .given import copied

KEEPS_NOTHING = "an accelerator keeps nothing from one image to the next, so leave that out in eval mode"
APPLY_ONCE = (
    "an accelerator's weights are fixed: do this once before you pass the model to nnhw, and guard it in forward with "
    "'if self.training:'"
)


@dataclass(frozen=True)
class Write:
    """A write to a tensor that a model holds. As text, such as "'fc.weight' (net.py:17)".

    Parameters
    ----------
    name: of the tensor in the model.
    place: the user's line, such as " (net.py:17)"; empty if it is not known.
    remedy: what to do about it.
    """

    name: str
    place: str
    remedy: str

    def __str__(self) -> str:
        return f"'{self.name}'{self.place}"


def first_write(model: nn.Module, batch: Tensor) -> Write | None:
    """Return the first write of a model's forward to a tensor that it holds; None if there is none.

    Parameters
    ----------
    model: it is copied, and not changed.
    batch: [N, ..], which goes through it.
    """
    own = copied(model)
    watch = _Writes(own)
    with torch.no_grad(), _Assignments(watch), watch:
        own(batch.clone())
    return watch.first


class _Writes(TorchDispatchMode):
    """Watches operations in place while it is active.

    Members
    -------
    first: the first write to a tensor of the model; None if there was none.
    """

    supports_higher_order_operators = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.first: Write | None = None
        # By storage: a view, such as `weight.data`, is another tensor.
        held = ((name, value) for name, value in _held(model) if value.numel())
        self._held = {_storage(value): (name, isinstance(value, nn.Parameter)) for name, value in held}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # A loop, as a higher-order operator, has no schema, and writes to nothing.
        if isinstance(func, OpOverload) and func._schema.is_mutable:
            arguments = func._schema.arguments
            given = {**{one.name: value for one, value in zip(arguments, args, strict=False)}, **(kwargs or {})}
            self.note(given.get(one.name) for one in arguments if one.alias_info and one.alias_info.is_write)
        return func(*args, **kwargs or {})

    def note(self, written: Iterable[Any]) -> None:
        """Note the line of the user at which one of these values is written to, if it is the model's."""
        tensors = [value for value in written if isinstance(value, Tensor) and value.layout == torch.strided]
        held = next((self._held[_storage(value)] for value in tensors if _storage(value) in self._held), None)
        if self.first is None and held is not None:
            name, is_weight = held
            self.first = Write(name, _line(), APPLY_ONCE if is_weight else KEEPS_NOTHING)


class _Assignments(TorchFunctionMode):
    """Watches `weight.data = ..`, which is no operation."""

    def __init__(self, writes: _Writes) -> None:
        super().__init__()
        self._writes = writes

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func == torch.Tensor.data.__set__:  # type: ignore[attr-defined]
            self._writes.note(args[:1])
        return func(*args, **kwargs or {})


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
    found = running_user_frame()
    return f" ({PurePath(found[0]).name}:{found[1]})" if found else ""
