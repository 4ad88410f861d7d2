"""The registers for the fields of a record's descriptor: each takes its bits from the memory word that has them."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.records import OVERLAID, SIGNED, STEPS, descriptor_words, layout
from nnhw.hdl.shared.iterations import iterations

_TARGET = ("target", "target_step", "target_row")
"""Fields of the address that is written, which share registers: see `Descriptor.elaborate`."""
_INVERTED = ("low", "high", "height", "width", "pivot")
"""Fields whose registers hold the complement."""


def field_shapes(array: ArrayConfig) -> Mapping[str, Shape]:
    """Return the shapes of the fields that are registers, no wider than the array needs them.

    Steps of addresses are in a memory instead (`AddressWalker`), and the target address in `Descriptor.target`.
    """
    table = {name for names in STEPS for name in names}
    needed = {"rows": (array.rows - 1).bit_length() + 1, "outputs": max((array.lanes - 1).bit_length(), 1)}
    needed |= {"steps": max((array.steps_per_word - 1).bit_length(), 1)}
    shapes = {}
    for name, (_, bits) in layout(array).items():
        if name not in table and name not in _TARGET:
            width = min(bits, needed.get(name, bits))
            shapes[name] = signed(width) if name in SIGNED else unsigned(width)
    return shapes


class Descriptor(wiring.Component):
    """All fields of the record that runs.

    Members
    -------
    take: in, one bit for each memory word of a descriptor: `word` is that word.
    word: in, a word from memory.
    written: in, strobe: a word is written at `target`. stored: in, with it: it is the last one of its pixel.
    streams: in, strobe: a word of weights is read at `target`. streamed_all: in, strobe: it was the last one. Both only
        with `ArrayConfig.weight_stream`.
    clear: in, strobe: a record begins.
    target: out, address at which the next word of a pixel is written, or the next streamed weights are read.
    not_low, not_high, not_height, not_width, not_pivot: out, complements of these fields.
    <field>: out, for each of the other `field_shapes`.
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        members = {"take": In(descriptor_words(array)), "word": In(array.word_bits), "clear": In(1)}
        members |= {"written": In(1), "stored": In(1)}
        members |= {"streams": In(1), "streamed_all": In(1)} if array.weight_stream else {}
        fields = {_output(name): Out(shape) for name, shape in field_shapes(array).items()}
        super().__init__({**members, "target": Out(array.address_bits), **fields})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, shape in field_shapes(self.array).items():
            if name in OVERLAID:
                m.d.comb += getattr(self, name).eq(Cat(getattr(self, part) for part in OVERLAID[name]))
            else:
                self._load(m, name, getattr(self, _output(name)), shape.width)
        # The field `target` comes first, through the register of `target_step`, and is added to a target of zero: that
        # saves a multiplexer. So `target_step` must lie in a later word, see `records.layout`.
        step, first = Signal(self.array.address_bits), Signal()
        for name in _TARGET[:2]:
            self._load(m, name, step, len(step))
        m.d.sync += first.eq(self.take[self._word(_TARGET[0])])
        moves, by_step, many = first | self.written, first | self.stored, self.array.parts > 1
        if self.array.weight_stream:
            moves, by_step, many = moves | self.streams | self.streamed_all, by_step | self.streamed_all, True
        pixel_step = self._pixel_step(m, step) if self.array.row_steps else step
        with m.If(self.clear):
            m.d.sync += self.target.eq(0)
        with m.Elif(moves):
            m.d.sync += self.target.eq(self.target + (Mux(by_step, pixel_step, 1) if many else pixel_step))
        return m

    def _pixel_step(self, m: Module, step: Signal) -> Value:
        """Return the step to the next pixel: another one behind the last pixel of a row."""
        row_step, anew = Signal.like(step), Signal()
        self._load(m, "target_row", row_step, len(row_step))
        # A cycle after each word of the descriptor, so that the count of columns is there in the last of these cycles.
        m.d.sync += anew.eq(self.take.any())
        ends = iterations(m, "columns", self.x_count, self.stored, anew, self.x_single)
        return Mux(ends & self.stored, row_step, step)

    def _word(self, name: str) -> int:
        """Return the number of the memory word of a descriptor that has a field."""
        return layout(self.array)[name][0] // self.array.word_bits

    def _load(self, m: Module, name: str, register: Signal, bits: int) -> None:
        """Load a register with the lowest `bits` bits of a field, when its word comes."""
        low = layout(self.array)[name][0] % self.array.word_bits
        field = self.word[low : low + bits]
        with m.If(self.take[self._word(name)]):
            m.d.sync += register.eq(~field if name in _INVERTED else field)


def _output(name: str) -> str:
    """Return the name of the output for a field."""
    return f"not_{name}" if name in _INVERTED else name
