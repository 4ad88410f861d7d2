"""Products in DSP blocks: the family's block where hardware is synthesized, registers and `*` where it is simulated."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Shape, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from nnhw.engines.arithmetic import DSP_OPERAND_BITS, DSP_PRODUCTS
from nnhw.errors import MappingError
from nnhw.hdl.carry import family_of
from nnhw.hdl.names import CLOCK_ATTRIBUTE

ICE40_ZEROS = (
    *("IRSTTOP", "IRSTBOT", "ORSTTOP", "ORSTBOT", "AHOLD", "BHOLD", "CHOLD", "DHOLD", "OHOLDTOP", "OHOLDBOT"),
    *("OLOADTOP", "OLOADBOT", "ADDSUBTOP", "ADDSUBBOT", "CI", "ACCUMCI", "SIGNEXTIN"),
)
"""Inputs of SB_MAC16 that are not used."""
_ECP5_BITS = 18
"""Width of a factor of MULT18X18D."""


class DspProducts(wiring.Component):
    """Products of pairs of numbers, in as many DSP blocks as the family needs.

    Parameters
    ----------
    lanes: products.
    a, b: shapes of their factors, at most 8 bits each.

    Members
    -------
    ce: in, the registers move.
    i_a, i_b: in, factors [lanes].
    o: out, products [lanes].

    Timing: a product leaves two moves after its factors: registers at the block's inputs and behind its multiplier.
    """

    def __init__(self, lanes: int, a: Shape, b: Shape) -> None:
        if max(a.width, b.width) > DSP_OPERAND_BITS:
            raise MappingError(
                f"a product in a DSP block has factors of at most {DSP_OPERAND_BITS} bits, given {a.width} and "
                f"{b.width}; use narrower quantizers, or no DSP blocks for this layer"
            )
        self.lanes = lanes
        self.a, self.b = a, b
        width = a.width + b.width
        self.product = signed(width) if a.signed or b.signed else Shape(width)
        super().__init__(
            {
                "ce": In(1),
                "i_a": In(ArrayLayout(a, lanes)),
                "i_b": In(ArrayLayout(b, lanes)),
                "o": Out(ArrayLayout(self.product, lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        family = family_of(platform)
        if family is None:
            self._registers(m)
            return m
        add = {"ice40": self._ice40, "ecp5": self._ecp5}[family]
        for low in range(0, self.lanes, DSP_PRODUCTS[family]):
            add(m, list(range(low, min(low + DSP_PRODUCTS[family], self.lanes))))
        return m

    def _registers(self, m: Module) -> None:
        """Add what the blocks do, for simulators."""
        for lane in range(self.lanes):
            a, b = Signal(self.a, reset_less=True), Signal(self.b, reset_less=True)
            product = Signal(self.product, reset_less=True)
            m.d.comb += self.o[lane].eq(product)
            with m.If(self.ce):
                m.d.sync += [a.eq(self.i_a[lane]), b.eq(self.i_b[lane]), product.eq(a * b)]

    def _ice40(self, m: Module, lanes: list[int]) -> None:
        """Add an SB_MAC16 of two products, the second lane in its upper half.

        Source: Lattice FPGA-TN-02007, table of the configurations `mult_8x8_all_pipeline`; TOP and BOTOUTPUT_SELECT 2
        are the products behind their registers.
        """
        factors = [
            Cat(*(_extended(port[lane], DSP_OPERAND_BITS) for lane in lanes), Const(0, 8 * (2 - len(lanes))))
            for port in (self.i_a, self.i_b)
        ]
        result = Signal(32)
        parameters: dict[str, Any] = {
            **{f"p_{name}_REG": Const(1, 1) for name in ("A", "B", "TOP_8x8_MULT", "BOT_8x8_MULT")},
            "p_TOPOUTPUT_SELECT": Const(2, 2),
            "p_BOTOUTPUT_SELECT": Const(2, 2),
            "p_MODE_8x8": Const(1, 1),
            "p_A_SIGNED": Const(int(self.a.signed), 1),
            "p_B_SIGNED": Const(int(self.b.signed), 1),
        }
        m.submodules += Instance(
            "SB_MAC16",
            **{f"a_{CLOCK_ATTRIBUTE}": "CLK"},
            **parameters,
            **{f"i_{name}": Const(0, 1) for name in ICE40_ZEROS},
            i_CLK=ClockSignal("sync"),
            i_CE=self.ce,
            i_A=factors[0],
            i_B=factors[1],
            i_C=Const(0, 16),
            i_D=Const(0, 16),
            o_O=result,
        )
        for half, lane in enumerate(lanes):
            m.d.comb += self.o[lane].eq(result[16 * half : 16 * half + self.product.width])

    def _ecp5(self, m: Module, lanes: list[int]) -> None:
        """Add a MULT18X18D with registers at its inputs and at its output, none of which is reset.

        Source: Lattice FPGA-TN-02205; parameters as in yosys `techlibs/lattice/dsp_map_18x18.v`.
        """
        (lane,) = lanes
        a, b = _extended(self.i_a[lane], _ECP5_BITS), _extended(self.i_b[lane], _ECP5_BITS)
        result = Signal(2 * _ECP5_BITS)
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
            **{f"i_A{bit}": a[bit] for bit in range(_ECP5_BITS)},
            **{f"i_B{bit}": b[bit] for bit in range(_ECP5_BITS)},
            **{f"i_C{bit}": Const(0, 1) for bit in range(_ECP5_BITS)},
            **{f"o_P{bit}": result[bit] for bit in range(2 * _ECP5_BITS)},
            i_SIGNEDA=Const(int(self.a.signed), 1),
            i_SIGNEDB=Const(int(self.b.signed), 1),
            i_SOURCEA=Const(0, 1),
            i_SOURCEB=Const(0, 1),
            i_CLK0=ClockSignal("sync"),
            i_CE0=self.ce,
            i_RST0=Const(0, 1),
        )
        m.d.comb += self.o[lane].eq(result[: self.product.width])


def _extended(number: Value, bits: int) -> Value:
    """Return a number of so many bits, extended by its sign where it has one."""
    fill = number[-1] if number.shape().signed else Const(0, 1)
    return Cat(number, fill.replicate(bits - len(number)))
