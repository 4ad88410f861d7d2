"""Asynchronous serial line: 8 data bits, no parity, 1 stop bit."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import cdc, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.device import LinkedEngine, flash_pins
from nnhw.hdl.link.ends import is_at_end
from nnhw.links.uart import SHORT_CYCLES

_LONGEST = 10.5
"""Bits of the faster of two rates that a low must last to be none of its bytes."""


class RateDetector(wiring.Component):
    """Tells by the length of lows on a line which of two rates its sender has.

    No byte holds the line low for more than 9 bits, so a longer low is no byte of the faster rate; a zero byte of the
    slower one is such a low. A low shorter than a bit of the slower rate is none of its bits. The driver begins a
    session with a zero byte, so a session at the slower rate is heard from its first byte on; one at the faster rate
    behind a slower one from its second question on.

    Parameters
    ----------
    divisors: clock cycles of a bit at both rates, the faster one first.
    most: cycles of a bit of the faster rate that the logic has room for; 0: as many as there are.

    Members
    -------
    line: In(1), the line. slow: Out(1), a register: the sender has the slower rate; the faster one at the start.
    """

    def __init__(self, divisors: Sequence[int], most: int = 0) -> None:
        fast, slow = divisors
        self.longest = int(_LONGEST * fast)
        self.shortest = (fast + slow) // 2
        self._limit = int(_LONGEST * max(most, fast))
        super().__init__({"line": In(1, init=1), "slow": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        low, is_long, is_medium = Signal(range(self._limit + 1)), Signal(), Signal()
        m.d.comb += is_long.eq(is_at_end(m, platform, low, [self.longest], name="longest"))
        with m.If(self.line):
            m.d.sync += [low.eq(0), is_medium.eq(0)]
        with m.Elif(~is_long):
            m.d.sync += low.eq(low + 1)
            # Set when `low` becomes one more.
            with m.If(is_at_end(m, platform, low, [self.shortest], name="shortest")):
                m.d.sync += is_medium.eq(1)
        with m.If(is_long):
            m.d.sync += self.slow.eq(1)
        with m.Elif(self.line & (low != 0) & ~is_medium):
            m.d.sync += self.slow.eq(0)
        return m


class UartTransmitter(wiring.Component):
    """Sends bytes as start bit, eight data bits from the lowest, stop bit.

    Parameters
    ----------
    divisors: clock cycles per bit, 3 or more, of one rate, or of two, the faster one first.
    most: cycles per bit that the logic has room for; 0: as many as there are.

    Members
    -------
    i: stream of bytes.
    slow: In(1), the second rate is the sender's.
    tx: Out(1), the line, 1 when idle.

    Timing
    ------
    10 bits of so many cycles per byte.
    """

    def __init__(self, *divisors: int, most: int = 0) -> None:
        self._divisors = divisors
        self._most = max(most, *divisors)
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(8))),
                "slow": In(1),
                "tx": Out(1, init=1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Above the data stands the stop bit; when it has left and nothing but zeros came after, the byte is sent.
        shift = Signal(9)
        elapsed, slow = Signal(range(self._most)), Signal()
        tick, sent = Signal(), Signal()
        # The ticks run freely: a byte that comes to an idle line waits for the next.
        ends = [divisor - 2 for divisor in self._divisors]
        m.d.sync += [elapsed.eq(elapsed + 1), tick.eq(is_at_end(m, platform, elapsed, ends, slow))]
        with m.If(tick):
            m.d.sync += [elapsed.eq(0), slow.eq(self.slow)]
        # A tick comes 3 cycles or more after the last change of `shift`, so this may be a cycle late.
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
    divisors: clock cycles per bit, 3 or more, of one rate, or of two, the faster one first.
    most: cycles per bit that the logic has room for; 0: as many as there are.

    Members
    -------
    rx: In(1), the line, not synchronous.
    slow: Out(1), of two rates the sender has the second, see `RateDetector`.
    o: stream of bytes.
    overrun: Out(1), strobe, a byte was lost: it had not been taken in time.

    Timing
    ------
    A byte waits at least half a bit and one more, until the data bits of the next one begin: 1.5 * divisor - 1 cycles.
    With bits of less than 8 cycles, or two rates, it waits in a register of its own until the next byte is whole:
    10 * divisor - 2 cycles.

    Range
    -----
    Edges are seen up to a cycle late, and a bit is sampled a cycle or more from either end. A sender may be 2 % faster
    or slower with edges that are a tenth of a cycle early or late, or 1 % with a quarter of a cycle.
    """

    def __init__(self, *divisors: int, most: int = 0) -> None:
        self._divisors = divisors
        self._most = max(most, *divisors)
        super().__init__(
            {
                "rx": In(1, init=1),
                "slow": Out(1),
                "o": Out(stream.Signature(unsigned(8))),
                "overrun": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        line = Signal(init=1)
        m.submodules.synchronizer = cdc.FFSynchronizer(self.rx, line, init=1)
        if len(self._divisors) > 1:
            m.submodules.detector = detector = RateDetector(self._divisors, self._most)
            m.d.comb += [detector.line.eq(line), self.slow.eq(detector.slow)]
        phase = Signal(_Phase)
        # Starts with a mark in the highest place; when it stands in the lowest, the next data bit is the last.
        shift = Signal(8)
        # A bit keeps the rate that it has begun with.
        elapsed, slow = Signal(range(self._most)), Signal()
        sample, begun, whole = Signal(), Signal(), Signal()
        # A sample is decided a cycle before. To the middle of the start bit two cycles have gone into the synchronizer
        # and one into the decision.
        halves = [(divisor - 1) // 2 - 1 for divisor in self._divisors]
        ends = [*halves, *(divisor - 2 for divisor in self._divisors)]
        is_data = phase[1]
        which = Cat(slow, is_data) if len(self._divisors) > 1 else is_data
        m.d.sync += [elapsed.eq(elapsed + 1), sample.eq(is_at_end(m, platform, elapsed, ends, which))]
        is_idle = phase == _Phase.IDLE
        with m.If(Mux(is_idle, line, sample)):
            m.d.sync += elapsed.eq(0)
        with m.If(is_idle | sample):
            m.d.sync += slow.eq(self.slow)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.Switch(phase):
            with m.Case(_Phase.IDLE):
                with m.If(~line):
                    m.d.sync += phase.eq(_Phase.START)
            with m.Case(_Phase.START):
                with m.If(sample & line):
                    m.d.sync += phase.eq(_Phase.IDLE)
                with m.Elif(sample):
                    m.d.comb += begun.eq(1)
                    m.d.sync += [phase.eq(_Phase.DATA), shift.eq(0x80)]
            with m.Case(_Phase.DATA):
                with m.If(sample):
                    m.d.sync += shift.eq(Cat(shift[1:], line))
                    with m.If(shift[0]):
                        m.d.sync += phase.eq(_Phase.STOP)
            with m.Case(_Phase.STOP):
                with m.If(sample & line):
                    m.d.comb += whole.eq(1)
                    m.d.sync += phase.eq(_Phase.IDLE)
        self._connect_output(m, shift, begun, whole)
        return m

    def _connect_output(self, m: Module, shift: Signal, begun: Signal, whole: Signal) -> None:
        """Offer each byte: as it lies in `shift` until the next one begins, or out of a register."""
        if len(self._divisors) > 1 or min(self._divisors) < SHORT_CYCLES:
            with m.If(whole):
                m.d.comb += self.overrun.eq(self.o.valid & ~self.o.ready)
                m.d.sync += [self.o.payload.eq(shift), self.o.valid.eq(1)]
            return
        m.d.comb += self.o.payload.eq(shift)
        with m.If(begun):
            m.d.comb += self.overrun.eq(self.o.valid & ~self.o.ready)
            m.d.sync += self.o.valid.eq(0)
        with m.If(whole):
            m.d.sync += self.o.valid.eq(1)


class UartDevice(wiring.Component):
    """A device at a serial line.

    Parameters
    ----------
    divisors: clock cycles per bit, of one rate, or of two, the faster one first: it then speaks that of the host, see
        `RateDetector`.
    most: cycles per bit that the logic has room for; 0: as many as there are. Devices whose clocks differ, but not this
        and the number of rates, differ in lookup tables alone.

    Members
    -------
    rx: In(1), not synchronous. tx: Out(1).
    cs, clk, copi, cipo: those of the device's flash, where it has them.
    """

    def __init__(self, device: LinkedEngine, *divisors: int, most: int = 0) -> None:
        self.device = device
        self._divisors = divisors
        self._most = most
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                **flash_pins(device.flash_offset),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.receiver = receiver = UartReceiver(*self._divisors, most=self._most)
        m.submodules.transmitter = transmitter = UartTransmitter(*self._divisors, most=self._most)
        m.submodules.device = device = self.device
        wiring.connect(m, receiver.o, device.i)
        wiring.connect(m, device.o, transmitter.i)
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(transmitter.tx),
            transmitter.slow.eq(receiver.slow),
            device.overrun.eq(receiver.overrun),
        ]
        device.connect_flash(m, self)
        return m
