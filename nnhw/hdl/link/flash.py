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
"""Before and after the release; data sheets ask for 3 microseconds (W25Q) to 30 (N25Q)."""
MOST_HZ = 12_500_000
"""Of the flash's clock: half a period, 40 ns, is enough for both pads, the flash (8 ns) and the board."""
ADDRESS_BITS = 24
_HOLD_CYCLES = 4


class _Phase(enum.IntEnum):
    PAUSE = 0
    SEND = 1
    READ = 2
    DONE = 3


def half_cycles(clock_hz: int) -> int:
    """Return the cycles in half a period of the flash's clock."""
    return math.ceil(clock_hz / (2 * MOST_HZ))


class FlashReader(wiring.Component):
    """Reads bytes from a place in flash on, until it is told to end; once after power-up.

    Parameters
    ----------
    offset: of the first byte.
    clock_hz: of the `sync` domain.
    fastest_hz: clock that the logic has room for; 0: this one.

    Members
    -------
    o: stream of bytes. While one waits, the flash's clock stands.
    restart: In(1), begins anew, unless it has ended.
    end: In(1), ends it for good.
    busy: Out(1), it has not ended.
    cs: Out(1), the flash is selected; clk, copi: Out(1); cipo: In(1). SPI mode 0, single bits, highest first.

    Timing
    ------
    A bit takes twice `half_cycles`. The first byte comes 100 microseconds and 48 bits after the start.
    """

    def __init__(self, offset: int, clock_hz: int, fastest_hz: int = 0) -> None:
        assert 0 <= offset < 1 << ADDRESS_BITS
        self.offset = offset
        self.half_cycles = half_cycles(clock_hz)
        self._most = max(half_cycles(fastest_hz), self.half_cycles)
        # A power of two of half periods, so that the end is one bit and not a comparison; they count a command too.
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
        """Return: half a period is over, and no byte waits."""
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
        """Clock out the release alone, or the command with its address; `count` counts half periods."""
        m.d.sync += self.clk.eq(~count[0])
        with m.If(~self._awake & woken):
            m.d.sync += [count.eq(0), self._awake.eq(1), self._phase.eq(_Phase.PAUSE), self.cs.eq(0), self.clk.eq(0)]
        # The falling edge of the last bit is the first one of the data.
        with m.If(self._awake & sent):
            m.d.sync += [count.eq(0), self._phase.eq(_Phase.READ)]

    def _read(self, m: Module, count: Signal) -> None:
        """Take a bit with each rising edge: the flash gave it half a period before."""
        m.d.sync += self.clk.eq(~count[0])
        with m.If(~count[0]):
            m.d.sync += self.o.payload.eq(Cat(self.cipo, self.o.payload[:-1]))
            m.d.sync += self.o.valid.eq(count[1:4].all())

    def _command(self, m: Module, tick: Signal, count: Signal) -> None:
        """Hold what is sent: it moves with the falling edges."""
        command = Signal(8 + ADDRESS_BITS)
        m.d.comb += self.copi.eq(command[-1])
        with m.If(self._phase == _Phase.PAUSE):
            read = C(READ << ADDRESS_BITS | self.offset, len(command))
            m.d.sync += command.eq(Mux(self._awake, read, C(WAKE_UP << ADDRESS_BITS, len(command))))
        with m.Elif(tick & count[0]):
            m.d.sync += command.eq(command << 1)


class FlashLoader(wiring.Component):
    """Gives an engine the program in flash when the device starts, and then, or in its place, that of the link.

    It reads until the engine says that the program is READY or REFUSED: the engine knows its length. A reset of the
    engine before begins the reading anew; a byte of the link ends it for good, and the engine is reset once more, so
    that this byte is the first that it sees.

    Parameters
    ----------
    offset, clock_hz, fastest_hz: see `FlashReader`.

    Members
    -------
    i: stream of bytes from the link; o: to the engine.
    reset: In(1), the engine is being reset.
    reset_engine: Out(1), resets it too, at once or a cycle later.
    decided: In(1), the program is READY or REFUSED.
    cs, clk, copi, cipo: as of `FlashReader`.
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
            self.o.payload.eq(Mux(reader.busy, reader.o.payload, self.i.payload)),
            self.o.valid.eq(Mux(reader.busy, reader.o.valid, self.i.valid & ~hold.any())),
            reader.o.ready.eq(self.o.ready),
            self.i.ready.eq(self.o.ready & ~reader.busy & ~hold.any()),
        ]
        # Registers in front of what these two stop; the engine's reset lasts longer.
        m.d.sync += [reader.restart.eq(self.reset), reader.end.eq(self.i.valid | self.decided), hold.eq(hold >> 1)]
        with m.If(reader.busy & self.i.valid):
            m.d.sync += hold.eq(~0)
        return m
