"""The requantizer's constants of all lanes, in block RAM."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.hdl.shared.memory import WordRam


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
        joined = self.array.constant_lanes
        groups = (self.array.drains // joined - 1).bit_length()
        for name, (low, bits) in self.pieces.items():
            data = []
            for unit in range(self.array.drains):
                mine = Signal(name=f"mine_{name}_{unit}")
                m.d.comb += mine.eq(self.group[:groups] == unit // joined if groups else 1)
                first = low + unit % joined * self.array.constant_bits
                data.append(self._unit(m, f"{name}_{unit}", first, first + bits, mine, getattr(self, f"at_{name}")))
            m.d.comb += getattr(self, name).eq(Cat(*data))
        return m

    def _unit(self, m: Module, name: str, low: int, high: int, mine: Value, address: Value) -> Value:
        """Add the memories of bits low to high - 1, one for each word that they lie in."""
        array, parts = self.array, []
        for index in range(low // array.word_bits, -(-high // array.word_bits)):
            first, end = max(low - index * array.word_bits, 0), min(high - index * array.word_bits, array.word_bits)
            m.submodules[f"{name}_{index}"] = ram = WordRam(array.drain_cycles, end - first, end - first)
            m.d.comb += [
                ram.write.eq(self.take[index] & mine),
                ram.i_addr.eq(self.group >> (array.drains // array.constant_lanes - 1).bit_length()),
                ram.i_data.eq(self.word[first:end]),
                ram.addr.eq(address),
            ]
            parts.append(ram.data)
        return Cat(*parts)
