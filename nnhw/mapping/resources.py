"""Resources, and what memories and counters take of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Resources: logic cells, block RAMs, DSP blocks."""

    lc: float = 0
    ebr: int = 0
    dsp: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.lc + other.lc, self.ebr + other.ebr, self.dsp + other.dsp)


def rom_lc(depth: int, bits: int) -> float:
    """Return the logic cells of a ROM in LUTs: 16 words a LUT4, and their multiplexer."""
    tables = -(-depth // 16)
    return bits * (tables + max(0, tables - 1) * 0.7)


def counter_bits(count: int) -> int:
    """Return the bits of a counter that runs to `count` - 1."""
    return (count - 1).bit_length()
