"""The frame of a network, kept in block RAM until the network takes it."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.memory import block_ram


class FrameBuffer(wiring.Component):
    """Keeps the last `elements` codes, and sends them all, the oldest first, when it is told to.

    Parameters
    ----------
    elements: of a frame.
    silence: code of all elements at the start.
    bits: of a code, at most 8.

    Members
    -------
    code, write: In(bits), In(1): the next code, with a strobe.
    send: In(1), strobe: send what is there, with a code that is written in this cycle; not while `busy`.
    busy: Out(1): a frame is being sent.
    o: stream of bytes, each with a code in its lowest bits.

    Timing: a byte takes two cycles. Codes that are written while a frame is sent take the place of those that were
    sent first, so a frame must have left before as many codes have come as it has sent.
    """

    def __init__(self, elements: int, silence: int, bits: int = 8) -> None:
        self.elements = elements
        self.silence = silence & ((1 << bits) - 1)
        self.bits = bits
        ports = {"code": In(bits), "write": In(1), "send": In(1), "busy": Out(1)}
        super().__init__({**ports, "o": Out(stream.Signature(unsigned(8)))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self.elements
        m.submodules.codes = codes = block_ram(count, self.bits, [self.silence] * count)
        reader, writer = codes.read_port(), codes.write_port()
        oldest, place, left = Signal(range(count)), Signal(range(count)), Signal(range(count))
        m.d.comb += [
            writer.addr.eq(oldest),
            writer.data.eq(self.code),
            writer.en.eq(self.write),
            reader.addr.eq(place),
            reader.en.eq(~self.o.valid),
            self.o.payload.eq(reader.data),
        ]
        with m.If(self.write):
            m.d.sync += oldest.eq(_next(oldest, count))
        with m.If(self.busy):
            m.d.sync += self.o.valid.eq(~self.o.valid | ~self.o.ready)
            with m.If(self.o.valid & self.o.ready):
                m.d.sync += [place.eq(_next(place, count)), left.eq(left - 1)]
                with m.If(left == 0):
                    m.d.sync += self.busy.eq(0)
        with m.Elif(self.send):
            # A code that is written in this cycle is the newest one of the frame.
            m.d.sync += [self.busy.eq(1), place.eq(Mux(self.write, _next(oldest, count), oldest)), left.eq(count - 1)]
        return m


def _next(place: Signal, count: int) -> object:
    return Mux(place == count - 1, 0, place + 1)
