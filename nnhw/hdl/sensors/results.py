"""From the bytes of a network's results to the number of the largest one, and to a line of text on a serial port."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.accelerator.formats import OutputFormat
from nnhw.hdl.link.uart import UartTransmitter
from nnhw.sensors.results import LINE_BYTES

LABEL_BITS = 8
"""Bits of the number of a result: two hexadecimal digits on the serial port."""


class Largest(wiring.Component):
    """Finds the largest of a frame's elements; of equals the first one.

    Parameters
    ----------
    form: of the results, as they leave the last engine; at most 256 elements.

    Members
    -------
    i: stream of bytes, never stalled.
    label: Out(8): number of the largest element of the last frame that is complete, 0 at the start.
    found: Out(1), strobe: `label` is that of a new frame, from this cycle on.

    Timing: `found` comes a cycle after the last byte of a frame.
    """

    def __init__(self, form: OutputFormat) -> None:
        self.form = form
        ports = {"label": Out(LABEL_BITS), "found": Out(1)}
        super().__init__({"i": In(stream.Signature(unsigned(8))), **ports})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, size = self.form.elements, self.form.element_bytes
        low, byte = Signal(8 * (size - 1)), Signal(range(size))
        number, best_number = Signal(range(count)), Signal(range(count))
        bits = self.form.element.bits
        value: Signal = Cat(low, self.i.payload)[:bits]
        is_signed = self.form.element.low < 0
        current = value.as_signed() if is_signed else value
        best = Signal.like(current)
        better, winner = Signal(), Signal(range(count))
        m.d.comb += [
            self.i.ready.eq(1),
            better.eq((number == 0) | (current > best)),
            winner.eq(Mux(better, number, best_number)),
        ]
        m.d.sync += self.found.eq(0)
        with m.If(self.i.valid):
            m.d.sync += [low.eq(Cat(low, self.i.payload)[8:]), byte.eq(Mux(byte == size - 1, 0, byte + 1))]
            with m.If(byte == size - 1):
                m.d.sync += [number.eq(Mux(number == count - 1, 0, number + 1)), best_number.eq(winner)]
                with m.If(better):
                    m.d.sync += best.eq(current)
                with m.If(number == count - 1):
                    m.d.sync += [self.label.eq(winner), self.found.eq(1)]
        return m


class Reporter(wiring.Component):
    """Writes each result as a line: two hexadecimal digits and a line feed, at 115,200 baud.

    Parameters
    ----------
    divisor: clock cycles of a bit.

    Members
    -------
    label, found: In(8), In(1): a result, with a strobe; one that comes while `busy` is not written.
    busy: Out(1): a line is being written.
    tx: Out(1).
    """

    def __init__(self, divisor: int) -> None:
        self.divisor = divisor
        super().__init__({"label": In(LABEL_BITS), "found": In(1), "busy": Out(1), "tx": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.uart = uart = UartTransmitter(self.divisor)
        digits = Array([Const(ord(one), unsigned(8)) for one in "0123456789abcdef"])
        label, left = Signal(LABEL_BITS), Signal(range(LINE_BYTES + 1))
        m.d.comb += [
            self.tx.eq(uart.tx),
            self.busy.eq(left != 0),
            uart.i.valid.eq(self.busy),
            uart.i.payload.eq(Mux(left == 1, ord("\n"), digits[label[4:]])),
        ]
        with m.If(self.busy):
            with m.If(uart.i.ready):
                m.d.sync += [left.eq(left - 1), label.eq(label << 4)]
        with m.Elif(self.found):
            m.d.sync += [label.eq(self.label), left.eq(LINE_BYTES)]
        return m
