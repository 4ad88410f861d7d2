"""Resources, and what memories, counters and trees of adders take of them.

Logic cells are counted as iCE40 packs them: one LUT4, one flip-flop and one carry each. A flip-flop shares the cell of
the LUT that drives it alone; one that takes its value from another flip-flop, a memory or a port has a cell of its own.
"""

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


def counter_bits(count: int) -> int:
    """Return the bits of a counter that runs to `count` - 1."""
    return (count - 1).bit_length()


def counter_lc(count: int) -> float:
    """Return the logic cells of a counter to `count` - 1 and again: a carry chain, and the comparison with its end."""
    bits = counter_bits(count)
    if bits == 0:
        return 0.0
    return bits + (bits + 2) // 3 + (bits > 2)


def buffer_lc(bits: int) -> int:
    """Return the logic cells of a `StreamBuffer`: two beats, and its handshake."""
    return 2 * bits + 4


def tree_widths(widths: list[int]) -> list[list[int]]:
    """Return the widths of the registers behind each level of a tree of adders."""
    levels = []
    while len(widths) > 1:
        pairs = [widths[index : index + 2] for index in range(0, len(widths), 2)]
        widths = [max(pair) + 1 if len(pair) == 2 else pair[0] for pair in pairs]
        levels.append(widths)
    return levels
