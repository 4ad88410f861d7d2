"""Loads a program into the memory, and checks its image while it passes."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.hdl.link.crc import INITIAL, step
from nnhw.protocol import PROGRAM_HEADER, PROGRAM_MAGIC, PROGRAM_TRAILER, ProgramState, Refusal


class _Phase(enum.Enum):
    """Where in an image the loader is. Body and trailer have a bit each: what they enable leaves no time to decode."""

    IDLE = 0
    HEADER = 1
    VERDICT = 2
    DONE = 3
    BODY = 4
    TRAILER = 8


class Loader(wiring.Component):
    """Takes an image byte by byte.

    A load begins with the first byte after a reset; bytes behind its end, or after it was refused, are dropped. The
    registers of the status have no reset: a program survives a reset of the engine.

    Parameters
    ----------
    array: the array that programs must be made for.
    preloaded: (CRC, bytes of an output) of a program that a simulation has in the memory from the start; None: none.
    can_forget: there is the input `forget`, with which another component makes the engine drop its program.

    Members
    -------
    forget: in, strobe: drop the program; only if `can_forget`.
    i: stream of bytes, always ready.
    take: out, strobe: the byte of `i` belongs to the body.
    body: out, the next byte belongs to the body.
    state, reason, crc, output_bytes: out, see `ProgramSignature`.
    ready: out, there is a program; one cycle late.
    """

    def __init__(self, array: ArrayConfig, preloaded: tuple[int, int] | None = None, can_forget: bool = False) -> None:
        self.array, self.preloaded, self.can_forget = array, preloaded, can_forget
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "take": Out(1),
                "body": Out(1),
                "state": Out(ProgramState),
                "reason": Out(Refusal),
                "crc": Out(32),
                "output_bytes": Out(32),
                "ready": Out(1),
                **({"forget": In(1)} if can_forget else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        crc, output_bytes = self.preloaded or (0, 0)
        # Without a reset: a reset of the engine must not lose the program, which is in a memory that has none either.
        begin = ProgramState.READY if self.preloaded else ProgramState.EMPTY
        stored = Signal(ProgramState, reset_less=True, init=begin)
        reason = Signal(Refusal, reset_less=True)
        phase, count = Signal(_Phase), Signal(range(PROGRAM_HEADER.size))
        active = Signal()
        m.d.comb += [
            self.i.ready.eq(1),
            active.eq((phase != _Phase.IDLE) & (phase != _Phase.DONE)),
            self.state.eq(Mux(active, ProgramState.LOADING, stored)),
            self.reason.eq(Mux(active, Refusal.NONE, reason)),
            self.body.eq(phase[2]),
            self.take.eq(self.body & self.i.valid),
        ]
        m.d.sync += self.ready.eq((stored == ProgramState.READY) & ~active)
        heading = (phase == _Phase.IDLE) | (phase == _Phase.HEADER)
        wrong, left_end, unfit = self._header(m, heading, count, output_bytes)
        differs = self._checksum(m, phase, phase == _Phase.IDLE, crc)
        failed, heading_end = Signal(), Signal()
        with m.If(self.i.valid):
            m.d.sync += [count.eq(count + 1), heading_end.eq(count == PROGRAM_HEADER.size - 2)]
            with m.Switch(phase):
                with m.Case(_Phase.IDLE, _Phase.HEADER):
                    m.d.sync += [stored.eq(ProgramState.EMPTY), phase.eq(_Phase.HEADER), failed.eq(0)]
                    with m.If(heading_end):
                        m.d.sync += [count.eq(0), phase.eq(_Phase.BODY)]
                        found = Mux(wrong[0], Refusal.NO_IMAGE, Mux(wrong[1], Refusal.OTHER_ARRAY, Refusal.LENGTH))
                        m.d.sync += reason.eq(found)
                        with m.If(wrong.any() | unfit):
                            m.d.sync += [stored.eq(ProgramState.REFUSED), phase.eq(_Phase.DONE)]
                with m.Case(_Phase.BODY):
                    with m.If(left_end):
                        m.d.sync += [phase.eq(_Phase.TRAILER), count.eq(0)]
                with m.Case(_Phase.TRAILER):
                    m.d.sync += failed.eq(failed | differs)
                    with m.If(count == PROGRAM_TRAILER.size - 1):
                        m.d.sync += phase.eq(_Phase.VERDICT)
        if self.can_forget:
            with m.If(self.forget):
                m.d.sync += stored.eq(ProgramState.EMPTY)
        with m.If(phase == _Phase.VERDICT):
            m.d.sync += [
                phase.eq(_Phase.DONE),
                stored.eq(Mux(failed, ProgramState.REFUSED, ProgramState.READY)),
                reason.eq(Mux(failed, Refusal.CHECKSUM, Refusal.NONE)),
            ]
        return m

    def _header(self, m: Module, heading: Value, count: Signal, output_bytes: int) -> tuple[Signal, Value, Value]:
        """Check the header's bytes and keep its numbers.

        Returns
        -------
        (which of magic and id are wrong, the byte is the last one of the body, the body's length is not possible).
        """
        array, valid = self.array, self.i.valid & heading
        word_bytes = array.word_bits // 8
        known = PROGRAM_MAGIC + array.id.to_bytes(4, "little")
        expected: Value = Const(0, 8)
        for index, byte in enumerate(known):
            expected = Mux(count[:3] == index, byte, expected)
        # Magic and id are judged a cycle late, which is early enough: the verdict is needed at the header's end.
        wrong, differs, checked, begins, word = Signal(2), Signal(), Signal(), Signal(), Signal()
        m.d.sync += [differs.eq(self.i.payload != expected), checked.eq(valid & ~count[3])]
        m.d.sync += [begins.eq(count[:2] == 0), word.eq(count[2])]
        with m.If(checked):
            m.d.sync += wrong.bit_select(word, 1).eq(differs | (wrong.bit_select(word, 1) & ~begins))
        # The body's length and then the bytes of an output are shifted through the same register.
        sent, come = Signal(32, reset_less=True, init=output_bytes), Signal()
        m.d.comb += self.output_bytes.eq(sent)
        m.d.sync += come.eq(valid & (count == 11))
        with m.If(valid):
            with m.If(count[3]):
                m.d.sync += sent.eq(Cat(sent[8:], self.i.payload))
        return wrong, *self._length(m, come, sent, word_bytes)

    def _length(self, m: Module, come: Value, length: Signal, word_bytes: int) -> tuple[Value, Value]:
        """Keep the body's length, and count its bytes; see `_header`.

        Parameters
        ----------
        come: strobe, in the cycle behind the last byte of `length`.
        """
        most = self.array.words * word_bytes
        left, beyond, unfit, last = Signal(range(most + 1)), Signal(), Signal(), Signal()
        with m.If(come):
            m.d.sync += [left.eq(length), beyond.eq(length[len(left) :] != 0), last.eq(0)]
        with m.Elif(self.take):
            m.d.sync += [left.eq(left - 1), last.eq(left == 2)]
        partial = left[: (word_bytes - 1).bit_length()] != 0
        m.d.sync += unfit.eq(beyond | partial | (left == 0) | (left > most))
        return last, unfit

    def _checksum(self, m: Module, phase: Signal, first: Value, crc: int) -> Value:
        """Add the CRC-32 register; return whether the byte of `i` differs from its lowest byte.

        During the trailer the register is rotated by a byte at a time; behind it, it holds the checksum again.
        """
        state = Signal(32, reset_less=True, init=crc ^ 0xFFFFFFFF)
        mixed, trailer = Signal(8), Signal()
        m.d.comb += [
            trailer.eq(phase[3]),
            mixed.eq(Mux(trailer, 0, state[:8] ^ self.i.payload)),
            self.crc.eq(~state),
        ]
        columns = [step(0, 1 << bit) for bit in range(8)]
        following = []
        for bit in range(32):
            term: Value = state[bit + 8] if bit < 24 else state[bit - 24] & trailer
            for column, source in zip(columns, mixed, strict=True):
                if column >> bit & 1:
                    term = term ^ source
            following.append(term)
        with m.If(self.i.valid & (phase != _Phase.DONE) & (phase != _Phase.VERDICT)):
            m.d.sync += state.eq(Cat(*following))
        # The first byte need not be taken in: an image that begins with another one is refused anyway.
        with m.If(self.i.valid & first):
            m.d.sync += state.eq(step(INITIAL, PROGRAM_MAGIC[0]))
        return ~state[:8] != self.i.payload
