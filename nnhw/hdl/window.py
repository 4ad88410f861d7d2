"""Hardware of the sliding window."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.window import WindowConfig
from nnhw.hdl.loops import LoopWalker
from nnhw.hdl.memory import block_ram


class SlidingWindow(wiring.Component):
    """A circular line buffer with one writer and one reader, which keep apart by whole rows.

    Timing: takes a word a cycle while a row is free, gives a beat a cycle while the rows of the current row of
    blocks are complete; a beat leaves one cycle after its address.
    """

    def __init__(self, config: WindowConfig) -> None:
        self.config = config
        lane = unsigned(config.bits)
        super().__init__(
            {
                "i": In(stream.Signature(data.ArrayLayout(lane, config.channel_lanes))),
                "o": Out(stream.Signature(data.ArrayLayout(lane, config.simd))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        rows = Signal(range(config.rows + 1))  # complete rows in the buffer
        m.submodules.walker = walker = LoopWalker(config.nest())
        row_done, row_end, frame_end = Signal(), Signal(), Signal()

        m.d.comb += self.i.ready.eq(rows != config.rows)
        write = self.i.valid & self.i.ready
        self._count_words(m, write, row_done)

        move = ~self.o.valid | self.o.ready
        enough = Signal()
        m.d.comb += [
            enough.eq(rows >= Mux(frame_end, config.rows_needed_last, config.rows_needed)),
            frame_end.eq(walker.lasts[-1]),
            walker.advance.eq(move & enough),
            row_end.eq(walker.advance & walker.ends[-2]),
        ]
        with m.If(move):
            m.d.sync += self.o.valid.eq(enough)
        freed = Mux(row_end, Mux(frame_end, config.rows_left, config.rows_step), 0)
        m.d.sync += rows.eq(rows + row_done - freed)
        self._memories(m, write, walker, move & enough)
        return m

    def _count_words(self, m: Module, write: Signal, row_done: Signal) -> None:
        """Count the words of the row that comes in."""
        word = Signal(range(self.config.row_words))
        last = self.config.row_words - 1
        m.d.comb += row_done.eq(write & (word == last))
        with m.If(write):
            m.d.sync += word.eq(Mux(word == last, 0, word + 1))

    def _memories(self, m: Module, write: Signal, walker: LoopWalker, read: Signal) -> None:
        """One memory for each row lane: lane k holds a pixel k rows earlier, so that one address reads a column."""
        config = self.config
        columns = []
        for lane in range(config.row_lanes):
            memory = block_ram(1 << config.address_bits, config.channel_lanes * config.bits)
            m.submodules[f"memory_{lane}"] = memory
            writer, reader = memory.write_port(), memory.read_port()
            address = Signal(
                config.address_bits,
                name=f"write_address_{lane}",
                init=-lane * config.row_words % (1 << config.address_bits),
            )
            with m.If(write):
                m.d.sync += address.eq(address + 1)
            m.d.comb += [
                writer.addr.eq(address),
                writer.data.eq(self.i.payload),
                writer.en.eq(write),
                reader.addr.eq(walker.address),
                reader.en.eq(read),
            ]
            columns.append(reader.data)
        m.d.comb += self.o.payload.eq(Cat(*columns))
