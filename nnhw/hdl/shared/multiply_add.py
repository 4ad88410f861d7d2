"""A multiply-add in one DSP block, and the requantizer of the shared engine that uses it."""

from __future__ import annotations

from amaranth.hdl import Module, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import DSP_FACTOR_BITS, DSP_NUMBER_BITS, ArrayConfig
from nnhw.hdl.cells import cells_of
from nnhw.hdl.shared.shared_requantizer import SharedRequantizer, tie_piece

DELAY = 4
"""Moves from the factors to the number."""


class MultiplyAdd(wiring.Component):
    """a * b + addend, in one DSP block: factors of 16 bits, addend and result of 32.

    Parameters
    ----------
    is_signed: `b` is a signed number; else its bits are read as unsigned. `a` is signed.

    Members
    -------
    ce: In(1), the registers take their next values in this cycle (a move).
    a, b: in, factors. addend: in, two moves after the factors.
    o: out, the result, `DELAY` moves after the factors.
    """

    def __init__(self, *, is_signed: bool) -> None:
        self.is_signed = is_signed
        sizes = {"a": DSP_FACTOR_BITS, "b": DSP_FACTOR_BITS, "addend": DSP_NUMBER_BITS}
        numbers = {name: In(signed(bits)) for name, bits in sizes.items()}
        super().__init__({"ce": In(1), **numbers, "o": Out(signed(DSP_NUMBER_BITS))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cells_of(platform).multiply_add(m, self)
        return m


class DspRequantizer(SharedRequantizer):
    """A requantizer of one code a cycle; sum * factor + addend is made in a DSP block.

    A factor with one bit more than the block takes comes as sign and magnitude: for a negative one the sum is
    complemented, which is one less than negated, and the addend makes up for that; see `records.encode_record`.

    Members
    -------
    sum, factor: in. addend: in, two cycles later.
    The others are those of `SharedRequantizer`.
    """

    @staticmethod
    def pieces(array: ArrayConfig) -> dict[str, tuple[int, int, int]]:
        """Return (lowest bit, bits, cycles behind the sum) of each piece of a lane's constants."""
        pieces = {"factor": (array.addend_bits, array.factor_bits, 0), "addend": (0, array.addend_bits, 2)}
        return pieces | tie_piece(array, DELAY - 1)

    def _number(self, m: Module) -> Value:
        """Return sum * factor + addend, see `SharedRequantizer`."""
        array, number = self.array, self.sum
        m.submodules.multiply_add = unit = MultiplyAdd(is_signed=not array.is_magnitude)
        factor: Value = self.factor.as_signed()
        # The block reads the magnitude as unsigned, so all of its factor bits are magnitude.
        if array.is_magnitude:
            factor = self.factor[:-1]
            number = (number.as_unsigned() ^ self.factor[-1].replicate(len(number))).as_signed()
        m.d.comb += [unit.ce.eq(1), unit.a.eq(number), unit.b.eq(factor), unit.addend.eq(self.addend.as_signed())]
        bits = max(array.sum_bits + array.factor_bits - 1, array.addend_bits) + 1
        return unit.o[:bits].as_signed()
