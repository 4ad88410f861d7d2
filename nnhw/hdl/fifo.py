"""Hardware of the FIFO."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.fifo import FifoConfig
from nnhw.hdl.buffer import StreamBuffer
from nnhw.hdl.memory import block_ram, logic_ram


class Fifo(wiring.Component):
    """A memory whose output register is the output; depths 1 and 2 have none.

    Timing: see `nnhw.engines.fifo.FifoConfig`; with a memory, both sides hear of each other through registers.
    """

    def __init__(self, config: FifoConfig) -> None:
        self.config = config
        beat = stream.Signature(data.ArrayLayout(unsigned(config.bits), config.lanes))
        super().__init__({"i": In(beat), "o": Out(beat)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.config.depth == 1:
            self._register(m)
        elif self.config.depth == 2:
            m.submodules.buffer = buffer = StreamBuffer(self.i.payload.shape())
            wiring.connect(m, wiring.flipped(self.i), buffer.i)
            wiring.connect(m, buffer.o, wiring.flipped(self.o))
        else:
            self._memory(m)
        return m

    def _register(self, m: Module) -> None:
        """One beat, ready again in the cycle in which it leaves."""
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]

    def _memory(self, m: Module) -> None:
        """Words between a write and a read address, and one in the memory's output register."""
        words = self.config.words
        make = block_ram if self.config.in_block_ram else logic_ram
        m.submodules.memory = memory = make(words, self.config.width)
        writer, reader = memory.write_port(), memory.read_port()
        level = Signal(range(words + 1))
        room, some, write, read = Signal(init=1), Signal(), Signal(), Signal()
        following = Signal.like(level)
        m.d.comb += [
            self.i.ready.eq(room),
            write.eq(self.i.valid & room),
            read.eq(some & (~self.o.valid | self.o.ready)),
            following.eq(level + write - read),
            writer.en.eq(write),
            writer.data.eq(self.i.payload.as_value()),
            reader.en.eq(read),
            self.o.payload.as_value().eq(reader.data),
        ]
        m.d.sync += [level.eq(following), room.eq(following != words), some.eq(following != 0)]
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += self.o.valid.eq(some)
        for port, advance in ((writer, write), (reader, read)):
            with m.If(advance):
                m.d.sync += port.addr.eq(Mux(port.addr == words - 1, 0, port.addr + 1))
