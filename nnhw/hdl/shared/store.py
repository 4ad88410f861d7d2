"""The registers in front of the memory's input, for granules of codes, words of input, and the program."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig


class Collector(wiring.Component):
    """A shift register that collects the codes of a position, and takes the maximum of several positions.

    Members
    -------
    codes, valid: in, codes [drains] that leave the requantizers.
    store: in, with the first codes of a position: it is the last position of a pixel.
    clear: in, strobe: a record begins.
    full: out, strobe: `granule` has the codes of a pixel. granule: out.
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        code = signed(array.activation_bits)
        super().__init__(
            {
                "codes": In(data.ArrayLayout(code, array.drains)),
                "valid": In(1),
                "store": In(1),
                "clear": In(1),
                "granule": Out(array.granule_bits),
                "full": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        array, bits = self.array, self.array.activation_bits
        count, first, last = Signal(range(max(array.drain_cycles, 2))), Signal(), Signal()
        # At the low end of the register are the codes of the same lanes in the position before.
        joined = []
        for unit, code in enumerate(self.codes):
            old = self.granule[unit * bits : (unit + 1) * bits].as_signed()
            joined.append(Mux(first | (code > old), code, old))
        store: Value = self.store
        if array.drain_cycles > 1:
            kept = Signal()
            with m.If(self.valid & (count == 0)):
                m.d.sync += kept.eq(self.store)
            store = kept
        m.d.comb += last.eq(self.valid & (count == array.drain_cycles - 1))
        m.d.sync += self.full.eq(last & store)
        with m.If(self.valid):
            m.d.sync += self.granule.eq(Cat(self.granule[bits * array.drains :], *joined))
            if array.drain_cycles > 1:
                m.d.sync += count.eq(count + 1)
        with m.If(self.clear):
            m.d.sync += first.eq(1)
        with m.Elif(last):
            m.d.sync += first.eq(store)
        return m


class WriteRegister(wiring.Component):
    """The register in front of the memory's input.

    Parameters
    ----------
    beat_bits: bits of a beat of input.

    Members
    -------
    full: in, strobe: take `granule`, codes to store: several words, or a slice of one.
    take: in, strobe: take `beat`, the next part of a word, behind the parts before; the rest of the word becomes zero.
    by_bytes: in, a beat is a byte, in the lowest bits of `beat`.
    flush: in, with `take`: the word ends here. clear: in, the next part begins a word.
    free: in, the memory can be written in this cycle.
    word: out, for the memory's input.
    write_word: out, write `word`, made of beats. write_granule: out, write `word`, a part of a granule.
    part: out, number of that part. stored: out, it is the last one of its granule.
    tap: out, strobe: `content` is a granule to be stored.
    """

    def __init__(self, array: ArrayConfig, beat_bits: int) -> None:
        self.array, self.beat_bits = array, beat_bits
        self.width = max(array.word_bits, array.granule_bits)
        super().__init__(
            {
                "granule": In(array.granule_bits),
                "full": In(1),
                "beat": In(max(beat_bits, 8)),
                "take": In(1),
                "by_bytes": In(1),
                "flush": In(1),
                "clear": In(1),
                "free": In(1),
                "word": Out(array.word_bits),
                "write_word": Out(1),
                "write_granule": Out(1),
                "part": Out(range(max(array.parts, 2))),
                "stored": Out(1),
                "tap": Out(1),
                "content": Out(array.granule_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        array, word_bits = self.array, self.array.word_bits
        content = Signal(self.width)
        pending, fresh = Signal(), Signal(init=1)
        m.d.comb += [
            self.word.eq(content),
            self.content.eq(content),
            self.write_granule.eq(pending & self.free),
            self.stored.eq(self.write_granule & (self.part == array.parts - 1)),
        ]
        m.d.sync += self.tap.eq(self.full)
        with m.If(self.full):
            m.d.sync += pending.eq(1)
        with m.Elif(self.stored):
            m.d.sync += pending.eq(0)
        if array.parts > 1:
            with m.If(self.write_granule):
                m.d.sync += self.part.eq(self.part + 1)

        slots, end = self._slots(m)
        m.d.sync += self.write_word.eq(self.take & end)
        with m.If(self.clear):
            m.d.sync += fresh.eq(1)
        with m.Elif(self.take):
            m.d.sync += fresh.eq(end)
        moves = self.full | self.write_granule if array.parts > 1 else self.full
        size = word_bits // len(slots)
        repeated = Cat(*[self.granule] * (word_bits // min(array.granule_bits, word_bits)))[: self.width]
        beat_slots = len(self.beat) // size
        # What lies above in the register is zero when a granule comes, and the beat is zero while one is written: so a
        # plain OR joins them, without a multiplexer.
        beat = self.beat & (~pending).replicate(len(self.beat))
        for index, chosen in enumerate(slots):
            low = index * size
            above = content[low + word_bits : low + word_bits + size]
            mine = beat[index % beat_slots * size :][:size]
            with m.If(moves | (self.take & chosen)):
                m.d.sync += content[low : low + size].eq(Mux(self.full, repeated[low : low + size], mine) | above)
            with m.If(self.take & fresh & ~chosen):
                m.d.sync += content[low : low + size].eq(0)
        for low in range(word_bits, self.width, word_bits):
            above = content[low + word_bits : low + 2 * word_bits]
            with m.If(moves):
                full = self.full.replicate(word_bits)
                m.d.sync += content[low : low + word_bits].eq((self.granule[low : low + word_bits] & full) | above)
        return m

    def _slots(self, m: Module) -> tuple[list[Value], Value]:
        """Count the slots of a word, each as wide as a beat or a byte, whichever is shorter.

        Returns
        -------
        (for each slot whether it takes its part of the beat, the word ends with this beat).
        """
        size = min(self.beat_bits, 8)
        count = self.array.word_bits // size
        place = Signal(range(max(count, 2)))
        loading, beats = 8 // size, self.beat_bits // size
        step = Mux(self.by_bytes, loading, beats)
        end = self.flush | (place == (count - step)[: len(place)])
        with m.If(self.clear):
            m.d.sync += place.eq(0)
        with m.Elif(self.take):
            m.d.sync += place.eq(Mux(end, 0, place + step))
        chosen = []
        for index in range(count):
            by_byte, by_beat = (place // each == index // each for each in (loading, beats))
            chosen.append(Mux(self.by_bytes, by_byte, by_beat) if loading != beats else by_byte)
        return chosen, end
