"""Takes sums out of the array: they leave in the order of the lanes, to the requantizers or to the output stream."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.hdl.shared.descriptor import field_shapes
from nnhw.hdl.shared.iterations import iterations


class Drain(wiring.Component):
    """A shift register with the sum of each lane, from which `drains` sums leave at once.

    Members
    -------
    finish: in, strobe: the sums of all lanes are complete after the next edge.
    sums: in, sums [lanes]. o_sums: out, the sums [drains] that leave, those of lanes position * drains and on.
    raw, outputs: in, fields of the descriptor.
    o: stream of the bytes of raw sums; only if `raw` is not 0.
    busy: out, two cycles later the sums of `position` leave.
    position: out, counts the groups of `drains` lanes.
    sent: out, strobe: all raw sums of the lanes have left.

    Timing: the sums of position p leave p + 2 cycles after `finish`.
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        shapes = field_shapes(array)
        number = signed(array.sum_bits)
        super().__init__(
            {
                "finish": In(1),
                "sums": In(data.ArrayLayout(number, array.lanes)),
                "o_sums": Out(data.ArrayLayout(number, array.drains)),
                "raw": In(shapes["raw"]),
                "outputs": In(shapes["outputs"]),
                "o": Out(stream.Signature(8)),
                "position": Out(range(max(array.drain_cycles, 2))),
                "busy": Out(1),
                "sent": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        array, drains = self.array, self.array.drains
        # Requantized sums leave without a pause. Raw sums go to a stream that may stall, so each group waits until its
        # bytes have left.
        moving, load, shift, is_raw = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [is_raw.eq(self.raw != 0), self.busy.eq((self.finish & ~is_raw) | moving)]
        if array.drain_cycles > 1:
            m.d.comb += moving.eq(self.position != 0)
            with m.If(self.busy):
                m.d.sync += self.position.eq(self.position + 1)
        later, raw_shift = Signal(), Signal()
        m.d.sync += [load.eq(self.finish), later.eq(moving)]
        m.d.comb += shift.eq(later | raw_shift)
        held = [Signal(signed(array.sum_bits), name=f"held_{lane}", reset_less=True) for lane in range(array.lanes)]
        for lane, register in enumerate(held):
            follower = held[lane + drains] if lane + drains < array.lanes else register
            with m.If(load | shift):
                m.d.sync += register.eq(Mux(load, self.sums[lane], follower))
        m.d.comb += [sum_.eq(register) for sum_, register in zip(self.o_sums, held, strict=False)]
        self._raw(m, load & is_raw, raw_shift)
        return m

    def _raw(self, m: Module, load: Value, shift: Signal) -> None:
        """Send the sums of the first `outputs` + 1 lanes, `raw` bytes each, the lowest byte first."""
        drains, sending = self.array.drains, Signal()
        byte, unit = Signal(2), Signal(range(max(drains, 2)))
        lane_end, taken = Signal(), Signal()
        bits = Cat(self.o_sums[0] if drains == 1 else Array(self.o_sums)[unit])
        # The four bytes of a sum, extended by its sign.
        pieces = [Cat(bits[min(place, len(bits) - 1)] for place in range(low, low + 8)) for low in range(0, 32, 8)]
        m.d.comb += [
            self.o.payload.eq(Array(pieces)[byte]),
            self.o.valid.eq(sending),
            taken.eq(sending & self.o.ready),
            lane_end.eq(taken & iterations(m, "bytes", (self.raw - 1)[:2], taken, ~sending)),
            shift.eq(lane_end & (unit == drains - 1)),
            self.sent.eq(lane_end & iterations(m, "lanes", self.outputs, lane_end, ~sending)),
        ]
        with m.If(taken):
            m.d.sync += byte.eq(Mux(lane_end, 0, byte + 1))
        with m.If(lane_end):
            m.d.sync += unit.eq(Mux(unit == drains - 1, 0, unit + 1))
        with m.If(self.sent):
            m.d.sync += sending.eq(0)
        with m.Elif(load):
            m.d.sync += [sending.eq(1), unit.eq(0)]
