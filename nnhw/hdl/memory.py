"""Memories that land where they are planned: in block RAM, or as constants in logic."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, ClockSignal, Const, Instance, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from nnhw.engines.large_ram import LARGE_BITS, LARGE_WORDS
from nnhw.engines.matmul import LOGIC_ROM_WORDS
from nnhw.hdl.carry import family_of
from nnhw.hdl.names import BLOCK, HEAD, LOGIC, RAM_STYLE, TABLE_ATTRIBUTE


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
    """Return a memory of few words that synthesis must build of LUTs that can be written, which the iCE40 lacks."""
    return Memory(shape=unsigned(bits), depth=depth, init=(), attrs={RAM_STYLE: "distributed"})


def logic_ram(depth: int, bits: int) -> Memory:
    """Return a memory that synthesis must build of registers."""
    return Memory(shape=unsigned(bits), depth=depth, init=(), attrs={RAM_STYLE: LOGIC})


def lookup_table(m: Module, name: str, content: int, index: Value, family: str | None) -> Value:
    """Add a table of 16 bits, read in the same cycle; return the bit.

    On an iCE40 it is one LUT4, which synthesis leaves as it is: what is in it can be put in last
    (`nnhw.flow.implementation.contents`).

    Parameters
    ----------
    content: bits, the first one lowest.
    index: 4 bits.
    """
    if family != "ice40":
        return Const(content, 16).bit_select(index, 1)
    bit = Signal(name=f"{name}_bit")
    inputs = {f"i_I{number}": index[number] for number in range(4)}
    m.submodules[name] = Instance(
        "SB_LUT4", ("a", TABLE_ATTRIBUTE, 1), ("p", "LUT_INIT", Const(content, 16)), **inputs, o_O=bit
    )
    return bit


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

    They are instances: yosys puts no memory with initial values into them, and every memory of Amaranth has some.

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
        if family_of(platform) == "ice40":
            self._large(m, word)
        else:
            self._plain(m, word)
        return m

    def _plain(self, m: Module, word: Signal) -> None:
        """Add what the RAMs do, for simulators: a write leaves another word than the one that was read."""
        m.submodules.memory = memory = Memory(shape=unsigned(self.bits), depth=self.depth, init=())
        writer, reader = memory.write_port(), memory.read_port()
        m.d.comb += [
            writer.en.eq(self.write),
            writer.addr.eq(self.addr),
            writer.data.eq(self.i_data),
            reader.en.eq(self.read | self.write),
            reader.addr.eq(self.addr),
            word.eq(reader.data),
        ]

    def _large(self, m: Module, word: Signal) -> None:
        """Add the RAMs."""
        data = Signal(-(-self.bits // LARGE_BITS) * LARGE_BITS)
        m.d.comb += data.eq(self.i_data)
        result = large_rams(m, self.addr, data, self.write, self.read | self.write)
        m.d.comb += word.eq(result)


def large_rams(
    m: Module, addr: Value, i_data: Value, write: Value, select: Value, nibbles: Value | None = None
) -> Value:
    """Add large RAMs side by side, an SB_SPRAM256KA for each 16 bits; return the word that was read.

    Parameters
    ----------
    addr, i_data: of the word; a multiple of 16 bits.
    write, select: a word is written; a word is read or written.
    nibbles: one bit for each four of the word: they are written; None: all.

    Timing: the word is there after the next edge, until the next access.
    Source: Lattice, iCE40 SPRAM usage guide (FPGA-TN-02022); POWEROFF is active low.
    """
    address, words = Signal(range(LARGE_WORDS)), []
    m.d.comb += address.eq(addr)
    for low in range(0, len(i_data), LARGE_BITS):
        result = Signal(LARGE_BITS, name=f"result_{low}")
        m.submodules += Instance(
            "SB_SPRAM256KA",
            i_CLOCK=ClockSignal("sync"),
            i_ADDRESS=address,
            i_DATAIN=i_data[low : low + LARGE_BITS],
            i_MASKWREN=Const(0b1111, 4) if nibbles is None else nibbles[low // 4 : (low + LARGE_BITS) // 4],
            i_WREN=write,
            i_CHIPSELECT=select,
            i_STANDBY=Const(0, 1),
            i_SLEEP=Const(0, 1),
            i_POWEROFF=Const(1, 1),
            o_DATAOUT=result,
        )
        words.append(result)
    return Cat(*words)
