"""Transfers of tensors from the input stream to memory, and from memory to the output stream."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.records import SIZE_BITS, RecordKind
from nnhw.hdl.shared.iterations import iterations


class Transfers(wiring.Component):
    """Counts and moves the elements of `Fill` and `Emit`.

    Members
    -------
    fill, emit: in, a record of this kind runs, up to and including the cycle of `ending`.
    anew: in, a record may run next: the counters go to their start.
    kind, pixels, pixels_single, elements, elements_single, flip: in, fields of the descriptor.
    i: stream of beats. take, beat, flush: out, to `WriteRegister`; `flush` comes with the last element of a pixel.
    read: out, read the next word. word: in, the lowest `simd` codes of that word. shift: out, shift it by these codes.
    o: stream of bytes, an element each.
    ending: out, the last cycle of a record's work. done: out, a cycle later.

    Timing: a beat comes in each cycle; an element leaves each cycle, with two more cycles for each word.
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        beat = data.ArrayLayout(unsigned(array.activation_bits), array.i_lanes)
        super().__init__(
            {
                "fill": In(1),
                "emit": In(1),
                "anew": In(1),
                "kind": In(2),
                "pixels": In(SIZE_BITS),
                "elements": In(SIZE_BITS),
                "pixels_single": In(1),
                "elements_single": In(1),
                "flip": In(1),
                "i": In(stream.Signature(beat)),
                "take": Out(1),
                "beat": Out(array.i_lanes * array.activation_bits),
                "flush": Out(1),
                "word": In(array.simd * array.activation_bits),
                "read": Out(1),
                "shift": Out(1),
                "o": Out(stream.Signature(8)),
                "ending": Out(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sent = Signal()
        # Inverting the top bit of an unsigned code subtracts half of its range: inside, codes are signed.
        flipped = [Cat(code[:-1], code[-1] ^ self.flip) for code in self.i.payload]
        m.d.comb += [
            self.i.ready.eq(self.fill),
            self.take.eq(self.i.ready & self.i.valid),
            self.beat.eq(Cat(*flipped)),
        ]
        self._count(m, self.take | sent)
        self._emit(m, sent)
        return m

    def _count(self, m: Module, step: Value) -> None:
        """Count beats or elements, and pixels; `flush` is high with the last element of a pixel."""
        # A beat has `i_lanes` elements, a power of two, so the beats of a pixel are the upper bits of its elements.
        skipped, anew = (self.array.i_lanes - 1).bit_length(), self.anew
        limit: Value = self.elements
        if skipped:
            limit = Mux(self.kind == RecordKind.FILL, self.elements[skipped:], self.elements)
        m.d.comb += self.flush.eq(iterations(m, "element", limit, step, anew, self.elements_single))
        last = iterations(m, "pixel", self.pixels, step & self.flush, anew, self.pixels_single, wraps=False)
        m.d.comb += self.ending.eq(step & self.flush & last)
        m.d.sync += self.done.eq(self.ending)

    def _emit(self, m: Module, sent: Signal) -> None:
        """Read a word, wait a cycle for it, send its elements."""
        array, bits = self.array, self.array.activation_bits
        place, waiting, sending = Signal(range(array.codes_per_word)), Signal(), Signal()
        within = (array.simd - 1).bit_length()
        code = self.word.word_select(place[:within], bits) if within else self.word
        top = code[-1] ^ self.flip
        # Codes that are flipped are unsigned outside, and filled up with zeros; others with their sign.
        fill = (top & ~self.flip).replicate(8 - bits)
        m.d.comb += [
            self.read.eq(self.emit & ~waiting & ~sending),
            self.o.valid.eq(sending),
            self.o.payload.eq(Cat(code[:-1], top, fill)),
            sent.eq(sending & self.o.ready),
            self.shift.eq(sent & place[:within].all() if within else sent),
        ]
        m.d.sync += waiting.eq(self.read)
        with m.If(~self.emit):
            m.d.sync += sending.eq(0)
        with m.Elif(waiting):
            m.d.sync += [sending.eq(1), place.eq(0)]
        with m.Elif(sent):
            m.d.sync += [sending.eq(~(self.flush | (place == array.codes_per_word - 1))), place.eq(place + 1)]
