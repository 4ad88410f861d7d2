"""Hardware of max pooling."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.pool import PoolConfig


class MaxPoolEngine(wiring.Component):
    """A shift register of running maxima, `chunks` beats of them: one for each channel of the pooled pixel.

    Timing: one beat a cycle; the beats of the last tap leave one cycle later.
    """

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        beat = stream.Signature(data.ArrayLayout(unsigned(config.element.bits), config.lanes))
        super().__init__({"i": In(beat), "o": Out(beat)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        bits = config.element.bits
        chunk, tap = Signal(range(config.chunks)), Signal(range(config.taps))
        ring = [Signal(config.lanes * bits, name=f"ring_{index}", reset_less=True) for index in range(config.chunks)]
        # The end of the ring holds the maximum so far of the channels in turn: it has been there `chunks` beats ago.
        best = [
            self._larger(self.i.payload[lane], ring[-1][lane * bits : (lane + 1) * bits], tap == 0)
            for lane in range(config.lanes)
        ]
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):
            m.d.sync += self.o.valid.eq(self.i.valid & (tap == config.taps - 1))
            with m.If(self.i.valid):
                beat = Signal(config.lanes * bits)
                for lane, value in enumerate(best):
                    m.d.comb += beat[lane * bits : (lane + 1) * bits].eq(value)
                m.d.sync += [ring[0].eq(beat), self.o.payload.eq(beat)]
                m.d.sync += [after.eq(before) for before, after in pairwise(ring)]
                m.d.sync += chunk.eq(chunk + 1)
                with m.If(chunk == config.chunks - 1):
                    m.d.sync += [chunk.eq(0), tap.eq(Mux(tap == config.taps - 1, 0, tap + 1))]
        return m

    def _larger(self, new: Value, old: Value, first: Value) -> Value:
        """Return the larger of two elements, given as bit patterns; at the first tap the new one."""
        if self.config.element.bipolar:
            # Bits 1 and 0 stand for +1 and -1, so the larger of two is their OR.
            return new | (old & ~first)
        shape = signed if self.config.element.signed else unsigned
        bits = self.config.element.bits
        keep = _cast(old, shape(bits)) > _cast(new, shape(bits))
        return Mux(keep & ~first, old, new)


def _cast(value: Value, shape: object) -> Value:
    """Read the bits of `value` as a signed or unsigned number."""
    bits = Value.cast(value)
    return bits.as_signed() if shape.signed else bits.as_unsigned()  # type: ignore[attr-defined]
