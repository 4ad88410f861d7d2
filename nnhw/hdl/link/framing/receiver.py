"""Frames from the host: decoded, stored whole, checked, and only then acted on."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.cobs import CobsDecoder
from nnhw.hdl.link.crc import Crc32, initial_before
from nnhw.protocol import CRC_BYTES, HEADER_BYTES, Command, Reason

COMMAND_BITS = 3
_COMMAND_AT = CobsDecoder.FIRST + 1
_SEQUENCE_AT = _COMMAND_AT + 1
_PAYLOAD_AT = CobsDecoder.FIRST + 1 + HEADER_BYTES


class FrameReceiver(wiring.Component):
    """Takes frames off a byte stream and hands out what they ask for.

    One frame is received while the payload of the one before goes to the engine: two halves of one 512x8 memory.

    Members
    -------
    i: stream of bytes from the host.
    overrun: In(1), a byte was lost before `i`.
    o: stream of DATA payload bytes to the engine.
    ask: Out(1), `command` wants an answer that carries `token`; held until `answered`.
    command: Out(3), low bits of the command.
    token: Out(8), sequence of the frame.
    answered: In(1), `command` and `token` have been used.
    taken: Out(1), strobe, a DATA frame was taken; taken_count: Out(8), how many, one cycle later.
    reset: Out(1), strobe, a RESET frame came: `o` is emptied, and everything behind it has to be.
    error: Out(1), strobe, a frame was dropped.
    reason: Out(2), why.

    Timing
    ------
    A byte per cycle in and out. `i` pauses three cycles after each frame, and longer while the frame has to wait:
    DATA until the payload before it has left, a question until `answered`.
    """

    def __init__(self) -> None:
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
                "reason": Out(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.cobs = self._cobs = CobsDecoder()
        # The placeholder byte that leads each decoded frame brings the register to the true initial content.
        m.submodules.crc = self._crc = Crc32(initial_before(0))
        self._good = Signal()
        self._hand_over = Signal()
        self._idle = Signal()
        self._restart = Signal()
        m.d.comb += [
            self._cobs.data.eq(self.i.payload),
            self._cobs.clear.eq(self._restart),
            self._crc.data.eq(self._cobs.decoded),
            self._crc.enable.eq(self._cobs.strobe),
            self._crc.clear.eq(self._restart),
        ]
        self._store(m)
        self._sequence(m)
        self._dispatch(m, *self._header(m))
        return m

    def _header(self, m: Module) -> tuple[Signal, Signal]:
        """Note command and sequence as they pass; return: frame is long enough, command is known."""
        long_enough, known = Signal(), Signal()
        shortest = CobsDecoder.FIRST + HEADER_BYTES + CRC_BYTES
        position, decoded = self._cobs.position, self._cobs.decoded
        # One bit tells: the shortest frame ends at a power of two.
        assert shortest & shortest - 1 == 0
        m.d.comb += long_enough.eq(position >= shortest)
        early = self._cobs.strobe & ~long_enough
        with m.If(early & (position[:3] == _COMMAND_AT)):
            m.d.sync += [
                self.command.eq(decoded),
                known.eq((decoded >= Command.IDENTIFY) & (decoded <= Command.STATUS)),
            ]
        with m.If(early & (position[:3] == _SEQUENCE_AT)):
            m.d.sync += self.token.eq(decoded)
        return long_enough, known

    def _sequence(self, m: Module) -> None:
        """Count the DATA frames taken."""
        m.d.comb += self.taken.eq(self._hand_over)
        with m.If(self._hand_over):
            m.d.sync += self.taken_count.eq(self.taken_count + 1)
        with m.If(self.reset):
            m.d.sync += self.taken_count.eq(0)

    def _dispatch(self, m: Module, long_enough: Signal, known: Signal) -> None:
        """Receive a frame, check it, act on it."""
        inside, lost = Signal(), Signal()
        delimiter = self.i.payload == 0
        with m.FSM():
            with m.State("RECEIVE"):
                m.d.comb += [self.i.ready.eq(1), self._cobs.enable.eq(self.i.valid & ~delimiter)]
                with m.If(self.i.valid):
                    m.d.sync += inside.eq(~delimiter)
                    with m.If(delimiter & inside):
                        m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += self._good.eq(self._crc.match & self._cobs.closed & long_enough)
                m.next = "ACT"
            with m.State("ACT"):
                with m.If(~self._good | lost):
                    self._drop(m, Reason.DAMAGED)
                    with m.If(lost):
                        m.d.comb += self.reason.eq(Reason.OVERRUN)
                    m.d.sync += lost.eq(0)
                with m.Elif(~known):
                    self._drop(m, Reason.COMMAND)
                with m.Elif(self.command != Command.DATA):
                    m.d.comb += self.reset.eq(self.command == Command.RESET)
                    m.next = "ASK"
                with m.Elif(self.token != self.taken_count):
                    self._drop(m, Reason.SEQUENCE)
                with m.Elif(self._idle):
                    m.d.comb += [self._hand_over.eq(1), self._restart.eq(1)]
                    m.next = "RECEIVE"
            with m.State("ASK"):
                m.d.comb += self.ask.eq(1)
                with m.If(self.answered):
                    m.d.comb += self._restart.eq(1)
                    m.next = "RECEIVE"
        with m.If(self.overrun):
            m.d.sync += lost.eq(1)

    def _drop(self, m: Module, reason: Reason) -> None:
        m.d.comb += [self.error.eq(1), self.reason.eq(reason), self._restart.eq(1)]
        m.next = "RECEIVE"

    def _store(self, m: Module) -> None:
        """Write frames into one half of the memory, read payloads from the other; the memory's output is `o`."""
        m.submodules.memory = memory = Memory(shape=unsigned(8), depth=512, init=[], attrs={"no_rw_check": 1})
        write, read = memory.write_port(), memory.read_port()
        bank, position = Signal(), Signal(8)
        left, more = Signal(signed(9), init=-1), Signal()  # payload bytes after the next one; below zero: none
        m.d.comb += [
            write.addr.eq(self._cobs.position | bank << 8),
            write.data.eq(self._cobs.decoded),
            write.en.eq(self._cobs.strobe),
            read.addr.eq(position | ~bank << 8),
            read.en.eq(~self.o.valid | self.o.ready),
            self.o.payload.eq(read.data),
            more.eq(~left[-1]),
            self._idle.eq(~more),
        ]
        with m.If(read.en):
            m.d.sync += self.o.valid.eq(more)
            with m.If(more):
                m.d.sync += [position.eq(position + 1), left.eq(left - 1)]
        with m.If(self._hand_over):
            m.d.sync += [
                bank.eq(~bank),
                position.eq(_PAYLOAD_AT),
                left.eq(self._cobs.position - CRC_BYTES - _PAYLOAD_AT),
            ]
        with m.If(self.reset):
            m.d.sync += [left.eq(-1), self.o.valid.eq(0)]
