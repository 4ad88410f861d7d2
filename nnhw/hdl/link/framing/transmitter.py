"""Frames to the host: answers, errors and results, built in one half of a memory while the other half is sent."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.cobs import CobsEncoder
from nnhw.hdl.link.crc import Crc32
from nnhw.hdl.link.framing.counters import PERIOD, StatusCounters
from nnhw.hdl.link.framing.receiver import COMMAND_BITS
from nnhw.protocol import (
    ANSWER,
    CRC_BYTES,
    IDENTITY_FORMAT,
    PAYLOAD_LIMIT_BYTES,
    STATUS_FORMAT,
    Command,
    DeviceIdentity,
)

RESULT = Command.RESULT & ~ANSWER
ERROR = Command.ERROR & ~ANSWER
TAKEN = Command.TAKEN & ~ANSWER
# Payload bytes of the frames that have always as many.
_LENGTHS = {
    Command.IDENTIFY: IDENTITY_FORMAT.size,
    Command.STATUS: STATUS_FORMAT.size,
    Command.RESET: 0,
    ERROR: 1,
    TAKEN: 0,
}


_STEPS = data.StructLayout(
    {
        "idle": 1,
        "command": 1,
        "sequence": 1,
        "result": 1,
        "table": 1,
        "settle": 1,
        "crc": CRC_BYTES,
        "close": 1,
        "delimit": 1,
        "raw": 1,
        "commit": 1,
    }
)


class FrameTransmitter(wiring.Component):
    """Builds frames and sends them.

    Answers go before errors, errors before TAKEN, that before results. A frame that is being built ends before the
    next begins: a RESULT waits for its last byte.

    Parameters
    ----------
    identity: what the device says about itself; `output_bytes` ends the RESULT frames.

    Members
    -------
    i: stream of output bytes from the engine.
    o: stream of bytes to the host.
    ask, command, token, answered: a question of the receiver, as `FrameReceiver` gives it.
    error: In(1), strobe; reason: In(2): an ERROR is due. A later one replaces it until it can be sent.
    taken: In(1), strobe; taken_count: In(8): a TAKEN is due, for as many frames as there are when it is sent.
    reset: In(1), drops the frame that is being built and what is due.
    clear, input_waits, output_waits: In(1), for the counters, as `StatusCounters` takes them.

    Timing
    ------
    A byte per cycle in and out; a frame of n payload bytes takes n + 11 cycles to build and n + 8 to send,
    at the same time as the next is built.
    """

    def __init__(self, identity: DeviceIdentity) -> None:
        self._identity = identity
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(8))),
                "o": Out(stream.Signature(unsigned(8))),
                "ask": In(1),
                "command": In(COMMAND_BITS),
                "token": In(8),
                "answered": Out(1),
                "error": In(1),
                "reason": In(2),
                "taken": In(1),
                "taken_count": In(8),
                "reset": In(1),
                "clear": In(1),
                "input_waits": In(1),
                "output_waits": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.cobs = self._cobs = CobsEncoder()
        m.submodules.crc = self._crc = Crc32()
        m.submodules.counters = self._counters = StatusCounters()
        self._at = Signal(_STEPS, init={"idle": 1})
        self._kind = Signal(COMMAND_BITS)
        # Counts bytes as they enter `_data`; they are written one cycle later, when it has moved on by one.
        self._index = Signal(8, init=CobsEncoder.FIRST)
        self._data, self._strobe = Signal(8), Signal()
        self._sent, self._hand_over, self._begins = Signal(), Signal(), Signal()
        m.d.comb += [
            self._cobs.data.eq(self._data),
            self._cobs.enable.eq(self._strobe),
            self._cobs.position.eq(self._index),
            self._cobs.clear.eq(self._at.idle),
            self._crc.data.eq(self._data),
            self._crc.enable.eq(self._strobe | self._at.crc.any()),
            self._crc.unload.eq(self._at.crc.any()),
            self._crc.clear.eq(self._at.idle),
            self._counters.clear.eq(self.clear),
            self._counters.input_waits.eq(self.input_waits),
            self._counters.output_waits.eq(self.output_waits),
        ]
        reason = self._choose(m)
        self._walk(m, self._last(m))
        self._select(m, reason)
        self._send(m)
        return m

    def _choose(self, m: Module) -> Signal:
        """Keep what is due, choose what to send next; return the reason of an ERROR."""
        error_due, taken_due, reason = Signal(), Signal(), Signal(2)
        answering = Signal()
        m.d.comb += self.answered.eq(answering & self._at.sequence)
        # Answers wait for the counters' ring to come round.
        m.d.comb += self._begins.eq(
            Mux(self.ask, self._counters.ready, error_due | taken_due | self.i.valid) & self._at.idle
        )
        with m.If(self._at.idle):
            m.d.sync += answering.eq(self.ask)
            with m.If(self.ask):
                m.d.sync += self._kind.eq(self.command)
            with m.Elif(error_due):
                m.d.sync += [self._kind.eq(ERROR), error_due.eq(0)]
            with m.Elif(taken_due):
                m.d.sync += [self._kind.eq(TAKEN), taken_due.eq(0)]
            with m.Else():
                m.d.sync += self._kind.eq(RESULT)
        with m.If(self.error):
            m.d.sync += [error_due.eq(1), reason.eq(self.reason)]
        with m.If(self.taken):
            m.d.sync += taken_due.eq(1)
        with m.If(self.reset):
            m.d.sync += [error_due.eq(0), taken_due.eq(0)]
        # The counter is in no hurry, and its carry chain is long.
        m.d.sync += self._counters.bad_frame.eq(self.error)
        return reason

    def _last(self, m: Module) -> Signal:
        """Return: the payload is complete with `_index` bytes."""
        length, last = Signal(8), Signal()
        with m.Switch(self._kind):
            for kind, value in _LENGTHS.items():
                with m.Case(kind):
                    m.d.comb += length.eq(value)
            with m.Default():
                m.d.comb += length.eq(min(self._identity.output_bytes, PAYLOAD_LIMIT_BYTES))
        m.d.comb += last.eq(self._index == length)
        if self._identity.output_bytes <= PAYLOAD_LIMIT_BYTES:
            return last
        offset, last_or_end = Signal(range(self._identity.output_bytes)), Signal()
        at_end = offset == self._identity.output_bytes - 1
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += offset.eq(Mux(at_end, 0, offset + 1))
        with m.If(self.reset):
            m.d.sync += offset.eq(0)
        m.d.comb += last_or_end.eq(last | (self._at.result & at_end))
        return last_or_end

    def _walk(self, m: Module, last: Signal) -> None:
        """Go through the steps of a frame, one register each."""
        at, result = self._at, self._kind == RESULT
        grows, complete = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(at.result),
            complete.eq(last & (at.table | (at.result & self.i.valid) | at.sequence)),
            grows.eq(at.command | at.sequence | at.table | at.crc.any() | at.close | (at.result & self.i.valid)),
            self._hand_over.eq(at.commit & self._sent),
            self._counters.result.eq(self._hand_over & result),
        ]
        m.d.sync += [
            # The delimiter takes the place of the zero byte that closed the frame.
            self._strobe.eq(grows | at.delimit),
            at.idle.eq((at.idle & ~self._begins) | self._hand_over),
            at.command.eq(self._begins),
            at.sequence.eq(at.command),
            at.result.eq((at.sequence | at.result) & result & ~complete),
            at.table.eq((at.sequence | at.table) & ~result & ~complete),
            at.settle.eq(complete),
            at.crc.eq(Cat(at.settle, at.crc)),
            at.close.eq(at.crc[-1]),
            at.delimit.eq(at.close),
            at.raw.eq(at.delimit),
            at.commit.eq(at.raw | (at.commit & ~self._hand_over)),
        ]
        m.d.comb += self._cobs.raw.eq(at.raw)
        with m.If(at.idle):
            m.d.sync += self._index.eq(CobsEncoder.FIRST)
        with m.Elif(grows):
            m.d.sync += self._index.eq(self._index + 1)
        with m.If(self.reset):
            m.d.sync += at.eq(_STEPS.const({"idle": 1}))

    def _select(self, m: Module, reason: Signal) -> None:
        """Let the byte of this step into `_data`: each source behind its own gate, all of them joined by OR."""
        at, table = self._at, self._table(m, reason)
        m.d.sync += self._data.eq(
            table
            | Mux(at.command, self._kind | ANSWER, 0)
            | Mux(at.result, self.i.payload, 0)
            | Mux(at.crc.any(), self._crc.low, 0)
        )

    def _table(self, m: Module, reason: Signal) -> Signal:
        """Return the byte of this step where it is the sequence or not a result's; it is chosen a cycle before."""
        counters, index, kind = self._counters, self._index, self._kind
        head, body = self._at.command, (self._at.sequence | self._at.table)
        status = body & (kind == Command.STATUS)
        tail = index[:4] >= PERIOD
        gates = [
            (head & (kind != RESULT) & (kind != TAKEN), self.token),
            (head & (kind == TAKEN), self.taken_count),
            ((head & (kind == RESULT)) | (status & tail & (index[:2] == 0)), counters.results[:8]),
            (status & tail & index[0], counters.results[8:]),
            (status & tail & index[1], counters.bad_frames),
            (status & ~tail, counters.ring),
            (body & (kind == ERROR), reason),
            (body & (kind == Command.IDENTIFY), self._identity_byte()),
        ]
        selected: Value = Const(0, 8)
        for number, (gate, source) in enumerate(gates):
            open_ = Signal(name=f"gate_{number}")
            m.d.comb += open_.eq(gate)
            selected = selected | (source & open_.replicate(8))
        table = Signal(8)
        m.d.sync += table.eq(selected)
        return table

    def _identity_byte(self) -> Value:
        """Return the byte of the identity that `_index` points at.

        A column per bit: the mapper makes three LUT4 of each, and far more of a table of bytes.
        """
        content = self._identity.pack().ljust(32, b"\0")
        columns = [sum((value >> bit & 1) << number for number, value in enumerate(content)) for bit in range(8)]
        return Cat(Const(column, 32).bit_select(self._index[:5], 1) for column in columns)

    def _send(self, m: Module) -> None:
        """Send one half of the memory, up to the delimiter, which is its only zero byte."""
        m.submodules.memory = memory = Memory(shape=unsigned(8), depth=512, init=[], attrs={"ram_style": "block"})
        write, read = memory.write_port(), memory.read_port()
        bank, busy = Signal(), Signal()
        position = Signal(8)
        delimiter = self.o.payload == 0
        m.d.comb += [
            write.addr.eq(Cat(self._cobs.address, bank)),
            write.data.eq(self._cobs.write_data),
            write.en.eq(self._strobe),
            read.addr.eq(Cat(position, ~bank)),
            read.en.eq(~self.o.valid | self.o.ready),
            self.o.payload.eq(read.data),
            self._sent.eq(~busy),
        ]
        with m.If(read.en):
            m.d.sync += [self.o.valid.eq(busy & ~(self.o.valid & delimiter)), position.eq(position + 1)]
            with m.If(self.o.valid & delimiter):
                m.d.sync += busy.eq(0)
        with m.If(self._sent):
            m.d.sync += position.eq(Const(CobsEncoder.FIRST, 8))
        with m.If(self._hand_over):
            m.d.sync += [bank.eq(~bank), busy.eq(1)]
