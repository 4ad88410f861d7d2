"""Cells of the iCE40.

A logic cell makes its carry from two signals and the carry below, beside a LUT4, which sees the same three and one
more. So one operand of an adder can be gated in the adder's own cells: where the gate is closed, the LUTs pass the
other operand on.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Mux, Signal, Value
from amaranth.lib import io

from nnhw.engines.arithmetic import WIDE_DSP_BITS
from nnhw.families import ICE40
from nnhw.families.pll import PllSettings
from nnhw.hdl.cells.base import Cells, Operand, bit_of, extended, gated
from nnhw.hdl.names import CLOCK_ATTRIBUTE

if TYPE_CHECKING:
    from nnhw.hdl.dsp import DspProducts
    from nnhw.hdl.memory import LargeRam
    from nnhw.hdl.shared.multiply_add import MultiplyAdd

_UNUSED_DSP_INPUTS = (
    *("IRSTTOP", "IRSTBOT", "ORSTTOP", "ORSTBOT", "AHOLD", "BHOLD", "CHOLD", "DHOLD", "OHOLDTOP", "OHOLDBOT"),
    *("OLOADTOP", "OLOADBOT", "ADDSUBTOP", "ADDSUBBOT", "CI", "ACCUMCI", "SIGNEXTIN"),
)
"""Inputs of SB_MAC16 that are tied to 0 in every use."""

_FILTER_LIMITS_HZ = (17_000_000, 26_000_000, 44_000_000, 66_000_000, 101_000_000)
"""Frequencies at the phase detector below which FILTER_RANGE is 1, 2, ..; above all of them it is 6.

Source: `icepll` of Project IceStorm.
"""


class Ice40Cells(Cells):
    """SB_MAC16, SB_SPRAM256KA, SB_LUT4, the PLLs, and adders whose cells also gate an operand."""

    family = ICE40

    def add_gated(self, m: Module, x: Operand, y: Operand) -> Value:
        """See `Cells.add_gated`: the gate of y is in the cells of the chain, that of x in LUTs in front of it."""
        first = gated(*x)
        # A result bit is one LUT4 of four signals: `first`, y, the gate, and the carry, unused if the gate is closed.
        return Mux(y[1], first + y[0], first)

    def add_inverted(self, m: Module, x: Operand, y: Operand) -> Value:
        """See `Cells.add_inverted`: only x is inverted in front of the chain, by the XOR of both bits.

        With u for x or its complement as wanted, the sum is u + y, or u + ~y = u - y - 1 = ~(~u + y + 1).
        """
        bits = len(x[0])
        # The column below the numbers adds 1 and the bit of y: it makes the carry that comes in.
        u = (x[0].as_unsigned() ^ (x[1] ^ y[1]).replicate(bits)).as_signed()
        total = (Cat(Const(1, 1), u).as_signed() + Cat(y[1], y[0]).as_signed())[1:]
        return (total ^ y[1].replicate(bits + 1)).as_signed()

    def add_few(self, x: Value, y: Value, minus: bool = False) -> Value:
        """See `Cells.add_few`: a narrow sum is made of gates, without a carry chain.

        A carry that leaves a chain takes a logic cell, and every chain begins at the first cell of a tile. Sums of up
        to four bits take no more LUTs as gates: in 32 lanes of 2 x 2 bits on a shared engine 64 fewer, and 40 chains.
        """
        total = super().add_few(x, y, minus)
        shape = total.shape()
        if shape.width > ICE40.logic.gate_adder_bits:
            return total
        bits, carry = list[Value](), Const(minus, 1)
        for index in range(shape.width):
            a, b = bit_of(x, index), bit_of(y, index) ^ Const(minus, 1)
            bits.append(a ^ b ^ carry)
            carry = (a & b) | (carry & (a ^ b))
        return Cat(bits).as_signed() if shape.signed else Cat(bits)

    def multiply(self, m: Module, unit: DspProducts) -> None:
        """See `Cells.multiply`."""
        if unit.wide:
            for lane in range(unit.lanes):
                _wide_product(m, unit, lane)
            return
        # In 8 x 8 mode a block has two multipliers; of an odd number of lanes, half of the last block is idle.
        each = ICE40.dsp.products
        for low in range(0, unit.lanes, each):
            _two_products(m, unit, list(range(low, min(low + each, unit.lanes))))

    def multiply_add(self, m: Module, unit: MultiplyAdd) -> None:
        """Add an SB_MAC16 with all its registers: its two 16-bit adders add C:D, the addend, to the 32-bit product.

        Source: Lattice FPGA-TN-02007, tables of the parameters; the cell's model in yosys, `ice40/cells_sim.v`.
        """
        parameters: dict[str, Any] = {
            **{f"p_{name}_REG": Const(1, 1) for name in ("A", "B", "C", "D", "TOP_8x8_MULT", "BOT_8x8_MULT")},
            **{f"p_PIPELINE_16x16_MULT_REG{index}": Const(1, 1) for index in (1, 2)},
            "p_MODE_8x8": Const(0, 1),
            "p_A_SIGNED": Const(1, 1),
            "p_B_SIGNED": Const(int(unit.is_signed), 1),
        }
        # Output select 1: the adder's register; lower input 2: the 16 x 16 product; upper input 1: C or D.
        # Carry select 2: the carry of the lower half; 0: none.
        for half, carry in (("TOP", 2), ("BOT", 0)):
            parameters |= {
                f"p_{half}OUTPUT_SELECT": Const(1, 2),
                f"p_{half}ADDSUB_LOWERINPUT": Const(2, 2),
                f"p_{half}ADDSUB_UPPERINPUT": Const(1, 1),
                f"p_{half}ADDSUB_CARRYSELECT": Const(carry, 2),
            }
        m.submodules += Instance(
            "SB_MAC16",
            **{f"a_{CLOCK_ATTRIBUTE}": "CLK"},
            **parameters,
            **{f"i_{name}": Const(0, 1) for name in _UNUSED_DSP_INPUTS},
            i_CLK=ClockSignal("sync"),
            i_CE=unit.ce,
            i_A=unit.a,
            i_B=unit.b,
            i_C=unit.addend[16:],
            i_D=unit.addend[:16],
            o_O=unit.o,
        )

    def large_ram(self, m: Module, unit: LargeRam, word: Signal) -> None:
        """See `Cells.large_ram`; the word is filled up with zeros to whole RAMs."""
        assert ICE40.large_ram is not None
        data = Signal(-(-unit.bits // ICE40.large_ram.bits) * ICE40.large_ram.bits)
        m.d.comb += data.eq(unit.i_data)
        result = self.large_rams(m, unit.addr, data, unit.write, unit.read | unit.write)
        m.d.comb += word.eq(result)

    def large_rams(
        self, m: Module, addr: Value, i_data: Value, write: Value, select: Value, nibbles: Value | None = None
    ) -> Value:
        """Add an SB_SPRAM256KA for each 16 bits; see `Cells.large_rams`.

        They are instances, because yosys maps no memory with initial values to them, and each memory of Amaranth has
        initial values.

        Source: Lattice, iCE40 SPRAM usage guide (FPGA-TN-02022); POWEROFF is active low.
        """
        assert ICE40.large_ram is not None
        bits = ICE40.large_ram.bits
        # All 14 address pins are connected: a smaller memory leaves the upper words unused.
        address, words = Signal(range(ICE40.large_ram.words)), []
        m.d.comb += address.eq(addr)
        for low in range(0, len(i_data), bits):
            result = Signal(bits, name=f"result_{low}")
            m.submodules += Instance(
                "SB_SPRAM256KA",
                i_CLOCK=ClockSignal("sync"),
                i_ADDRESS=address,
                i_DATAIN=i_data[low : low + bits],
                i_MASKWREN=Const(0b1111, 4) if nibbles is None else nibbles[low // 4 : (low + bits) // 4],
                i_WREN=write,
                i_CHIPSELECT=select,
                i_STANDBY=Const(0, 1),
                i_SLEEP=Const(0, 1),
                i_POWEROFF=Const(1, 1),
                o_DATAOUT=result,
            )
            words.append(result)
        return Cat(*words)

    def pll(
        self, m: Module, settings: PllSettings, port: io.PortLike, clock: Signal, lock: Signal, source: str
    ) -> Value | None:
        """See `Cells.pll`: simple feedback; at the PLL's own pad for the source 'pad', else behind an input buffer."""
        reference = None
        if source == "pad":
            cell, ports = "SB_PLL40_PAD", {"i_PACKAGEPIN": port.io}
        else:
            reference = Signal(name="pll_reference")
            # A plain input buffer: the pin's attribute GLOBAL would ask for a clock net, which the PLL cannot take.
            m.submodules.input = Instance(
                "SB_IO", p_PIN_TYPE=Const(0b000001, 6), io_PACKAGE_PIN=port.io, o_D_IN_0=reference
            )
            cell, ports = "SB_PLL40_CORE", {"i_REFERENCECLK": reference}
        m.submodules.pll = Instance(
            cell,
            p_FEEDBACK_PATH="SIMPLE",
            # DIVR and DIVF hold one less than the factor; DIVQ holds the logarithm of a power of two.
            p_DIVR=Const(settings.input_divider - 1, 4),
            p_DIVF=Const(settings.multiplier - 1, 7),
            p_DIVQ=Const(settings.output_divider.bit_length() - 1, 3),
            p_FILTER_RANGE=Const(filter_range(settings), 3),
            i_RESETB=Const(1, 1),
            i_BYPASS=Const(0, 1),
            o_PLLOUTGLOBAL=clock,
            o_LOCK=lock,
            **ports,
        )
        return reference


def filter_range(settings: PllSettings) -> int:
    """Return the PLL's FILTER_RANGE, from the frequency at the phase detector."""
    phase_hz = Fraction(settings.input_hz, settings.input_divider)
    return 1 + sum(phase_hz >= limit for limit in _FILTER_LIMITS_HZ)


def _wide_product(m: Module, unit: DspProducts, lane: int) -> None:
    """Add an SB_MAC16 of one product of 16 x 16 bits, with registers at its inputs and behind its multiplier.

    Source: Lattice FPGA-TN-02007, table of the configurations `mult_16x16_intermediate_register_bypassed`; TOP and
    BOTOUTPUT_SELECT 3 are the halves of the product.
    """
    result = Signal(32)
    parameters: dict[str, Any] = {
        **{f"p_{name}_REG": Const(1, 1) for name in ("A", "B")},
        "p_PIPELINE_16x16_MULT_REG2": Const(1, 1),
        "p_TOPOUTPUT_SELECT": Const(3, 2),
        "p_BOTOUTPUT_SELECT": Const(3, 2),
        "p_MODE_8x8": Const(0, 1),
        "p_A_SIGNED": Const(int(unit.a.signed), 1),
        "p_B_SIGNED": Const(int(unit.b.signed), 1),
    }
    m.submodules += Instance(
        "SB_MAC16",
        **{f"a_{CLOCK_ATTRIBUTE}": "CLK"},
        **parameters,
        **{f"i_{name}": Const(0, 1) for name in _UNUSED_DSP_INPUTS},
        i_CLK=ClockSignal("sync"),
        i_CE=unit.ce,
        i_A=extended(unit.i_a[lane], WIDE_DSP_BITS),
        i_B=extended(unit.i_b[lane], WIDE_DSP_BITS),
        i_C=Const(0, 16),
        i_D=Const(0, 16),
        o_O=result,
    )
    m.d.comb += unit.o[lane].eq(result[: unit.product.width])


def _two_products(m: Module, unit: DspProducts, lanes: list[int]) -> None:
    """Add an SB_MAC16 of two products, the second lane in its upper half.

    Source: Lattice FPGA-TN-02007, table of the configurations `mult_8x8_all_pipeline`; TOP and BOTOUTPUT_SELECT 2
    are the products behind their registers.
    """
    bits = ICE40.dsp.factor_bits
    factors = [
        Cat(*(extended(port[lane], bits) for lane in lanes), Const(0, bits * (2 - len(lanes))))
        for port in (unit.i_a, unit.i_b)
    ]
    result = Signal(32)
    parameters: dict[str, Any] = {
        **{f"p_{name}_REG": Const(1, 1) for name in ("A", "B", "TOP_8x8_MULT", "BOT_8x8_MULT")},
        "p_TOPOUTPUT_SELECT": Const(2, 2),
        "p_BOTOUTPUT_SELECT": Const(2, 2),
        "p_MODE_8x8": Const(1, 1),
        "p_A_SIGNED": Const(int(unit.a.signed), 1),
        "p_B_SIGNED": Const(int(unit.b.signed), 1),
    }
    m.submodules += Instance(
        "SB_MAC16",
        **{f"a_{CLOCK_ATTRIBUTE}": "CLK"},
        **parameters,
        **{f"i_{name}": Const(0, 1) for name in _UNUSED_DSP_INPUTS},
        i_CLK=ClockSignal("sync"),
        i_CE=unit.ce,
        i_A=factors[0],
        i_B=factors[1],
        i_C=Const(0, 16),
        i_D=Const(0, 16),
        o_O=result,
    )
    for half, lane in enumerate(lanes):
        m.d.comb += unit.o[lane].eq(result[16 * half : 16 * half + unit.product.width])
