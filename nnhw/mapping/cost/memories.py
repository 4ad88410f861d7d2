"""The cost of memories that are written and read."""

from __future__ import annotations

from nnhw.families import Cost, Family
from nnhw.families.logic import counter_bits

LUT_RAM_CHOICE, FEW_BANKS = (0.5, 0.8), 4
"""Logic cells that the multiplexer of a LUT memory takes for each bit and bank, with up to and with more than
`FEW_BANKS` banks (see `family.lut_ram.words`)."""


def memory_cost(depth: int, bits: int, large: bool, family: Family) -> Cost:
    """Return the cost of a block RAM memory, or a large RAM, that is written and read.

    A large RAM has one port, so it takes a multiplexer of its addresses, and registers that keep what was read.
    """
    if not large:
        return Cost(ebr=family.block_rams(depth, bits))
    return Cost(lc=counter_bits(depth) + 2 * bits + 4, spram=family.large_rams(depth, bits) or 0)


def lut_ram_cost(depth: int, bits: int, family: Family) -> Cost:
    """Return the cost of a memory in writable LUTs.

    Measured without other engines, for 32 to 128 words of 4 to 32 bits: in addition to the memories, 2 LUTs a bit for
    32 words, 3 for 64, 6.7 for 128; half of that if an engine behind it absorbs the multiplexer.
    """
    banks = -(-depth // family.lut_ram.words)
    chosen = LUT_RAM_CHOICE[banks > FEW_BANKS] * bits * banks + banks if banks > 1 else 0
    lc = banks * -(-bits // 4) * family.lut_ram.lc + chosen
    return Cost(lc=lc)
