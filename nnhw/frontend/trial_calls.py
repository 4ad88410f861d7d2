"""Trial calls of a model, which show whether one trace can represent all calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves

from nnhw.errors import CaptureError
from nnhw.nn.comparing import CALLED_AGAIN
from nnhw.nn.given import copied
from nnhw.nn.tracing import eager_loops, quiet_torch
from nnhw.nn.writes import KEEPS_NOTHING, first_write

_BATCH_SIZE = re.compile(r"L\['\w+'\]\.size\(\)\[0\]")  # as torch's guards write it
_BATCH = 3  # images of the call that others are compared with; one that no model is likely to mean


class _Names(TorchFunctionMode):
    """Lists the names of the torch functions that are called while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.called.append(resolve_name(func) or repr(func))
        return func(*args, **kwargs or {})


def check_calls(model: nn.Module, example: Tensor) -> None:
    """Call a model again, and with one image: its results must depend neither on the call nor on the batch size.

    Parameters
    ----------
    model: it is copied, and not changed.
    example: [batch, ..], which goes through it.

    Raises
    ------
    CaptureError: results differ for the same images; the message names the layer or buffer if it is known.
    """
    model = copied(model)
    state = {name: value.clone() for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    # The example may have fewer images: they are repeated.
    images = example[torch.arange(_BATCH) % len(example)]
    _call(model, images)  # a model may cache what its first call computes; so only later calls are compared
    first, called = _call(model, images)
    again, _ = _call(model, images)
    if not all(map(_same, first, again)):
        raise CaptureError(_changing(model, images, state))
    # A trace is for batches of 2 or more, and its guards say for which; a single image is not covered by them.
    try:
        alone, others = _call(model, images[:1])
    except Exception:
        return  # it refuses single images by itself, so none gets a wrong answer
    # Other functions alone are no fault, as a model may take a shortcut with the same result.
    if others != called and not all(map(_same, alone, [one[:1] for one in first])):
        raise CaptureError(
            f"the model computes something else of a single image than of the same image in a batch "
            f"({_first_difference(called, others)}); leave out the branch on x.shape[0]"
        )


def check_guards(program: ExportedProgram) -> None:
    """Raise CaptureError unless a trace is valid for every batch size."""
    guards = [guard for guard in getattr(program, "_guards_code", None) or [] if _BATCH_SIZE.search(guard)]
    if guards:
        condition = _BATCH_SIZE.sub("x.shape[0]", guards[0])
        raise CaptureError(
            f"the model branches on the size of the batch: what was traced holds only where {condition}; what it "
            f"computes of an image must not depend on how many there are: leave out the branch"
        )


def _call(model: nn.Module, images: Tensor) -> tuple[list[Tensor], list[str]]:
    with quiet_torch(), torch.no_grad(), eager_loops(), _Names() as names:
        result = model(images.clone())
    return [one for one in tree_leaves(result) if isinstance(one, Tensor)], names.called


def _same(left: object, right: object) -> bool:
    """Return whether two results are equal, NaN included; True for what is no tensor, which is refused elsewhere."""
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return True
    equal_nan = left.is_floating_point()
    return bool(np.array_equal(left.cpu().numpy(), right.cpu().numpy(), equal_nan=equal_nan))


def _changing(model: nn.Module, images: Tensor, before: Mapping[str, Tensor]) -> str:
    """Return the message about a model whose second call gives another result."""
    changed = [name for name, value in model.state_dict().items() if name in before and not _same(value, before[name])]
    if not changed:
        return f"{CALLED_AGAIN}: it draws random numbers, or forward changes an attribute; {KEEPS_NOTHING}"
    with eager_loops():
        write = first_write(model, images)
    remedy = KEEPS_NOTHING if write is None else write.remedy
    return f"{CALLED_AGAIN}: forward changes {write or repr(changed[0])}; {remedy}"


def _first_difference(left: list[str], right: list[str]) -> str:
    """Return the first difference of two lists of calls, as text."""
    place = next(
        (index for index, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
    shown = [calls[place] if place < len(calls) else "nothing more" for calls in (right, left)]
    return f"{shown[0]} instead of {shown[1]}"
