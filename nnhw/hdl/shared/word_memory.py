"""The memory that holds program, weights and activations, and the block RAMs that are filled from it."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from nnhw.engines.large_ram import LARGE_BITS, check_large
from nnhw.hdl.cells import cells_of
from nnhw.hdl.memory import block_ram, lut_ram


class WordMemory(wiring.Component):
    """A memory with one port: large RAMs where the device has them, else block RAM.

    Parameters
    ----------
    words, bits: number of words, and bits of a word.
    granules: parts of a word, of equal length, that can be written separately.
    init: initial words, for simulations; hardware begins with any content.

    Members
    -------
    addr: in, address of the word.
    write: in, write the granules of `i_data` that `mask` selects; else the word is read.
    data: out, the word that was read, after the next edge and for one cycle.
    """

    def __init__(self, words: int, bits: int, granules: int = 1, init: Sequence[int] = ()) -> None:
        self.words, self.bits, self.granules, self.init = words, bits, granules, init
        members = {"addr": In(range(words)), "write": In(1), "mask": In(granules), "i_data": In(bits)}
        super().__init__({**members, "data": Out(bits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cells = cells_of(platform)
        if cells.has_large_ram(platform):
            check_large("the memory of a shared engine", self.words)
            nibbles = Cat(bit.replicate(self.bits // self.granules // 4) for bit in self.mask)
            data = Signal(-(-self.bits // LARGE_BITS) * LARGE_BITS)
            m.d.comb += data.eq(self.i_data)
            m.d.comb += self.data.eq(cells.large_rams(m, self.addr, data, self.write, Signal(init=1), nibbles))
            return m
        memory = Memory(shape=unsigned(self.bits), depth=self.words, init=self.init, attrs={"ram_style": "block"})
        m.submodules.memory = memory
        writer, reader = memory.write_port(granularity=self.bits // self.granules), memory.read_port()
        m.d.comb += [
            writer.en.eq(self.mask & self.write.replicate(self.granules)),
            writer.addr.eq(self.addr),
            writer.data.eq(self.i_data),
            reader.en.eq(~self.write),
            reader.addr.eq(self.addr),
            self.data.eq(reader.data),
        ]
        return m


class WordRam(wiring.Component):
    """A memory of wide rows that is written a memory word at a time, and read a row at a time.

    It is in block RAM; few rows are in writable LUTs if the family has any, and a single row is a register.

    Parameters
    ----------
    rows, bits: number of rows, and bits of a row.
    word_bits: bits of a word; the last word of a row may have fewer.

    Members
    -------
    write: in, one bit for each word of a row: write it.
    i_addr, i_data: in, number of the row, and the word to write.
    addr: in, number of the row to read.
    data: out, the row, after the next edge.
    """

    def __init__(self, rows: int, bits: int, word_bits: int) -> None:
        self.rows, self.bits, self.word_bits = rows, bits, word_bits
        members = {"write": In(-(-bits // word_bits)), "i_addr": In(range(rows)), "i_data": In(word_bits)}
        super().__init__({**members, "addr": In(range(rows)), "data": Out(bits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parts = [
            self._part(m, index, min(self.word_bits, self.bits - low), platform)
            for index, low in enumerate(range(0, self.bits, self.word_bits))
        ]
        m.d.comb += self.data.eq(Cat(*parts))
        return m

    def _part(self, m: Module, index: int, bits: int, platform: object) -> Value:
        """Add the memory of word `index` of each row; return its output."""
        if self.rows == 1:
            row = Signal(bits, name=f"row_{index}", reset_less=True)
            with m.If(self.write[index]):
                m.d.sync += row.eq(self.i_data)
            return row
        # A block RAM for a few rows would be mostly empty, and there are many words side by side.
        few = self.rows <= cells_of(platform).lut_ram_words
        m.submodules[f"part_{index}"] = memory = (lut_ram if few else block_ram)(self.rows, bits)
        writer, reader = memory.write_port(), memory.read_port()
        m.d.comb += [
            writer.en.eq(self.write[index]),
            writer.addr.eq(self.i_addr),
            writer.data.eq(self.i_data),
            reader.en.eq(1),
            reader.addr.eq(self.addr),
        ]
        return reader.data
