"""Memories of a family: block RAM, large RAM, memories in LUTs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class BlockRam:
    """Block RAM with a port to read and a port to write.

    Parameters
    ----------
    modes: (words, bits) that one can have, the widest first.
    bits: of all its words.
    slow: its output takes so much of a cycle that nothing but a register has time behind it.
    write_mask_bits: bits of a word that can be written apart from the others.
    units: what one costs where yosys chooses a shape; a two-way multiplexer of one bit costs 1/2.
    """

    modes: tuple[tuple[int, int], ...]
    bits: int
    slow: bool
    write_mask_bits: int
    units: int

    def shape(self, depth: int, bits: int, rom: bool, parts: int) -> tuple[int, int]:
        """Return the block RAMs of a memory, and how many lie one below another, as synthesis chooses them.

        What does not fit below one another may stand beside one another, with a multiplexer in logic to choose; in a
        memory that is written, as far as the write mask allows it. The shape is not always that of the fewest block
        RAMs: what chooses among those one below another costs, too, half a unit for each bit of all but one to read,
        and for each enable of all to write. Of shapes that cost the same, synthesis takes the deepest.

        Parameters
        ----------
        rom: nothing is ever written.
        parts: of a word that are written apart, all of the same length.

        Source: yosys 0.70, `memory_libmap`, compared with what it made of some 600 memories; the tests compare fewer.
        """
        return _shape(self, depth, bits, rom, parts)


@lru_cache(maxsize=1 << 16)  # the mapping asks for few shapes, each of them thousands of times
def _shape(ram: BlockRam, depth: int, bits: int, rom: bool, parts: int) -> tuple[int, int]:
    shapes = []
    for words, width in reversed(ram.modes):
        mask = 1 if rom else min(ram.write_mask_bits, width)
        banks = -(-depth // words)
        count = -(-banks * parts * -(-bits // parts // mask) * mask // width)
        logic = (banks - 1) * bits + (banks * parts if banks > 1 and not rom else 0)
        shapes.append((ram.units * count + logic / 2, count, banks))
    return min(shapes, key=lambda shape: shape[0])[1:]


@dataclass(frozen=True)
class LargeRamBlock:
    """Large RAM with one port, which reads or writes a word in a cycle; nothing is in it at first.

    Parameters
    ----------
    words, bits: of one; several stand side by side for wider words.
    devices: beginnings of the names of the devices that have some.
    """

    words: int
    bits: int
    devices: tuple[str, ...]


@dataclass(frozen=True)
class LutRam:
    """Memories in LUTs that can be written.

    Parameters
    ----------
    words: of one; 0: the family has none.
    lc: logic cells of four bits of it.
    """

    words: int = 0
    lc: int = 0
