"""What torch's own C++ asks the system for, of which Python's events do not tell."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

_UNSEEN = (
    *((torch.jit, "load"), (torch, "from_file"), (torch.UntypedStorage, "from_file")),
    *((torch, "seed"), (torch.random, "seed")),
)
"""What reads a file of which no path is known, or the system's randomness."""


@contextmanager
def watched_reads(read: Callable[[Any], object], hide: Callable[[str], object]) -> Iterator[None]:
    """Watch, in a `with` block, the functions by which torch's C++ reads files.

    Parameters
    ----------
    read: called with the path of each file that torch opens as an archive.
    hide: called with a few words for a call that reads a file of which no path is known.
    """
    plain = torch._C.PyTorchFileReader

    class Reader(plain):  # type: ignore[misc,valid-type]  # a class of pybind
        def __init__(self, given: Any) -> None:
            if isinstance(given, str | os.PathLike):
                read(given)
            super().__init__(given)

    with ExitStack() as patched:
        patched.enter_context(patch.object(torch._C, "PyTorchFileReader", Reader))
        for owner, name in _UNSEEN:
            patched.enter_context(patch.object(owner, name, _hiding(getattr(owner, name), name, hide)))
        yield


def _hiding(function: Callable[..., Any], name: str, hide: Callable[[str], object]) -> Callable[..., Any]:
    """Return a function that reads a file unseen, and notes that."""

    def call(*given: Any, **named: Any) -> Any:
        hide(f"it calls {name}")
        return function(*given, **named)

    return call
