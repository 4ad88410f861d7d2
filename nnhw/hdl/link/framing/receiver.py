"""Frames from the host: decoded, stored, checked as a whole, and only then acted on."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.cobs import CobsDecoder
from nnhw.hdl.link.crc import Crc32, initial_before
from nnhw.protocol import CRC_BYTES, HEADER_BYTES, Command, Reason

COMMAND_BITS = 3
"""Low bits of a command that are kept: they tell all commands of the host apart."""
# Frames with any other command are dropped, with the reason COMMAND.
_KNOWN = (Command.IDENTIFY, Command.RESET, Command.DATA, Command.STATUS)
_KNOWN_LOADABLE = (*_KNOWN, Command.LOAD, Command.PROGRAM)


def reason_bits(loadable: bool) -> int:
    """Return the bits of a `Reason`: only devices that load programs have the one that needs a third bit."""
    return 3 if loadable else 2


# Positions of a decoded frame's bytes in its half of the memory, as the decoder counts them.
_COMMAND_AT = CobsDecoder.FIRST + 1
_SEQUENCE_AT = _COMMAND_AT + 1
_PAYLOAD_AT = CobsDecoder.FIRST + 1 + HEADER_BYTES


# One register for each step of a frame, exactly one of them set: receive its bytes, check the CRC, judge it; then drop
# it, obey a RESET, wait with a payload until the one before has left, or ask for an answer; restart the decoder.
_STEPS = data.StructLayout(dict.fromkeys(("receive", "check", "judge", "drop", "reset", "wait", "ask", "restart"), 1))


class FrameReceiver(wiring.Component):
    """Receives the host's frames: hands payloads to the engine, and commands to the transmitter, which answers them.

    One frame is received while the payload of the one before goes to the engine, from the other half of a memory of
    512 bytes.

    Parameters
    ----------
    loadable: the device loads programs: it knows the commands LOAD and PROGRAM, and takes DATA only with a program.

    Members
    -------
    i: stream of bytes from the host.
    overrun: In(1), strobe: a byte was lost in front of `i`.
    o: stream of the payload bytes of DATA and LOAD frames.
    load: Out(1), only if `loadable`: the bytes that `o` shows now are of a LOAD frame.
    runnable: In(1), only if `loadable`: there is a program.
    ask: Out(1), `command` wants an answer that carries `token`; held until `answered`.
    command: Out(3), low bits of the command.
    token: Out(8), sequence number of the frame.
    answered: In(1), strobe: `command` and `token` have been used.
    taken: Out(1), strobe: a DATA or LOAD frame was taken.
    taken_count: Out(8), how many were taken since the last RESET, modulo 256; counts one cycle after `taken`.
    reset: Out(1), strobe: a RESET frame came. `o` is emptied, and everything behind it has to be.
    error: Out(1), strobe: a frame was dropped.
    reason: Out(2), or 3 if `loadable`: a `Reason`, why the frame of `error` was dropped.

    Timing
    ------
    A byte per cycle in and out. `i` pauses four cycles after each frame, and longer while the frame has to wait:
    DATA until the payload before it has left, a question until `answered`.
    """

    def __init__(self, loadable: bool = False) -> None:
        self._loadable = loadable
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(8))),
                "overrun": In(1),
                "o": Out(stream.Signature(unsigned(8))),
                "ask": Out(1),
                "command": Out(COMMAND_BITS),
                "token": Out(8),
                "answered": In(1),
                "taken": Out(1),
                "taken_count": Out(8),
                "reset": Out(1),
                "error": Out(1),
                "reason": Out(reason_bits(loadable)),
                **({"load": Out(1), "runnable": In(1)} if loadable else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.cobs = self._cobs = CobsDecoder()
        # The placeholder byte in front of each decoded frame, a zero, brings the register to its true initial content.
        m.submodules.crc = self._crc = Crc32(initial_before(0))
        self._at = Signal(_STEPS, init={"receive": 1})
        self._lost, self._idle = Signal(), Signal()
        byte, self._fresh, self._zero = self._take(m)
        m.d.comb += [
            self._cobs.data.eq(byte),
            self._cobs.clear.eq(self._at.restart),
            self._crc.data.eq(self._cobs.decoded),
            self._crc.enable.eq(self._cobs.strobe),
            self._crc.clear.eq(self._at.restart),
        ]
        self._store(m)
        self._count_taken(m)
        self._walk(m)
        return m

    def _take(self, m: Module) -> tuple[Signal, Signal, Signal]:
        """Take bytes from `i`; return the last one, whether it is new, and for each of its halves whether it is zero.

        A byte that comes behind the delimiter of a frame stays here until the frame is done with.
        """
        byte, fresh, zero = Signal(8), Signal(), Signal(2)
        m.d.comb += self.i.ready.eq(self._at.receive)
        with m.If(self._at.receive):
            m.d.sync += [
                byte.eq(self.i.payload),
                fresh.eq(self.i.valid),
                zero.eq(Cat(self.i.payload[:4] == 0, self.i.payload[4:] == 0)),
            ]
        return byte, fresh, zero

    def _note_header(self, m: Module) -> tuple[Signal, Signal]:
        """Keep command and sequence number as they pass; return (the frame is long enough, its command is known)."""
        long_enough, known = Signal(), Signal()
        shortest = CobsDecoder.FIRST + HEADER_BYTES + CRC_BYTES
        position, decoded = self._cobs.position, self._cobs.decoded
        # The last byte of the shortest frame is at position 8, so the bits from the fourth on tell.
        assert shortest == 8
        m.d.comb += long_enough.eq(position[3:].any())
        # Command and sequence come while the frame is short, so the value of a cycle before does, and is a register.
        long_before = Signal()
        m.d.sync += long_before.eq(long_enough)
        early = self._cobs.strobe & ~long_before
        commands = _KNOWN_LOADABLE if self._loadable else _KNOWN
        with m.If(early & (position[:3] == _COMMAND_AT)):
            m.d.sync += [self.command.eq(decoded), known.eq(decoded.matches(*(f"{one:08b}" for one in commands)))]
        with m.If(early & (position[:3] == _SEQUENCE_AT)):
            m.d.sync += self.token.eq(decoded)
        return long_enough, known

    def _judge(self, m: Module) -> Signal:
        """Check a frame in step `check`; return whether it passes. A byte that is lost after that still stops it."""
        long_enough, known = self._note_header(m)
        right, complete, fits, in_order = Signal(2), Signal(), Signal(), Signal()
        bare: Value = self.command != Command.DATA
        if self._loadable:
            bare = bare & (self.command != Command.LOAD)
        m.d.comb += in_order.eq((self.token == self.taken_count) | bare)
        allowed, why_not = self._allow(m, known)
        with m.If(self._at.check):
            m.d.sync += [
                right.eq(self._crc.halves),
                complete.eq(~self._cobs.too_long & long_enough),
                fits.eq(allowed & in_order),
            ]
        # The CRC is compared in two cycles: its halves before this register, both together behind it.
        whole, lost = right.all() & complete, self._lost
        with m.If(self._at.judge | self._at.wait):
            m.d.sync += self.reason.eq(
                Mux(lost, self._say(Reason.OVERRUN), Mux(whole, why_not, self._say(Reason.DAMAGED)))
            )
        passes = Signal()
        m.d.comb += passes.eq(whole & fits & ~lost)
        return passes

    def _allow(self, m: Module, known: Signal) -> tuple[Value, Value]:
        """Return (the command is allowed now, the reason to give if it is not, or if it is out of sequence)."""
        why_not = Mux(known, self._say(Reason.SEQUENCE), self._say(Reason.COMMAND))
        if not self._loadable:
            return known, why_not
        missing = Signal()
        with m.If(self._at.check):
            m.d.sync += missing.eq((self.command == Command.DATA) & ~self.runnable)
        allowed = known & ~((self.command == Command.DATA) & ~self.runnable)
        return allowed, Mux(missing & known, self._say(Reason.PROGRAM), why_not)

    def _say(self, reason: Reason) -> Const:
        return Const(reason.value, reason_bits(self._loadable))

    def _walk(self, m: Module) -> None:
        """Go through the steps of a frame, see `_STEPS`."""
        at, passes = self._at, self._judge(m)
        is_data, is_reset = self.command == Command.DATA, self.command == Command.RESET
        if self._loadable:
            is_data = is_data | (self.command == Command.LOAD)
        # A delimiter closes a frame only behind other bytes: several of them in a row mean nothing.
        delimiter, inside, closes = self._zero.all(), Signal(), Signal()
        m.d.comb += [
            self._cobs.enable.eq(at.receive & self._fresh & ~delimiter),
            closes.eq(at.receive & self._fresh & delimiter & inside),
            self.taken.eq(at.wait & self._idle & ~self._lost),
            self.reset.eq(at.reset),
            self.error.eq(at.drop),
            self.ask.eq(at.ask),
        ]
        with m.If(at.receive & self._fresh):
            m.d.sync += inside.eq(~delimiter)
        m.d.sync += [
            at.receive.eq((at.receive & ~closes) | at.restart),
            at.restart.eq(at.drop | self.taken | (at.ask & self.answered)),
            at.check.eq(closes),
            at.judge.eq(at.check),
            at.drop.eq((at.judge & ~passes) | (at.wait & self._lost)),
            at.reset.eq(at.judge & passes & is_reset),
            at.wait.eq((at.judge & passes & is_data) | (at.wait & ~self._idle & ~self._lost)),
            at.ask.eq((at.judge & passes & ~is_data & ~is_reset) | at.reset | (at.ask & ~self.answered)),
        ]
        # A byte may be lost before its frame is at work, so this is kept until a frame has been dropped for it.
        with m.If(self.overrun):
            m.d.sync += self._lost.eq(1)
        with m.Elif(at.drop):
            m.d.sync += self._lost.eq(0)

    def _count_taken(self, m: Module) -> None:
        """Count the DATA and LOAD frames that were taken since the last RESET."""
        with m.If(self.taken):
            m.d.sync += self.taken_count.eq(self.taken_count + 1)
        with m.If(self.reset):
            m.d.sync += self.taken_count.eq(0)

    def _store(self, m: Module) -> None:
        """Write frames into one half of the memory, read payloads from the other; the memory's output is `o`."""
        m.submodules.memory = memory = Memory(shape=unsigned(8), depth=512, init=[], attrs={"ram_style": "block"})
        write, read = memory.write_port(), memory.read_port()
        bank, busy = Signal(), Signal()
        position, end = Signal(8), Signal(8)
        at_end = Signal()
        m.d.comb += [
            write.addr.eq(self._cobs.position | bank << 8),
            write.data.eq(self._cobs.decoded),
            write.en.eq(self._cobs.strobe),
            read.addr.eq(position | ~bank << 8),
            read.en.eq(~self.o.valid | self.o.ready),
            self.o.payload.eq(read.data),
            at_end.eq(position == end),
            self._idle.eq(~busy),
        ]
        with m.If(read.en):
            m.d.sync += self.o.valid.eq(busy & ~at_end)
            # At the end it goes one too far, which nobody sees; so its enable does not wait for the comparison.
            with m.If(busy):
                m.d.sync += position.eq(position + 1)
        with m.If(at_end):
            m.d.sync += busy.eq(0)
        with m.If(self.taken):
            m.d.sync += [
                bank.eq(~bank),
                busy.eq(1),
                position.eq(_PAYLOAD_AT),
                end.eq(self._cobs.position - (CRC_BYTES - 1)),
            ]
        with m.If(self.reset):
            m.d.sync += [busy.eq(0), self.o.valid.eq(0)]
        if self._loadable:
            # `load` changes with the bytes of `o`: the last byte of the payload before may still wait there.
            of_load = Signal()
            with m.If(self.taken):
                m.d.sync += of_load.eq(self.command == Command.LOAD)
            with m.If(read.en):
                m.d.sync += self.load.eq(of_load)
