"""The parts of memories that are written and read."""

from __future__ import annotations

from nnhw.families.parts import Inventory, counter_bits, large_ram, luts, memory


def memory_parts(depth: int, bits: int, large: bool) -> Inventory:
    """List a block RAM memory, or a large RAM, that is written and read.

    A large RAM has one port, so it takes a multiplexer of its addresses, and registers that keep what was read.
    """
    if not large:
        return memory(depth, bits)
    return luts(counter_bits(depth) + 2 * bits + 4) + large_ram(depth, bits)
