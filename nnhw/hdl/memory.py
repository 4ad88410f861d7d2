"""Memories that land where they are planned: in block RAM, or as constants in logic."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


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


class SplitRom(wiring.Component):
    """A ROM of which the last words are constants in logic, so that the others fill whole block RAMs.

    Parameters
    ----------
    init: all words.
    bits: of a word.
    tail: how many words are in logic; fewer than there are.

    Members
    -------
    en, addr: in, read a word.
    data: out, the word, after the next edge.
    """

    def __init__(self, init: Sequence[int], bits: int, tail: int) -> None:
        self.init, self.bits, self.head = init, bits, len(init) - tail
        super().__init__({"en": In(1), "addr": In(range(len(init))), "data": Out(bits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.head = head = block_ram(self.head, self.bits, self.init[: self.head])
        reader = head.read_port()
        m.d.comb += [reader.en.eq(self.en), reader.addr.eq(self.addr), self.data.eq(reader.data)]
        if self.head < len(self.init):
            m.submodules.tail = tail = logic_rom(len(self.init) - self.head, self.bits, self.init[self.head :])
            rest, in_tail = tail.read_port(), Signal()
            m.d.comb += [
                rest.en.eq(self.en),
                rest.addr.eq(self.addr - self.head),
                self.data.eq(Mux(in_tail, rest.data, reader.data)),
            ]
            with m.If(self.en):
                m.d.sync += in_tail.eq(self.addr >= self.head)
        return m
