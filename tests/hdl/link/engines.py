"""Small engines to put behind the link, and what they answer."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class SumEngine(wiring.Component):
    """Sums each image and answers with bytes that depend on the sum and on the place; pauses at random.

    Parameters
    ----------
    input_bytes, output_bytes: per image.
    pause: cycles in eight in which it does nothing, 0 to 7.
    """

    def __init__(self, input_bytes: int, output_bytes: int, pause: int = 3) -> None:
        self.input_bytes, self.output_bytes, self._pause = input_bytes, output_bytes, pause
        super().__init__({"i": In(stream.Signature(unsigned(8))), "o": Out(stream.Signature(unsigned(8)))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        noise = Signal(16, init=0xACE1)
        total, place = Signal(8), Signal(range(max(self.input_bytes, self.output_bytes)))
        giving = Signal()
        awake = Signal()
        m.d.sync += noise.eq((noise >> 1) ^ (noise[0].replicate(16) & 0xB400))
        m.d.comb += [
            awake.eq(noise[:3] >= self._pause),
            self.i.ready.eq(~giving & awake),
            self.o.payload.eq(total + place * 3),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [total.eq(total + self.i.payload), place.eq(place + 1)]
            with m.If(place == self.input_bytes - 1):
                m.d.sync += [giving.eq(1), place.eq(0), self.o.valid.eq(1)]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += place.eq(place + 1)
            with m.If(place == self.output_bytes - 1):
                m.d.sync += [giving.eq(0), place.eq(0), total.eq(0), self.o.valid.eq(0)]
        return m

    def expected(self, image: bytes) -> bytes:
        """Return the output of one image."""
        return bytes((sum(image) + 3 * place) & 0xFF for place in range(self.output_bytes))


class HangingEngine(wiring.Component):
    """Takes nothing and gives nothing."""

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(unsigned(8))), "o": Out(stream.Signature(unsigned(8)))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.sync += Signal().eq(1)
        return m
