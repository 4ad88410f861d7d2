"""Tracing what torch.export cannot: assignments to `.data` in `forward`, and torch's fake quantizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from nnhw.nn.functional import quantize
from nnhw.nn.quantizers import PER_TENSOR

from .int8 import int8_as_floats

_GET, _SET = Tensor.data.__get__, Tensor.data.__set__  # type: ignore[attr-defined]


@contextmanager
def traceable(model: nn.Module) -> Iterator[None]:
    """Let torch.export trace what it cannot by itself: assignments to `.data`, fake quantizers, and modules of int8."""
    root = math.sqrt
    # math.sqrt(x.numel()) would fix the size of the batch.
    math.sqrt = lambda x: torch.sym_sqrt(x) if isinstance(x, torch.SymInt | torch.SymFloat) else root(x)
    try:
        with _Traceable(), int8_as_floats(model):
            yield
    finally:
        math.sqrt = root


class _Traceable(TorchFunctionMode):
    """While active, a model can be traced that assigns to `.data`, or calls torch's fake quantizers.

    A tensor to whose `.data` another one was assigned, as implementations of BinaryConnect and its kin do, is that
    other one for all that reads it. torch itself changes the tensor, which no trace shows. Other tensors that share its
    memory stay as they are, with torch as here.

    Fake quantizers become `nnhw.quantize`, which rounds as they do; torch has no form of them for a trace.
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
        if func == _GET:
            return args[0].detach()
        if func in IMITATIONS:
            return _quantized(func, *args, **kwargs)
        return func(*args, **kwargs)

    def _read(self, value: Any) -> Any:
        # What is assigned may have been assigned to, too.
        while isinstance(value, Tensor) and id(value) in self._assigned:
            value = self._assigned[id(value)][1]
        return value


IMITATIONS = {
    torch.fake_quantize_per_tensor_affine: ("input", "scale", "zero_point", "quant_min", "quant_max"),
    torch.fake_quantize_per_channel_affine: ("input", "scale", "zero_point", "axis", "quant_min", "quant_max"),
}
"""torch's fake quantizers --> their arguments."""


def _quantized(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
    """Return what a fake quantizer makes of a tensor, computed by `nnhw.quantize`."""
    given = {**dict(zip(IMITATIONS[func], args, strict=False)), **kwargs}
    scale, zero_point = (
        given[name].reshape(-1) if isinstance(given[name], Tensor) else torch.tensor([given[name]])
        for name in ("scale", "zero_point")
    )
    options = given["quant_min"], given["quant_max"], given.get("axis", PER_TENSOR), False, "half_even", True, False
    made: Tensor = quantize(given["input"], scale, zero_point.to(scale.dtype), *options)
    return made
