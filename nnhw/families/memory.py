"""Memories of a family: block RAM, large RAM, memories in LUTs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class BlockRam:
    """Block RAM with a read port and a write port.

    Parameters
    ----------
    modes: the shapes (words, bits of a word) that one can have, the widest first.
    bits: bits of all words of one.
    slow: its output comes so late in a cycle that only a register fits behind it.
    write_mask_bits: granularity of writes: how many bits of a word are written or kept together.
    units: cost of one when yosys chooses a shape, in units in which a two-way multiplexer of one bit costs 1/2.
    """

    modes: tuple[tuple[int, int], ...]
    bits: int
    slow: bool
    write_mask_bits: int
    units: int

    def shape(self, depth: int, bits: int, rom: bool, parts: int) -> tuple[int, int]:
        """Return (block RAMs of a memory, banks), as synthesis chooses them.

        Each mode of the block RAM makes a shape: as many side by side as the word needs, and as many banks of these as
        the depth needs, with multiplexers in logic behind them. A memory that is written is cut where the write mask
        allows it. The cheapest shape need not have the fewest block RAMs: banks cost half a unit for each bit that is
        read, for all of them but one, and, if the memory is written, for each write enable. Of shapes that cost the
        same, synthesis takes the deepest.

        Parameters
        ----------
        depth, bits: words, and bits of a word.
        rom: nothing is ever written.
        parts: parts of a word that are written separately, all of the same length.

        Source: yosys 0.70, `memory_libmap`, compared with what it made of some 600 memories; the tests compare fewer.
        """
        return _shape(self, depth, bits, rom, parts)


@lru_cache(maxsize=1 << 16)  # the mapping asks for few shapes, each of them thousands of times
def _shape(ram: BlockRam, depth: int, bits: int, rom: bool, parts: int) -> tuple[int, int]:
    shapes = []
    # From the deepest shape on: of equal costs `min` takes the first one, as synthesis does.
    for words, width in reversed(ram.modes):
        mask = 1 if rom else min(ram.write_mask_bits, width)
        banks = -(-depth // words)
        # All banks have the same low address bits, so bits of several banks may lie side by side in one block RAM. Each
        # part of a word is filled up to whole units of the write mask.
        count = -(-banks * parts * -(-bits // parts // mask) * mask // width)
        # A multiplexer among the banks for each bit that is read; a decoded write enable for each bank and part.
        logic = (banks - 1) * bits + (banks * parts if banks > 1 and not rom else 0)
        shapes.append((ram.units * count + logic / 2, count, banks))
    return min(shapes, key=lambda shape: shape[0])[1:]


@dataclass(frozen=True)
class LargeRamBlock:
    """Large RAM with one port, which reads or writes a word in a cycle, and without initial content.

    Parameters
    ----------
    words, bits: words of one, and bits of a word; several side by side make wider words.
    devices: parts of the names of the devices that have large RAMs.
    """

    words: int
    bits: int
    devices: tuple[str, ...]


@dataclass(frozen=True)
class LutRam:
    """Memories in writable LUTs.

    Parameters
    ----------
    words: words of one; 0: the family has none.
    lc: logic cells of one, whose words have four bits.
    """

    words: int = 0
    lc: int = 0
