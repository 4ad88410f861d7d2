"""Hardware that packs elements into bytes."""

from __future__ import annotations

import math

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.pack import BYTE_BITS, PackConfig

WORD_BITS = 2 * BYTE_BITS
"""Bits that wait at most: a byte that comes in, and less than a byte before it; at the end of a frame two bytes."""


class Packer(wiring.Component):
    """A register into which bits are shifted from the top; the byte that leaves begins at one of few places.

    Members
    -------
    i: stream of bytes, an element in `config.element_bytes` of them. o: stream of packed bytes.

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
        # `base` is where the waiting bits begin, in units of `step` bits; they end at the top. At `size` none wait.
        word, base = Signal(WORD_BITS, reset_less=True), Signal(range(size + 1), init=size)
        take, give = self.i.valid & self.i.ready, self.o.valid & self.o.ready
        # When a byte leaves there is room for another, unless two wait (base 0), which only the end of a frame makes.
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
        # A choice among the few places where a byte can begin, instead of a shift by any number of bits.
        with m.Switch(base):
            for place in range(size - whole + 1):
                with m.Case(place):
                    m.d.comb += self.o.payload.eq(word[place * step : place * step + BYTE_BITS])
        return m

    def _places(self, m: Module, take: Value) -> tuple[Value, Value]:
        """Return (the next byte is the highest one of its element, that element is the last one of a frame)."""
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
