"""Tracing models that assign to `.data` in `forward`, as implementations of BinaryConnect and its kin do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

_GET, _SET = Tensor.data.__get__, Tensor.data.__set__  # type: ignore[attr-defined]


class AssignedData(TorchFunctionMode):
    """While active, a tensor to whose `.data` another one was assigned is that other one for all that reads it.

    torch itself changes the tensor, which no trace shows. Other tensors that share its memory stay as they are, with
    torch as here.
    """

    def __init__(self) -> None:
        super().__init__()
        # With the tensors themselves, as a number could be that of another one once they are gone.
        self._assigned: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func == _SET:
            tensor, value = args
            self._assigned[id(tensor)] = tensor, self._read(value).detach()
            return None
        args, kwargs = tree_map(self._read, (args, dict(kwargs or {})))
        return args[0].detach() if func == _GET else func(*args, **kwargs)

    def _read(self, value: Any) -> Any:
        # What is assigned may have been assigned to, too.
        while isinstance(value, Tensor) and id(value) in self._assigned:
            value = self._assigned[id(value)][1]
        return value
