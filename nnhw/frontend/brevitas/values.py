"""A QuantTensor with nothing but its value: what layers pass on while a model is traced."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from brevitas.quant_tensor import QuantTensor, _unpack_quant_tensor
from torch import Tensor


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[PlainQuantTensor, Any], PlainQuantTensor]:
    return lambda self, other: PlainQuantTensor(function(self.value, _unpack_quant_tensor(other)))


def _reversed(function: Callable[[Any, Any], Any]) -> Callable[[PlainQuantTensor, Any], PlainQuantTensor]:
    return lambda self, other: PlainQuantTensor(function(_unpack_quant_tensor(other), self.value))


def _shaped(name: str) -> Callable[..., PlainQuantTensor]:
    return lambda self, *args, **kwargs: PlainQuantTensor(getattr(self.value, name)(*args, **kwargs))


class _Fields(NamedTuple):
    value: Tensor


class PlainQuantTensor(_Fields, QuantTensor):
    """Computes with its value as a tensor does, and stays a QuantTensor, as which the code of models knows it.

    Brevitas's own ones find scales and bit widths of results from the numbers in their fields, which have none while
    a model is traced. So this one has no such fields, and who reads them gets an AttributeError.
    """

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of torch with the values."""
        result = func(*_unpack_quant_tensor(args), **_unpack_quant_tensor(dict(kwargs or {})))
        # As Brevitas has it: what is concatenated with a plain tensor is one.
        is_plain = func is torch.cat and not all(isinstance(part, QuantTensor) for part in args[0])
        return cls(result) if isinstance(result, Tensor) and not is_plain else result

    @property
    def tensor(self) -> Tensor:
        """The value, by its older name."""
        return self.value

    @property
    def device(self) -> torch.device:
        """Where the value is."""
        return self.value.device

    __add__ = __radd__ = _binary(operator.add)  # type: ignore[assignment]  # a tuple's are other ones
    __mul__ = __rmul__ = _binary(operator.mul)  # type: ignore[assignment]
    __sub__, __rsub__ = _binary(operator.sub), _reversed(operator.sub)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _reversed(operator.truediv)
    view, reshape, flatten, transpose, permute = map(_shaped, ("view", "reshape", "flatten", "transpose", "permute"))

    def __neg__(self) -> PlainQuantTensor:
        return PlainQuantTensor(-self.value)

    def __abs__(self) -> PlainQuantTensor:
        return PlainQuantTensor(abs(self.value))


def plain_result(result: Any) -> Any:
    """Return the value of a QuantTensor, also of those in a tuple, list or dict; anything else as it is."""
    if isinstance(result, QuantTensor):
        return result.value
    if isinstance(result, dict):
        return {key: plain_result(part) for key, part in result.items()}
    # Not of named tuples, whose constructors take their fields one by one.
    return type(result)(map(plain_result, result)) if type(result) in (tuple, list) else result
