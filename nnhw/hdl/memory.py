"""Memories that land where they are planned: in block RAM, or as constants in logic."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from nnhw.engines.matmul import LOGIC_ROM_WORDS
from nnhw.hdl.cells import cells_of
from nnhw.hdl.names import BLOCK, HEAD, LOGIC, RAM_STYLE


def block_ram(depth: int, bits: int, init: Sequence[int] = ()) -> Memory:
    """Return a memory that synthesis must put into block RAM.

    No engine reads a word in the cycle in which it is written; synthesis leaves out the logic that would order the two
    (`nnhw.flow.implementation.synthesis.synthesis_commands`).

    Source: yosys `memory_libmap`, attribute `ram_style`.
    """
    return Memory(shape=unsigned(bits), depth=depth, init=init, attrs={RAM_STYLE: BLOCK})


def logic_rom(depth: int, bits: int, init: Sequence[int]) -> Memory:
    """Return a read-only memory that synthesis must build of LUTs: 16 words of a bit are one LUT4."""
    return Memory(shape=unsigned(bits), depth=depth, init=init, attrs={"rom_style": LOGIC, RAM_STYLE: LOGIC})


def lut_ram(depth: int, bits: int) -> Memory:
    """Return a memory of few words that synthesis must build of LUTs that can be written; not every family has any."""
    return Memory(shape=unsigned(bits), depth=depth, init=(), attrs={RAM_STYLE: "distributed"})


def logic_ram(depth: int, bits: int) -> Memory:
    """Return a memory that synthesis must build of registers."""
    return Memory(shape=unsigned(bits), depth=depth, init=(), attrs={RAM_STYLE: LOGIC})


class SplitRom(wiring.Component):
    """A ROM that is read in two steps: block RAM for its first words, so that they fill whole block RAMs, logic for the
    last ones; or logic for all.

    Parameters
    ----------
    init: all words.
    bits: of a word.
    tail: how many words are in logic.

    Members
    -------
    en, addr: in, read a word.
    data: out, the word, after the second edge with `en`.

    Timing: registers lie behind every `LOGIC_ROM_WORDS` words of logic, and behind the choice among their outputs and
    the block RAM's.
    """

    def __init__(self, init: Sequence[int], bits: int, tail: int) -> None:
        self.init, self.bits, self.head = init, bits, len(init) - tail
        super().__init__({"en": In(1), "addr": In(range(len(init))), "data": Out(bits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parts = [self._part(m, HEAD, block_ram(self.head, self.bits, self.init[: self.head]))] if self.head else []
        starts = range(self.head, len(self.init), LOGIC_ROM_WORDS)
        for start in starts:
            words = self.init[start : start + LOGIC_ROM_WORDS]
            parts.append(self._part(m, f"tail_{start}", logic_rom(len(words), self.bits, words), start))
        part = Signal(range(len(parts)))
        borders = [start for start in starts if start]
        with m.If(self.en):
            # Without block RAM, parts begin where the bits above a part's address change.
            count = sum((self.addr >= border for border in borders), Const(0, 1))
            m.d.sync += part.eq(count if self.head else self.addr // LOGIC_ROM_WORDS)
            m.d.sync += self.data.eq(Array(parts)[part])
        return m

    def _part(self, m: Module, name: str, memory: Memory, start: int = 0) -> Value:
        """Add the memory of the words from `start` on; return its output."""
        m.submodules[name] = memory
        reader = memory.read_port()
        m.d.comb += [reader.en.eq(self.en), reader.addr.eq(self.addr - start)]
        return reader.data


class LargeRam(wiring.Component):
    """A memory with one port, in large RAMs side by side where the device has any.

    Parameters
    ----------
    depth, bits: words and their width.

    Members
    -------
    read, write: in, at most one of them in a cycle.
    addr, i_data: in, of the word.
    data: out, the word that was read last, after the next edge.
    """

    def __init__(self, depth: int, bits: int) -> None:
        self.depth, self.bits = depth, bits
        super().__init__(
            {"read": In(1), "write": In(1), "addr": In(range(depth)), "i_data": In(bits), "data": Out(bits)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word, kept, fresh = Signal(self.bits), Signal(self.bits, reset_less=True), Signal()
        # A write disturbs the RAM's output: what was read is taken over in the cycle behind.
        m.d.comb += self.data.eq(Mux(fresh, word, kept))
        m.d.sync += [fresh.eq(self.read), kept.eq(self.data)]
        cells_of(platform).large_ram(m, self, word)
        return m
