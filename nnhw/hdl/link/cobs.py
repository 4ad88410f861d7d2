"""COBS on the fly, one byte per cycle: decoded while receiving, encoded with one memory write per byte.

COBS replaces the zero bytes of a frame by distances to the next one, so that a zero byte can end the frame. Both
directions keep the positions of bytes: the code byte that leads an encoded frame is a placeholder in the decoded one.

Source: S. Cheshire, M. Baker, Consistent Overhead Byte Stuffing, IEEE/ACM Transactions on Networking 7(2), 1999.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class CobsDecoder(wiring.Component):
    """Decodes a frame of at most 254 bytes.

    Positions count from `FIRST`, that of the placeholder; the frame's first byte follows.

    Members
    -------
    data: In(8), encoded byte, not zero.
    enable: In(1), takes `data`.
    clear: In(1), starts the next frame; it wins over `enable`.
    decoded: Out(8), decoded byte; zero in place of a code byte.
    strobe: Out(1), `decoded` is new in this cycle.
    position: Out(8), position of `decoded` while `strobe` is set, of the last byte after it.
    too_long: Out(1), the frame has more than 254 bytes, and `position` means nothing. A group that the delimiter cuts
        short is not reported: either the CRC behind this finds the damage, or the bytes are right all the same.

    Timing
    ------
    `decoded`, `strobe` and `position` come one cycle after `enable`. Two LUT4 levels and an 8-bit adder.
    """

    FIRST = 2

    def __init__(self) -> None:
        super().__init__(
            {
                "data": In(8),
                "enable": In(1),
                "clear": In(1),
                "decoded": Out(8),
                "strobe": Out(1),
                "position": Out(8),
                "too_long": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        position = Signal(8, init=self.FIRST - 1)
        code_position = Signal(8, init=self.FIRST - 1)
        is_code = Signal()
        m.d.comb += [is_code.eq(position == code_position), self.position.eq(position)]
        m.d.sync += [self.strobe.eq(self.enable), self.decoded.eq(Mux(is_code, 0, self.data))]
        # The carry out of the highest bit says `too_long`: it costs one cell, a comparison with 255 would cost three.
        following = Signal(9)
        m.d.comb += following.eq(position + 1)
        with m.If(self.enable):
            m.d.sync += [position.eq(following), self.too_long.eq(self.too_long | following[-1])]
            with m.If(is_code):
                m.d.sync += code_position.eq(position + self.data)
        with m.If(self.clear):
            m.d.sync += [position.eq(self.FIRST - 1), code_position.eq(self.FIRST - 1), self.too_long.eq(0)]
        return m


class CobsEncoder(wiring.Component):
    """Turns a frame of at most 253 bytes into memory writes that leave it COBS-encoded.

    A byte that is not zero is written at its own place. A zero byte is not written: its place becomes the next code,
    and the distance to it is written where the code before it belongs. The user of this ends a frame with one more
    zero byte, which closes the last group, and then with a `raw` zero byte in its place, the delimiter.

    Members
    -------
    data: In(8), byte to encode.
    enable: In(1), takes `data`, which lies at `position`.
    raw: In(1), writes `data` as it is.
    position: In(8), one more for each byte; the placeholder of the first code lies at 255, the first byte at 0.
    clear: In(1), starts the next frame.
    address: Out(8), write_data: Out(8): what to write while `enable` is set.

    Timing
    ------
    Combinational: two LUT4 levels and an 8-bit subtractor.
    """

    FIRST = 255

    def __init__(self) -> None:
        super().__init__(
            {
                "data": In(8),
                "enable": In(1),
                "raw": In(1),
                "position": In(8),
                "clear": In(1),
                "address": Out(8),
                "write_data": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        code_position = Signal(8, init=self.FIRST)
        distance = Signal(8)
        closes = Signal()
        m.d.comb += [
            distance.eq(self.position - code_position),
            closes.eq((self.data == 0) & ~self.raw),
            self.address.eq(Mux(closes, code_position, self.position)),
            self.write_data.eq(Mux(closes, distance, self.data)),
        ]
        with m.If(self.enable & closes):
            m.d.sync += code_position.eq(self.position)
        with m.If(self.clear):
            m.d.sync += code_position.eq(self.FIRST)
        return m
