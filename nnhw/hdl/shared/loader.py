"""The way of a program into the memory: its image is checked while it passes."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.program import HEADER, MAGIC, TRAILER
from nnhw.hdl.link.crc import INITIAL, step


class Status(enum.Enum, shape=2):  # type: ignore[call-arg]
    """Whether there is a program."""

    EMPTY = 0
    LOADING = 1
    READY = 2
    REFUSED = 3


class Refusal(enum.Enum, shape=3):  # type: ignore[call-arg]
    """Why an image was refused."""

    NONE = 0
    MAGIC = 1
    ARRAY = 2
    LENGTH = 3
    CHECKSUM = 4


class _Phase(enum.Enum):
    IDLE = 0
    HEADER = 1
    BODY = 2
    TRAILER = 3
    VERDICT = 4
    DONE = 5


class Loader(wiring.Component):
    """Take an image, byte by byte.

    A load begins with the first byte behind a reset; what comes behind its end, or after it was refused, is dropped.
    The registers of the status are not reset: a program outlives a reset.

    Parameters
    ----------
    crc, output_bytes: of a program that simulation finds in the memory; None: there is none.

    Members
    -------
    i: stream of bytes, always ready.
    take: out, the byte belongs to the body. body: out, bytes of the body come, or were the last ones.
    state, reason, crc, output_bytes: out, status.
    ready: out, a cycle late, there is a program.
    """

    def __init__(self, array: ArrayConfig, preloaded: tuple[int, int] | None = None) -> None:
        self.array, self.preloaded = array, preloaded
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "take": Out(1),
                "body": Out(1),
                "state": Out(Status),
                "reason": Out(Refusal),
                "crc": Out(32),
                "output_bytes": Out(32),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        crc, output_bytes = self.preloaded or (0, 0)
        stored = Signal(Status, reset_less=True, init=Status.READY if self.preloaded else Status.EMPTY)
        reason = Signal(Refusal, reset_less=True)
        phase, count = Signal(_Phase), Signal(range(HEADER.size))
        active = Signal()
        m.d.comb += [
            self.i.ready.eq(1),
            active.eq((phase != _Phase.IDLE) & (phase != _Phase.DONE)),
            self.state.eq(Mux(active, Status.LOADING, stored)),
            self.reason.eq(Mux(active, Refusal.NONE, reason)),
            self.body.eq(phase == _Phase.BODY),
            self.take.eq(self.body & self.i.valid),
        ]
        m.d.sync += self.ready.eq((stored == Status.READY) & ~active)
        heading = (phase == _Phase.IDLE) | (phase == _Phase.HEADER)
        wrong, left_end, unfit = self._header(m, heading, count, output_bytes)
        differs = self._checksum(m, phase, phase == _Phase.IDLE, crc)
        failed = Signal()
        with m.If(self.i.valid):
            m.d.sync += count.eq(count + 1)
            with m.Switch(phase):
                with m.Case(_Phase.IDLE, _Phase.HEADER):
                    m.d.sync += [stored.eq(Status.EMPTY), phase.eq(_Phase.HEADER), failed.eq(0)]
                    with m.If(count == HEADER.size - 1):
                        m.d.sync += [count.eq(0), phase.eq(_Phase.BODY)]
                        found = Mux(wrong[0], Refusal.MAGIC, Mux(wrong[1], Refusal.ARRAY, Refusal.LENGTH))
                        m.d.sync += reason.eq(found)
                        with m.If(wrong.any() | unfit):
                            m.d.sync += [stored.eq(Status.REFUSED), phase.eq(_Phase.DONE)]
                with m.Case(_Phase.BODY):
                    with m.If(left_end):
                        m.d.sync += [phase.eq(_Phase.TRAILER), count.eq(0)]
                with m.Case(_Phase.TRAILER):
                    m.d.sync += failed.eq(failed | differs)
                    with m.If(count == TRAILER.size - 1):
                        m.d.sync += phase.eq(_Phase.VERDICT)
        with m.If(phase == _Phase.VERDICT):
            m.d.sync += [
                phase.eq(_Phase.DONE),
                stored.eq(Mux(failed, Status.REFUSED, Status.READY)),
                reason.eq(Mux(failed, Refusal.CHECKSUM, Refusal.NONE)),
            ]
        return m

    def _header(self, m: Module, heading: Value, count: Signal, output_bytes: int) -> tuple[Signal, Value, Value]:
        """Check the header's bytes and keep its numbers.

        Returns
        -------
        Whether magic and id are wrong, whether a byte is the last of the body, whether the body has no fitting length.
        """
        array, valid = self.array, self.i.valid & heading
        word_bytes = array.word_bits // 8
        known = MAGIC + array.id.to_bytes(4, "little")
        expected: Value = Const(0, 8)
        for index, byte in enumerate(known):
            expected = Mux(count[:3] == index, byte, expected)
        wrong, differs = Signal(2), Signal()
        m.d.comb += differs.eq(self.i.payload != expected)
        sent = Signal(32, reset_less=True, init=output_bytes)
        m.d.comb += self.output_bytes.eq(sent)
        with m.If(valid):
            for index in range(2):
                with m.If(count[2:] == index):
                    m.d.sync += wrong[index].eq(differs | (wrong[index] & (count[:2] != 0)))
            with m.If(count[2:] == 3):
                m.d.sync += sent.eq(Cat(sent[8:], self.i.payload))
        return wrong, *self._length(m, valid & (count[2:] == 2), count[:2], word_bytes)

    def _length(self, m: Module, valid: Value, place: Value, word_bytes: int) -> tuple[Value, Value]:
        """Keep the body's length, and count its bytes; see `_header`."""
        most = self.array.words * word_bytes
        left, beyond, unfit, last = Signal(range(most + 1)), Signal(), Signal(), Signal()
        for index in range(4):
            low, high = 8 * index, min(8 * index + 8, len(left))
            with m.If(valid & (place == index)):
                if low < high:
                    m.d.sync += left[low:high].eq(self.i.payload)
                rest = self.i.payload[max(high - low, 0) :]
                m.d.sync += [beyond.eq((beyond if index else 0) | (rest != 0)), last.eq(0)]
        with m.If(self.take):
            m.d.sync += [left.eq(left - 1), last.eq(left == 2)]
        partial = left[: (word_bytes - 1).bit_length()] != 0
        m.d.sync += unfit.eq(beyond | partial | (left == 0) | (left > most))
        return last, unfit

    def _checksum(self, m: Module, phase: Signal, first: Value, crc: int) -> Value:
        """Add the CRC-32 register; return whether a byte of the trailer differs from it.

        Behind the trailer the register has turned once around, so that it still holds the checksum.
        """
        state = Signal(32, reset_less=True, init=crc ^ 0xFFFFFFFF)
        mixed, trailer = Signal(8), Signal()
        m.d.comb += [
            trailer.eq(phase == _Phase.TRAILER),
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
        # An image that begins with another byte is refused anyway.
        with m.If(self.i.valid & first):
            m.d.sync += state.eq(step(INITIAL, MAGIC[0]))
        return ~state[:8] != self.i.payload
