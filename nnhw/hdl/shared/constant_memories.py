"""The memories of the requantizers' constants, of all lanes of the record that runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.hdl.cells import cells_of
from nnhw.hdl.memory import block_ram
from nnhw.hdl.shared.word_memory import WordRam

Span = tuple[int, int, int]
"""(number of a memory word of a lane's constants, first bit in it, end of the bits)."""


class Constants(wiring.Component):
    """A memory for each piece of a lane's constants, so that each is read in the cycle in which it is needed.

    Parameters
    ----------
    pieces: name -> (lowest bit, bits) in the number that the memory words of a lane make together.

    Members
    -------
    take: in, one bit for each memory word of a lane's constants: `word` is that word. group: in, of which lanes: those
        whose constants share words are a group.
    at_<piece>: in, position to read: that of the lanes position * drains + d, for all d in 0..drains - 1.
    <piece>: out, the piece of these lanes, d = 0 in the lowest bits, after the next edge.
    """

    def __init__(self, array: ArrayConfig, pieces: Mapping[str, tuple[int, int]]) -> None:
        self.array, self.pieces = array, pieces
        positions = range(max(array.drain_cycles, 2))
        super().__init__(
            {"take": In(array.constant_words), "word": In(array.word_bits), "group": In(range(max(array.lanes, 2)))}
            | {f"at_{name}": In(positions) for name in pieces}
            | {name: Out(bits * array.drains) for name, (_, bits) in pieces.items()}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        array = self.array
        # Where single bits of a block RAM's word can be written, the lanes that leave together share a memory.
        is_joined = array.drain_cycles > 1 and cells_of(platform).writes_single_bits
        for name, (low, bits) in self.pieces.items():
            units = [self._spans(low, bits, unit) for unit in range(array.drains)]
            words = [
                (self._joined if is_joined else self._apart)(m, f"{name}_{index}", spans, getattr(self, f"at_{name}"))
                for index, spans in enumerate(zip(*units, strict=True))
            ]
            m.d.comb += getattr(self, name).eq(Cat(*(word[unit] for unit in range(array.drains) for word in words)))
        return m

    def _spans(self, low: int, bits: int, unit: int) -> list[Span]:
        """Return the parts of memory words of which a piece of a unit's constants consists, lowest first."""
        array = self.array
        low += unit % array.constant_lanes * array.constant_bits
        # The piece is cut where a word ends.
        edges = sorted({low, low + bits, *range(0, low + bits, array.word_bits)} - set(range(low)))
        return [
            (start // array.word_bits, start % array.word_bits, start % array.word_bits + end - start)
            for start, end in itertools.pairwise(edges)
        ]

    def _apart(self, m: Module, name: str, spans: Sequence[Span], address: Value) -> list[Value]:
        """Add a memory for one span of each unit's constants; return their outputs."""
        words = []
        for unit, (index, first, end) in enumerate(spans):
            m.submodules[f"{name}_{unit}"] = ram = WordRam(self.array.drain_cycles, end - first, end - first)
            m.d.comb += [ram.write.eq(self._written(unit, index)), ram.i_data.eq(self.word[first:end])]
            m.d.comb += [ram.i_addr.eq(self._row()), ram.addr.eq(address)]
            words.append(ram.data)
        return words

    def _joined(self, m: Module, name: str, spans: Sequence[Span], address: Value) -> list[Value]:
        """Add one memory for one span of all units' constants; return the part of each unit in its output."""
        bits = spans[0][2] - spans[0][1]
        m.submodules[name] = memory = block_ram(self.array.drain_cycles, bits * len(spans))
        writer, reader = memory.write_port(granularity=bits), memory.read_port()
        m.d.comb += [
            writer.en.eq(Cat(self._written(unit, index) for unit, (index, _, _) in enumerate(spans))),
            writer.addr.eq(self._row()),
            writer.data.eq(Cat(self.word[first:end] for _, first, end in spans)),
            reader.en.eq(1),
            reader.addr.eq(address),
        ]
        return [reader.data[unit * bits : (unit + 1) * bits] for unit in range(len(spans))]

    def _written(self, unit: int, index: int) -> Value:
        """Return whether `word` is now word `index` of a unit's constants."""
        joined = self.array.constant_lanes
        groups = (self.array.drains // joined - 1).bit_length()
        return self.take[index] & (self.group[:groups] == unit // joined) if groups else self.take[index]

    def _row(self) -> Value:
        """Return the position to which the constants in `word` belong."""
        return self.group >> (self.array.drains // self.array.constant_lanes - 1).bit_length()
