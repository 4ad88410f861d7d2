"""What each family makes of its own cells, in the plain form: any synthesis takes it, and simulators run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import io
from amaranth.lib.memory import Memory

from nnhw.families import Family
from nnhw.families.pll import PllSettings

if TYPE_CHECKING:
    from nnhw.hdl.dsp import DspProducts
    from nnhw.hdl.memory import LargeRam
    from nnhw.hdl.shared.multiply_add import MultiplyAdd

Operand = tuple[Value, Value]
"""A number and a bit."""


class Cells:
    """The plain form of everything that a family may have cells for.

    Members
    -------
    family: whose cells these are; None: nobody's.
    gates_both_operands: a carry chain takes a function of two signals as a bit of either operand.
    """

    family: Family | None = None
    gates_both_operands = False

    @property
    def lut_ram_words(self) -> int:
        """Words of a memory in LUTs that can be written."""
        return self.family.lut_ram.words if self.family else 0

    @property
    def writes_single_bits(self) -> bool:
        """Whether any bits of a block RAM's word can be written apart from the others."""
        return self.family is None or self.family.block_ram.write_mask_bits == 1

    def has_large_ram(self, platform: object) -> bool:
        """Return whether the device of a platform has large RAMs."""
        if self.family is None or self.family.large_ram is None:
            return False
        device = str(getattr(platform, "device", "")).lower()
        return any(name in device for name in self.family.large_ram.devices)

    def add_gated(self, m: Module, x: Operand, y: Operand) -> Value:
        """Return the sum of two numbers, each taken where its bit is set, one bit wider than they are."""
        return gated(*x) + gated(*y)

    def add_inverted(self, m: Module, x: Operand, y: Operand) -> Value:
        """Return the sum of two signed numbers, each complemented where its bit is set, one bit wider than they are."""
        first, second = ((number.as_unsigned() ^ bit.replicate(len(number))).as_signed() for number, bit in (x, y))
        return first + second

    def add(self, m: Module, x: Value, y: Value, bits: int | None = None) -> Value:
        """Return the sum of two numbers, both signed or both unsigned, one bit wider than the wider of them.

        Parameters
        ----------
        bits: the lowest ones, if no more are wanted.
        """
        total = x + y
        return total if bits is None or bits == len(total) else total[:bits]

    def add_ands(self, m: Module, x: Sequence[Operand], y: Sequence[Operand]) -> Value:
        """Return the sum of two unsigned numbers of so many bits, each set where both signals of a pair are."""
        first, second = (Cat(bit & gate for bit, gate in number) for number in (x, y))
        return first + second

    def add_few(self, x: Value, y: Value, minus: bool = False) -> Value:
        """Return the sum, or the difference, of two numbers, for each of which there is one sum in a whole tree."""
        return x - y if minus else x + y

    def accumulate(self, m: Module, total: Value, more: Value, term: Value) -> Value:
        """Return a total and a term, or the term alone without `more`, modulo the bits of the total."""
        return Mux(more, total + term, term)

    def multiply(self, m: Module, unit: DspProducts) -> None:
        """Add registers and products, as DSP blocks have them."""
        for lane in range(unit.lanes):
            a, b = Signal(unit.a, reset_less=True), Signal(unit.b, reset_less=True)
            product = Signal(unit.product, reset_less=True)
            m.d.comb += unit.o[lane].eq(product)
            with m.If(unit.ce):
                m.d.sync += [a.eq(unit.i_a[lane]), b.eq(unit.i_b[lane]), product.eq(a * b)]

    def multiply_add(self, m: Module, unit: MultiplyAdd) -> None:
        """Add registers, a product and a sum, as a DSP block has them."""
        a, b = Signal.like(unit.a, reset_less=True), Signal.like(unit.b, reset_less=True)
        factor = b if unit.is_signed else b.as_unsigned()
        products = [Signal(unit.o.shape(), name=f"product_{index}", reset_less=True) for index in range(2)]
        addend = Signal.like(unit.addend, reset_less=True)
        with m.If(unit.ce):
            m.d.sync += [a.eq(unit.a), b.eq(unit.b), products[0].eq(a * factor), products[1].eq(products[0])]
            m.d.sync += [addend.eq(unit.addend), unit.o.eq(products[1] + addend)]

    def lookup_table(self, m: Module, name: str, content: int, index: Value) -> Value:
        """Add a table of 16 bits, read in the same cycle; return the bit.

        Parameters
        ----------
        name: of the cell, where there is one.
        content: bits, the first one lowest.
        index: 4 bits.
        """
        return Const(content, 16).bit_select(index, 1)

    def large_ram(self, m: Module, unit: LargeRam, word: Signal) -> None:
        """Add what large RAMs do: a write leaves another word than the one that was read."""
        m.submodules.memory = memory = Memory(shape=unsigned(unit.bits), depth=unit.depth, init=())
        writer, reader = memory.write_port(), memory.read_port()
        m.d.comb += [
            writer.en.eq(unit.write),
            writer.addr.eq(unit.addr),
            writer.data.eq(unit.i_data),
            reader.en.eq(unit.read | unit.write),
            reader.addr.eq(unit.addr),
            word.eq(reader.data),
        ]

    def large_rams(
        self, m: Module, addr: Value, i_data: Value, write: Value, select: Value, nibbles: Value | None = None
    ) -> Value:
        """Add large RAMs side by side; return the word that was read, there after the next edge until the next access.

        Parameters
        ----------
        addr, i_data: of the word; as many bits as whole RAMs have.
        write, select: a word is written; a word is read or written.
        nibbles: one bit for each four of the word: they are written; None: all.
        """
        raise NotImplementedError

    def pll(
        self, m: Module, settings: PllSettings, port: io.PortLike, clock: Signal, lock: Signal, source: str
    ) -> None:
        """Add what makes the clock.

        Parameters
        ----------
        port: the oscillator's pin.
        clock, lock: the clock, and whether it is good; both are driven.
        source: how the oscillator is wired, not 'none'; see `nnhw.boards.InputClock`.
        """
        raise NotImplementedError

    def flash_clock(self, m: Module, clk: Any) -> bool:
        """Add the cell through which user logic reaches the clock of the flash; return whether there is one."""
        return False


def gated(number: Value, gate: Value) -> Value:
    """Return the number or zero."""
    row = number.as_unsigned() & gate.replicate(len(number))
    return row.as_signed() if number.shape().signed else row


def bit_of(number: Value, index: int) -> Value:
    """Return a bit of a number, extended by its sign where it has one."""
    if index < len(number):
        return number[index]
    return number[-1] if number.shape().signed else Const(0, 1)


def extended(number: Value, bits: int) -> Value:
    """Return a number of so many bits, extended by its sign where it has one."""
    fill = number[-1] if number.shape().signed else Const(0, 1)
    return Cat(number, fill.replicate(bits - len(number)))
