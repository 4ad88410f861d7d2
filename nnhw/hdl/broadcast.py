"""Hardware of constants that stream."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import Out

from nnhw.engines.broadcast import BroadcastConfig
from nnhw.engines.encoding import encode, pack_words
from nnhw.hdl.memory import block_ram, logic_rom


class ConstantSource(wiring.Component):
    """A memory that is read again and again.

    Members
    -------
    o: stream.

    Timing: see `nnhw.engines.broadcast.BroadcastConfig`.
    """

    def __init__(self, config: BroadcastConfig) -> None:
        self.config = config
        beat = data.ArrayLayout(unsigned(config.element.bits), config.lanes)
        super().__init__({"o": Out(stream.Signature(beat))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        bits, beats = config.element.bits, config.o_beats
        words = pack_words(encode(config.values, config.element).reshape(-1, config.lanes), bits)
        m.submodules.memory = memory = (logic_rom if config.in_logic else block_ram)(beats, bits * config.lanes, words)
        reader = memory.read_port()
        move, place, last = Signal(), Signal(range(beats)), Signal()
        m.d.comb += [move.eq(~self.o.valid | self.o.ready), last.eq(place == beats - 1)]
        m.d.comb += [reader.en.eq(move), reader.addr.eq(place)]
        with m.If(move):
            m.d.sync += place.eq(Mux(last, 0, place + 1))
        # A block RAM has its word a cycle after the address, and late in that cycle: so it gets a register of its own.
        started: Value = Const(1, 1)
        word: Value = reader.data
        if not config.in_logic:
            started, word = Signal(name="started"), Signal(bits * config.lanes, name="word", reset_less=True)
            m.d.sync += started.eq(1)
            with m.If(move):
                m.d.sync += word.eq(reader.data)
        m.d.sync += self.o.valid.eq(started)
        m.d.comb += self.o.payload.as_value().eq(word)
        return m
