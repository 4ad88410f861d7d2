"""Hardware of the width converter."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.convert import ConvertConfig


class Converter(wiring.Component):
    """A register of one beat of the wider side, which is filled or emptied one narrow beat at a time.

    Timing: one beat a cycle on the narrow side; a beat leaves one cycle after its last lane came in.
    """

    def __init__(self, config: ConvertConfig) -> None:
        self.config = config
        lane = unsigned(config.bits)
        super().__init__(
            {
                "i": In(stream.Signature(data.ArrayLayout(lane, config.i_lanes))),
                "o": Out(stream.Signature(data.ArrayLayout(lane, config.o_lanes))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.config.o_lanes >= self.config.i_lanes:
            self._widen(m)
        else:
            self._narrow(m)
        return m

    def _widen(self, m: Module) -> None:
        """Shift narrow beats in from the top, so that lane 0 of the first one ends in the lowest bits."""
        ratio = self.config.o_lanes // self.config.i_lanes
        beat_bits = self.config.i_lanes * self.config.bits
        count = Signal(range(ratio))
        word = Signal(ratio * beat_bits, reset_less=True)
        # The register is the output as well: while a whole beat waits in it, no part of the next one can come in.
        m.d.comb += [self.i.ready.eq(~self.o.valid | self.o.ready), self.o.payload.eq(word)]
        with m.If(self.i.ready):
            m.d.sync += self.o.valid.eq(0)
            with m.If(self.i.valid):
                m.d.sync += word.eq(
                    (self.i.payload.as_value() << (word.shape().width - beat_bits)) | (word >> beat_bits)
                )
                m.d.sync += [count.eq(count + 1), self.o.valid.eq(count == ratio - 1)]
                with m.If(count == ratio - 1):
                    m.d.sync += count.eq(0)

    def _narrow(self, m: Module) -> None:
        """Load a wide beat, and shift it down; the lowest lanes leave."""
        ratio = self.config.i_lanes // self.config.o_lanes
        beat_bits = self.config.o_lanes * self.config.bits
        left = Signal(range(ratio))
        word = Signal(ratio * beat_bits, reset_less=True)
        m.d.comb += [
            # In the cycle in which the last narrow beat leaves, the next wide one comes in: nothing is lost between.
            self.i.ready.eq(~self.o.valid | (self.o.ready & (left == 0))),
            self.o.payload.eq(word[:beat_bits]),
        ]
        with m.If(self.i.ready):
            m.d.sync += self.o.valid.eq(self.i.valid)
            with m.If(self.i.valid):
                m.d.sync += [word.eq(self.i.payload.as_value()), left.eq(ratio - 1)]
        with m.Elif(self.o.ready):
            m.d.sync += [word.eq(word >> beat_bits), left.eq(left - 1)]
