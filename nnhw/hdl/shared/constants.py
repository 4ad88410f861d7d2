"""The requantizer's constants of all lanes, in block RAM."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.hdl.cells import cells_of
from nnhw.hdl.memory import block_ram
from nnhw.hdl.shared.memory import WordRam

Span = tuple[int, int, int]
"""A word of a lane, and a range of its bits."""


class Constants(wiring.Component):
    """A memory for each piece of a lane's constants, so that each is read in the cycle in which it is needed.

    Parameters
    ----------
    pieces: name -> (lowest bit, bits) in what the words of a lane make together.

    Members
    -------
    take: in, one bit for each word of a lane: it is the word in `word`, and belongs to the lanes that share it, the
    `group`-th such.
    at_<piece>: in, position: of the lanes `position * drains + d`.
    <piece>: out, those of all d, after the next edge.
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
        # Where block RAMs are written bit by bit, those of all lanes that leave at once lie in one.
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
        """Return the words in which a piece of a unit's constants lies: which, and from which bit to which."""
        array = self.array
        low += unit % array.constant_lanes * array.constant_bits
        edges = sorted({low, low + bits, *range(0, low + bits, array.word_bits)} - set(range(low)))
        return [
            (start // array.word_bits, start % array.word_bits, start % array.word_bits + end - start)
            for start, end in itertools.pairwise(edges)
        ]

    def _apart(self, m: Module, name: str, spans: Sequence[Span], address: Value) -> list[Value]:
        """Add a memory for a word of each unit's constants; return their outputs."""
        words = []
        for unit, (index, first, end) in enumerate(spans):
            m.submodules[f"{name}_{unit}"] = ram = WordRam(self.array.drain_cycles, end - first, end - first)
            m.d.comb += [ram.write.eq(self._written(unit, index)), ram.i_data.eq(self.word[first:end])]
            m.d.comb += [ram.i_addr.eq(self._row()), ram.addr.eq(address)]
            words.append(ram.data)
        return words

    def _joined(self, m: Module, name: str, spans: Sequence[Span], address: Value) -> list[Value]:
        """Add one memory for a word of all units' constants; return the outputs of each."""
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
        """Return whether a word of a unit's constants has come."""
        joined = self.array.constant_lanes
        groups = (self.array.drains // joined - 1).bit_length()
        return self.take[index] & (self.group[:groups] == unit // joined) if groups else self.take[index]

    def _row(self) -> Value:
        """Return the position whose constants come."""
        return self.group >> (self.array.drains // self.array.constant_lanes - 1).bit_length()
