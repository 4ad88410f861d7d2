"""Cells of the ECP5.

In half a CCU2C the carry passes on where the LUT4's result is 1; where it is 0, the carry out is a function of the
LUT's first two inputs alone. So each operand of an adder may be a function of two signals. Sums of three bits and more
are made as such chains here, while yosys would use plain LUTs up to four bits: a chain takes one logic cell for each
bit and one for the carry that comes in (see `nnhw.flow.implementation.carries`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from amaranth.hdl import C, ClockSignal, Const, Instance, Module, Shape, Signal, Value, signed, unsigned
from amaranth.lib import io

from nnhw.families import ECP5
from nnhw.families.pll import PllSettings
from nnhw.hdl.cells.base import Cells, Operand, bit_of, extended, in_logic
from nnhw.hdl.names import CLOCK_ATTRIBUTE

if TYPE_CHECKING:
    from nnhw.hdl.dsp import DspProducts

CHAINED_BITS = 3
"""Width of the narrowest sum, in bits, for which a carry chain takes fewer logic cells than plain LUTs."""

Column = tuple[Value, Value, Value, Value]
"""A bit of x, its gate, a bit of y and its gate."""


class Ecp5Cells(Cells):
    """CCU2C, MULT18X18D, EHXPLLL and USRMCLK."""

    family = ECP5
    gates_both_operands = True

    def add_gated(self, m: Module, x: Operand, y: Operand) -> Value:
        """See `Cells.add_gated`: both gates are in the cells of the chain."""
        return _chain(m, x, y, _sum_of_ands)

    def add_inverted(self, m: Module, x: Operand, y: Operand) -> Value:
        """See `Cells.add_inverted`: both inverters are in the cells of the chain."""
        return _chain(m, x, y, lambda a, b, c, d: a ^ b ^ c ^ d)

    def add(self, m: Module, x: Value, y: Value, bits: int | None = None) -> Value:
        """See `Cells.add`."""
        bits = max(len(x), len(y)) + 1 if bits is None else bits
        if bits < CHAINED_BITS:
            return super().add(m, x, y, bits)
        one = Const(1, 1)
        total = _chain(m, (x, one), (y, one), _sum_of_ands)
        return total if bits == len(total) else total[:bits]

    def add_ands(self, m: Module, x: Sequence[Operand], y: Sequence[Operand]) -> Value:
        """See `Cells.add_ands`."""
        columns: list[Column] = [(*first, *second) for first, second in zip(x, y, strict=True)]
        columns.append((Const(0, 1),) * 4)
        return _columns(m, columns, _sum_of_ands, unsigned(len(columns)))

    def accumulate(self, m: Module, total: Value, more: Value, term: Value) -> Value:
        """See `Cells.accumulate`."""
        fill = term[-1] if term.shape().signed else Const(0, 1)
        columns: list[Column] = [
            (bit, more, term[index] if index < len(term) else fill, Const(1, 1))
            for index, bit in enumerate(total.as_unsigned())
        ]
        return _columns(m, columns, _sum_of_ands, unsigned(len(total)))

    def multiply(self, m: Module, unit: DspProducts) -> None:
        """See `Cells.multiply`."""
        for lane in range(unit.lanes):
            _product(m, unit, lane)

    def lookup_table(
        self, m: Module, name: str, content: int, index: Sequence[Value | None], spare: Sequence[Value] = ()
    ) -> Value:
        """See `Cells.lookup_table`.

        nextpnr folds an input of a LUT4 that is constant, or the same as another one, into its content, which would
        not be found in the layout any more. So an input without a bit reads a spare one, on which the content does not
        depend; where there is none, the table is logic, and the layout serves one clock.
        """
        unused = [number for number, bit in enumerate(index) if bit is None]
        if len(spare) < len(unused):
            return in_logic(content, index)
        inputs = list(index)
        for number, bit in zip(unused, spare, strict=False):
            inputs[number] = bit
        used = ~sum(1 << number for number in unused)
        content = sum((content >> (place & used) & 1) << place for place in range(1 << len(index)))
        return super().lookup_table(m, name, content, inputs)

    def pll(
        self, m: Module, settings: PllSettings, port: io.PortLike, clock: Signal, lock: Signal, source: str
    ) -> Value | None:
        """Add input buffer and PLL: its output CLKOP is the feedback, its output CLKOS the clock.

        With two outputs the clock's divider is outside of the feedback loop: ten times as many clocks are reachable.

        Source: Lattice, ECP5 sysCLOCK PLL/DLL design and usage guide (FPGA-TN-02200); values of the analog part:
        `ecppll` of Project Trellis.
        """
        m.submodules.input = buffer = io.Buffer("i", port)
        feedback = Signal(name="pll_feedback")
        m.submodules.pll = Instance(
            "EHXPLLL",
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            p_FEEDBK_PATH="CLKOP",
            p_CLKI_DIV=settings.input_divider,
            p_CLKFB_DIV=1,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=settings.multiplier,
            p_CLKOS_ENABLE="ENABLED",
            p_CLKOS_DIV=settings.output_divider,
            # A divider that begins at its last count has no phase shift.
            p_CLKOP_CPHASE=settings.multiplier - 1,
            p_CLKOS_CPHASE=settings.output_divider - 1,
            **dict.fromkeys(("p_PLLRST_ENA", "p_INTFB_WAKE", "p_STDBY_ENABLE", "p_DPHASE_SOURCE"), "DISABLED"),
            **{f"p_OUTDIVIDER_MUX{output}": f"DIV{output}" for output in "ABCD"},
            **{f"i_{name}": Const(0, 1) for name in ("RST", "STDBY", "PHASESEL0", "PHASESEL1", "PLLWAKESYNC")},
            **{f"i_{name}": Const(1, 1) for name in ("PHASEDIR", "PHASESTEP", "PHASELOADREG")},
            i_ENCLKOP=Const(0, 1),
            i_CLKI=buffer.i,
            i_CLKFB=feedback,
            o_CLKOP=feedback,
            o_CLKOS=clock,
            o_LOCK=lock,
        )
        oscillator: Value = buffer.i
        return oscillator

    def flash_clock(self, m: Module, clk: Any) -> bool:
        """Add USRMCLK: the flash's clock pin belongs to the configuration logic, and this cell gives user logic access.

        Source: Lattice FPGA-TN-02039, ECP5 and ECP5-5G sysCONFIG, Master SPI; nextpnr-ecp5 places the cell.
        """
        m.submodules.flash_clk = Instance("USRMCLK", i_USRMCLKI=clk, i_USRMCLKTS=C(0))
        return True


def _sum_of_ands(a: int, b: int, c: int, d: int) -> int:
    return (a & b) ^ (c & d)


def _chain(m: Module, x: Operand, y: Operand, propagate: Callable[[int, int, int, int], int]) -> Value:
    """Return the sum of two gated or inverted numbers, one bit wider than the wider of them; see `_columns`."""
    # The top column of a signed sum adds the sign bits once more; of an unsigned one it is empty and holds the carry.
    is_signed = x[0].shape().signed
    bits = max(len(x[0]), len(y[0])) + 1
    columns: list[Column] = [
        (bit_of(x[0], index), x[1], bit_of(y[0], index), y[1]) if is_signed or index < bits - 1 else (Const(0, 1),) * 4
        for index in range(bits)
    ]
    return _columns(m, columns, propagate, signed(bits) if is_signed else unsigned(bits))


def _columns(m: Module, columns: list[Column], propagate: Callable[[int, int, int, int], int], o: Shape) -> Value:
    """Add a chain of CCU2C, two columns each; return the sum.

    Parameters
    ----------
    columns: the four LUT inputs A, B, C, D of each column, lowest first: a bit of x, its gate, a bit of y, its gate.
    propagate: the function of the LUT4: the column's sum bit without a carry. With C = D = 0 it must be what x
        contributes, because the cell makes the carry out of that value.
    o: shape of the sum, a bit for each column.

    Source: yosys `techlibs/lattice/ccu2c_sim.vh`.
    """
    table = sum(
        propagate(index & 1, index >> 1 & 1, index >> 2 & 1, index >> 3 & 1) << index for index in range(1 << 4)
    )
    total = Signal(o)
    # A cell has two columns; one too many adds zeros, and its sum is read by nobody.
    padded = len(columns) + len(columns) % 2
    columns = columns + [(Const(0, 1),) * 4] * (padded - len(columns))
    carry: Value = Const(0, 1)
    for low in range(0, padded, 2):
        following, sums = Signal(), Signal(2)
        ports = {
            f"i_{name}{half}": value
            for half in range(2)
            for name, value in zip("ABCD", columns[low + half], strict=True)
        }
        m.submodules += Instance(
            "CCU2C",
            p_INIT0=Const(table, 16),
            p_INIT1=Const(table, 16),
            p_INJECT1_0="NO",
            p_INJECT1_1="NO",
            i_CIN=carry,
            o_S0=sums[0],
            o_S1=sums[1],
            o_COUT=following,
            **ports,
        )
        m.d.comb += total[low : low + 2].eq(sums)
        carry = following
    return total


def _product(m: Module, unit: DspProducts, lane: int) -> None:
    """Add a MULT18X18D for one lane of `unit`, with registers at its inputs and its output, none of which is reset.

    Source: Lattice FPGA-TN-02205; parameters as in yosys `techlibs/lattice/dsp_map_18x18.v`.
    """
    bits = ECP5.dsp.factor_bits
    a, b = extended(unit.i_a[lane], bits), extended(unit.i_b[lane], bits)
    result = Signal(2 * bits)
    registers = {
        f"p_REG_{register}_{field}": value
        for register in ("INPUTA", "INPUTB", "OUTPUT")
        for field, value in (("CLK", "CLK0"), ("CE", "CE0"), ("RST", "RST0"))
    }
    m.submodules += Instance(
        "MULT18X18D",
        **{f"a_{CLOCK_ATTRIBUTE}": "CLK0"},
        p_REG_INPUTC_CLK="NONE",
        p_REG_PIPELINE_CLK="NONE",
        p_GSR="DISABLED",
        **registers,
        **{f"i_A{bit}": a[bit] for bit in range(bits)},
        **{f"i_B{bit}": b[bit] for bit in range(bits)},
        **{f"i_C{bit}": Const(0, 1) for bit in range(bits)},
        **{f"o_P{bit}": result[bit] for bit in range(2 * bits)},
        i_SIGNEDA=Const(int(unit.a.signed), 1),
        i_SIGNEDB=Const(int(unit.b.signed), 1),
        i_SOURCEA=Const(0, 1),
        i_SOURCEB=Const(0, 1),
        i_CLK0=ClockSignal("sync"),
        i_CE0=unit.ce,
        i_RST0=Const(0, 1),
    )
    m.d.comb += unit.o[lane].eq(result[: unit.product.width])
