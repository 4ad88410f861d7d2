"""Hardware of the sliding window."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
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
        m.submodules.walker = walker = LoopWalker(config.nest())
        # Rows that are free beyond the one that comes in, and rows that are complete beyond those that the reader
        # needs: below zero, the one side or the other waits, so that a single register bit says who may go on.
        most_freed = max(config.rows_left, config.rows_step)
        count = signed((config.rows + config.block_rows + most_freed).bit_length() + 1)
        spare, surplus = Signal(count, init=config.rows - 1), Signal(count, init=-config.block_rows)
        completed, freed = Signal(), Signal(range(most_freed + 1))
        completed_before, freed_before = Signal.like(completed), Signal.like(freed)
        write, row_end, enough = Signal(), Signal(), Signal()
        self._count_words(m, write, completed)

        m.d.comb += [enough.eq(~surplus[-1]), self.i.ready.eq(~spare[-1]), write.eq(self.i.valid & self.i.ready)]
        move = ~self.o.valid | self.o.ready
        m.d.comb += [
            walker.advance.eq(move & enough),
            row_end.eq(walker.advance & walker.ends[-2]),
            freed.eq(Mux(row_end, Mux(walker.lasts[-1], config.rows_left, config.rows_step), 0)),
        ]
        with m.If(move):
            m.d.sync += self.o.valid.eq(enough)
        # Either side hears of the other one cycle late, which keeps their logic apart.
        m.d.sync += [completed_before.eq(completed), freed_before.eq(freed)]
        m.d.sync += [spare.eq(spare + freed_before - completed), surplus.eq(surplus + completed_before - freed)]
        self._memories(m, write, walker, walker.advance)
        return m

    def _count_words(self, m: Module, write: Signal, row_done: Signal) -> None:
        """Count the words of the row that comes in."""
        word = Signal(range(self.config.row_words))
        last = self.config.row_words - 1
        m.d.comb += row_done.eq(write & (word == last))
        with m.If(write):
            m.d.sync += word.eq(Mux(word == last, 0, word + 1))

    def _memories(self, m: Module, write: Signal, walker: LoopWalker, read: Signal) -> None:
        """One memory for each row lane: lane k lags k kernel rows, so that one address reads a column."""
        config = self.config
        columns = []
        for lane in range(config.row_lanes):
            memory = block_ram(1 << config.address_bits, config.channel_lanes * config.bits)
            m.submodules[f"memory_{lane}"] = memory
            writer, reader = memory.write_port(), memory.read_port()
            address = Signal(
                config.address_bits,
                name=f"write_address_{lane}",
                init=-lane * config.dilation[0] * config.row_words % (1 << config.address_bits),
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
