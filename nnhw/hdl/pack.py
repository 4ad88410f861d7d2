"""Hardware that packs elements into bytes."""

from __future__ import annotations

import math

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.pack import BYTE_BITS, PackConfig

WORD_BITS = 2 * BYTE_BITS
"""What is there when a byte comes in, less than a byte, and that byte; at the end of a frame up to two whole bytes."""


class Packer(wiring.Component):
    """A register into which the bits of elements are shifted from the top; a byte begins at one of a few places.

    Timing: see `PackConfig`.
    """

    def __init__(self, config: PackConfig) -> None:
        self.config = config
        byte = stream.Signature(unsigned(BYTE_BITS))
        super().__init__({"i": In(byte), "o": Out(byte)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        step = math.gcd(self.config.bits, BYTE_BITS)
        size, whole = WORD_BITS // step, BYTE_BITS // step
        word, base = Signal(WORD_BITS, reset_less=True), Signal(range(size + 1), init=size)
        take, give = self.i.valid & self.i.ready, self.o.valid & self.o.ready
        # Behind the byte that leaves there is less than another one, but at the end of a frame.
        m.d.comb += [
            self.o.valid.eq(base <= size - whole),
            self.i.ready.eq(~self.o.valid | (self.o.ready & (base != 0))),
        ]
        following = Mux(give, base + whole, base)
        m.d.sync += base.eq(following)
        top, last = self._places(m, take)
        for here, bits, pad in (
            (~top, BYTE_BITS, 0),
            (top & ~last, self.config.top_bits, 0),
            (top & last, self.config.top_bits, self.config.pad_bits),
        ):
            with m.If(take & here):
                shifted = self.i.payload[:bits] << (WORD_BITS - bits - pad)
                m.d.sync += [word.eq((word >> (bits + pad)) | shifted), base.eq(following - (bits + pad) // step)]
        with m.Switch(base):
            for place in range(size - whole + 1):
                with m.Case(place):
                    m.d.comb += self.o.payload.eq(word[place * step : place * step + BYTE_BITS])
        return m

    def _places(self, m: Module, take: Value) -> tuple[Value, Value]:
        """Return whether a byte is the top one of an element, and whether that is the last one of a frame."""
        count = self.config.element_bytes
        top: Value = Const(1)
        if count > 1:
            place = Signal(range(count))
            top = place == count - 1
            with m.If(take):
                m.d.sync += place.eq(Mux(top, 0, place + 1))
        if not self.config.pad_bits:
            return top, Const(0)
        element = Signal(range(self.config.elements))
        last = element == self.config.elements - 1
        with m.If(take & top):
            m.d.sync += element.eq(Mux(last, 0, element + 1))
        return top, last
