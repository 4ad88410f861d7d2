"""What all requantizers have in common."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from nnhw.ir.types import IntType


class Requantizer(Protocol):
    """What all requantizers have in common. In every move a sum can come in on each lane."""

    @property
    def code(self) -> IntType:
        """Type of the codes."""
        ...

    @property
    def outputs(self) -> int:
        """Number of channels, each with constants of its own."""
        ...

    @property
    def latency(self) -> int:
        """Moves from a raw sum to its code."""
        ...

    def __hash__(self) -> int:
        """Return a hash of the object's identity: two requantizers with the same constants are not equal."""
        ...

    def golden(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums int64 [n, outputs]."""
        ...


def codes_of(index: np.ndarray, code: IntType) -> np.ndarray:
    """Return the codes of indices, which count from the lowest code; indices out of range are clamped. Any shape."""
    index = np.clip(index, 0, index_span(code))
    return 2 * index - 1 if code.bipolar else index + code.low


def index_span(code: IntType) -> int:
    """Return the highest index of a type of codes: one less than there are codes."""
    return 1 if code.bipolar else code.high - code.low
