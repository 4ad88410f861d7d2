"""One scratch arena: places of buffers that are never needed at the same time may overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 8


@dataclass(frozen=True)
class Lifetime:
    """A buffer, and the first and the last layer that need it."""

    name: str
    bytes: int
    first: int
    last: int


def place(buffers: Sequence[Lifetime]) -> tuple[dict[str, int], int]:
    """Return the offset of each buffer, and the size of the arena: the largest first, each at the lowest free place."""
    offsets: dict[str, int] = {}
    placed: list[Lifetime] = []
    for buffer in sorted(buffers, key=lambda one: (-one.bytes, one.first, one.name)):
        others = [one for one in placed if one.first <= buffer.last and buffer.first <= one.last]
        offset = 0
        for other in sorted(others, key=lambda one: offsets[one.name]):
            if offset + buffer.bytes <= offsets[other.name]:
                break
            offset = max(offset, _aligned(offsets[other.name] + other.bytes))
        offsets[buffer.name] = offset
        placed.append(buffer)
    return offsets, max((_aligned(offsets[one.name] + one.bytes) for one in placed), default=0)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
