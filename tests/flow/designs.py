"""Small devices for tests of the build: a serial port in, a serial port out."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.boards import Board
from nnhw.hdl.dsp import DspProducts
from nnhw.hdl.memory import block_ram
from nnhw.hdl.pll import nearest_at_most
from nnhw.hdl.top import TopDesign, make_top


class RomDevice(wiring.Component):
    """Counts, and sends the parity of what stands in a memory of 512 x 8 bits: two block RAMs less their unused half.

    Parameters
    ----------
    registered: the memory's output; false: it cannot be block RAM.
    """

    def __init__(self, registered: bool = True) -> None:
        self.registered = registered
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(9)
        m.d.sync += count.eq(count + self.rx)
        m.submodules.rom = rom = block_ram(512, 8, [word * 37 % 256 for word in range(512)])
        reader = rom.read_port(domain="sync" if self.registered else "comb")
        m.d.comb += reader.addr.eq(count)
        m.d.sync += self.tx.eq(reader.data.xor())
        return m


class ShiftDevice(wiring.Component):
    """Delays its input: `cells` logic cells."""

    def __init__(self, cells: int) -> None:
        self.cells = cells
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        taps = Signal(self.cells)
        m.d.sync += taps.eq(Cat(self.rx, taps))
        m.d.comb += self.tx.eq(taps[-1])
        return m


def top_of(device: wiring.Component, board: Board, clock_hz: float = 48e6) -> TopDesign:
    """Return the design of a device on a board."""
    return make_top(lambda hz: device, board, nearest_at_most(board, clock_hz))


class ProductDevice(wiring.Component):
    """Multiplies what it has received, in a DSP block with registers, and sends the parity."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        taps = Signal(16)
        m.submodules.products = products = DspProducts(1, signed(8), signed(8))
        m.d.sync += [taps.eq(Cat(self.rx, taps)), self.tx.eq(products.o[0].xor())]
        m.d.comb += [products.ce.eq(1), products.i_a[0].eq(taps[:8]), products.i_b[0].eq(taps[8:])]
        return m
