"""Hardware of the requantizer that looks its codes up in a table."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value, unsigned

from nnhw.engines.encoding import encode
from nnhw.engines.requantize import Table
from nnhw.hdl.memory import block_ram, logic_rom
from nnhw.hdl.requantizer import RequantizerUnit


class TableUnit(RequantizerUnit):
    """A memory for each lane, addressed by the channel and by the distance of the sum from the lowest one.

    Timing: one move for the address, one for the memory.
    """

    def __init__(self, table: Table, raw: tuple[int, int], drain: int) -> None:
        self.table = table
        super().__init__(table, raw, drain)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.walk(m)
        base = self._base(m)
        codes = encode(self.table.codes, self.code)
        for lane in range(self.drain):
            words = (codes if self.table.shared else codes[lane :: self.drain]).ravel().tolist()
            make = logic_rom if self.table.logic else block_ram
            m.submodules[f"table_{lane}"] = memory = make(len(words), self.code.bits, words)
            reader = memory.read_port()
            distance = self.register(m, f"address_{lane}", self.i_sums[lane] + base, unsigned(len(reader.addr)))
            m.d.comb += [reader.addr.eq(distance), reader.en.eq(self.ce), self.o_codes[lane].eq(reader.data)]
        return m

    def _base(self, m: Module) -> Value | int:
        """Return what to add to an arriving sum to get its address: position of its channel * span - lowest sum."""
        low, span = self.table.raw.low, self.table.raw.high - self.table.raw.low + 1
        if self.table.shared or self.depth == 1:
            return -low
        # A register that goes up by `span` with each beat, so that no multiplication is needed.
        last = (self.depth - 1) * span - low
        base = Signal(range(min(-low, 0), last + 1), init=-low)
        with m.If(self.ce & self.i_valid):
            m.d.sync += base.eq(Mux(base == last, -low, base + span))
        return base
