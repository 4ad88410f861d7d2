"""Asynchronous serial line: 8 data bits, no parity, 1 stop bit."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import cdc, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.ends import is_at_end
from nnhw.hdl.link.linked_engine import LinkedEngine, flash_pins
from nnhw.links.uart import SHORT_CYCLES

_LONGEST = 10.5
"""How long a low must last, in bits of the faster of two rates, to be no byte of that rate."""


class RateDetector(wiring.Component):
    """Tells from the lengths of the low phases of a line which of two rates its sender uses.

    A byte holds the line low for at most 9 bits, so a longer low is no byte of the faster rate; a zero byte of the
    slower rate is such a low. A low that is shorter than a bit of the slower rate is of the faster one. The driver
    begins a session with a zero byte: so a session at the slower rate is understood from its first byte on, and one at
    the faster rate that follows a slower one from its second question on.

    Parameters
    ----------
    divisors: clock cycles of a bit at both rates, the faster one first.
    most: the counter has bits for so many cycles per bit of the faster rate, see `UartDevice`; 0: for `divisors`.

    Members
    -------
    line: In(1), the line, synchronous.
    slow: Out(1), a register: the sender uses the slower rate. 0 after a reset.
    """

    def __init__(self, divisors: Sequence[int], most: int = 0) -> None:
        fast, slow = divisors
        self.longest = int(_LONGEST * fast)
        # Half-way between a bit of either rate, as one low bit may be that short.
        self.shortest = (fast + slow) // 2
        self._limit = int(_LONGEST * max(most, fast))
        super().__init__({"line": In(1, init=1), "slow": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # `low` counts the cycles of a low, up to the longest; `is_medium`: it has lasted longer than `shortest`.
        low, is_long, is_medium = Signal(range(self._limit + 1)), Signal(), Signal()
        m.d.comb += is_long.eq(is_at_end(m, platform, low, [self.longest], name="longest"))
        with m.If(self.line):
            m.d.sync += [low.eq(0), is_medium.eq(0)]
        with m.Elif(~is_long):
            m.d.sync += low.eq(low + 1)
            # Compared before the increment: it is set when `low` becomes one more than that.
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
    most: the counter has bits for so many cycles per bit, see `UartDevice`; 0: for `divisors`.

    Members
    -------
    i: stream of bytes.
    slow: In(1), send at the second rate.
    tx: Out(1), the line, 1 when idle.

    Timing
    ------
    A byte takes 10 bits of `divisors` cycles each.
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
        # The stop bit, a one, lies above the data, and zeros follow it: when all is zero, it has left.
        shift = Signal(9)
        elapsed, slow = Signal(range(self._most)), Signal()
        tick, sent = Signal(), Signal()
        # The ticks run freely: a byte that comes to an idle line waits for the next one. The end is two less than the
        # divisor, because `tick` is a register and `elapsed` counts from 0.
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
    """What the receiver waits for. DATA and STOP have the upper bit, in which samples are whole bits apart."""

    IDLE = 0
    START = 1
    DATA = 2
    STOP = 3


class UartReceiver(wiring.Component):
    """Receives bytes, sampled in the middle of each bit. Where the stop bit is missing, it waits for the line to rise.

    Parameters
    ----------
    divisors: clock cycles per bit, 3 or more, of one rate, or of two, the faster one first.
    most: the counter has bits for so many cycles per bit, see `UartDevice`; 0: for `divisors`.

    Members
    -------
    rx: In(1), the line, asynchronous to the clock.
    slow: Out(1), the sender uses the second of two rates, see `RateDetector`.
    o: stream of bytes.
    overrun: Out(1), strobe: a byte was lost, because it had not been taken in time.

    Timing
    ------
    A byte can be taken for at least 1.5 bits, until the data bits of the next one begin: 1.5 * divisor - 1 cycles.
    With bits of less than 8 cycles, or two rates, it waits in a register of its own until the next byte is complete:
    10 * divisor - 2 cycles.

    Range
    -----
    Edges are seen up to a cycle late, and a bit is sampled a cycle or more from either end. So a sender may be 2 %
    faster or slower if its edges are at most a tenth of a cycle early or late, or 1 % if they are a quarter of a cycle.
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
        # Begins with a mark, a one in the highest place; when it is in the lowest, the next data bit is the last one.
        shift = Signal(8)
        # The rate may change only between two bits.
        elapsed, slow = Signal(range(self._most)), Signal()
        sample, begun, whole = Signal(), Signal(), Signal()
        # A sample is decided a cycle before it is taken. Of the first half of the start bit, two cycles are lost in the
        # synchronizer and one in that decision.
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
                # High again in the middle of the start bit: it was a disturbance.
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
        """Offer each byte: as it lies in `shift`, until the next one begins, or from a register of its own.

        Parameters
        ----------
        begun, whole: the data bits of a byte begin; a byte is complete.
        """
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
    device: what is behind the line.
    divisors: clock cycles per bit, of one rate, or of two, the faster one first: then it uses the rate of the host, see
        `RateDetector`.
    most: counters have bits for so many cycles per bit; 0: for `divisors`. Devices with the same `most` and the same
        number of rates differ, whatever their clocks, in lookup tables only.

    Members
    -------
    rx: In(1), asynchronous to the clock. tx: Out(1).
    cs, clk, copi, cipo: pins of the flash, if the device reads one, see `FlashReader`.
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
