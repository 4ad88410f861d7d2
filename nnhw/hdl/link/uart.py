"""Asynchronous serial line: 8 data bits, no parity, 1 stop bit."""

from __future__ import annotations

import enum

from amaranth.hdl import Cat, Const, Module, Signal, unsigned
from amaranth.lib import cdc, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.errors import InputError
from nnhw.links import Uart


def clocks_per_bit(clock_hz: int, baud: int) -> int:
    """Return the whole number of clock cycles nearest to one bit.

    Raises
    ------
    InputError: the line would be more than 2 % off, or a bit shorter than 8 cycles.
    """
    line = Uart(baud)
    if problem := line.clock_problem(clock_hz):
        raise InputError(problem)
    return line.clocks_per_bit(clock_hz)


class UartTransmitter(wiring.Component):
    """Sends bytes as start bit, eight data bits from the lowest, stop bit.

    Parameters
    ----------
    divisor: clock cycles per bit.

    Members
    -------
    i: stream of bytes.
    tx: Out(1), the line, 1 when idle.

    Timing
    ------
    10 * divisor cycles per byte.
    """

    def __init__(self, divisor: int) -> None:
        self._divisor = divisor
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(8))),
                "tx": Out(1, init=1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Above the data stands the stop bit; when it has left and nothing but zeros came after, the byte is sent.
        shift = Signal(9)
        elapsed = Signal(range(self._divisor))
        tick, sent = Signal(), Signal()
        # The ticks run freely: a byte that comes to an idle line waits for the next.
        m.d.sync += [elapsed.eq(elapsed + 1), tick.eq(elapsed == self._divisor - 2)]
        if self._divisor != 1 << len(elapsed):
            with m.If(tick):
                m.d.sync += elapsed.eq(0)
        # A tick comes long after the last change of `shift`, so this may be a cycle late.
        m.d.sync += sent.eq(shift == 0)
        m.d.comb += self.i.ready.eq(tick & sent)
        with m.If(tick):
            m.d.sync += [shift.eq(shift >> 1), self.tx.eq(shift[0] | sent)]
            with m.If(self.i.valid & sent):
                m.d.sync += [shift.eq(Cat(self.i.payload, Const(1, 1))), self.tx.eq(0)]
        return m


class _Phase(enum.IntEnum):
    IDLE = 0
    START = 1
    DATA = 2
    STOP = 3


class UartReceiver(wiring.Component):
    """Receives bytes, sampled in the middle of each bit. A missing stop bit is waited for.

    Parameters
    ----------
    divisor: clock cycles per bit.

    Members
    -------
    rx: In(1), the line, not synchronous.
    o: stream of bytes.
    overrun: Out(1), strobe, a byte was lost: it had not been taken when the data bits of the next one began.

    Timing
    ------
    A byte waits at least half a bit and one more: 1.5 * divisor - 1 cycles.
    """

    def __init__(self, divisor: int) -> None:
        self._divisor = divisor
        super().__init__(
            {
                "rx": In(1, init=1),
                "o": Out(stream.Signature(unsigned(8))),
                "overrun": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        line = Signal(init=1)
        m.submodules.synchronizer = cdc.FFSynchronizer(self.rx, line, init=1)
        phase = Signal(_Phase)
        # Starts with a mark in the highest place; when it stands in the lowest, the next data bit is the last.
        shift = Signal(8)
        left = Signal(range(self._divisor))
        sample = left == 0
        m.d.comb += self.o.payload.eq(shift)
        m.d.sync += left.eq(left - 1)
        if self._divisor != 1 << len(left):
            with m.If(sample):
                m.d.sync += left.eq(self._divisor - 1)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.Switch(phase):
            with m.Case(_Phase.IDLE):
                # Two cycles have gone into the synchronizer and one goes into this decision.
                m.d.sync += left.eq(max(0, self._divisor // 2 - 2))
                with m.If(~line):
                    m.d.sync += phase.eq(_Phase.START)
            with m.Case(_Phase.START):
                with m.If(sample & line):
                    m.d.sync += phase.eq(_Phase.IDLE)
                with m.Elif(sample):
                    m.d.comb += self.overrun.eq(self.o.valid & ~self.o.ready)
                    m.d.sync += [phase.eq(_Phase.DATA), shift.eq(0x80), self.o.valid.eq(0)]
            with m.Case(_Phase.DATA):
                with m.If(sample):
                    m.d.sync += shift.eq(Cat(shift[1:], line))
                    with m.If(shift[0]):
                        m.d.sync += phase.eq(_Phase.STOP)
            with m.Case(_Phase.STOP):
                with m.If(sample & line):
                    m.d.sync += [phase.eq(_Phase.IDLE), self.o.valid.eq(1)]
        return m
