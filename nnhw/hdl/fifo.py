"""Hardware of the FIFO."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.fifo import FifoConfig
from nnhw.hdl.buffer import StreamBuffer
from nnhw.hdl.memory import LargeRam, block_ram, logic_ram


class Fifo(wiring.Component):
    """A memory whose output register is the output stream's payload; depths 1 and 2 are registers alone.

    Timing: see `nnhw.engines.fifo.FifoConfig`. With a memory, `i.ready` does not depend on `o.ready` of the same cycle.
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
        """Add a register of one beat, which takes the next beat in the cycle in which it is emptied."""
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]

    def _memory(self, m: Module) -> None:
        """Add the memory: words between a write and a read address, and one more beat in its output register."""
        words = self.config.words
        level = Signal(range(words + 1))
        # `room` and `some` are what comparisons with the next level say, registered: no carry chain in a handshake.
        room, some, write, read, move = Signal(init=1), Signal(), Signal(), Signal(), Signal()
        pause = Signal()
        given, free = some, Const(1, 1)
        # The port of a large RAM reads while there are words, and pauses in the cycle behind each read, and while
        # nothing leaves: in these pauses it writes.
        if self.config.large:
            given, free = some & ~pause, pause | ~some
            m.d.sync += pause.eq(read | ~move)
        m.d.comb += [
            self.i.ready.eq(room & free),
            write.eq(self.i.valid & self.i.ready),
            move.eq(~self.o.valid | self.o.ready),
            read.eq(given & move),
        ]
        with m.If(write ^ read):
            m.d.sync += [
                level.eq(level + Mux(read, Const(-1, len(level)), 1)),
                room.eq(read | (level != words - 1)),
                some.eq(write | (level != 1)),
            ]
        with m.If(move):
            m.d.sync += self.o.valid.eq(given)
        # The number of words need not be a power of two, so addresses do not wrap by themselves.
        places = [Signal(range(words), name=f"{name}_address") for name in ("write", "read")]
        for place, advance in zip(places, (write, read), strict=True):
            with m.If(advance):
                m.d.sync += place.eq(Mux(place == words - 1, 0, place + 1))
        (self._large_ram if self.config.large else self._two_ports)(m, write, read, places)

    def _two_ports(self, m: Module, write: Signal, read: Signal, places: list[Signal]) -> None:
        """Add a memory with a write port and a read port; `places` are the write and the read address."""
        make = block_ram if self.config.in_block_ram else logic_ram
        m.submodules.memory = memory = make(self.config.words, self.config.width)
        writer, reader = memory.write_port(), memory.read_port()
        m.d.comb += [
            writer.en.eq(write),
            writer.addr.eq(places[0]),
            writer.data.eq(self.i.payload.as_value()),
            reader.en.eq(read),
            reader.addr.eq(places[1]),
            self.o.payload.as_value().eq(reader.data),
        ]

    def _large_ram(self, m: Module, write: Signal, read: Signal, places: list[Signal]) -> None:
        """Add a memory with one port; `places` are the write and the read address."""
        m.submodules.memory = memory = LargeRam(self.config.words, self.config.width)
        m.d.comb += [
            memory.write.eq(write),
            memory.read.eq(read),
            memory.addr.eq(Mux(write, *places)),
            memory.i_data.eq(self.i.payload.as_value()),
            self.o.payload.as_value().eq(memory.data),
        ]
