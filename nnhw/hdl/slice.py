"""Hardware of slices."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.slice import SliceConfig


class Slicing(wiring.Component):
    """Counts the beats of a turn; those of the slice pass through a register, the others are taken and dropped.

    Timing: one beat a cycle, which leaves one cycle after it came in.
    """

    def __init__(self, config: SliceConfig) -> None:
        self.config = config
        beat = stream.Signature(data.ArrayLayout(unsigned(config.bits), config.lanes))
        super().__init__({"i": In(beat), "o": Out(beat)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        first, end = config.first, config.first + config.count
        # A beat outside of the slice is taken even while the register is full: it does not need it.
        move, inside = Signal(), Signal(init=first == 0)
        m.d.comb += [move.eq(~self.o.valid | self.o.ready), self.i.ready.eq(move | ~inside)]
        with m.If(move):
            m.d.sync += [self.o.valid.eq(self.i.valid & inside), self.o.payload.eq(self.i.payload)]
        # A slice of all has no counter: `inside` keeps its first value.
        if config.period > config.count:
            beat, following = Signal(range(config.period)), Signal(range(config.period))
            m.d.comb += following.eq(Mux(beat == config.period - 1, 0, beat + 1))
            with m.If(self.i.valid & self.i.ready):
                m.d.sync += [beat.eq(following), inside.eq((following >= first) & (following < end))]
        return m
