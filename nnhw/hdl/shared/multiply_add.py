"""A requantizer whose multiplication and addition are made in a DSP block."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockSignal, Const, Instance, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import DSP_FACTOR_BITS, DSP_NUMBER_BITS, ArrayConfig
from nnhw.hdl.carry import family_of
from nnhw.hdl.dsp import ICE40_ZEROS
from nnhw.hdl.names import CLOCK_ATTRIBUTE
from nnhw.hdl.shared.requantizer import Requantizer, tie_piece

DELAY = 4
"""Moves from the factors to the number."""


class MultiplyAdd(wiring.Component):
    """A product of two numbers of 16 bits and an addend.

    Parameters
    ----------
    is_signed: `b` is a signed number; else it is not. `a` is signed.

    Members
    -------
    ce: in, the registers move.
    a, b: in, factors. addend: in, two moves behind them.
    o: out, `DELAY` moves behind the factors.
    """

    def __init__(self, *, is_signed: bool) -> None:
        self.is_signed = is_signed
        sizes = {"a": DSP_FACTOR_BITS, "b": DSP_FACTOR_BITS, "addend": DSP_NUMBER_BITS}
        numbers = {name: In(signed(bits)) for name, bits in sizes.items()}
        super().__init__({"ce": In(1), **numbers, "o": Out(signed(DSP_NUMBER_BITS))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if family_of(platform) == "ice40":
            self._ice40(m)
            return m
        a, b = Signal.like(self.a, reset_less=True), Signal.like(self.b, reset_less=True)
        factor = b if self.is_signed else b.as_unsigned()
        products = [Signal(signed(DSP_NUMBER_BITS), name=f"product_{index}", reset_less=True) for index in range(2)]
        addend = Signal.like(self.addend, reset_less=True)
        with m.If(self.ce):
            m.d.sync += [a.eq(self.a), b.eq(self.b), products[0].eq(a * factor), products[1].eq(products[0])]
            m.d.sync += [addend.eq(self.addend), self.o.eq(products[1] + addend)]
        return m

    def _ice40(self, m: Module) -> None:
        """Add an SB_MAC16 with all its registers: the adders' upper inputs are C and D, the lower ones the product.

        Source: Lattice FPGA-TN-02007, tables of the parameters; the cell's model in yosys, `ice40/cells_sim.v`.
        """
        parameters: dict[str, Any] = {
            **{f"p_{name}_REG": Const(1, 1) for name in ("A", "B", "C", "D", "TOP_8x8_MULT", "BOT_8x8_MULT")},
            **{f"p_PIPELINE_16x16_MULT_REG{index}": Const(1, 1) for index in (1, 2)},
            "p_MODE_8x8": Const(0, 1),
            "p_A_SIGNED": Const(1, 1),
            "p_B_SIGNED": Const(int(self.is_signed), 1),
        }
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
            **{f"i_{name}": Const(0, 1) for name in ICE40_ZEROS},
            i_CLK=ClockSignal("sync"),
            i_CE=self.ce,
            i_A=self.a,
            i_B=self.b,
            i_C=self.addend[16:],
            i_D=self.addend[:16],
            o_O=self.o,
        )


class DspRequantizer(Requantizer):
    """One code a cycle; sum times factor plus addend come from a DSP block.

    A factor of one bit more than the block takes comes as sign and magnitude: a negative one negates the sum but for
    one, and the addend has the rest; see `records.encode_record`.

    Members
    -------
    sum, factor: in. addend: in, two cycles later.
    others: as of `Requantizer`.
    """

    @staticmethod
    def pieces(array: ArrayConfig) -> dict[str, tuple[int, int, int]]:
        """Return (lowest bit, bits, cycles behind the sum) of each piece of a lane's constants."""
        pieces = {"factor": (array.addend_bits, array.factor_bits, 0), "addend": (0, array.addend_bits, 2)}
        return pieces | tie_piece(array, DELAY - 1)

    def _number(self, m: Module) -> Value:
        array, number = self.array, self.sum
        m.submodules.multiply_add = unit = MultiplyAdd(is_signed=not array.is_magnitude)
        factor: Value = self.factor.as_signed()
        if array.is_magnitude:
            factor = self.factor[:-1]
            number = (number.as_unsigned() ^ self.factor[-1].replicate(len(number))).as_signed()
        m.d.comb += [unit.ce.eq(1), unit.a.eq(number), unit.b.eq(factor), unit.addend.eq(self.addend.as_signed())]
        bits = max(array.sum_bits + array.factor_bits - 1, array.addend_bits) + 1
        return unit.o[:bits].as_signed()
