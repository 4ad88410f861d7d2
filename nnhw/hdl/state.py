"""Hardware of the state of a loop."""

from __future__ import annotations

from amaranth.hdl import Array, C, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.encoding import encode
from nnhw.engines.state import StateConfig
from nnhw.hdl.memory import block_ram, logic_ram


class StateMemory(wiring.Component):
    """A FIFO of states, full after a reset; in the first step of a sequence the start leaves in place of the state.

    Members
    -------
    i0: stream of heads, one beat for each frame: of a step, 1 in the first one of a sequence.
    i1: stream of the next state's beats.
    o: stream of the state's beats.

    Timing: see `nnhw.engines.state.StateConfig`. `i1.ready` is a register, and a beat of `i1` passes through one.
    """

    def __init__(self, config: StateConfig) -> None:
        self.config = config
        beat = stream.Signature(data.ArrayLayout(unsigned(config.element.bits), config.lanes))
        super().__init__({"i0": In(stream.Signature(unsigned(1))), "i1": In(beat), "o": Out(beat)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Whatever the memory holds after a reset is read and dropped, as each sequence begins with its start: so a
        # step always takes the same cycles.
        chunks, words = self.config.chunks, self.config.memory.words
        level, following = Signal(range(words + 1), init=self.config.sequences * chunks), Signal(range(words + 1))
        room, some = Signal(init=1), Signal(init=1)
        move, write, read, last = Signal(), Signal(), Signal(), Signal()
        beat = Signal(range(chunks))
        steps = self.config.steps
        step = Signal(range(max(1, steps)))
        # All steps of a frame but the first one do without a head.
        begun = self.i0.valid if steps <= 1 else self.i0.valid | (step != 0)
        first = step == 0
        m.d.comb += [
            self.i1.ready.eq(room),
            move.eq(~self.o.valid | self.o.ready),
            write.eq(self.i1.valid & room),
            read.eq(begun & some & move),
            last.eq(beat == chunks - 1),
            self.i0.ready.eq(read & last & first if steps > 1 else read & last),
            following.eq(level + write - read),
        ]
        m.d.sync += [level.eq(following), room.eq(following != words), some.eq(following != 0)]
        with m.If(move):
            m.d.sync += self.o.valid.eq(read)
        with m.If(read):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))
        if steps > 1:
            with m.If(read & last):
                m.d.sync += step.eq(Mux(step == steps - 1, 0, step + 1))
        kept = self._memory(m, write, read, words)
        begins, start = Signal(), Signal(len(kept))
        with m.If(read):
            m.d.sync += [begins.eq(first if steps else self.i0.payload), start.eq(self._start(beat))]
        m.d.comb += self.o.payload.as_value().eq(Mux(begins, start, kept))
        return m

    def _memory(self, m: Module, write: Value, read: Value, words: int) -> Value:
        """Add the memory; return the word that was read. The write address begins behind a state of each sequence."""
        fifo = self.config.memory
        places = [Signal(range(words), init=init) for init in (self.config.sequences * self.config.chunks, 0)]
        for place, advance in zip(places, (write, read), strict=True):
            with m.If(advance):
                m.d.sync += place.eq(Mux(place == words - 1, 0, place + 1))
        make = block_ram if fifo.in_block_ram else logic_ram
        m.submodules.memory = memory = make(words, fifo.width)
        writer, reader = memory.write_port(), memory.read_port()
        m.d.comb += [
            writer.en.eq(write),
            writer.addr.eq(places[0]),
            writer.data.eq(self.i1.payload.as_value()),
            reader.en.eq(read),
            reader.addr.eq(places[1]),
        ]
        return reader.data

    def _start(self, beat: Value) -> Value:
        """Return beat number `beat` of the start; a constant if all beats are the same."""
        bits = self.config.element.bits
        rows = encode(self.config.start, self.config.element).reshape(-1, self.config.lanes)
        beats = [sum(int(code) << (bits * lane) for lane, code in enumerate(row)) for row in rows]
        constants = [C(word, bits * self.config.lanes) for word in beats]
        return constants[0] if len(set(beats)) == 1 else Array(constants)[beat]
