"""Stall patterns: in which cycles a source offers a beat, or a sink takes one.

The same patterns, bit for bit, exist in the compiled harness (`nnhw/flow/compiled.cpp`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, repeat

PATTERNS = ("none", "alternating", "random", "bursts", "rare")


def stalls(pattern: str, seed: int = 1) -> Iterator[bool]:
    """Return an endless iterator: True in a cycle in which the stream may move.

    Parameters
    ----------
    pattern: one of `PATTERNS`: always; every other cycle; half of all cycles at random; runs of moving and of
        standing still that last 16 cycles on average; one of 16 cycles at random.
    seed: of the random patterns, at least 1.
    """
    if pattern == "none":
        return repeat(True)
    if pattern == "alternating":
        return cycle((True, False))
    if pattern == "random":
        return (bool(word >> 16 & 1) for word in _xorshift(seed))
    if pattern == "bursts":
        return _bursts(seed)
    if pattern == "rare":
        return (word >> 16 & 15 == 0 for word in _xorshift(seed))
    raise ValueError(f"a stall pattern is one of {', '.join(PATTERNS)}; given '{pattern}'")


def _bursts(seed: int) -> Iterator[bool]:
    """Change between moving and standing still once in 16 cycles."""
    moving = True
    for word in _xorshift(seed):
        moving ^= word >> 16 & 15 == 0
        yield moving


def _xorshift(seed: int) -> Iterator[int]:
    """Return Marsaglia's 32-bit xorshift sequence. Source: Journal of Statistical Software 8(14), 2003."""
    word = (seed * 2654435761) & 0xFFFFFFFF or 1
    while True:
        word ^= (word << 13) & 0xFFFFFFFF
        word ^= word >> 17
        word ^= (word << 5) & 0xFFFFFFFF
        yield word
