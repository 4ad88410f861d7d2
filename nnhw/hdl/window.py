"""Hardware of the sliding window."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.window import WindowConfig
from nnhw.hdl.loop_nest import LoopWalker
from nnhw.hdl.memory import LargeRam, block_ram, lut_ram

Access = tuple[Signal, Signal]
"""Access of a memory: its enable, and its address."""


class SlidingWindow(wiring.Component):
    """A circular line buffer; the writer counts complete rows, and the reader waits for rows and frees them.

    Timing: a word comes in each cycle while there is room; a beat leaves each cycle while the rows that the current row
    of blocks needs are complete, one cycle after its address. See `nnhw.engines.window.WindowConfig`.
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
        # `excess`: words in the buffer less those that it can hold. `surplus`: complete rows less those that the reader
        # needs. So the sign bit of each, a register, says who may go on: the writer while the excess is negative, the
        # reader while the surplus is not.
        words, frees = 1 << config.address_bits, (config.rows_left, config.rows_step)
        most_freed = max(frees)
        excess = Signal(signed((words + most_freed * config.row_words).bit_length() + 1), init=-words)
        count = signed((config.rows + config.block_rows + most_freed).bit_length() + 1)
        surplus = Signal(count, init=-config.block_rows)
        completed, taken = Signal(), Signal(count)
        completed_before, freed_before = Signal.like(completed), Signal(excess.shape())
        write, row_end, enough, given, free = Signal(), Signal(), Signal(), Signal(), Signal()
        ended, ended_frame = Signal(), Signal()
        self._count_words(m, write, completed)

        m.d.comb += [enough.eq(~surplus[-1]), self.i.ready.eq(excess[-1] & free), write.eq(self.i.valid & self.i.ready)]
        move = ~self.o.valid | self.o.ready
        # The one port of a large RAM belongs to the reader while it has rows, and to the writer while that pauses.
        pause = self._pause(m, walker.advance, move) if config.large else Const(0, 1)
        m.d.comb += [
            free.eq(pause | ~enough if config.large else 1),
            given.eq(enough & ~pause),
            walker.advance.eq(move & given),
            row_end.eq(walker.advance & walker.ends[-2]),
            taken.eq(Mux(row_end, Mux(walker.lasts[-1], *(-rows for rows in frees)), 0)),
        ]
        # As a sum and not as an enable, in front of which a reset would have to pass a LUT.
        m.d.sync += self.o.valid.eq(given | (self.o.valid & ~self.o.ready))
        # Either side hears of the other one cycle late, which keeps their logic apart.
        m.d.sync += [completed_before.eq(completed), ended.eq(row_end), ended_frame.eq(walker.lasts[-1])]
        m.d.comb += freed_before.eq(Mux(ended, Mux(ended_frame, *(-rows * config.row_words for rows in frees)), 0))
        m.d.sync += [
            # The lowest column adds a bit to itself: its carry is the one that is added, and costs no second adder.
            surplus.eq((Cat(completed_before, surplus) + Cat(completed_before, taken))[1:]),
            excess.eq((Cat(write, excess) + Cat(write, freed_before))[1:]),
        ]
        self._memories(m, write, walker, walker.advance)
        return m

    def _count_words(self, m: Module, write: Signal, row_done: Signal) -> None:
        """Count the words of the row that comes in; drive `row_done` in the cycle of its last one."""
        word = Signal(range(self.config.row_words))
        last = self.config.row_words - 1
        m.d.comb += row_done.eq(write & (word == last))
        with m.If(write):
            m.d.sync += word.eq(Mux(word == last, 0, word + 1))

    def _pause(self, m: Module, read: Signal, move: Value) -> Signal:
        """Return a register: the reader leaves the port of a large RAM to the writer, after `config.reads` words.

        It also does so while nothing leaves.
        """
        pause, since, full = Signal(), Signal(range(self.config.reads)), Signal()
        m.d.comb += full.eq(read & (since == self.config.reads - 1))
        m.d.sync += pause.eq(full | ~move)
        with m.If(read):
            m.d.sync += since.eq(Mux(full, 0, since + 1))
        return pause

    def _memories(self, m: Module, write: Signal, walker: LoopWalker, read: Signal) -> None:
        """Add a memory for each row lane; lane k is written k kernel rows lower: one address reads a column of taps."""
        config, columns = self.config, []
        for lane in range(config.row_lanes):
            address = Signal(
                config.address_bits,
                name=f"write_address_{lane}",
                # A circular buffer: below its first word lies its last one.
                init=-lane * config.dilation[0] * config.row_words % (1 << config.address_bits),
            )
            with m.If(write):
                m.d.sync += address.eq(address + 1)
            add = self._large_ram if config.large else self._plain_ram
            columns.append(add(m, f"memory_{lane}", (write, address), (read, walker.address)))
        m.d.comb += self.o.payload.eq(Cat(*columns))

    def _plain_ram(self, m: Module, name: str, write: Access, read: Access) -> Signal:
        """Add a memory with a write port and a read port; return the word that is read."""
        make = lut_ram if self.config.in_luts else block_ram
        memory = make(1 << self.config.address_bits, self.config.channel_lanes * self.config.bits)
        m.submodules[name] = memory
        writer, reader = memory.write_port(), memory.read_port()
        m.d.comb += [
            writer.en.eq(write[0]),
            writer.addr.eq(write[1]),
            writer.data.eq(self.i.payload),
            reader.en.eq(read[0]),
            reader.addr.eq(read[1]),
        ]
        return reader.data

    def _large_ram(self, m: Module, name: str, write: Access, read: Access) -> Signal:
        """Add a memory with one port; return the word that is read."""
        memory = LargeRam(1 << self.config.address_bits, self.config.channel_lanes * self.config.bits)
        m.submodules[name] = memory
        m.d.comb += [
            memory.write.eq(write[0]),
            memory.read.eq(read[0]),
            memory.addr.eq(Mux(write[0], write[1], read[1])),
            memory.i_data.eq(self.i.payload),
        ]
        return memory.data
