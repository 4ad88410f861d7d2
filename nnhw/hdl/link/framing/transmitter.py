"""Frames to the host: answers, errors and results, built in one half of a memory while the other half is sent."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from nnhw.hdl.cells import cells_of
from nnhw.hdl.link.cobs import CobsEncoder
from nnhw.hdl.link.crc import Crc32, initial_before
from nnhw.hdl.link.framing.receiver import COMMAND_BITS, reason_bits
from nnhw.hdl.link.framing.status_counters import PERIOD, StatusCounters
from nnhw.hdl.link.program_signature import ProgramSignature
from nnhw.protocol import (
    ANSWER,
    CRC_BYTES,
    IDENTITY_FORMAT,
    OUTPUT_LIMIT_BYTES,
    PAYLOAD_LIMIT_BYTES,
    PROGRAM_FORMAT,
    STATUS_FORMAT,
    Command,
    DeviceIdentity,
)

# Commands of the device without the bit that all its frames have, which is added where the command is sent.
RESULT = Command.RESULT & ~ANSWER
ERROR = Command.ERROR & ~ANSWER
TAKEN = Command.TAKEN & ~ANSWER
# Payload bytes of the kinds of frames whose length is fixed; TAKEN has none, RESULT as many as the engine gives.
_LENGTHS = {"identify": IDENTITY_FORMAT.size, "status": STATUS_FORMAT.size, "error": 1}
_KINDS = ("identify", "status", "error", "taken", "result")
# One register for each step of a frame, exactly one of them set, one for each byte of the CRC. What a step selects is
# in `_data` a cycle later, and is written to the memory then. `settle` lets the CRC take in the last byte; `close`
# selects the zero that ends the last COBS group, `delimit` the delimiter, which is written in step `raw`; `commit`
# waits until the half of the memory that is being sent is free.
_STEPS = data.StructLayout(
    {
        "idle": 1,
        "open": 1,
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

    Answers go before errors, errors before TAKEN, TAKEN before results. A frame is finished before the next one is
    begun: a RESULT waits for its last byte. In front of a frame's first byte the CRC takes in the session, which is the
    token of the last RESET.

    Parameters
    ----------
    identity: what the device says about itself; its `output_bytes` are the payload of the RESULT frames of one output.
    array_id: part of the answer to PROGRAM; the program then says how many bytes an output has. None: the device loads
        no programs.

    Members
    -------
    program: In(ProgramSignature), only with an `array_id`.
    i: stream of output bytes from the engine.
    o: stream of bytes to the host.
    ask, command, token, answered: a question of the receiver, as `FrameReceiver` gives it.
    error: In(1), strobe: an ERROR is due. reason: In(2), or In(3) with an `array_id`: why; that of the latest error is
        sent.
    taken: In(1), strobe: a TAKEN is due; taken_count: In(8), the count that it carries, read when it is built.
    reset: In(1), strobe: drops the frame that is being built and what is due; `token` is that of the RESET.
    clear, input_waits, output_waits: In(1), for the counters, as `StatusCounters` takes them.

    Timing
    ------
    A byte per cycle in and out; a frame of n payload bytes takes n + 12 cycles to build and n + 9 to send,
    at the same time as the next is built.
    """

    def __init__(self, identity: DeviceIdentity, array_id: int | None = None) -> None:
        self._identity = identity
        self._array_id = array_id
        self._lengths = _LENGTHS if array_id is None else {**_LENGTHS, "program": PROGRAM_FORMAT.size}
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(8))),
                "o": Out(stream.Signature(unsigned(8))),
                "ask": In(1),
                "command": In(COMMAND_BITS),
                "token": In(8),
                "answered": Out(1),
                "error": In(1),
                "reason": In(reason_bits(array_id is not None)),
                "taken": In(1),
                "taken_count": In(8),
                "reset": In(1),
                "clear": In(1),
                "input_waits": In(1),
                "output_waits": In(1),
                **({} if array_id is None else {"program": In(ProgramSignature())}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._cells = cells_of(platform)
        m.submodules.cobs = self._cobs = CobsEncoder()
        # The session goes into the CRC first: that of session 0, a zero byte, leads to the true initial content.
        m.submodules.crc = self._crc = Crc32(initial_before(0))
        m.submodules.counters = self._counters = StatusCounters()
        self._at = Signal(_STEPS, init={"idle": 1})
        kinds = _KINDS if self._array_id is None else (*_KINDS, "program")
        self._number, self._kind = Signal(COMMAND_BITS), Signal(data.StructLayout(dict.fromkeys(kinds, 1)))
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
            self._crc.enable.eq(self._strobe | self._at.command | self._at.crc.any()),
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
        error_due, taken_due, reason = Signal(), Signal(), Signal.like(self.reason)
        answering = Signal()
        m.d.comb += self.answered.eq(answering & self._at.sequence)
        # An answer begins only when the ring of counters will show its first byte in the right step.
        m.d.comb += self._begins.eq(
            Mux(self.ask, self._counters.ready, error_due | taken_due | self.i.valid) & self._at.idle
        )
        with m.If(self._at.idle):
            due = Mux(error_due, ERROR, Mux(taken_due, TAKEN, RESULT))
            m.d.sync += [
                answering.eq(self.ask),
                self._number.eq(Mux(self.ask, self.command, due)),
                self._kind.identify.eq(self.ask & (self.command == Command.IDENTIFY)),
                self._kind.status.eq(self.ask & (self.command == Command.STATUS)),
                self._kind.error.eq(~self.ask & error_due),
                self._kind.taken.eq(~self.ask & ~error_due & taken_due),
                self._kind.result.eq(~self.ask & ~error_due & ~taken_due),
            ]
            if self._array_id is not None:
                m.d.sync += self._kind.program.eq(self.ask & (self.command == Command.PROGRAM))
            with m.If(~self.ask):
                m.d.sync += error_due.eq(0)
            with m.If(~self.ask & ~error_due):
                m.d.sync += taken_due.eq(0)
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
        """Return whether the payload is complete with `_index` bytes."""
        # The length of each kind is a constant, so a bit of it is an OR of the kinds whose length has that bit.
        length, last = Signal(8), Signal()
        fixed = self._array_id is None
        longest = min(self._identity.output_bytes, PAYLOAD_LIMIT_BYTES) if fixed else PAYLOAD_LIMIT_BYTES
        lengths = {**self._lengths, "result": longest}
        for bit in range(len(length)):
            m.d.comb += length[bit].eq(
                Cat(self._kind[kind] for kind, value in lengths.items() if value >> bit & 1).any()
            )
        m.d.comb += last.eq(self._index == length)
        if not fixed:
            return self._last_of_program(m, last)
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

    def _last_of_program(self, m: Module, last: Signal) -> Signal:
        """Return whether the payload is complete, where the program says how many bytes an output has.

        `left` counts the bytes of an output that are still to come; between two outputs it follows the program. It is
        wide, so whether the next byte is the last one is a register, compared a cycle before.
        """
        left, at_end, inside = Signal((OUTPUT_LIMIT_BYTES - 1).bit_length()), Signal(), Signal()
        taken, last_or_end = Signal(), Signal()
        m.d.comb += [taken.eq(self.i.valid & self.i.ready), last_or_end.eq(last | (self._at.result & at_end))]
        m.d.sync += at_end.eq((left[2:] == 0) & (left[:2] == Mux(taken, 2, 1)))
        with m.If(taken):
            m.d.sync += [left.eq(left - 1), inside.eq(~at_end)]
        with m.Elif(~inside):
            m.d.sync += left.eq(self.program.output_bytes)
        with m.If(self.reset):
            m.d.sync += inside.eq(0)
        return last_or_end

    def _walk(self, m: Module, last: Signal) -> None:
        """Go through the steps of a frame, see `_STEPS`."""
        at, result = self._at, self._kind.result
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
            at.open.eq(self._begins),
            at.command.eq(at.open),
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
        """Take the byte of this step into `_data`: the sources, each gated by its step, are joined by OR."""
        at, table, session = self._at, self._table(m, reason), Signal(8)
        with m.If(self.reset):
            m.d.sync += session.eq(self.token)
        # Nothing is written in the step behind `open`: only the CRC takes in the session.
        m.d.sync += self._data.eq(
            table
            | Mux(at.open, session, 0)
            | Mux(at.command, self._number | ANSWER, 0)
            | Mux(at.result, self.i.payload, 0)
            | Mux(at.crc.any(), self._crc.low, 0)
        )

    def _table(self, m: Module, reason: Signal) -> Signal:
        """Return the byte of this step, where it is the sequence number or payload other than a result's.

        It is selected a cycle before its step, by gates that are chosen another cycle before that.
        """
        gates = self._gates(m)
        sources = {
            "token": self.token,
            "taken": self.taken_count,
            "results_low": self._counters.results[:8],
            "results_high": self._counters.results[8:],
            "bad_frames": self._counters.bad_frames,
            "ring": self._counters.ring,
            "reason": reason,
            "identity": self._identity_byte(m),
        }
        if self._array_id is not None:
            sources["program"] = self._program_byte(m, self._array_id)
        table = Signal(8)
        selected: Value = Const(0, 8)
        for name, source in sources.items():
            selected = selected | (source & gates[name].replicate(8))
        m.d.sync += table.eq(selected)
        # The gates close two cycles late; what they still let through must not get into the bytes of the CRC.
        with m.If(self._at.settle):
            m.d.sync += table.eq(0)
        return table

    def _gates(self, m: Module) -> dict[str, Signal]:
        """Return for each source whether the table takes it: registers, set two cycles before the byte's step.

        So here `_index` is two less than in that step.
        """
        at, kind, index = self._at, self._kind, self._index[:4]
        body = Signal()
        m.d.comb += body.eq(at.command | at.sequence | at.table)
        status = body & kind.status
        chosen = {
            "token": at.open & ~kind.result & ~kind.taken,
            "taken": at.open & kind.taken,
            "results_low": (at.open & kind.result) | (status & (index == PERIOD - 1)),
            "results_high": status & (index == PERIOD),
            "bad_frames": status & (index == PERIOD + 1),
            "ring": status & ((index < PERIOD - 1) | (index == 15)),
            "reason": body & kind.error,
            "identity": body & kind.identify,
        }
        if self._array_id is not None:
            chosen["program"] = body & kind.program
        gates = {name: Signal(name=f"gate_{name}") for name in chosen}
        m.d.sync += [gates[name].eq(value) for name, value in chosen.items()]
        return gates

    def _identity_byte(self, m: Module) -> Value:
        """Return the byte of the identity that `_index` points at, looked up a cycle before, when it is one less.

        There is a table for each bit: three LUT4, where synthesis would make far more of a table of bytes. They are
        cells of their own, so that another model's hash, or another clock, can be put in after place and route.
        """
        content = self._identity.pack().ljust(32, b"\0")
        # Byte 0 is looked up while `_index` is 255, which is 31 in five bits.
        content = content[1:] + content[:1]
        columns = [sum((value >> bit & 1) << number for number, value in enumerate(content)) for bit in range(8)]
        byte, low, high = Signal(8, name="identity_byte"), self._index[:4], self._index[4]
        bits = []
        for bit, column in enumerate(columns):
            first, second = (
                self._cells.lookup_table(m, f"identity_{part}_{bit}", column >> 16 * part & 0xFFFF, list(low))
                for part in range(2)
            )
            bits.append(Mux(high, second, first))
        m.d.sync += byte.eq(Cat(bits))
        return byte

    def _program_byte(self, m: Module, array_id: int) -> Signal:
        """Return the byte of the program's state that `_index` points at, in the order of `PROGRAM_FORMAT`.

        It is chosen a cycle before, when `_index` is one less. The state is read first: if it is READY, what follows
        belongs to that program.
        """
        program, byte = self.program, Signal(8)
        state, reason = Cat(program.state, C(0, 6)), Cat(program.reason, C(0, 5))
        following = Cat(reason, program.crc, program.output_bytes, C(array_id, 32))
        assert len(state) + len(following) == 8 * PROGRAM_FORMAT.size
        m.d.sync += byte.eq(Cat(following, C(0, 120 - len(following)), state).word_select(self._index[:4], 8))
        return byte

    def _send(self, m: Module) -> None:
        """Send one half of the memory, up to and including the delimiter, its only zero byte."""
        m.submodules.memory = memory = Memory(shape=unsigned(8), depth=512, init=[], attrs={"ram_style": "block"})
        write, read = memory.write_port(), memory.read_port()
        bank, busy = Signal(), Signal()
        position = Signal(8)
        # A block RAM's word comes late in the cycle, so it gets another one before anything looks at it.
        fetched, advance = Signal(), Signal()
        ends = self.o.valid & (self.o.payload == 0)
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            write.addr.eq(Cat(self._cobs.address, bank)),
            write.data.eq(self._cobs.write_data),
            write.en.eq(self._strobe),
            read.addr.eq(Cat(position, ~bank)),
            read.en.eq(advance),
            self._sent.eq(~busy),
        ]
        with m.If(advance):
            m.d.sync += [
                fetched.eq(busy & ~ends),
                self.o.valid.eq(fetched & ~ends),
                self.o.payload.eq(read.data),
                position.eq(position + 1),
            ]
            with m.If(ends):
                m.d.sync += busy.eq(0)
        # A frame begins with the code byte in front of its first byte, see `CobsEncoder.position`.
        with m.If(self._sent):
            m.d.sync += position.eq(Const(CobsEncoder.FIRST, 8))
        with m.If(self._hand_over):
            m.d.sync += [bank.eq(~bank), busy.eq(1)]
