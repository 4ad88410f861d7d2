"""Places of buffers in one block of scratch memory; buffers that are never needed at the same time may overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 8
"""Bytes at whose multiples values begin: the widest type of the C file, int64_t and double, needs it."""


@dataclass(frozen=True)
class Lifetime:
    """A buffer: its size in bytes, and the numbers of the first and the last layer that use it."""

    name: str
    bytes: int
    first: int
    last: int


def place(buffers: Sequence[Lifetime]) -> tuple[dict[str, int], int]:
    """Return the offset of each buffer, and the size of the memory, in bytes.

    The largest buffer is placed first, each at the lowest offset that is free while it is used.
    """
    offsets: dict[str, int] = {}
    placed: list[Lifetime] = []
    # The largest first, so that small ones can fill the gaps between them.
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
