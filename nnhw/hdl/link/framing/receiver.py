"""Frames from the host: decoded, stored whole, checked, and only then acted on."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, ValueLike, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.cobs import CobsDecoder
from nnhw.hdl.link.crc import Crc32, initial_before
from nnhw.protocol import CRC_BYTES, HEADER_BYTES, Command, Reason

COMMAND_BITS = 3
_KNOWN = (Command.IDENTIFY, Command.RESET, Command.DATA, Command.STATUS)
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
    A byte per cycle in and out. `i` pauses four cycles after each frame, and longer while the frame has to wait:
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
        # The upper bits tell: the shortest frame ends at a power of two.
        assert shortest == 8
        m.d.comb += long_enough.eq(position[3:].any())
        early = self._cobs.strobe & ~long_enough
        with m.If(early & (position[:3] == _COMMAND_AT)):
            m.d.sync += [
                self.command.eq(decoded),
                known.eq(decoded.matches(*(f"{command:08b}" for command in _KNOWN))),
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
        is_data, is_reset, in_order = Signal(), Signal(), Signal()
        delimiter = self.i.payload == 0
        with m.FSM():
            with m.State("RECEIVE"):
                m.d.comb += [self.i.ready.eq(1), self._cobs.enable.eq(self.i.valid & ~delimiter)]
                with m.If(self.i.valid):
                    m.d.sync += inside.eq(~delimiter)
                    with m.If(delimiter & inside):
                        m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += [
                    self._good.eq(self._crc.match & self._cobs.closed & long_enough),
                    is_data.eq(self.command == Command.DATA),
                    is_reset.eq(self.command == Command.RESET),
                    in_order.eq(self.token == self.taken_count),
                ]
                m.next = "ACT"
            with m.State("ACT"):
                # Only choices here: the states behind it act, so that what they drive depends on the state alone.
                with m.If(~self._good | lost):
                    self._drop(m, Mux(lost, Reason.OVERRUN, Reason.DAMAGED))
                    m.d.sync += lost.eq(0)
                with m.Elif(~known):
                    self._drop(m, Reason.COMMAND)
                with m.Elif(is_reset):
                    m.next = "RESET"
                with m.Elif(~is_data):
                    m.next = "ASK"
                with m.Elif(~in_order):
                    self._drop(m, Reason.SEQUENCE)
                with m.Elif(self._idle):
                    m.next = "HAND_OVER"
            with m.State("DROP"):
                m.d.comb += [self.error.eq(1), self._restart.eq(1)]
                m.next = "RECEIVE"
            with m.State("RESET"):
                m.d.comb += self.reset.eq(1)
                m.next = "ASK"
            with m.State("HAND_OVER"):
                m.d.comb += [self._hand_over.eq(1), self._restart.eq(1)]
                m.next = "RECEIVE"
            with m.State("ASK"):
                m.d.comb += self.ask.eq(1)
                with m.If(self.answered):
                    m.d.comb += self._restart.eq(1)
                    m.next = "RECEIVE"
        with m.If(self.overrun):
            m.d.sync += lost.eq(1)

    def _drop(self, m: Module, reason: ValueLike) -> None:
        m.d.sync += self.reason.eq(reason)
        m.next = "DROP"

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
            # At the end it goes one too far, which nobody sees; so it does not wait for the comparison.
            with m.If(busy):
                m.d.sync += position.eq(position + 1)
        with m.If(at_end):
            m.d.sync += busy.eq(0)
        with m.If(self._hand_over):
            m.d.sync += [
                bank.eq(~bank),
                busy.eq(1),
                position.eq(_PAYLOAD_AT),
                end.eq(self._cobs.position + 1 - CRC_BYTES),
            ]
        with m.If(self.reset):
            m.d.sync += [busy.eq(0), self.o.valid.eq(0)]
