"""Memories that synthesis puts where the mapper planned them: in block RAM, large RAM, LUTs or registers."""

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
    """Return a memory of `depth` words of `bits` bits that synthesis must put into block RAM.

    No engine may read a word in the cycle in which it is written: synthesis is told to leave out the logic that would
    order the two accesses (`nnhw.flow.implementation.synthesis.synthesis_commands`).

    Source: yosys `memory_libmap`, attribute `ram_style`.
    """
    return Memory(shape=unsigned(bits), depth=depth, init=init, attrs={RAM_STYLE: BLOCK})


def logic_rom(depth: int, bits: int, init: Sequence[int]) -> Memory:
    """Return a read-only memory that synthesis must build from LUTs: one LUT4 holds one bit of 16 words."""
    return Memory(shape=unsigned(bits), depth=depth, init=init, attrs={"rom_style": LOGIC, RAM_STYLE: LOGIC})


def lut_ram(depth: int, bits: int) -> Memory:
    """Return a memory of few words that synthesis must build from writable LUTs; not every family has these."""
    return Memory(shape=unsigned(bits), depth=depth, init=(), attrs={RAM_STYLE: "distributed"})


def logic_ram(depth: int, bits: int) -> Memory:
    """Return a writable memory that synthesis must build from registers."""
    return Memory(shape=unsigned(bits), depth=depth, init=(), attrs={RAM_STYLE: LOGIC})


class SplitRom(wiring.Component):
    """A ROM that is read in two steps: its first words fill whole block RAMs, the others are in logic; or all are.

    Parameters
    ----------
    init: all words.
    bits: bits of a word.
    tail: how many of the last words are in logic.

    Members
    -------
    en: In(1), move on: both registers below take their next values.
    addr: in, address of the word to read.
    data: out, the word, after the second clock edge with `en`.

    Timing: there are registers behind every `LOGIC_ROM_WORDS` words of logic, and behind the choice among these
    registers and the output of the block RAM.
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
        # The number of the part is registered beside the parts' words, and chooses among them in the second step.
        part = Signal(range(len(parts)))
        borders = [start for start in starts if start]
        with m.If(self.en):
            # Without block RAM, parts begin at multiples of `LOGIC_ROM_WORDS`: the upper address bits name the part.
            count = sum((self.addr >= border for border in borders), Const(0, 1))
            m.d.sync += part.eq(count if self.head else self.addr // LOGIC_ROM_WORDS)
            m.d.sync += self.data.eq(Array(parts)[part])
        return m

    def _part(self, m: Module, name: str, memory: Memory, start: int = 0) -> Value:
        """Add the memory that holds the words from address `start` on; return its output."""
        m.submodules[name] = memory
        reader = memory.read_port()
        m.d.comb += [reader.en.eq(self.en), reader.addr.eq(self.addr - start)]
        return reader.data


class LargeRam(wiring.Component):
    """A memory with one port, in large RAMs side by side where the device has any.

    Parameters
    ----------
    depth, bits: number of words, and bits of a word.

    Members
    -------
    read, write: In(1), access the word at `addr`; at most one of them in a cycle.
    addr: in, address of the word. i_data: in, the word to write.
    data: out, the word that was read last, from the edge after the read on; writes do not change it.
    """

    def __init__(self, depth: int, bits: int) -> None:
        self.depth, self.bits = depth, bits
        super().__init__(
            {"read": In(1), "write": In(1), "addr": In(range(depth)), "i_data": In(bits), "data": Out(bits)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word, kept, fresh = Signal(self.bits), Signal(self.bits, reset_less=True), Signal()
        # A write changes the RAM's output, so the word is copied to `kept` in the cycle in which it appears.
        m.d.comb += self.data.eq(Mux(fresh, word, kept))
        m.d.sync += [fresh.eq(self.read), kept.eq(self.data)]
        cells_of(platform).large_ram(m, self, word)
        return m
