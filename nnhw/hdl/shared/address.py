"""The addresses at which the memory is read: registers for address, row and column, and a memory of their steps."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.records import COUNT_BITS, EXTENT_BITS, LOOPS, step_words

START, NEXT, ONE = len(LOOPS), len(LOOPS) + 1, len(LOOPS) + 2
"""Entries of the memory of steps behind those of the loops: to the first word, the next record, the following word."""
ENTRIES = ONE + 1


class AddressWalker(wiring.Component):
    """Address, row and column of the word that is read; each goes on by the step of an entry.

    Members
    -------
    take: in, one bit for each memory word of an entry: `word` is that word, of the entry `group`.
    entry: in, which entry `advance` adds in the next cycle.
    clear: in, set all three to zero. advance: in, add the entry of the cycle before.
    not_height, not_width: in, complements of the tensor's height and width.
    address: out, of the word.
    border: out, row or column of the cycle before were outside of the tensor.
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        super().__init__(
            {
                "take": In(step_words(array)),
                "group": In(range(ENTRIES)),
                "word": In(array.word_bits),
                "entry": In(range(ENTRIES)),
                "clear": In(1),
                "advance": In(1),
                "not_height": In(COUNT_BITS),
                "not_width": In(COUNT_BITS),
                "address": Out(array.address_bits),
                "border": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        array = self.array
        bits = array.address_bits + 2 * EXTENT_BITS
        parts = []
        for index, low in enumerate(range(0, bits, array.word_bits)):
            size = min(array.word_bits, bits - low)
            # The last entry adds 1 to the address. No program writes it, so it is there from the start.
            init = [0] * ONE + [int(low == 0)]
            memory = Memory(shape=unsigned(size), depth=ENTRIES, init=init, attrs={"ram_style": "block"})
            m.submodules[f"steps_{index}"] = memory
            writer, reader = memory.write_port(), memory.read_port()
            m.d.comb += [
                writer.en.eq(self.take[index]),
                writer.addr.eq(self.group),
                writer.data.eq(self.word),
                reader.en.eq(1),
                reader.addr.eq(self.entry),
            ]
            parts.append(reader.data)
        steps = Cat(*parts)
        row, column = Signal(signed(EXTENT_BITS)), Signal(signed(EXTENT_BITS))
        place = 0
        for register in (self.address, row, column):
            step = steps[place : place + len(register)]
            place += len(register)
            with m.If(self.clear):
                m.d.sync += register.eq(0)
            with m.Elif(self.advance):
                m.d.sync += register.eq(register + step)
        # Read without its sign, a negative number is a large one: one comparison finds both ends of the tensor.
        m.d.sync += self.border.eq(_reaches(row, self.not_height) | _reaches(column, self.not_width))
        return m


def _reaches(number: Value, complement: Value) -> Value:
    """Return whether a number, read as unsigned, is at least another one, whose complement is given."""
    # The carry out of number + ~other + 1; the complement is extended by ones, the number itself would be by zeros.
    total = Cat(Const(1, 1), number) + Cat(Const(1, 1), complement, Const(-1, len(number) - len(complement)))
    return total[-1]
