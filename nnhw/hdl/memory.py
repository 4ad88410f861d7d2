"""Memories that land where they are planned: in block RAM, or as constants in logic."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import unsigned
from amaranth.lib.memory import Memory


def block_ram(depth: int, bits: int, init: Sequence[int] = ()) -> Memory:
    """Return a memory that synthesis must put into block RAM.

    No engine reads a word in the cycle in which it is written; synthesis leaves out the logic that would order the two
    (`nnhw.flow.synthesis.synthesis_commands`).

    Source: yosys `memory_libmap`, attribute `ram_style`.
    """
    return Memory(shape=unsigned(bits), depth=depth, init=init, attrs={"ram_style": "block"})


def logic_rom(depth: int, bits: int, init: Sequence[int]) -> Memory:
    """Return a read-only memory that synthesis must build of LUTs: 16 words of a bit are one LUT4."""
    return Memory(shape=unsigned(bits), depth=depth, init=init, attrs={"rom_style": "logic", "ram_style": "logic"})


def logic_ram(depth: int, bits: int) -> Memory:
    """Return a memory that synthesis must build of registers."""
    return Memory(shape=unsigned(bits), depth=depth, init=(), attrs={"ram_style": "logic"})
