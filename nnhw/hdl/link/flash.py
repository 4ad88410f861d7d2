"""A program from SPI flash: read when the device starts, and given to the engine as the link would give it."""

from __future__ import annotations

import enum
import math

from amaranth.hdl import C, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.ends import is_at_end

WAKE_UP, READ = 0xAB, 0x03
"""Release from deep power-down, in which an iCE40 leaves the flash; read at up to 33 MHz in any flash."""
PAUSE_S = 50e-6
"""Shortest pause before and after the release, in seconds; data sheets ask for 3e-6 (W25Q) to 30e-6 (N25Q)."""
MOST_HZ = 12_500_000
"""Fastest clock of the flash: half a period, 40 ns, is enough for both pads, the flash (8 ns) and the board."""
ADDRESS_BITS = 24
"""Bits of an address in the command READ, which reach 16 MiB."""
_HOLD_CYCLES = 4
"""Cycles in which the first byte of the link waits; the reset of the engine that it causes takes one less."""


class _Phase(enum.IntEnum):
    """What the reader does: it pauses and sends twice, first the release, then the command; then it reads."""

    PAUSE = 0
    SEND = 1
    READ = 2
    DONE = 3


def half_cycles(clock_hz: int) -> int:
    """Return half a period of the flash's clock, in cycles of the design's clock."""
    return math.ceil(clock_hz / (2 * MOST_HZ))


class FlashReader(wiring.Component):
    """Reads the bytes of a flash from an offset on, once after power-up, until it is told to end.

    Parameters
    ----------
    offset: byte address of the first byte.
    clock_hz: clock of the `sync` domain.
    fastest_hz: fastest clock for which the counters have bits, see `LinkedEngine`; 0: `clock_hz`.

    Members
    -------
    o: stream of bytes. While one waits to be taken, the flash's clock stands still.
    restart: In(1), begin anew, unless it has ended.
    end: In(1), end for good, until the next reset of `sync`.
    busy: Out(1), it has not ended.
    cs: Out(1), the flash is selected; clk, copi: Out(1); cipo: In(1). SPI mode 0, single bits, highest first.

    Timing
    ------
    A bit takes twice `half_cycles` cycles. The first byte comes two pauses and 48 bits after the start; a pause is
    `PAUSE_S`, rounded up to a power of two of half periods.
    """

    def __init__(self, offset: int, clock_hz: int, fastest_hz: int = 0) -> None:
        assert 0 <= offset < 1 << ADDRESS_BITS
        self.offset = offset
        self.half_cycles = half_cycles(clock_hz)
        self._most = max(half_cycles(fastest_hz), self.half_cycles)
        # A power of two of half periods, so that the end is one bit and not a comparison. The same counter counts the
        # 64 half periods of a command: hence 6 bits at least.
        self._pause_log2 = max(6, math.ceil(math.log2(PAUSE_S * min(clock_hz, 2 * MOST_HZ))))
        super().__init__(
            {
                "o": Out(stream.Signature(unsigned(8))),
                "restart": In(1),
                "end": In(1),
                "busy": Out(1, init=1),
                "cs": Out(1),
                "clk": Out(1),
                "copi": Out(1),
                "cipo": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._phase, self._awake, self._platform = Signal(_Phase), Signal(), platform
        tick = self._divide(m)
        count = Signal(self._pause_log2 + 1)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        woken, sent = Signal(), Signal()
        with m.If(tick):
            # Whether `count` has come to its end in `_send` is known a tick before.
            m.d.sync += [woken.eq(count == 2 * 8 - 1), sent.eq(count == 2 * (8 + ADDRESS_BITS) - 2)]
            m.d.sync += count.eq(count + 1)
            with m.Switch(self._phase):
                with m.Case(_Phase.PAUSE):
                    with m.If(count[-1]):
                        m.d.sync += [count.eq(0), self._phase.eq(_Phase.SEND), self.cs.eq(1)]
                with m.Case(_Phase.SEND):
                    self._send(m, count, woken, sent)
                with m.Case(_Phase.READ):
                    self._read(m, count)
        self._command(m, tick, count)
        stopped = [self.cs.eq(0), self.clk.eq(0), self.o.valid.eq(0)]
        with m.If(self.restart & self.busy):
            m.d.sync += [*stopped, count.eq(0), self._awake.eq(0), self._phase.eq(_Phase.PAUSE)]
        with m.If(self.end):
            m.d.sync += [*stopped, self._phase.eq(_Phase.DONE), self.busy.eq(0)]
        return m

    def _divide(self, m: Module) -> Signal:
        """Return a strobe: half a period of the flash's clock is over, and no byte waits to be taken."""
        # While a byte waits, the flash's clock stands still, and the flash keeps its place: so no byte is lost.
        tick = Signal()
        waits = self.o.valid & ~self.o.ready
        if self._most == 1:
            m.d.comb += tick.eq(~waits)
            return tick
        elapsed, is_over = Signal(range(self._most)), Signal()
        m.d.comb += [
            is_over.eq(is_at_end(m, self._platform, elapsed, [self.half_cycles - 1])),
            tick.eq(is_over & ~waits),
        ]
        with m.If(tick):
            m.d.sync += elapsed.eq(0)
        with m.Elif(~is_over):
            m.d.sync += elapsed.eq(elapsed + 1)
        return tick

    def _send(self, m: Module, count: Signal, woken: Signal, sent: Signal) -> None:
        """Clock out the 8 bits of the release, or the 32 of the read command; `count` counts half periods.

        Parameters
        ----------
        woken, sent: the release, or the command, ends with this tick.
        """
        m.d.sync += self.clk.eq(~count[0])
        with m.If(~self._awake & woken):
            m.d.sync += [count.eq(0), self._awake.eq(1), self._phase.eq(_Phase.PAUSE), self.cs.eq(0), self.clk.eq(0)]
        # The clock's falling edge behind the last bit of the command is the one with which the data begins.
        with m.If(self._awake & sent):
            m.d.sync += [count.eq(0), self._phase.eq(_Phase.READ)]

    def _read(self, m: Module, count: Signal) -> None:
        """Take a bit with each rising edge of the clock: the flash has shown it since the falling edge before."""
        m.d.sync += self.clk.eq(~count[0])
        # Bits 1 to 3 of `count` are the number of the bit in its byte.
        with m.If(~count[0]):
            m.d.sync += self.o.payload.eq(Cat(self.cipo, self.o.payload[:-1]))
            m.d.sync += self.o.valid.eq(count[1:4].all())

    def _command(self, m: Module, tick: Signal, count: Signal) -> None:
        """Add the shift register of what is sent: it shifts with the clock's falling edges."""
        command = Signal(8 + ADDRESS_BITS)
        m.d.comb += self.copi.eq(command[-1])
        with m.If(self._phase == _Phase.PAUSE):
            read = C(READ << ADDRESS_BITS | self.offset, len(command))
            m.d.sync += command.eq(Mux(self._awake, read, C(WAKE_UP << ADDRESS_BITS, len(command))))
        with m.Elif(tick & count[0]):
            m.d.sync += command.eq(command << 1)


class FlashLoader(wiring.Component):
    """Loads an engine with the program in flash when the device starts, unless the link sends one first.

    It reads until the engine, which knows the program's length, says that the program is READY or REFUSED. If the
    engine is reset before that, reading begins anew. A byte of the link ends reading for good, and the engine is reset
    once more, so that this byte is the first that it sees.

    Parameters
    ----------
    offset, clock_hz, fastest_hz: see `FlashReader`.

    Members
    -------
    i: stream of bytes from the link; o: to the engine.
    reset: In(1), the engine is being reset by the link.
    reset_engine: Out(1), the engine has to be reset as well, for the byte of the link that follows.
    decided: In(1), the program is READY or REFUSED.
    loading: Out(1), the flash is being read: its pins are the device's.
    cs, clk, copi, cipo: see `FlashReader`.
    """

    def __init__(self, offset: int, clock_hz: int, fastest_hz: int = 0) -> None:
        self._reader = FlashReader(offset, clock_hz, fastest_hz)
        byte = stream.Signature(unsigned(8))
        super().__init__(
            {
                "i": In(byte),
                "o": Out(byte),
                "reset": In(1),
                "reset_engine": Out(1),
                "decided": In(1),
                "loading": Out(1, init=1),
                "cs": Out(1),
                "clk": Out(1),
                "copi": Out(1),
                "cipo": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reader = reader = self._reader
        hold = Signal(_HOLD_CYCLES)
        m.d.comb += [
            reader.cipo.eq(self.cipo),
            self.cs.eq(reader.cs),
            self.clk.eq(reader.clk),
            self.copi.eq(reader.copi),
            self.reset_engine.eq(hold[1:].any()),
            self.loading.eq(reader.busy),
            self.o.payload.eq(Mux(reader.busy, reader.o.payload, self.i.payload)),
            self.o.valid.eq(Mux(reader.busy, reader.o.valid, self.i.valid & ~hold.any())),
            reader.o.ready.eq(self.o.ready),
            self.i.ready.eq(self.o.ready & ~reader.busy & ~hold.any()),
        ]
        # The reader hears of both a cycle late, which does no harm: a reset of the engine lasts 3 cycles or more. The
        # bytes of the link wait one cycle longer than the reset that they cause.
        m.d.sync += [reader.restart.eq(self.reset), reader.end.eq(self.i.valid | self.decided), hold.eq(hold >> 1)]
        with m.If(reader.busy & self.i.valid):
            m.d.sync += hold.eq(~0)
        return m
