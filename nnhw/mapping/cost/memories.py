"""What memories take that are written and read."""

from __future__ import annotations

from nnhw.families import Cost, Family
from nnhw.families.logic import counter_bits

LUT_RAM_CHOICE, FEW_BANKS = (0.5, 0.8), 4
"""Logic cells of a bit of a memory in LUTs for each 16 words, if there are more: what chooses among a few, and many."""


def memory_cost(depth: int, bits: int, large: bool, family: Family) -> Cost:
    """Return the cost of a memory that is written and read.

    A large RAM has a multiplexer in front of its address, and registers behind a multiplexer keep what was read.
    """
    if not large:
        return Cost(ebr=family.block_rams(depth, bits))
    return Cost(lc=counter_bits(depth) + 2 * bits + 4, spram=family.large_rams(depth, bits) or 0)


def lut_ram_cost(depth: int, bits: int, family: Family) -> Cost:
    """Return the cost of a memory in LUTs that can be written.

    Measured alone, with 32 to 128 words of 4 to 32 bits: beside the memories, 2 LUTs a bit of 32 words, 3 of 64, 6.7 of
    128; with engines behind it that take in what chooses, half of that.
    """
    banks = -(-depth // family.lut_ram.words)
    chosen = LUT_RAM_CHOICE[banks > FEW_BANKS] * bits * banks + banks if banks > 1 else 0
    lc = banks * -(-bits // 4) * family.lut_ram.lc + chosen
    return Cost(lc=lc)
