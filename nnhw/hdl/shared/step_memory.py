"""Steps that all channels of a layer share, of all layers, in memories that a program fills; see `RankedSteps`."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Member, Out

from nnhw.engines.shared.array import CELLS_LOG2, ArrayConfig
from nnhw.engines.shared.cycles import LOOKUP_CYCLES
from nnhw.hdl.memory import block_ram
from nnhw.hdl.ranks import place_in_word


class StepWriter(wiring.Component):
    """Put the words of a row together, and count the rows.

    Members
    -------
    take: in, strobe: a word has come. word: in.
    write: out, strobe: a row is whole. row: out, its number. entry: out, its bits.
    """

    def __init__(self, array: ArrayConfig) -> None:
        assert array.step_memory is not None
        self.array = array
        rows = array.step_memory.rows
        super().__init__(
            {"take": In(1), "word": In(array.word_bits), "write": Out(1), "row": Out(range(rows))}
            | {"entry": Out(array.entry_bits)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parts, word = self.array.entry_words, self.word
        whole: Value = self.take
        if parts > 1:
            held, turn = Signal((parts - 1) * self.array.word_bits, reset_less=True), Signal(parts, init=1)
            with m.If(self.take):
                m.d.sync += [held.eq(Cat(held, word)[self.array.word_bits :]), turn.eq(turn.rotate_left(1))]
            whole, word = self.take & turn[-1], Cat(held, word)
        m.d.comb += [self.write.eq(whole), self.entry.eq(word[: self.array.entry_bits])]
        with m.If(self.write):
            m.d.sync += self.row.eq(self.row + 1)
        return m


def step_ports(array: ArrayConfig) -> dict[str, Member]:
    """Return the ports of what fills and reads a step memory, if there is one."""
    memory = array.step_memory
    if memory is None:
        return {}
    sizes = {"write": 1, "row": range(memory.rows), "entry": array.entry_bits}
    return {name: In(size) for name, size in (sizes | {"stepped": 1, "ranks": memory.word_address_bits}).items()}


class StepLookup(wiring.Component):
    """The code of a number, of which a line has said the word; or the line's own code, as late.

    Members
    -------
    write, row, entry: in, of a `StepWriter`.
    stepped, ranks: in, fields of the descriptor.
    low: in, the bits of a number below its word. word: in, three cycles later, its word, or the code of a line.
    code: out, `LOOKUP_CYCLES` behind `word`.
    """

    def __init__(self, array: ArrayConfig) -> None:
        assert array.step_memory is not None
        self.array, self.memory = array, array.step_memory
        code = signed(array.activation_bits)
        super().__init__(step_ports(array) | {"low": In(self.memory.low_bits), "word": In(code), "code": Out(code)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memory, code_bits = self.memory, self.array.activation_bits
        low = self._delay(m, "low", self.low, 3)
        cell = self._delay(m, "cell", low[memory.place_bits :], 2)
        # What waits for the step is the place in its cell, or the code of a line.
        carried = max(memory.place_bits, code_bits)
        passing = Mux(self.stepped, low[: memory.place_bits], Cat(self.word)[:carried])
        passing = self._delay(m, "passing", passing[:carried], 7)
        address = self._delay(m, "address", (self.ranks + self.word)[: memory.word_address_bits], 1)
        ranks = self._read(m, "ranks", address, 0, memory.rank_bits, memory.words)
        cells = 1 << CELLS_LOG2
        above = [self._delay(m, f"above_{k}", cell > k, 1) for k in range(cells - 1)]
        count, has_step = place_in_word(ranks[:cells], above, self._delay(m, "cell_late", cell, 1))
        count, below = self._delay(m, "inside", count, 1), self._delay(m, "below", ranks[cells:], 1)
        index = self._delay(m, "index", (below + count)[: memory.place_address_bits], 1)
        has_step = self._delay(m, "has_step", has_step, 4)
        step = self._read(m, "places", index, memory.rank_bits, memory.place_bits, memory.places)
        reached = self._delay(m, "reached", has_step & (passing[: memory.place_bits] >= step), 1)
        index = self._delay(m, "index_late", index, 3)
        total = self._delay(m, "count", (index + reached)[: memory.place_address_bits], 1)
        found = self._read(m, "codes", total, memory.rank_bits + memory.place_bits, code_bits, memory.places)
        passing = self._delay(m, "passed", passing[:code_bits], LOOKUP_CYCLES - 7)
        m.d.comb += self.code.eq(Mux(self.stepped, found, passing).as_signed())
        return m

    def _read(self, m: Module, name: str, address: Value, low: int, bits: int, rows: int) -> Value:
        """Return a word of a memory that has so many bits of each entry, two cycles behind its address."""
        m.submodules[name] = ram = block_ram(rows, bits)
        writer, reader = ram.write_port(), ram.read_port()
        place = (rows - 1).bit_length()
        m.d.comb += [
            # An entry has a part for each of the three memories, some of which have fewer rows than others.
            writer.en.eq(self.write & ~self.row[place:].any()),
            writer.addr.eq(self.row[:place]),
            writer.data.eq(self.entry[low : low + bits]),
            reader.en.eq(1),
            reader.addr.eq(address),
        ]
        return self._delay(m, f"{name}_read", reader.data, 1)

    def _delay(self, m: Module, name: str, value: Value, cycles: int) -> Value:
        for index in range(cycles):
            later = Signal(unsigned(len(value)), name=f"{name}_{index}", reset_less=True)
            m.d.sync += later.eq(value)
            value = later
        return value
